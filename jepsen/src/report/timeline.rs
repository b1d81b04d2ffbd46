//! The timeline of a run as SVG: throughput, latency, leaders and faults over time.

use std::fmt::Write as _;

use super::text::escape;
use crate::result::Run;

const WIDTH: f64 = 1_100.0;
const LEFT: f64 = 70.0;
const BUCKETS: usize = 220;
const BAND: &str = "#f5c6cb";
const COLOURS: [&str; 9] = [
    "#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#b07aa1", "#76b7b2", "#edc948", "#9c755f",
    "#bab0ac",
];

#[derive(Default, Clone)]
struct Bucket {
    answered: u64,
    failed: u64,
    latencies: Vec<u64>,
}

pub struct Scale {
    pub end_ns: u64,
}

impl Scale {
    fn x(&self, ns: u64) -> f64 {
        LEFT + (WIDTH - LEFT) * ns as f64 / self.end_ns as f64
    }

    fn bucket(&self, ns: u64) -> usize {
        ((ns as u128 * BUCKETS as u128 / u128::from(self.end_ns)) as usize).min(BUCKETS - 1)
    }
}

pub fn timeline(run: &Run, scale: &Scale) -> String {
    let buckets = buckets(run, scale);
    let mut nodes: Vec<u64> = run.leaderships.iter().map(|leadership| leadership.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let (top, rate_height, latency_height, row) = (20.0, 140.0, 140.0, 16.0);
    let latency_top = top + rate_height + 30.0;
    let leader_top = latency_top + latency_height + 30.0;
    let bottom = leader_top + row * nodes.len() as f64 + 10.0;
    let mut svg = format!(
        "<svg viewBox='0 0 {WIDTH} {}' width='100%' role='img' aria-label='timeline'>",
        bottom + 20.0
    );
    for fault in &run.faults {
        let (x, to) = (scale.x(fault.from_ns), scale.x(fault.to_ns));
        let _ = write!(
            svg,
            "<rect x='{x:.1}' y='{top}' width='{:.1}' height='{:.1}' fill='{BAND}' \
             fill-opacity='.55'><title>{:?}: {}</title></rect>",
            (to - x).max(1.0),
            bottom - top,
            fault.nemesis,
            escape(&fault.description)
        );
    }
    svg.push_str(&rates(&buckets, scale, top, rate_height));
    svg.push_str(&latencies(&buckets, latency_top, latency_height));
    svg.push_str(&leaders(run, &nodes, scale, leader_top, row));
    svg.push_str(&time_axis(scale, bottom));
    svg.push_str("</svg>");
    svg
}

/// One row for each node, with a bar for each time that it led.
fn leaders(run: &Run, nodes: &[u64], scale: &Scale, leader_top: f64, row: f64) -> String {
    let mut svg = String::new();
    let _ = write!(svg, "<text x='0' y='{:.1}'>leader</text>", leader_top - 4.0);
    for leadership in &run.leaderships {
        let at = nodes.iter().position(|node| *node == leadership.node).unwrap_or(0);
        let (x, y) = (scale.x(leadership.from_ns), leader_top + row * at as f64);
        let _ = write!(
            svg,
            "<rect x='{x:.1}' y='{y:.1}' width='{:.1}' height='{:.1}' fill='{}'/>",
            (scale.x(leadership.to_ns) - x).max(1.5),
            row - 3.0,
            COLOURS[leadership.node as usize % COLOURS.len()]
        );
    }
    for (at, node) in nodes.iter().enumerate() {
        let y = leader_top + row * at as f64 + 11.0;
        let _ = write!(svg, "<text x='{}' y='{y:.1}'>node {node}</text>", LEFT - 50.0);
    }
    svg
}

fn time_axis(scale: &Scale, bottom: f64) -> String {
    let mut svg = String::new();
    for tenth in 0..=10 {
        let ns = scale.end_ns / 10 * tenth;
        let _ = write!(
            svg,
            "<text x='{:.1}' y='{:.1}' text-anchor='middle'>{:.0} s</text>",
            scale.x(ns).min(WIDTH - 14.0),
            bottom + 14.0,
            ns as f64 / 1e9
        );
    }
    svg
}

fn buckets(run: &Run, scale: &Scale) -> Vec<Bucket> {
    let mut buckets = vec![Bucket::default(); BUCKETS];
    for op in &run.history.ops {
        let bucket = &mut buckets[scale.bucket(op.returned_ns.unwrap_or(op.invoked_ns))];
        if op.is_ok() {
            bucket.answered += 1;
            bucket.latencies.push(op.returned() - op.invoked_ns);
        } else {
            bucket.failed += 1;
        }
    }
    for bucket in &mut buckets {
        bucket.latencies.sort_unstable();
    }
    buckets
}

fn polyline(points: impl Iterator<Item = (f64, f64)>, colour: &str) -> String {
    let points: Vec<String> = points.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    format!(
        "<polyline points='{}' fill='none' stroke='{colour}' stroke-width='1.3'/>",
        points.join(" ")
    )
}

fn middle(at: usize) -> f64 {
    LEFT + (WIDTH - LEFT) * (at as f64 + 0.5) / BUCKETS as f64
}

fn rates(buckets: &[Bucket], scale: &Scale, top: f64, height: f64) -> String {
    let second = scale.end_ns as f64 / BUCKETS as f64 / 1e9;
    let rate = |count: u64| count as f64 / second;
    let counts = buckets.iter().map(|bucket| bucket.answered.max(bucket.failed));
    let most = rate(counts.max().unwrap_or(1).max(1));
    let y = |count: u64| top + height * (1.0 - rate(count) / most);
    let line = |of: fn(&Bucket) -> u64, colour| {
        polyline(buckets.iter().enumerate().map(|(at, b)| (middle(at), y(of(b)))), colour)
    };
    format!(
        "<text x='0' y='{:.1}'>calls/s: answered (blue), not (red); top {most:.0}</text>{}{}",
        top - 6.0,
        line(|bucket| bucket.answered, "#1f4e8c"),
        line(|bucket| bucket.failed, "#c62828"),
    )
}

/// Draws latencies on a logarithmic scale, from 10 microseconds to 10 seconds.
fn latencies(buckets: &[Bucket], top: f64, height: f64) -> String {
    let y = |ns: u64| {
        let decades = ((ns.max(10_000) as f64).log10() - 4.0) / 6.0;
        top + height * (1.0 - decades.min(1.0))
    };
    let mut svg = format!(
        "<text x='0' y='{:.1}'>latency of answers: median (green), 99th percentile (orange)</text>",
        top - 6.0
    );
    for (decade, label) in ["10 us", "100 us", "1 ms", "10 ms", "100 ms", "1 s"].iter().enumerate()
    {
        let at = y(10_u64.pow(4 + decade as u32));
        let _ = write!(
            svg,
            "<line x1='{LEFT}' x2='{WIDTH}' y1='{at:.1}' y2='{at:.1}' stroke='#ddd'/>\
             <text x='{}' y='{:.1}' text-anchor='end'>{label}</text>",
            LEFT - 6.0,
            at + 4.0
        );
    }
    for (share, colour) in [(0.5, "#2e7d32"), (0.99, "#f28e2b")] {
        let seen = buckets.iter().enumerate().filter(|(_, b)| !b.latencies.is_empty());
        let points = seen.map(|(at, bucket)| {
            let which = ((bucket.latencies.len() - 1) as f64 * share) as usize;
            (middle(at), y(bucket.latencies[which]))
        });
        svg.push_str(&polyline(points, colour));
    }
    svg
}
