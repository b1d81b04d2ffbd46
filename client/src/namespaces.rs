//! Numbers the namespaces, so that a request carries a small id and not a name.

use std::sync::Arc;

use arc_swap::ArcSwap;
use hashbrown::HashMap;

/// The id of a namespace within one client.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NamespaceId(u32);

/// The ids of all namespaces that the client has used. Clones share them.
#[derive(Clone, Default)]
pub struct Namespaces(Arc<ArcSwap<Interned>>);

#[derive(Clone, Default)]
struct Interned {
    ids: HashMap<Arc<str>, NamespaceId>,
    /// The name of each id.
    names: Vec<Arc<str>>,
}

impl Namespaces {
    /// The id of a namespace: the same for as long as the client lives.
    pub fn intern(&self, name: &str) -> NamespaceId {
        if let Some(&id) = self.0.load().ids.get(name) {
            return id;
        }
        self.0.rcu(|interned| {
            let mut interned = Interned::clone(interned);
            if !interned.ids.contains_key(name) {
                let name: Arc<str> = name.into();
                let id = NamespaceId(interned.names.len() as u32);
                interned.ids.insert(name.clone(), id);
                interned.names.push(name);
            }
            interned
        });
        self.intern(name)
    }

    /// The name of the namespace with this id.
    pub fn name_of(&self, id: NamespaceId) -> String {
        let interned = self.0.load();
        let name = interned.names.get(id.0 as usize);
        name.expect("an id comes from `intern`").to_string()
    }
}
