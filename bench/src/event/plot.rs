//! Plots the throughput around the events, as SVG.

use std::path::Path;

use plotters::{chart::SeriesLabelPosition, style::RGBColor};

use super::{report::Report, result::SLICE_MS};
use crate::{
    chart::{Chart, Line},
    error::Error,
};

/// The colour of each side.
const COLOURS: [RGBColor; 2] = [RGBColor(8, 81, 156), RGBColor(241, 105, 19)];
/// The colour of the line that marks the event.
const MARK: RGBColor = RGBColor(150, 150, 150);

/// Writes the plot of a run: a line for each event, in the colour of its side.
///
/// # Errors
/// If the file cannot be written.
pub fn write(path: &Path, report: &Report) -> Result<(), Error> {
    let mut lines = Vec::new();
    for (side, colour) in report.sides.iter().zip(COLOURS) {
        for (nth, event) in side.events.iter().enumerate() {
            let (from_ms, slices) = event.slices();
            let points = slices.iter().enumerate().map(|(at, numbers)| {
                let ms = from_ms + (at as u64 * SLICE_MS) as i64;
                let per_second = *numbers as f64 * 1_000.0 / SLICE_MS as f64;
                (ms as f64 / 1_000.0, per_second)
            });
            lines.push(Line {
                label: (nth == 0).then(|| side.name.to_owned()),
                colour,
                points: points.collect(),
            });
        }
    }
    let points = || lines.iter().flat_map(|line| &line.points);
    let (first, last) =
        points().fold((0.0f64, 1.0f64), |(first, last), (x, _)| (first.min(*x), last.max(*x)));
    let highest = points().fold(1.0f64, |highest, (_, y)| highest.max(*y)) * 1.05;
    lines.push(Line {
        label: Some("the event begins".to_owned()),
        colour: MARK,
        points: vec![(0.0, 0.0), (0.0, highest)],
    });
    let chart = Chart {
        title: &report.title,
        x: ("seconds after the event began", first..last),
        y: "numbers a second",
        labels: SeriesLabelPosition::LowerRight,
    };
    chart.write(path, 0.0..highest, lines)
}
