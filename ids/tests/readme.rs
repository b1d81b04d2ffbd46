//! The README's table of built-in formats is true.

use ratchet_ids::Format;

#[test]
fn the_readme_has_a_row_for_each_built_in_format() {
    let readme = include_str!("../README.md");
    let (_, table) = readme.split_once("## Built-in formats").unwrap();
    let (table, _) = table.split_once("\n## ").unwrap();
    let mut names = Vec::new();
    for row in table.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let name = cells[1].trim_matches('`');
        let format = Format::parse(name).unwrap();
        if let Some(id) = cells[2].split('`').nth(1) {
            assert!(format.decode(id).is_ok(), "{row}");
        }
        let digits = |text: &str| {
            let digits = text.chars().filter(char::is_ascii_digit);
            digits.collect::<String>().parse::<u64>().ok()
        };
        let workers = digits(cells[3]).unwrap_or(0);
        assert_eq!(workers, format.workers_max(), "{row}");
        assert_eq!(digits(cells[4]), Some(format.capacity()), "{row}");
        let unit = match format.tick_ms() {
            1 => "a millisecond",
            1_000 => "a second",
            _ => "for each key",
        };
        assert!(cells[4].ends_with(unit), "{row}");
        let last = format.date_time(format.last_ms()).date().to_string();
        assert_eq!(cells[5], last, "{row}");
        names.push(name);
    }
    let all: Vec<&str> = Format::built_in().map(|(name, _)| name).collect();
    assert_eq!(names, all);
}
