//! Plots latency over time, as SVG.

use std::path::Path;

use plotters::{
    chart::{ChartBuilder, SeriesLabelPosition},
    coord::combinators::IntoLogRange,
    drawing::IntoDrawingArea,
    element::PathElement,
    series::LineSeries,
    style::{Color, RGBColor, WHITE},
};

use super::report::Report;
use crate::error::Error;

/// Width and height of the plot, in pixels.
const SIZE: (u32, u32) = (1_000, 480);
const QUANTILES: [(f64, &str); 4] = [(0.5, "p50"), (0.99, "p99"), (0.999, "p99.9"), (1.0, "max")];
/// The colours of each side's quantiles, from light to dark.
const COLOURS: [[RGBColor; 4]; 2] = [
    [
        RGBColor(158, 202, 225),
        RGBColor(66, 146, 198),
        RGBColor(8, 81, 156),
        RGBColor(8, 48, 107),
    ],
    [
        RGBColor(253, 174, 107),
        RGBColor(241, 105, 19),
        RGBColor(166, 54, 3),
        RGBColor(102, 37, 6),
    ],
];

/// Writes the plot of a run.
///
/// # Errors
/// If the file cannot be written.
pub fn write(path: &Path, report: &Report) -> Result<(), Error> {
    let mut svg = String::new();
    draw(&mut svg, report).map_err(|error| Error::other(format!("the plot: {error}")))?;
    std::fs::write(path, svg)
        .map_err(|error| Error::other(format!("cannot write {}: {error}", path.display())))
}

fn draw(svg: &mut String, report: &Report) -> Result<(), Box<dyn std::error::Error>> {
    let sides = || report.sides.iter();
    let longest = sides().map(|side| side.ticks().count()).max().unwrap_or(1);
    let seconds = longest as f64 / 10.0;
    let highest = sides()
        .flat_map(|side| side.ticks())
        .map(|tick| tick.max())
        .max();
    let millis_max = (highest.unwrap_or(1) as f64 / 1e6).max(1.0) * 1.5;
    let area = plotters::backend::SVGBackend::with_string(svg, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(&report.title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..seconds, (0.01..millis_max).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("seconds")
        .y_desc("latency, ms")
        .light_line_style(WHITE)
        .draw()?;
    // The maxima of two sides would hide everything else.
    let shown = if report.sides.len() > 1 { 3 } else { 4 };
    for (side, colours) in sides().zip(COLOURS) {
        for ((quantile, name), colour) in QUANTILES.into_iter().zip(colours).take(shown) {
            let points = side
                .ticks()
                .enumerate()
                .filter(|(_, tick)| !tick.is_empty());
            let points = points.map(|(at, tick)| {
                let millis = tick.value_at_quantile(quantile) as f64 / 1e6;
                (at as f64 / 10.0, millis.max(0.01))
            });
            chart
                .draw_series(LineSeries::new(points, &colour))?
                .label(format!("{} {name}", side.name))
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour));
        }
    }
    chart
        .configure_series_labels()
        // The scale leaves room below the latencies.
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.8))
        .border_style(RGBColor(200, 200, 200))
        .draw()?;
    area.present()?;
    Ok(())
}
