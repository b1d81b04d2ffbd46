//! Reads a node's metrics in the OpenMetrics text format.

use std::collections::BTreeMap;

/// A metric: its description and its samples.
#[derive(Debug, Default, PartialEq)]
pub struct Family {
    pub help: String,
    pub kind: String,
    pub unit: Option<String>,
    /// The values, by the name with labels before each of them.
    pub samples: BTreeMap<String, f64>,
}

/// Reads the whole text, by metric. Fails where the text does not keep to the format.
pub fn parse(text: &str) -> BTreeMap<String, Family> {
    let text = text.strip_suffix("# EOF\n").expect("an end");
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some(about) = line.strip_prefix("# ") {
            let (what, rest) = about.split_once(' ').expect(line);
            let (name, told) = rest.split_once(' ').expect(line);
            if name != current {
                let fresh = families.insert(name.to_owned(), Family::default());
                assert!(fresh.is_none(), "{name} comes twice");
                current = name.to_owned();
            }
            let family = families.get_mut(name).unwrap();
            assert!(family.samples.is_empty(), "{line} comes after samples");
            let field = match what {
                "HELP" => &mut family.help,
                "TYPE" => &mut family.kind,
                "UNIT" => family.unit.get_or_insert_default(),
                _ => panic!("{line}"),
            };
            assert!(field.is_empty(), "{line} comes twice");
            told.clone_into(field);
            continue;
        }
        let (sample, value) = line.rsplit_once(' ').expect(line);
        let family = families.get_mut(&current).expect("a family first");
        let name = sample.split('{').next().unwrap();
        let end = name.strip_prefix(current.as_str()).expect(line);
        let ends: &[&str] = match family.kind.as_str() {
            "counter" => &["_total"],
            "gauge" => &[""],
            "info" => &["_info"],
            "histogram" => &["_sum", "_count", "_bucket"],
            kind => panic!("{current} is of kind {kind:?}"),
        };
        assert!(ends.contains(&end), "{line}");
        let value = value.parse().unwrap_or_else(|_| panic!("{line}"));
        let twice = family.samples.insert(sample.to_owned(), value);
        assert!(twice.is_none(), "{sample} comes twice");
    }
    families
}

/// The value of one sample.
pub fn value(metrics: &BTreeMap<String, Family>, sample: &str) -> f64 {
    let samples = metrics.values().flat_map(|family| &family.samples);
    let mut found = samples.filter(|(name, _)| *name == sample);
    *found.next().unwrap_or_else(|| panic!("no {sample}")).1
}
