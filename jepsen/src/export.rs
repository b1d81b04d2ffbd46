//! Histories for other checkers: Jepsen's EDN, and JSON.

use std::io::{self, Write};

use crate::history::{Action, History, Op, Outcome};

/// An invocation or a return.
struct Event<'a> {
    at: u64,
    op: &'a Op,
    returned: bool,
}

/// All events by time. At the same instant, invocations come first.
fn events(history: &History) -> Vec<Event<'_>> {
    let mut events = Vec::with_capacity(2 * history.ops.len());
    for op in &history.ops {
        events.push(Event { at: op.invoked_ns, op, returned: false });
        if let Some(at) = op.returned_ns {
            let returned = true;
            events.push(Event { at, op, returned });
        }
    }
    events.sort_by_key(|event| (event.at, event.returned));
    events
}

fn kind(event: &Event<'_>) -> &'static str {
    match (event.returned, event.op.outcome) {
        (false, _) => "invoke",
        (true, Outcome::Ok) => "ok",
        (true, Outcome::Fail) => "fail",
        (true, Outcome::Info) => "info",
    }
}

/// Writes one Jepsen operation a line: `:value` is `[key, count]` when asked and
/// `[key, [first last]]` when answered (`:current` answers `[key, number]`).
///
/// # Errors
/// The writer fails.
pub fn edn(history: &History, out: &mut impl Write) -> io::Result<()> {
    for (index, event) in events(history).iter().enumerate() {
        let op = event.op;
        let answered = event.returned && op.outcome == Outcome::Ok;
        let (function, value) = match (op.action, answered) {
            (Action::Next { count }, false) => ("next", count.to_string()),
            (Action::Next { .. }, true) => ("next", format!("[{} {}]", op.first, op.last)),
            (Action::Current, false) => ("current", "nil".to_owned()),
            (Action::Current, true) => ("current", op.last.to_string()),
            (Action::Raise { floor }, false) => ("raise", floor.to_string()),
            (Action::Raise { .. }, true) => ("raise", op.last.to_string()),
        };
        writeln!(
            out,
            "{{:index {index}, :time {}, :process {}, :type :{}, :f :{function}, :value [{:?} \
             {value}], :node {}, :interface :{}{}}}",
            event.at,
            op.process,
            kind(event),
            op.key,
            op.node,
            op.interface.name(),
            if event.returned && !op.note.is_empty() {
                format!(", :error {:?}", op.note)
            } else {
                String::new()
            },
        )?;
    }
    Ok(())
}

/// Writes the whole history as one JSON object.
///
/// # Errors
/// The writer fails.
pub fn json(history: &History, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer(out, history).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Interface;

    #[test]
    fn an_operation_becomes_two_events_and_an_unanswered_one_says_why() {
        let op = |outcome, note: &str| Op {
            process: 3,
            key: "own/1".to_owned(),
            action: Action::Next { count: 2 },
            invoked_ns: 10,
            returned_ns: Some(20),
            outcome,
            first: 5,
            last: 6,
            node: 1,
            interface: Interface::Http,
            note: note.to_owned(),
        };
        let ops = vec![op(Outcome::Ok, ""), op(Outcome::Info, "a \"gap\"")];
        let mut out = Vec::new();
        edn(&History { ops }, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        assert_eq!(
            lines[2],
            "{:index 2, :time 20, :process 3, :type :ok, :f :next, :value [\"own/1\" [5 6]], :node 1, \
             :interface :http}"
        );
        assert!(lines[3].contains(":type :info") && lines[3].contains("a \\\"gap\\\""));
    }
}
