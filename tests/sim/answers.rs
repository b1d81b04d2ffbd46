//! The answers to the clients of very many keys, as compact as can be, and the promise about it: for each key the numbers
//! grow in real time, and none comes twice.

/// The numbers of a key, as one call got them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Range {
    key: u32,
    first: u64,
    last: u64,
}

/// The answers so far. Keys are `0..`.
pub struct Answers {
    /// The greatest number that was answered for each key. 0 for none.
    greatest: Vec<u64>,
    /// How many numbers were answered for each key.
    counts: Vec<u64>,
    ranges: Vec<Range>,
}

/// A call under way: its keys, and the greatest number of each that was answered before it.
pub struct Asked(Vec<(u32, u64)>);

impl Answers {
    /// Nothing was answered yet for any of so many keys.
    pub fn new(keys: u32) -> Answers {
        Answers {
            greatest: vec![0; keys as usize],
            counts: vec![0; keys as usize],
            ranges: Vec::new(),
        }
    }

    /// A call for these keys begins.
    pub fn ask(&self, keys: &[u32]) -> Asked {
        let asked = keys.iter().map(|&key| (key, self.greatest[key as usize]));
        Asked(asked.collect())
    }

    /// A call was answered with `count` numbers of each of its keys, in a row from `firsts` on. A key whose first is 0 got
    /// none.
    ///
    /// # Errors
    /// If a number does not lie above all numbers that were answered before the call.
    pub fn numbers(&mut self, asked: &Asked, firsts: &[u64], count: u64) -> Result<(), String> {
        if asked.0.len() != firsts.len() {
            return Err(format!("{} keys, {} ranges", asked.0.len(), firsts.len()));
        }
        let got = asked.0.iter().zip(firsts).filter(|(_, first)| **first > 0);
        for (&(key, before), &first) in got {
            if first <= before {
                return Err(format!(
                    "key {key}: {first} was answered to a call that began after {before} was answered"
                ));
            }
            let last = first + count - 1;
            let greatest = &mut self.greatest[key as usize];
            *greatest = last.max(*greatest);
            self.counts[key as usize] += count;
            self.ranges.push(Range { key, first, last });
        }
        Ok(())
    }

    /// A call for the last number of a key was answered.
    ///
    /// # Errors
    /// If a greater number was answered before the call.
    pub fn current(&mut self, asked: &Asked, last: u64) -> Result<(), String> {
        self.current_many(asked, &[last])
    }

    /// As [`Answers::current`], for the last numbers of several keys.
    ///
    /// # Errors
    /// As [`Answers::current`], and if there are more or fewer than keys.
    pub fn current_many(&mut self, asked: &Asked, last: &[u64]) -> Result<(), String> {
        if asked.0.len() != last.len() {
            return Err(format!("{} keys, {} last numbers", asked.0.len(), last.len()));
        }
        for (&(key, before), &last) in asked.0.iter().zip(last) {
            if last < before {
                return Err(format!(
                    "key {key}: {last} was told to be the last number by a call that began after {before} \
                     was answered"
                ));
            }
            let greatest = &mut self.greatest[key as usize];
            *greatest = last.max(*greatest);
        }
        Ok(())
    }

    /// The greatest number that was answered for a key; 0 for none.
    pub fn greatest(&self, key: u32) -> u64 {
        self.greatest[key as usize]
    }

    /// How many keys got numbers.
    pub fn keys_with_numbers(&self) -> u64 {
        self.counts.iter().filter(|count| **count > 0).count() as u64
    }

    /// Checks that no more than `most` numbers of each key were skipped. Keys start at 1, in steps of 1.
    ///
    /// # Errors
    /// If the greatest number of a key exceeds how many it got by more.
    pub fn check_skipped(&self, most: u64) -> Result<(), String> {
        let keys = self.greatest.iter().zip(&self.counts).enumerate();
        let mut gaps = keys.filter(|(_, (greatest, count))| **greatest > **count + most);
        match gaps.next() {
            None => Ok(()),
            Some((key, (greatest, count))) => Err(format!(
                "key {key} got {count} numbers up to {greatest}, and may have skipped {most}; {} more keys have \
                 skipped more than that",
                gaps.count()
            )),
        }
    }

    /// Checks that no number was answered twice.
    ///
    /// # Errors
    /// If one was.
    pub fn check_unique(&mut self) -> Result<(), String> {
        self.ranges.sort_unstable();
        for pair in self.ranges.windows(2) {
            if pair[0].key == pair[1].key && pair[1].first <= pair[0].last {
                return Err(format!("twice: {:?} and {:?}", pair[0], pair[1]));
            }
        }
        Ok(())
    }
}
