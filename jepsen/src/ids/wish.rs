//! The request of one call. Pure.

use rand::{RngExt, rngs::StdRng};

use super::namespace::{ALL, IdNamespace, PLAIN};

/// The request of one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// The place of the namespace among `ALL`.
    pub place: usize,
    /// The namespace.
    pub namespace: &'static IdNamespace,
    /// The key, where ids have one.
    pub key: Option<u64>,
    /// A value for each of the namespace's parameters.
    pub parameters: Vec<u64>,
    /// How many ids.
    pub count: u32,
    /// Whether ids that fit a number are to be written as their format does.
    pub as_text: bool,
}

impl Wish {
    /// Any wish.
    pub fn draw(rng: &mut StdRng) -> Wish {
        let place = rng.random_range(0..ALL.len());
        Wish::of(place, rng)
    }

    /// A wish for ids of one namespace, by its place.
    pub fn of(place: usize, rng: &mut StdRng) -> Wish {
        let namespace = &ALL[place];
        let parameters = namespace.parameters.iter();
        let count = match rng.random_range(0..40) {
            0 => rng.random_range(1..=namespace.count_max),
            1..10 => rng.random_range(1..=namespace.count_max.min(20)),
            _ => 1,
        };
        Wish {
            place,
            namespace,
            key: (namespace.keys > 0).then(|| rng.random_range(0..namespace.keys)),
            parameters: parameters.map(|(_, below)| rng.random_range(0..*below)).collect(),
            count,
            as_text: rng.random_bool(0.5),
        }
    }

    /// One id of [`PLAIN`].
    pub fn plain() -> Wish {
        let place = ALL.iter().position(|namespace| namespace.name == PLAIN);
        let place = place.unwrap_or(0);
        Wish {
            place,
            namespace: &ALL[place],
            key: None,
            parameters: Vec::new(),
            count: 1,
            as_text: false,
        }
    }

    /// The names of the parameters, and their values.
    pub fn named_parameters(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let names = self.namespace.parameters.iter().map(|(name, _)| *name);
        names.zip(self.parameters.iter().copied())
    }
}
