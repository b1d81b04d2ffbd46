//! Data directories that are damaged, removed, or replaced by an older copy.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::PathBuf,
    time::Duration,
};

use rand::RngExt;

use super::{
    disks::no_faulty_disks,
    fault::{ActiveFault, Repair},
    injector::Injector,
};
use crate::network::Port;

/// How long a node whose data is damaged has time to refuse to start.
const REFUSAL_MAX: Duration = Duration::from_secs(2);
/// How many bytes of a log are cut off at most.
const CUT_BYTES_MAX: u64 = 4_096;

impl Injector {
    /// A follower's directory is replaced by a copy that was taken earlier.
    pub(super) async fn restore_older_copy(&mut self) -> io::Result<ActiveFault> {
        let victim = self.random_follower();
        let Some(disk) = self.cluster.disk(victim) else {
            return Ok(no_faulty_disks());
        };
        let older = disk.image();
        self.wait_fault_duration().await;
        self.wait_fault_duration().await;
        let killed = self.cluster.kill(victim);
        if let Some(disk) = self.cluster.disk(victim) {
            disk.restore(older);
        }
        self.start_damaged(victim, "has an older copy of its directory", killed).await
    }

    pub(super) async fn wipe_directory(&mut self) -> io::Result<ActiveFault> {
        let victim = self.random_follower();
        let killed = self.cluster.kill(victim);
        fs::remove_dir_all(self.cluster.data_dir(victim))?;
        self.start_damaged(victim, "lost its directory", killed).await
    }

    pub(super) async fn truncate_log(&mut self) -> io::Result<ActiveFault> {
        let victim = self.random_follower();
        let killed = self.cluster.kill(victim);
        let Some((log, length)) = self.newest_log(victim)? else {
            return self.start_damaged(victim, "had an empty log", false).await;
        };
        let cut = self.rng.random_range(1..=length.min(CUT_BYTES_MAX));
        let file = File::options().write(true).open(log)?;
        file.set_len(length - cut)?;
        let damage = format!("lost the last {cut} bytes of its log");
        self.start_damaged(victim, &damage, killed).await
    }

    pub(super) async fn flip_bit_of_log(&mut self) -> io::Result<ActiveFault> {
        let victim = self.random_follower();
        let killed = self.cluster.kill(victim);
        let Some((log, length)) = self.newest_log(victim)? else {
            return self.start_damaged(victim, "had an empty log", false).await;
        };
        let at = self.rng.random_range(0..length);
        let file = File::options().read(true).write(true).open(log)?;
        let mut byte = [0];
        file.read_exact_at(&mut byte, at)?;
        byte[0] ^= 1 << self.rng.random_range(0..8);
        file.write_all_at(&byte, at)?;
        let damage = format!("has a bit flipped in byte {at} of {length} of its log");
        self.start_damaged(victim, &damage, killed).await
    }

    /// The newest write-ahead log of a node's database, and its length; `None` if it is empty.
    fn newest_log(&self, id: Port) -> io::Result<Option<(PathBuf, u64)>> {
        let mut newest = None;
        for entry in fs::read_dir(self.cluster.data_dir(id).join("db"))? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "log") {
                let length = fs::metadata(&path)?.len();
                newest = newest.max(Some((path, length)));
            }
        }
        Ok(newest.filter(|(_, length)| *length > 0))
    }

    /// Starts a node whose data is damaged, and replaces it whether it refuses or goes on: it may have
    /// forgotten its promises to others.
    async fn start_damaged(
        &mut self, victim: Port, damage: &str, took_effect: bool,
    ) -> io::Result<ActiveFault> {
        self.cluster.spawn(victim)?;
        let reaction = match self.cluster.wait_for_exit(victim, REFUSAL_MAX).await {
            Some(status) => format!("refused to go on: {status}"),
            None => "went on".to_owned(),
        };
        self.wait_fault_duration().await;
        let violation = self.replace(victim).await?;
        let description = format!("node {victim} {damage}, {reaction}, and was replaced");
        let fault = ActiveFault::new(description, Repair::Nothing, took_effect);
        Ok(fault.with_violation(violation))
    }
}
