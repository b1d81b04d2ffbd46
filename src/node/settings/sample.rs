//! Which part of the calls is traced.

use std::str::FromStr;

use serde::Deserialize;

/// The parts of 1 that are told apart.
const PARTS: u32 = 1_000_000;

/// A part of all calls, from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Given")]
pub struct Sample {
    millionths: u32,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "write a number from 0 to 1")]
enum Given {
    Whole(u32),
    Part(f64),
    Text(String),
}

impl Sample {
    /// One of a hundred calls.
    pub const DEFAULT: Sample = Sample { millionths: PARTS / 100 };

    fn of(part: f64) -> Result<Sample, String> {
        let millionths = (part * f64::from(PARTS)).round();
        let is_told_apart = part == 0.0 || millionths >= 1.0;
        match (0.0..=1.0).contains(&part) && is_told_apart {
            true => Ok(Sample { millionths: millionths as u32 }),
            false => Err(format!("{part} is no part of all calls: give 0, or 0.000001 to 1")),
        }
    }

    /// Whether a call belongs to it for which this was drawn.
    pub fn takes(self, drawn: u64) -> bool {
        let drawn = (u128::from(drawn) * u128::from(PARTS)) >> u64::BITS;
        drawn < u128::from(self.millionths)
    }
}

impl FromStr for Sample {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let part = text.trim().parse();
        Sample::of(part.map_err(|_| format!("{text:?} is no number; give one from 0 to 1"))?)
    }
}

impl TryFrom<Given> for Sample {
    type Error = String;

    fn try_from(given: Given) -> Result<Self, String> {
        match given {
            Given::Whole(part) => Sample::of(part.into()),
            Given::Part(part) => Sample::of(part),
            Given::Text(text) => text.parse(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_takes_its_part_of_what_is_drawn() {
        let takes = |text: &str, drawn| text.parse::<Sample>().expect("a sample").takes(drawn);
        let share = |part: u64| u64::MAX / 100 * part;
        assert_eq!([0, share(50), u64::MAX].map(|drawn| takes("0", drawn)), [false; 3]);
        assert_eq!([0, share(50), u64::MAX].map(|drawn| takes("1", drawn)), [true; 3]);
        let drawn = [0, share(24), share(26), u64::MAX].map(|drawn| takes("0.25", drawn));
        assert_eq!(drawn, [true, true, false, false]);
        assert_eq!("0.01".parse(), Ok(Sample::DEFAULT));
    }

    #[test]
    fn what_is_no_part_is_refused_with_its_value_in_a_file_as_well() {
        #[derive(Debug, Deserialize)]
        struct File {
            of: Sample,
        }
        for wrong in ["1.5", "-0.1", "NaN", "inf", "0.0000001", "2"] {
            let refused = wrong.parse::<Sample>().unwrap_err();
            assert!(refused.contains("is no part of all calls"), "{wrong}: {refused}");
        }
        assert!("all".parse::<Sample>().unwrap_err().contains("\"all\""));
        let in_file = |text: &str| toml::from_str::<File>(text).map(|file| file.of);
        for half in ["of = 0.5", "of = \"0.5\""] {
            assert_eq!(in_file(half).ok(), "0.5".parse().ok(), "{half}");
        }
        assert_eq!(in_file("of = 1").ok(), "1".parse().ok());
        assert!(in_file("of = 7").unwrap_err().to_string().contains("7 is no part"));
        assert!(in_file("of = true").is_err());
    }
}
