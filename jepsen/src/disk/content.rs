//! A file's bytes, and how to undo the writes since their last sync.

#[derive(Clone)]
struct Undo {
    at: usize,
    overwritten: Vec<u8>,
    length: usize,
}

/// A file.
#[derive(Clone, Default)]
pub struct Content {
    /// The bytes that a reader gets.
    pub bytes: Vec<u8>,
    /// The writes since the last fsync, oldest first.
    undo: Vec<Undo>,
    poisoned: bool,
}

impl Content {
    /// Writes `data` at `at`. Bytes between the old end and `at` become zeroes.
    pub fn write(&mut self, at: usize, data: &[u8]) {
        let length = self.bytes.len();
        let end = at + data.len();
        let overwritten = self.bytes[at.min(length)..end.min(length)].to_vec();
        self.undo.push(Undo { at, overwritten, length });
        if length < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[at..end].copy_from_slice(data);
    }

    /// Truncates it, or extends it with zeroes.
    pub fn resize(&mut self, to: usize) {
        let length = self.bytes.len();
        self.undo.push(Undo { at: to, overwritten: self.bytes[to.min(length)..].to_vec(), length });
        self.bytes.resize(to, 0);
    }

    /// Makes the writes so far durable.
    pub fn sync(&mut self) {
        if !self.poisoned {
            self.undo.clear();
        }
    }

    /// An fsync fails. The writes that it should have saved are lost at the next power cut, even if a
    /// later fsync succeeds.
    pub fn poison(&mut self) {
        self.poisoned = true;
    }

    /// Undoes all unsynced writes but the first `kept`; returns how many bytes were lost.
    pub fn lose(&mut self, kept: usize) -> u64 {
        let mut lost = 0;
        for undo in self.undo.drain(kept.min(self.undo.len())..).rev() {
            lost +=
                (self.bytes.len().saturating_sub(undo.length)).max(undo.overwritten.len()) as u64;
            self.bytes.resize(undo.length, 0);
            self.bytes[undo.at.min(undo.length)..][..undo.overwritten.len()]
                .copy_from_slice(&undo.overwritten);
        }
        self.undo.clear();
        self.poisoned = false;
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_power_cut_takes_what_was_not_synced_and_leaves_what_was() {
        let mut content = Content::default();
        content.write(0, b"durable");
        content.sync();
        content.write(7, b" lost");
        content.write(0, b"DUR");
        content.resize(4);
        assert_eq!(content.bytes, b"DURa");
        assert!(content.lose(0) > 0);
        assert_eq!(content.bytes, b"durable");
    }

    #[test]
    fn a_power_cut_may_leave_the_first_of_the_unsynced_writes() {
        let mut content = Content::default();
        content.write(0, b"one");
        content.write(3, b"two");
        content.lose(1);
        assert_eq!(content.bytes, b"one");
    }

    #[test]
    fn what_a_failed_fsync_did_not_save_is_lost_even_after_one_that_succeeds() {
        let mut content = Content::default();
        content.write(0, b"gone");
        content.poison();
        content.sync();
        content.lose(0);
        assert_eq!(content.bytes, b"");
    }
}
