//! Draws lines over time, as SVG.

use std::{ops::Range, path::Path};

use plotters::{
    chart::{ChartBuilder, SeriesLabelPosition},
    coord::ranged1d::{AsRangedCoord, ValueFormatter},
    drawing::IntoDrawingArea,
    element::PathElement,
    series::LineSeries,
    style::{Color, RGBColor, WHITE},
};

use crate::error::Error;

/// Width and height of a chart, in pixels.
const SIZE: (u32, u32) = (1_000, 480);

/// A chart without its lines.
pub struct Chart<'a> {
    pub title: &'a str,
    /// The quantity on the horizontal axis, and its range.
    pub x: (&'a str, Range<f64>),
    /// The quantity on the vertical axis.
    pub y: &'a str,
    pub labels: SeriesLabelPosition,
}

/// A line of a chart.
pub struct Line {
    /// Its label; `None` for a line that belongs to the labelled one before it.
    pub label: Option<String>,
    pub colour: RGBColor,
    pub points: Vec<(f64, f64)>,
}

impl Chart<'_> {
    /// Writes the chart with `lines` to a file. `scale` is the vertical axis.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write<Y>(&self, path: &Path, scale: Y, lines: Vec<Line>) -> Result<(), Error>
    where
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let mut svg = String::new();
        (self.draw(&mut svg, scale, lines))
            .map_err(|error| Error::other(format!("the plot: {error}")))?;
        std::fs::write(path, svg)
            .map_err(|error| Error::other(format!("cannot write {}: {error}", path.display())))
    }

    fn draw<Y>(
        &self, svg: &mut String, scale: Y, lines: Vec<Line>,
    ) -> Result<(), Box<dyn std::error::Error>>
    where
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let area = plotters::backend::SVGBackend::with_string(svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let (x_desc, x_range) = self.x.clone();
        let mut chart = ChartBuilder::on(&area)
            .caption(self.title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(36)
            .y_label_area_size(88)
            .build_cartesian_2d(x_range, scale)?;
        chart.configure_mesh().x_desc(x_desc).y_desc(self.y).light_line_style(WHITE).draw()?;
        for Line { label, colour, points } in lines {
            let drawn = chart.draw_series(LineSeries::new(points, &colour))?;
            if let Some(label) = label {
                drawn
                    .label(label)
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour));
            }
        }
        chart
            .configure_series_labels()
            .position(self.labels.clone())
            .background_style(WHITE.mix(0.8))
            .border_style(RGBColor(200, 200, 200))
            .draw()?;
        area.present()?;
        Ok(())
    }
}
