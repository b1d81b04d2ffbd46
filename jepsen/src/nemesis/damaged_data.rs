//! Data that is damaged or lost.

use std::{fs, io, os::unix::fs::FileExt, path::PathBuf, time::Duration};

use rand::RngExt;

use super::{
    disks::no_disks,
    fault::{Begun, Wound},
    injector::Stage,
    kind::Nemesis,
};
use crate::network::Port;

impl Stage {
    /// A copy of a directory from before is put in its place.
    pub(super) async fn bring_back_older_copy(&mut self) -> io::Result<Begun> {
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

    pub(super) async fn damage(&mut self, nemesis: Nemesis) -> io::Result<Begun> {
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
    pub(super) fn newest_log(&self, id: Port) -> io::Result<Option<(PathBuf, u64)>> {
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
    pub(super) async fn start_damaged(
        &mut self,
        victim: Port,
        what: &str,
        bit: bool,
    ) -> io::Result<Begun> {
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
