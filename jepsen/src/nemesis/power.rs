//! Power cuts: bytes that were not synced are gone.

use std::{io, time::Duration};

use rand::RngExt;

use super::{
    disks::no_faulty_disks,
    fault::{ActiveFault, Fault, Repair},
    injector::Injector,
    kind::Nemesis,
};
use crate::{finding::Finding, network::Port};

/// For how long a node that is started again may run before a second power cut, in milliseconds.
const STARTING_MAX_MS: u64 = 600;
/// How long a node has time to fail after its first start was cut short.
const START_FAILURE_MAX: Duration = Duration::from_secs(1);

/// The losses of power cuts.
#[derive(Default)]
struct Lost {
    bytes: u64,
    names: Vec<String>,
}

/// Whether a power cut also takes names that were not synced.
#[derive(Clone, Copy, PartialEq)]
enum UnsyncedNames {
    Lost,
    Kept,
}

impl Injector {
    /// All nodes are killed at once and lose the bytes that they had not synced.
    pub(super) fn cut_power(&mut self) -> ActiveFault {
        let all = self.members.clone();
        let lost = self.cut_power_of(&all, UnsyncedNames::Kept);
        let description =
            format!("power cut: {} unsynced bytes lost on all nodes together", lost.bytes);
        ActiveFault::new(description, Repair::Start(all), lost.bytes > 0)
    }

    /// One node is killed, or all, and unsynced names are lost, too. Half of the time the power fails once
    /// more while they start again, when they create files and directories.
    pub(super) async fn lose_names(&mut self) -> io::Result<ActiveFault> {
        let victims = if self.rng.random_bool(0.5) {
            self.members.clone()
        } else {
            vec![self.random_member()]
        };
        if self.cluster.disk(victims[0]).is_none() {
            return Ok(no_faulty_disks());
        }
        let mut lost = self.cut_power_of(&victims, UnsyncedNames::Lost);
        let twice = self.rng.random_bool(0.5);
        if twice {
            for id in &victims {
                self.cluster.spawn(*id)?;
            }
            let starting_ms = self.rng.random_range(0..STARTING_MAX_MS);
            tokio::time::sleep(Duration::from_millis(starting_ms)).await;
            let again = self.cut_power_of(&victims, UnsyncedNames::Lost);
            lost.bytes += again.bytes;
            lost.names.extend(again.names);
        }
        let description = format!(
            "power cut{} on {victims:?}: {} unsynced bytes lost, and these names: {}",
            if twice { ", and again at the start," } else { "" },
            lost.bytes,
            lost.names.join(" ")
        );
        let took_effect = !lost.names.is_empty();
        let repair = Repair::Start(victims);
        Ok(ActiveFault::new(description, repair, took_effect))
    }

    /// The founding nodes lose power while they create their directories.
    ///
    /// # Errors
    /// A process cannot be started.
    pub async fn cut_power_at_first_start(&mut self) -> io::Result<Fault> {
        let from_ns = self.recorder.now();
        let all = self.members.clone();
        let starting_ms = self.rng.random_range(0..STARTING_MAX_MS);
        tokio::time::sleep(Duration::from_millis(starting_ms)).await;
        let lost = self.cut_power_of(&all, UnsyncedNames::Lost);
        let mut violations = Vec::new();
        for id in &all {
            self.cluster.spawn(*id)?;
        }
        for id in all {
            if let Some(status) = self.cluster.wait_for_exit(id, START_FAILURE_MAX).await {
                let what = format!("node {id} did not start again: {status}");
                violations.push(Finding::Node.told(what));
            }
        }
        Ok(Fault {
            nemesis: Nemesis::DiskNames,
            from_ns,
            to_ns: self.recorder.now(),
            description: format!(
                "power cut on all {starting_ms} ms after their first start; names lost: {}",
                lost.names.join(" ")
            ),
            took_effect: !lost.names.is_empty(),
            violations,
        })
    }

    fn cut_power_of(&mut self, victims: &[Port], names: UnsyncedNames) -> Lost {
        for id in victims {
            self.cluster.kill(*id);
        }
        let writes_kept = self.rng.random_range(0..3);
        let mut lost = Lost::default();
        for id in victims {
            let Some(disk) = self.cluster.disk(*id) else {
                continue;
            };
            lost.bytes += disk.lose_unsynced(writes_kept);
            if names == UnsyncedNames::Lost {
                let names = disk.lose_names(&mut self.rng);
                lost.names.extend(names.iter().map(|name| {
                    let name = name.to_string_lossy();
                    format!("{id}:{name}")
                }));
            }
        }
        lost
    }
}
