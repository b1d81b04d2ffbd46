//! A directory: its names, and how to undo their changes since it was last synced.
//!
//! A name is durable once its *directory* was synced, and not before: that is all that POSIX promises. A
//! [`Loss`] decides which of the other changes survive a power cut.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{OsStr, OsString},
};

use rand::{RngExt, rngs::StdRng};

/// Names, and the inodes that they stand for.
type Entries = BTreeMap<OsString, u64>;

/// A change of a directory at one moment: the new inode of each name, `None` for a removed one. A rename
/// within the directory is one change, and survives a power cut whole or not at all.
#[derive(Debug, Clone)]
struct Change {
    at: u64,
    names: Vec<(OsString, Option<u64>)>,
    /// Whether the file or directory that it gave a name to, or something in there, was synced after it.
    target_synced: bool,
}

/// A directory.
#[derive(Debug, Clone, Default)]
pub struct Names {
    entries: Entries,
    /// The entries as of the last fsync of the directory.
    durable: Entries,
    /// The changes since then, oldest first.
    changes: Vec<Change>,
    poisoned: bool,
}

/// Which of the changes that were not synced a power cut takes.
///
/// Real file systems promise more than POSIX, each something else. One that keeps the order of changes
/// (ext4, XFS) keeps the first of them. It also makes a name durable when its file is synced, but the harness
/// does not rely on that. One that does not keep the order (btrfs) keeps any of them. There the name of a synced
/// file does survive, or no database could be opened again: databases write the file that names another one
/// only after that one was synced, and rely on its name being there.
#[derive(Debug)]
pub enum Loss {
    /// All since a moment, over the whole disk.
    Since(u64),
    /// Any changes, at random, except names of synced files and directories.
    Any,
}

impl Loss {
    /// One of all that are possible where the oldest and the newest change were at these moments.
    pub fn draw(oldest: u64, newest: u64, rng: &mut StdRng) -> Loss {
        match rng.random_range(0..4) {
            0 | 1 => Loss::Since(oldest),
            2 => Loss::Since(rng.random_range(oldest..=newest)),
            _ => Loss::Any,
        }
    }

    fn takes(&self, change: &Change, rng: &mut StdRng) -> bool {
        match self {
            Loss::Since(moment) => change.at >= *moment,
            Loss::Any => !change.target_synced && rng.random_bool(0.5),
        }
    }
}

impl Names {
    /// All names, as a reader sees them.
    pub fn entries(&self) -> &Entries {
        &self.entries
    }

    /// The inode of a name.
    pub fn get(&self, name: &OsStr) -> Option<u64> {
        self.entries.get(name).copied()
    }

    /// Changes or removes names, all at one moment.
    pub fn change(&mut self, at: u64, names: Vec<(OsString, Option<u64>)>) {
        apply(&mut self.entries, &names);
        self.changes.push(Change { at, names, target_synced: false });
    }

    /// Makes the changes so far durable.
    pub fn sync(&mut self) {
        if !self.poisoned {
            self.durable.clone_from(&self.entries);
            self.changes.clear();
        }
    }

    /// An fsync of the directory fails. The changes that it should have saved are lost at the next power cut,
    /// even if a later fsync succeeds.
    pub fn poison(&mut self) {
        self.poisoned = true;
    }

    /// Notes that `ino` was synced; returns whether it has an unsynced name here.
    pub fn note_synced(&mut self, ino: u64) -> bool {
        let mut named = false;
        for change in &mut self.changes {
            if change.names.iter().any(|(_, to)| *to == Some(ino)) {
                change.target_synced = true;
                named = true;
            }
        }
        named
    }

    /// When the oldest and the newest unsynced change happened.
    pub fn unsynced(&self) -> Option<(u64, u64)> {
        Some((self.changes.first()?.at, self.changes.last()?.at))
    }

    /// All inodes that have a name here, or may have one again after a power cut.
    pub fn targets(&self) -> impl Iterator<Item = u64> {
        let changed = self.changes.iter().flat_map(|change| &change.names);
        let named = self.entries.values().chain(self.durable.values()).copied();
        named.chain(changed.filter_map(|(_, to)| *to))
    }

    /// A power cut; returns the names that it changed.
    pub fn lose(&mut self, loss: &Loss, rng: &mut StdRng) -> Vec<OsString> {
        let mut left = self.durable.clone();
        for change in self.changes.drain(..) {
            if !loss.takes(&change, rng) {
                apply(&mut left, &change.names);
            }
        }
        let before = std::mem::replace(&mut self.entries, left.clone());
        self.durable = left;
        self.poisoned = false;
        let all: BTreeSet<&OsString> = before.keys().chain(self.entries.keys()).collect();
        let lost = all.into_iter().filter(|name| before.get(*name) != self.entries.get(*name));
        lost.cloned().collect()
    }
}

fn apply(entries: &mut Entries, names: &[(OsString, Option<u64>)]) {
    for (name, to) in names {
        match to {
            Some(ino) => entries.insert(name.clone(), *ino),
            None => entries.remove(name),
        };
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    fn rng() -> StdRng {
        StdRng::seed_from_u64(7)
    }

    fn created(name: &str, ino: u64) -> Vec<(OsString, Option<u64>)> {
        vec![(name.into(), Some(ino))]
    }

    fn renamed(from: &str, to: &str, ino: u64) -> Vec<(OsString, Option<u64>)> {
        vec![(from.into(), None), (to.into(), Some(ino))]
    }

    fn left(names: &Names) -> Vec<(&str, u64)> {
        let entries = names.entries().iter();
        entries.filter_map(|(name, ino)| Some((name.to_str()?, *ino))).collect()
    }

    #[test]
    fn a_name_is_lost_until_its_directory_is_synced() {
        let mut names = Names::default();
        names.change(0, created("kept", 2));
        names.sync();
        names.change(1, created("lost", 3));
        assert_eq!(names.lose(&Loss::Since(0), &mut rng()), ["lost"]);
        assert_eq!(left(&names), [("kept", 2)]);
        assert!(names.lose(&Loss::Since(0), &mut rng()).is_empty());
    }

    #[test]
    fn a_removed_name_is_back_and_a_rename_undone() {
        let mut names = Names::default();
        names.change(0, created("removed", 2));
        names.change(1, created("new", 3));
        names.change(2, created("old", 4));
        names.sync();
        names.change(3, vec![("removed".into(), None)]);
        names.change(4, renamed("new", "old", 3));
        assert_eq!(left(&names), [("old", 3)]);
        names.lose(&Loss::Since(0), &mut rng());
        assert_eq!(left(&names), [("new", 3), ("old", 4), ("removed", 2)]);
    }

    #[test]
    fn a_file_system_that_keeps_the_order_leaves_the_first_changes() {
        let mut names = Names::default();
        names.change(5, created("first", 2));
        names.change(9, renamed("first", "second", 2));
        names.lose(&Loss::Since(9), &mut rng());
        assert_eq!(left(&names), [("first", 2)]);
    }

    #[test]
    fn one_that_does_not_leaves_any_of_them_but_never_half_a_rename() {
        let mut seen = BTreeSet::new();
        let mut rng = rng();
        for _ in 0..200 {
            let mut names = Names::default();
            names.change(0, created("tmp", 2));
            names.change(1, renamed("tmp", "whole", 2));
            names.change(2, created("synced", 3));
            assert!(names.note_synced(3));
            names.lose(&Loss::Any, &mut rng);
            seen.insert(format!("{:?}", left(&names)));
        }
        let all = [
            r#"[("synced", 3), ("tmp", 2)]"#,
            r#"[("synced", 3), ("whole", 2)]"#,
            r#"[("synced", 3)]"#,
        ];
        assert!(seen.iter().eq(all), "{seen:?}");
    }

    #[test]
    fn a_directory_whose_fsync_failed_loses_its_names_even_after_one_that_succeeds() {
        let mut names = Names::default();
        names.change(0, created("gone", 2));
        names.poison();
        names.sync();
        names.lose(&Loss::Since(0), &mut rng());
        assert!(left(&names).is_empty());
    }

    #[test]
    fn what_may_come_back_is_still_needed() {
        let mut names = Names::default();
        names.change(0, created("file", 2));
        names.sync();
        names.change(1, vec![("file".into(), None)]);
        assert_eq!(names.targets().collect::<Vec<_>>(), [2]);
        names.sync();
        assert_eq!(names.targets().count(), 0);
    }

    #[test]
    fn every_kind_of_loss_is_drawn() {
        let mut rng = rng();
        let drawn: BTreeSet<String> =
            (0..200).map(|_| format!("{:?}", Loss::draw(3, 5, &mut rng))).collect();
        let all = ["Any", "Since(3)", "Since(4)", "Since(5)"];
        assert!(drawn.iter().eq(all), "{drawn:?}");
    }
}
