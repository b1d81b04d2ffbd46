//! The common parts of the subcommands' reports.

use serde_json::Value;

/// Adds the fields of the object `part` to the object `whole`.
pub fn add_fields(whole: &mut Value, part: Value) {
    if let (Value::Object(whole), Value::Object(part)) = (whole, part) {
        whole.extend(part);
    }
}

/// Lays out rows. A column is as wide as its widest cell; columns are two spaces apart.
pub fn table(rows: &[Vec<String>]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let line = |row: &Vec<String>| {
        let cells = row.iter().enumerate();
        let padded = cells.map(|(column, cell)| {
            let width = width(column).unwrap_or(0);
            format!("{cell:width$}")
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The median; for an even number of values, the mean of the two in the middle. `None` for no values.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    Some(if values.len().is_multiple_of(2) { (values[middle - 1] + upper) / 2.0 } else { upper })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_of_values_is_the_mean_of_the_middle_two() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }
}
