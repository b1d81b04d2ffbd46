//! The report of a run: one HTML page that needs nothing else.

use std::fmt::Write as _;

use super::{
    text::escape,
    timeline::{Scale, timeline},
};
use crate::{
    finding::Violation,
    nemesis::Fault,
    result::Run,
    verdict::{Verdict, VerdictKind},
};

const STYLE: &str = "
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 1200px; color: #222; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.verdict { display: inline-block; padding: .2rem .8rem; border-radius: .4rem; color: #fff; }
.pass { background: #2e7d32; } .violation { background: #c62828; }
.unknown { background: #b26a00; } .error { background: #555; }
table { border-collapse: collapse; } td, th { padding: .2rem .8rem .2rem 0; text-align: left;
  vertical-align: top; border-bottom: 1px solid #eee; }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
pre { background: #f6f6f6; padding: .8rem; overflow-x: auto; }
svg text { font: 11px system-ui, sans-serif; fill: #444; }";

/// The whole page.
pub fn html(run: &Run) -> String {
    let ends = run.history.ops.iter().filter_map(|op| op.returned_ns);
    let scale = Scale { end_ns: ends.max().unwrap_or(1).max(1) };
    let mut page = String::new();
    let title = format!("Ratchet under {:?}", run.options.nemesis);
    // Writing to a string does not fail.
    let _ = write!(
        page,
        "<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title><style>{STYLE}\
         </style><h1>{title} {}</h1>{}{}<h2>Timeline</h2>{}<h2>Faults</h2>{}<h2>Repeat it</h2>\
         <pre>{}</pre></html>",
        badge(&run.verdict),
        reasons(&run.verdict),
        figures(run),
        timeline(run, &scale),
        faults(&run.faults),
        escape(&run.options.replay),
    );
    page
}

fn badge(verdict: &Verdict) -> String {
    let class = match verdict.kind() {
        VerdictKind::Pass => "pass",
        VerdictKind::Violation => "violation",
        VerdictKind::Unknown => "unknown",
        VerdictKind::HarnessError => "error",
    };
    format!("<span class='verdict {class}'>{}</span>", verdict.kind().word())
}

fn reasons(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Pass => String::new(),
        other => format!("<pre>{}</pre>", escape(&other.to_string())),
    }
}

fn figures(run: &Run) -> String {
    let (cluster, summary) = (&run.options.cluster, &run.summary);
    let rows = [
        ("operations answered, and their keys", format!("{}, {}", summary.answered, summary.keys)),
        ("of those, through", summary.answered_through()),
        ("of unknown outcome", summary.unknown.to_string()),
        ("certainly not done", summary.failed.to_string()),
        ("leader changes seen", summary.leader_changes.to_string()),
        ("longest time without an answer", format!("{} ms", summary.longest_outage_ms)),
        (
            "faults, and those that took effect",
            format!("{}, {}", summary.faults, summary.took_effect),
        ),
        ("workload", format!("{:?}, {} callers", run.options.workload, run.options.callers)),
        (
            "nodes, fence, step",
            format!("{}, {:?}, {}", cluster.nodes, cluster.fence, run.options.step),
        ),
        ("own network; disks that fail", format!("{}; {}", cluster.isolated, cluster.faulty_disks)),
        ("seed", cluster.seed.to_string()),
    ];
    let ids = summary.ids.iter().map(|ids| ("ids", escape(&ids.to_string())));
    let rows = Vec::from_iter(
        rows.into_iter()
            .chain(ids)
            .map(|(what, value)| format!("<tr><td>{what}<td class=n>{value}")),
    );
    format!("<h2>Coverage</h2><table>{}</table>", rows.concat())
}

fn faults(faults: &[Fault]) -> String {
    let rows: Vec<String> = faults
        .iter()
        .map(|fault| {
            format!(
                "<tr><td class=n>{:.2} s<td class=n>{:.2} s<td>{:?}<td>{}<td>{}<td>{}",
                fault.from_ns as f64 / 1e9,
                fault.to_ns as f64 / 1e9,
                fault.nemesis,
                escape(&fault.description),
                if fault.took_effect { "took effect" } else { "not seen to take effect" },
                escape(&told(&fault.violations)),
            )
        })
        .collect();
    format!(
        "<table><tr><th>from<th>to<th>fault<th>what<th>effect<th>violation{}</table>",
        rows.concat()
    )
}

fn told(violations: &[Violation]) -> String {
    let texts: Vec<&str> = violations.iter().map(|violation| &violation.text[..]).collect();
    texts.join("; ")
}
