//! Disks that fail, forget, or lie.

use std::{fs, io, os::unix::fs::FileExt, path::PathBuf, time::Duration};

use rand::RngExt;

use super::{Begun, Nemesis, Stage, Wound};
use crate::{disk::Faults, network::Port};

/// How long a node may take to notice that it cannot trust its disk.
const NOTICING: Duration = Duration::from_secs(5);

impl Stage {
    pub(super) async fn begin_disk(&mut self, nemesis: Nemesis) -> io::Result<Begun> {
        match nemesis {
            Nemesis::DiskSync | Nemesis::DiskFull => self.refuse_writes(nemesis).await,
            Nemesis::DiskSlow => {
                let victim = self.leader();
                let sync_takes = Duration::from_millis(self.rng.random_range(400..1_500));
                let Some(disk) = self.cluster.disk(victim) else {
                    return Ok(no_disks());
                };
                let before = disk.tally().sync_delayed;
                disk.set_faults(Faults {
                    sync_takes,
                    ..Faults::default()
                });
                self.hold().await;
                let bit = self.disk_tally(victim, |tally| tally.sync_delayed) > before;
                let what = format!(
                    "fsync takes {} ms on leader {victim}",
                    sync_takes.as_millis()
                );
                Ok(Begun::new(what, Wound::Disk(victim), bit))
            }
            Nemesis::DirOld => self.bring_back_older_copy().await,
            _ => self.damage(nemesis).await,
        }
    }

    pub(super) fn mend_disk(&mut self, id: Port) {
        if let Some(disk) = self.cluster.disk(id) {
            disk.set_faults(Faults::default());
        }
    }

    fn disk_tally(&self, id: Port, of: impl Fn(crate::disk::Tally) -> u64) -> u64 {
        self.cluster.disk(id).map_or(0, |disk| of(disk.tally()))
    }

    /// The node must stop by itself: what it cannot write it must not vouch for.
    async fn refuse_writes(&mut self, nemesis: Nemesis) -> io::Result<Begun> {
        let full = nemesis == Nemesis::DiskFull;
        let victim = if self.rng.random_bool(0.5) {
            self.leader()
        } else {
            self.any()
        };
        let Some(disk) = self.cluster.disk(victim) else {
            return Ok(no_disks());
        };
        let before = disk.tally();
        disk.set_faults(Faults {
            full,
            sync_fails: !full,
            ..Faults::default()
        });
        let ended = self.cluster.ends(victim, NOTICING).await;
        let after = self
            .cluster
            .disk(victim)
            .map(|disk| disk.tally())
            .unwrap_or_default();
        let bit = if full {
            after.refused > before.refused
        } else {
            after.sync_failed > before.sync_failed
        };
        let broken = match ended {
            Some(status) if status.success() => {
                Some(format!("node {victim} ended as if all were well"))
            }
            Some(_) => None,
            None if bit => Some(format!("node {victim} went on, although its disk failed")),
            None => None,
        };
        self.cluster.kill(victim);
        self.mend_disk(victim);
        let lost = self
            .cluster
            .disk(victim)
            .map_or(0, |disk| disk.lose_unsynced(0));
        let how = if full {
            "the disk is full"
        } else {
            "fsync fails"
        };
        let ended = ended.map_or("was killed".to_owned(), |status| {
            format!("stopped: {status}")
        });
        let what = format!("{how} on node {victim}, which {ended}; {lost} unsynced bytes lost");
        Ok(Begun::new(what, Wound::Down(vec![victim]), bit).broken(broken))
    }

    /// A copy of a directory from before is put in its place.
    async fn bring_back_older_copy(&mut self) -> io::Result<Begun> {
        let victim = self.follower();
        let Some(disk) = self.cluster.disk(victim) else {
            return Ok(no_disks());
        };
        let older = disk.image();
        self.hold().await;
        self.hold().await;
        let killed = self.cluster.kill(victim);
        if let Some(disk) = self.cluster.disk(victim) {
            disk.restore(older);
        }
        self.start_damaged(victim, "has an older copy of its directory", killed)
            .await
    }

    async fn damage(&mut self, nemesis: Nemesis) -> io::Result<Begun> {
        let victim = self.follower();
        let killed = self.cluster.kill(victim);
        let (done, what) = match nemesis {
            Nemesis::DirWiped => {
                fs::remove_dir_all(self.cluster.data_dir(victim))?;
                (true, "lost its directory".to_owned())
            }
            Nemesis::WalTruncate => match self.newest_log(victim)? {
                Some((path, length)) if length > 0 => {
                    let cut = self.rng.random_range(1..=length.min(4_096));
                    fs::File::options()
                        .write(true)
                        .open(path)?
                        .set_len(length - cut)?;
                    (true, format!("lost the last {cut} bytes of its log"))
                }
                _ => (false, "had an empty log".to_owned()),
            },
            _ => match self.newest_log(victim)? {
                Some((path, length)) if length > 0 => {
                    let at = self.rng.random_range(0..length);
                    let file = fs::File::options().read(true).write(true).open(path)?;
                    let mut byte = [0];
                    file.read_exact_at(&mut byte, at)?;
                    byte[0] ^= 1 << self.rng.random_range(0..8);
                    file.write_all_at(&byte, at)?;
                    (
                        true,
                        format!("has a bit flipped in byte {at} of {length} of its log"),
                    )
                }
                _ => (false, "had an empty log".to_owned()),
            },
        };
        self.start_damaged(victim, &what, killed && done).await
    }

    /// The newest write-ahead log of a node's database, and its length.
    fn newest_log(&self, id: Port) -> io::Result<Option<(PathBuf, u64)>> {
        let mut newest = None;
        for entry in fs::read_dir(self.cluster.data_dir(id).join("db"))? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "log") {
                let length = fs::metadata(&path)?.len();
                newest = newest.max(Some((path, length)));
            }
        }
        Ok(newest)
    }

    /// Starts a node whose disk lies. Whether it refuses or comes back, it is then replaced: what
    /// it may have forgotten was promised to others.
    async fn start_damaged(&mut self, victim: Port, what: &str, bit: bool) -> io::Result<Begun> {
        self.cluster.spawn(victim)?;
        let ended = self.cluster.ends(victim, Duration::from_secs(2)).await;
        let then = match ended {
            Some(status) => format!("refused to go on: {status}"),
            None => "went on".to_owned(),
        };
        self.hold().await;
        let broken = self.replace(victim).await?;
        let what = format!("node {victim} {what}, {then}, and was replaced");
        Ok(Begun::new(what, Wound::Healed, bit).broken(broken))
    }
}

pub(super) fn no_disks() -> Begun {
    Begun::new("disks do not fail here", Wound::Healed, false)
}
