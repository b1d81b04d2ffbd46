//! Plots latency over time, as SVG.

use std::path::Path;

use plotters::{chart::SeriesLabelPosition, coord::combinators::IntoLogRange, style::RGBColor};

use super::report::Report;
use crate::{
    chart::{Chart, Line},
    error::Error,
};

const QUANTILES: [(f64, &str); 4] = [(0.5, "p50"), (0.99, "p99"), (0.999, "p99.9"), (1.0, "max")];
/// The colours of each side's quantiles, from light to dark.
const COLOURS: [[RGBColor; 4]; 2] = [
    [RGBColor(158, 202, 225), RGBColor(66, 146, 198), RGBColor(8, 81, 156), RGBColor(8, 48, 107)],
    [RGBColor(253, 174, 107), RGBColor(241, 105, 19), RGBColor(166, 54, 3), RGBColor(102, 37, 6)],
];

/// Writes the plot of a run.
///
/// # Errors
/// If the file cannot be written.
pub fn write(path: &Path, report: &Report) -> Result<(), Error> {
    let sides = || report.sides.0.iter();
    let longest = sides().map(|side| side.ticks().count()).max().unwrap_or(1);
    let highest = sides().flat_map(|side| side.ticks()).map(|tick| tick.max()).max();
    let millis_max = (highest.unwrap_or(1) as f64 / 1e6).max(1.0) * 1.5;
    // The maxima of two sides would hide everything else.
    let shown = if report.sides.0.len() > 1 { 3 } else { 4 };
    let mut lines = Vec::new();
    for (side, colours) in sides().zip(COLOURS) {
        for ((quantile, name), colour) in QUANTILES.into_iter().zip(colours).take(shown) {
            let points = side.ticks().enumerate().filter(|(_, tick)| !tick.is_empty());
            let points = points.map(|(at, tick)| {
                let millis = tick.value_at_quantile(quantile) as f64 / 1e6;
                (at as f64 / 10.0, millis.max(0.01))
            });
            lines.push(Line {
                label: Some(format!("{} {name}", side.label())),
                colour,
                points: points.collect(),
            });
        }
    }
    let chart = Chart {
        title: &report.title,
        x: ("seconds", 0.0..longest as f64 / 10.0),
        y: "latency, ms",
        // The scale leaves room below the latencies.
        labels: SeriesLabelPosition::LowerRight,
    };
    chart.write(path, (0.01..millis_max).log_scale(), lines)
}
