//! Ids that were made, in as few bytes as they need: a message may ask for thousands.

use ratchet_ids::{Format, Run};

/// Ids of one format, in the order in which they were made.
#[derive(Debug, Clone)]
pub enum IdList {
    /// All ids of the format fit 64 bits.
    Short(Vec<u64>),
    /// They do not.
    Long(Vec<u128>),
}

impl IdList {
    /// No ids of `format`, and room for `count`.
    pub fn new(format: &Format, count: usize) -> IdList {
        match format.bits() > u64::BITS {
            true => IdList::Long(Vec::with_capacity(count)),
            false => IdList::Short(Vec::with_capacity(count)),
        }
    }

    /// Adds the ids of `run`, which is of the list's format.
    pub fn add(&mut self, run: Run) {
        match self {
            IdList::Short(ids) => {
                let numbers = run.numbers(rand::random);
                ids.extend(numbers.expect("an id has no more bits than its format"));
            }
            IdList::Long(ids) => ids.extend(run.ids(rand::random)),
        }
    }

    /// Adds an id of the list's format.
    pub fn push(&mut self, id: u128) {
        match self {
            IdList::Short(ids) => ids.push(id as u64),
            IdList::Long(ids) => ids.push(id),
        }
    }

    /// Adds its first `count` ids once more, or as many as it has: for a planted bug. Returns how many.
    pub fn repeat(&mut self, count: usize) -> usize {
        fn begin_again<T: Copy>(ids: &mut Vec<T>, count: usize) -> usize {
            let count = count.min(ids.len());
            ids.extend_from_within(..count);
            count
        }
        match self {
            IdList::Short(ids) => begin_again(ids, count),
            IdList::Long(ids) => begin_again(ids, count),
        }
    }

    /// The ids.
    pub fn iter(&self) -> impl Iterator<Item = u128> {
        let (short, long) = match self {
            IdList::Short(ids) => (&ids[..], &[][..]),
            IdList::Long(ids) => (&[][..], &ids[..]),
        };
        let short = short.iter().map(|id| u128::from(*id));
        short.chain(long.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use ratchet_ids::Generator;

    use super::*;

    #[test]
    fn ids_are_the_same_in_a_short_and_in_a_long_list() {
        let ms = 1_700_000_000_000;
        for (text, is_short) in [
            ("snowflake", true),
            ("yuewen-published", true),
            ("bits zero:2=0 time-ms:42 worker:8 sequence:12", true),
            ("bits text=base32 zero:4=0 time-ms:44 worker:12 sequence:20", false),
        ] {
            let format = Format::parse(text).expect("a format");
            let parameters: Vec<_> = format.parameters().map(|name| (name, 1)).collect();
            let fixed = format.fixed(&parameters, None).expect("parameters");
            let mut generator = Generator::new(&format, 5, ms - 1, ms + 2_000).expect("a worker");
            let (mut ours, mut list) = (Vec::new(), IdList::new(&format, 20));
            for now_ms in [ms, ms + 1_000] {
                let run = generator.take(now_ms, fixed, 10).expect("ids");
                ours.extend(run.clone().ids(|| 0));
                list.add(run);
            }
            assert_eq!(matches!(list, IdList::Short(_)), is_short, "{text}");
            assert_eq!(list.iter().collect::<Vec<_>>(), ours, "{text}");
        }
    }
}
