//! Power cuts: what was not synced is gone.

use std::{io, time::Duration};

use rand::RngExt;

use super::{
    disks::no_disks,
    fault::{Begun, Strike, Wound},
    injector::Stage,
    kind::Nemesis,
};
use crate::network::Port;

/// What power cuts took.
#[derive(Default)]
struct Lost {
    bytes: u64,
    names: Vec<String>,
}

impl Stage {
    /// All are killed at once, and lose what they wrote and did not sync.
    pub(super) fn cut_power(&mut self) -> Begun {
        let all = self.members.clone();
        let lost = self.cut_power_of(&all, false);
        let what = format!(
            "power cut: {} unsynced bytes lost on all nodes together",
            lost.bytes
        );
        Begun::new(what, Wound::Down(all), lost.bytes > 0)
    }

    /// One or all are killed, and lose unsynced names, too; every other time once more as they start
    /// again, when they make files and directories.
    pub(super) async fn lose_names(&mut self) -> io::Result<Begun> {
        let victims = if self.rng.random_bool(0.5) {
            self.members.clone()
        } else {
            vec![self.any()]
        };
        if self.cluster.disk(victims[0]).is_none() {
            return Ok(no_disks());
        }
        let mut lost = self.cut_power_of(&victims, true);
        let twice = self.rng.random_bool(0.5);
        if twice {
            for id in &victims {
                self.cluster.spawn(*id)?;
            }
            let starting = self.rng.random_range(0..600);
            tokio::time::sleep(Duration::from_millis(starting)).await;
            let again = self.cut_power_of(&victims, true);
            lost.bytes += again.bytes;
            lost.names.extend(again.names);
        }
        let what = format!(
            "power cut{} on {victims:?}: {} unsynced bytes lost, and these names: {}",
            if twice {
                ", and again at the start,"
            } else {
                ""
            },
            lost.bytes,
            lost.names.join(" ")
        );
        let bit = !lost.names.is_empty();
        Ok(Begun::new(what, Wound::Down(victims), bit))
    }

    /// The founding nodes lose power while they make their directories.
    ///
    /// # Errors
    /// A process cannot be started.
    pub async fn cut_power_at_birth(&mut self) -> io::Result<Strike> {
        let from_ns = self.recorder.now();
        let all = self.members.clone();
        let starting = self.rng.random_range(0..600);
        tokio::time::sleep(Duration::from_millis(starting)).await;
        let lost = self.cut_power_of(&all, true);
        let mut broken = None;
        for id in &all {
            self.cluster.spawn(*id)?;
        }
        for id in all {
            if let Some(status) = self.cluster.ends(id, Duration::from_secs(1)).await {
                broken = Some(format!("node {id} did not start again: {status}"));
            }
        }
        Ok(Strike {
            nemesis: Nemesis::DiskNames,
            from_ns,
            to_ns: self.recorder.now(),
            what: format!(
                "power cut on all {starting} ms after their first start; names lost: {}",
                lost.names.join(" ")
            ),
            bit: !lost.names.is_empty(),
            broken,
        })
    }

    fn cut_power_of(&mut self, victims: &[Port], names_too: bool) -> Lost {
        for id in victims {
            self.cluster.kill(*id);
        }
        let kept = self.rng.random_range(0..3);
        let mut lost = Lost::default();
        for id in victims {
            let Some(disk) = self.cluster.disk(*id) else {
                continue;
            };
            lost.bytes += disk.lose_unsynced(kept);
            if names_too {
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
