//! Numbers the namespaces, so that a request carries a small number and not a name.

use std::sync::Arc;

use arc_swap::ArcSwap;
use hashbrown::HashMap;

/// The number of a namespace within one client. It is none of the ids that the cluster gives.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub struct InternedNamespace(u32);

/// The numbers of all namespaces that the client has used. Clones share them.
#[derive(Clone, Default)]
pub struct Namespaces(Arc<ArcSwap<Interned>>);

#[derive(Clone, Default)]
struct Interned {
    numbers: HashMap<Arc<str>, InternedNamespace>,
    /// The name of each number.
    names: Vec<Arc<str>>,
}

impl Namespaces {
    /// The number of a namespace: the same for as long as the client lives.
    pub fn intern(&self, name: &str) -> InternedNamespace {
        if let Some(&number) = self.0.load().numbers.get(name) {
            return number;
        }
        self.0.rcu(|interned| {
            let mut interned = Interned::clone(interned);
            if !interned.numbers.contains_key(name) {
                let name: Arc<str> = name.into();
                let number = InternedNamespace(interned.names.len() as u32);
                interned.numbers.insert(name.clone(), number);
                interned.names.push(name);
            }
            interned
        });
        self.intern(name)
    }

    /// The name of the namespace with this number.
    pub fn name_of(&self, number: InternedNamespace) -> String {
        let interned = self.0.load();
        let name = interned.names.get(number.0 as usize);
        name.expect("a number comes from `intern`").to_string()
    }
}
