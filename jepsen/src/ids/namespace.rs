//! The namespaces whose ids are asked for: one of each format. Pure.

/// A namespace whose ids have a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdNamespace {
    /// Its name.
    pub name: &'static str,
    /// The format, as it is created with.
    pub format: &'static str,
    /// The parameters of the format, and how many values of each are asked for, from 0 on.
    pub parameters: &'static [(&'static str, u64)],
    /// How many keys are asked for, from 0 on. 0 where ids have no key.
    pub keys: u64,
    /// How many ids a call asks for at most.
    pub count_max: u32,
}

/// The namespace that callers of any interface ask for: no parameters, and at most 64 bits.
pub const PLAIN: &str = "ids-snowflake";

/// Few worker ids: makers wait for one another, and get worker ids that others had. Its counters begin anew each second:
/// makers that have one worker id at a time make the same ids soon.
pub const SCARCE: &str = "ids-own";

const NO_KEYS: IdNamespace =
    IdNamespace { name: PLAIN, format: "snowflake", parameters: &[], keys: 0, count_max: 2_000 };

/// All namespaces. First come the ones with a worker: any node makes their ids, and so does the product's client. The large
/// calls of namespaces whose unit of time is a second use up their counters. Then come the ones without a worker: the leader
/// makes their ids, from the sequence of a key.
pub static ALL: [IdNamespace; 10] = [
    NO_KEYS,
    IdNamespace {
        name: "ids-uid-generator",
        // Its own epoch has ended.
        format: "uid-generator epoch=2024-06-01",
        count_max: 6_000,
        ..NO_KEYS
    },
    IdNamespace { name: "ids-uuid7", format: "uuid7", ..NO_KEYS },
    IdNamespace {
        name: "ids-route",
        format: "yuewen-route",
        parameters: &[("type", 2), ("database", 2)],
        count_max: 7_000,
        ..NO_KEYS
    },
    IdNamespace {
        name: "ids-published",
        format: "yuewen-published",
        parameters: &[("database", 2)],
        count_max: 7_000,
        ..NO_KEYS
    },
    IdNamespace {
        name: "ids-exception",
        format: "yuewen-exception",
        parameters: &[("type", 2)],
        count_max: 9_000,
        ..NO_KEYS
    },
    IdNamespace {
        name: SCARCE,
        format: "bits epoch=2024-01-01 kind:5=9 time-s:32 shard:4 worker:3 sequence:16",
        parameters: &[("shard", 3)],
        ..NO_KEYS
    },
    IdNamespace {
        name: "ids-strict",
        format: "yuewen-strict",
        parameters: &[("machine", 2), ("database", 2)],
        keys: 3,
        ..NO_KEYS
    },
    IdNamespace {
        name: "ids-rongcloud",
        format: "rongcloud",
        parameters: &[("type", 2)],
        keys: 5,
        ..NO_KEYS
    },
    // A key has 9 999 ids in all.
    IdNamespace {
        name: "ids-chapter",
        format: "yuewen-chapter",
        parameters: &[("table", 2), ("database", 2)],
        keys: 200,
        count_max: 3,
    },
];

/// So many of [`ALL`] have a worker.
const WITH_WORKER: usize = 7;

/// The namespaces that have a worker, at the same places.
pub fn with_worker() -> &'static [IdNamespace] {
    &ALL[..WITH_WORKER]
}

#[cfg(test)]
mod tests {
    use ratchet_ids::{Format, Source};

    use super::*;

    #[test]
    fn the_first_ones_have_a_worker_and_each_has_the_parameters_and_the_key_that_its_format_needs()
    {
        for (place, namespace) in ALL.iter().enumerate() {
            let format = Format::parse(namespace.format).unwrap();
            let has_worker = format.source() == Source::Worker;
            assert_eq!(has_worker, place < WITH_WORKER, "{}", namespace.name);
            assert_eq!(has_worker, namespace.keys == 0, "{}", namespace.name);
            let parameters = namespace.parameters.iter().map(|(name, _)| *name);
            assert!(parameters.eq(format.parameters()), "{}", namespace.name);
        }
    }
}
