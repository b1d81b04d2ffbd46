//! The names of things on the command line.

use clap::ValueEnum;

/// A variant's name.
pub fn value(variant: impl ValueEnum) -> String {
    let possible = variant.to_possible_value();
    possible.map_or_else(String::new, |possible| possible.get_name().to_owned())
}
