//! A small chart of the last two minutes: a line, without axes.

use maud::{Markup, html};

use crate::node::SECONDS_KEPT;

/// The height of the drawing, in its own units.
const HEIGHT: f64 = 40.0;

/// A chart of a value of each second, the latest one last; `None` where there is none. `write` writes a value.
pub fn chart(name: &str, values: &[Option<f64>], write: impl Fn(f64) -> String) -> Markup {
    let most = values.iter().flatten().copied().fold(0.0, f64::max);
    let now = match values.last().copied().flatten() {
        Some(value) => write(value),
        None => "none".to_owned(),
    };
    let in_words = format!(
        "{name}: {now} in the last second, at most {} in the last two minutes",
        write(most)
    );
    html! {
        div.chart {
            h3 { (name) }
            p { (now) }
            svg viewBox={ "0 0 " (SECONDS_KEPT - 1) " " (HEIGHT) } preserveAspectRatio="none" role="img"
                aria-label=(in_words) { path d=(line(values, most)) {} }
        }
    }
}

/// The line as an SVG path. A second without a value interrupts it.
fn line(values: &[Option<f64>], most: f64) -> String {
    let left = SECONDS_KEPT.saturating_sub(values.len());
    let mut path = String::new();
    let mut is_drawing = false;
    for (place, value) in values.iter().enumerate() {
        let Some(value) = value else {
            is_drawing = false;
            continue;
        };
        let share = if most > 0.0 { value / most } else { 0.0 };
        let (x, y) = (left + place, (HEIGHT - 1.0) - share * (HEIGHT - 2.0));
        let step = if is_drawing { 'L' } else { 'M' };
        path.push_str(&format!("{step}{x} {y:.1}"));
        is_drawing = true;
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_value_is_at_the_right_the_greatest_at_the_top_and_a_gap_is_a_gap() {
        let path = line(&[Some(1.0), None, Some(0.0), Some(2.0)], 2.0);
        assert_eq!(path, "M116 20.0M118 39.0L119 1.0");
    }

    #[test]
    fn a_chart_says_in_words_what_it_draws() {
        let chart = chart("numbers a second", &[Some(3.0), Some(2.0)], |n| n.to_string());
        let chart = chart.into_string();
        let words = "numbers a second: 2 in the last second, at most 3 in the last two minutes";
        assert!(chart.contains(words), "{chart}");
    }
}
