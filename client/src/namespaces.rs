//! The namespaces by number.

use std::sync::Arc;

use arc_swap::ArcSwap;
use hashbrown::HashMap;

/// The namespaces by number, so that a request need not carry a name.
#[derive(Clone, Default)]
pub struct Names(Arc<ArcSwap<Known>>);

#[derive(Clone, Default)]
struct Known {
    numbers: HashMap<Arc<str>, u32>,
    names: Vec<Arc<str>>,
}

impl Names {
    /// The number of a namespace: the same for as long as the client lives.
    pub fn number_of(&self, name: &str) -> u32 {
        if let Some(&number) = self.0.load().numbers.get(name) {
            return number;
        }
        self.0.rcu(|known| {
            let mut known = Known::clone(known);
            if !known.numbers.contains_key(name) {
                let name: Arc<str> = name.into();
                known.numbers.insert(name.clone(), known.names.len() as u32);
                known.names.push(name);
            }
            known
        });
        self.number_of(name)
    }

    /// The namespace of a number.
    pub fn name_of(&self, number: u32) -> String {
        let known = self.0.load();
        let name = known.names.get(number as usize);
        name.map(ToString::to_string).unwrap_or_default()
    }
}
