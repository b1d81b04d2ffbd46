//! Names that MySQL, where other generators keep their tables, takes for one, and that are several keys here: they differ by
//! capitals or by blanks at their end alone. They are told, and are no fault.
//!
//! They are names of the file, or a name of the file and a key that a setting of a server names: its clients would begin
//! at a key without numbers, beside the one that is imported.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hasher},
};

use ratchet_client::{Key, api::MappedKey};

use super::rows::written;

/// The part of a name that MySQL compares.
fn compared(name: &[u8]) -> Vec<u8> {
    let blanks = name.iter().rev().take_while(|byte| **byte == b' ').count();
    let name = &name[..name.len() - blanks];
    match str::from_utf8(name) {
        Ok(text) => text.to_lowercase().into_bytes(),
        Err(_) => name.to_ascii_lowercase(),
    }
}

/// A hash of what MySQL compares of a key. `None` for an id, which is like no other.
pub fn likeness(key: &Key) -> Option<u64> {
    match key {
        Key::Id(_) => None,
        Key::Name(name) => Some(hashed(&compared(name))),
    }
}

/// A hash of a name.
pub fn hashed(name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(name);
    hasher.finish()
}

/// The keys that a server's settings name for clients of other generators, found by what is like them.
#[derive(Debug, Clone, Default)]
pub struct MappedKeys(HashMap<Vec<u8>, Vec<MappedKey>>);

impl MappedKeys {
    /// Of those keys of a namespace.
    pub fn new(keys: Vec<MappedKey>) -> Self {
        let mut alike: HashMap<_, Vec<MappedKey>> = HashMap::new();
        for key in keys {
            alike.entry(compared(key.key.as_bytes())).or_default().push(key);
        }
        MappedKeys(alike)
    }

    /// The warning about a key of the file that is like a mapped one, and is none.
    pub fn beside(&self, key: &Key) -> Option<String> {
        let Key::Name(name) = key else { return None };
        if self.0.is_empty() {
            return None;
        }
        let alike = self.0.get(&compared(name))?;
        let is_mapped = alike.iter().any(|mapped| mapped.key.as_bytes() == &name[..]);
        let MappedKey { setting, name: asked, key: mapped, .. } = alike.first()?;
        (!is_mapped).then(|| {
            format!(
                "key {} differs by capitals or blanks at its end alone from '{mapped}', which {setting} maps '{asked}' to: its \
                 clients will not get what is imported here; write both the same",
                written(key)
            )
        })
    }
}

/// Names of a file that may be alike, by their likeness, and those that were seen of them, with their lines.
#[derive(Debug)]
pub struct Alike(HashMap<u64, Vec<(Key, u64)>>);

impl Alike {
    /// Of names with these likenesses.
    pub fn new(likenesses: impl IntoIterator<Item = u64>) -> Self {
        Alike(likenesses.into_iter().map(|likeness| (likeness, Vec::new())).collect())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The warning about the key on a line: another key, on an earlier line, is like it.
    pub fn beside(&mut self, key: &Key, line: u64) -> Option<String> {
        let seen = self.0.get_mut(&likeness(key)?)?;
        if seen.iter().any(|(other, _)| other == key) {
            return None;
        }
        let told = seen.first().map(|(other, on)| {
            let (key, other) = (written(key), written(other));
            format!(
                "key {key} differs by capitals or blanks at its end alone from {other} on line {on}: MySQL takes them for one \
                 name, and here they are two keys"
            )
        });
        seen.push((key.clone(), line));
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Key {
        Key::from(text.as_bytes())
    }

    #[test]
    fn what_differs_by_capitals_or_blanks_at_its_end_is_alike_and_nothing_else() {
        let of = |text: &str| likeness(&name(text));
        for text in ["order", "Order", "ORDER ", "order   "] {
            assert_eq!(of(text), of("order"), "{text:?}");
        }
        assert_eq!(of("\u{c4}"), of("\u{e4}"));
        for text in [" order", "order1", "ordre", "order\t", ""] {
            assert_ne!(of(text), of("order"), "{text:?}");
        }
        // Bytes that are no text have capitals of ASCII alone.
        assert_eq!(compared(b"A\xFF "), b"a\xFF");
        assert_eq!(likeness(&Key::Id(1)), None);
    }

    #[test]
    fn each_name_is_told_once_with_the_one_before_it() {
        let mut alike = Alike::new(likeness(&name("order")));
        assert_eq!(alike.beside(&name("order"), 1), None);
        let told = alike.beside(&name("Order"), 4).unwrap();
        assert!(told.contains("key 'Order' differs"), "{told}");
        assert!(told.contains("from 'order' on line 1"), "{told}");
        // The same name twice is a fault, and told as such.
        assert_eq!(alike.beside(&name("Order"), 5), None);
        assert_eq!(alike.beside(&name("pay"), 6), None);
    }

    #[test]
    fn a_key_beside_a_mapped_one_is_told_with_the_setting_and_its_name() {
        let mapped = |key: &str| MappedKey {
            setting: "leaf_tags".into(),
            name: "ord".into(),
            key: key.into(),
        };
        let keys = MappedKeys::new(vec![mapped("Order"), mapped("pay"), mapped("PAY")]);
        let told = keys.beside(&name("order")).unwrap();
        assert!(told.contains("'Order', which leaf_tags maps 'ord' to"), "{told}");
        for mapped in ["Order", "pay", "PAY", "other"] {
            assert_eq!(keys.beside(&name(mapped)), None, "{mapped}");
        }
        assert!(keys.beside(&name("Pay")).is_some());
        assert_eq!(keys.beside(&Key::Id(1)), None);
    }
}
