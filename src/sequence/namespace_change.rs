//! Changes of a namespace, and the fields that may not change once it has handed out numbers.

use serde::{Deserialize, Serialize};

use super::{
    key::KeyKind,
    namespace::{InvalidNamespace, NamespaceConfig},
};

/// A change of a namespace. `None` leaves a field as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NamespaceChange {
    /// The new step.
    pub step: Option<u64>,
    /// The new smallest step; 0 for none.
    pub step_min: Option<u64>,
    /// The new greatest step; 0 for none.
    pub step_max: Option<u64>,
    /// The new maximum.
    pub max: Option<u64>,
    /// The new description.
    pub description: Option<String>,
    /// The new limit on the numbers of a key in one request; 0 for none.
    pub count_max: Option<u64>,
    /// How many keys it may have from now on; 0: no limit.
    pub keys_max: Option<u64>,
    /// The new distance between numbers.
    pub increment: Option<u64>,
    /// The new first number.
    pub start: Option<u64>,
    /// The new size of sections.
    pub section_size: Option<u64>,
    /// The new kind of keys.
    pub key_kind: Option<KeyKind>,
    /// Whether numbers may be asked for without a request id from now on.
    pub request_id_optional: Option<bool>,
    /// Whether Redis clients get strings from now on.
    pub redis_strings: Option<bool>,
}

impl NamespaceChange {
    /// The configuration with this change.
    pub fn applied_to(&self, config: NamespaceConfig) -> NamespaceConfig {
        NamespaceConfig {
            step: self.step.unwrap_or(config.step),
            step_min: none_for_0(self.step_min, config.step_min),
            step_max: none_for_0(self.step_max, config.step_max),
            max: self.max.unwrap_or(config.max),
            description: self.description.clone().unwrap_or(config.description),
            count_max: none_for_0(self.count_max, config.count_max),
            keys_max: none_for_0(self.keys_max, config.keys_max),
            increment: self.increment.unwrap_or(config.increment),
            start: self.start.unwrap_or(config.start),
            section_size: self.section_size.unwrap_or(config.section_size),
            key_kind: self.key_kind.unwrap_or(config.key_kind),
            gapless: config.gapless,
            request_id_optional: self.request_id_optional.unwrap_or(config.request_id_optional),
            format: config.format,
            redis_strings: self.redis_strings.unwrap_or(config.redis_strings),
            name: config.name,
        }
    }
}

impl NamespaceChange {
    /// Refuses another kind of keys for ids with a format. Which kind fits was checked when the namespace was created.
    ///
    /// # Errors
    /// [`InvalidNamespace::DoesNotFitFormat`].
    pub fn check_keys_of(&self, config: &NamespaceConfig) -> Result<(), InvalidNamespace> {
        match self.key_kind.filter(|kind| *kind != config.key_kind) {
            Some(kind) if config.format.is_some() => Err(InvalidNamespace::DoesNotFitFormat {
                field: "key_kind",
                value: kind.to_string(),
            }),
            Some(_) | None => Ok(()),
        }
    }
}

/// Why the configuration `old` cannot become `new` once keys have numbers: a reason for each field. `None` if it can.
pub fn why_fixed(old: &NamespaceConfig, new: &NamespaceConfig) -> Option<String> {
    let fields = [
        (
            old.increment != new.increment,
            "increment (ceilings are counted in it: later numbers of a key could lie below earlier ones)",
        ),
        (
            old.start != new.start,
            "start (it says which numbers there are: keys would go on between the numbers that they had)",
        ),
        (
            old.section_size != new.section_size,
            "section_size (keys would move to other sections, with lower ceilings)",
        ),
        (
            old.key_kind != new.key_kind,
            "key_kind (the keys that have numbers would be keys no more)",
        ),
    ];
    let reasons: Vec<&str> =
        (fields.into_iter()).filter_map(|(differs, reason)| differs.then_some(reason)).collect();
    (!reasons.is_empty()).then(|| reasons.join(", "))
}

fn none_for_0(new: Option<u64>, old: Option<u64>) -> Option<u64> {
    new.map_or(old, |new| (new > 0).then_some(new))
}
