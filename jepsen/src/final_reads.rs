//! The last reads of a run.

use std::{collections::HashMap, time::Duration};

use crate::{
    client::Target,
    history::{Action, Op, Outcome},
    nemesis::Stage,
    record::Recorder,
    workload::{self, OWN, SHARED},
};

const FINAL_KEYS_MAX: usize = 30;
const FINAL_TRIES: usize = 20;

/// Reads every key through every node, and takes a number of each.
pub async fn read_finally(stage: &mut Stage) -> Vec<Op> {
    let recorder = stage.recorder.clone();
    let mut finals = Vec::new();
    for target in recorder.targets(FINAL_KEYS_MAX) {
        for id in stage.members.clone() {
            let mut client = stage.cluster.client(id);
            for action in [Action::Current, Action::Next { count: 1 }] {
                for attempt in 1..=FINAL_TRIES {
                    let (process, node) = (recorder.new_process(), u64::from(id));
                    let outcome =
                        workload::ask(&recorder, &mut client, node, process, &target, action).await;
                    if outcome == Outcome::Ok || attempt == FINAL_TRIES {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                finals.extend(recorder.last());
            }
        }
    }
    finals
}

impl Recorder {
    /// Some of the keys that were asked for, the busiest first.
    fn targets(&self, max: usize) -> Vec<Target> {
        let mut busiest: Vec<(usize, String)> = self.with(|history| {
            let mut count: HashMap<&str, usize> = HashMap::new();
            for op in &history.ops {
                *count.entry(&op.key).or_default() += 1;
            }
            let named = count
                .into_iter()
                .map(|(key, times)| (times, key.to_owned()));
            named.collect()
        });
        busiest.sort_unstable_by(|one, other| other.cmp(one));
        let parse = |(_, name): (usize, String)| {
            let (namespace, id) = name.split_once('/')?;
            let namespace = [OWN, SHARED].into_iter().find(|ours| *ours == namespace)?;
            let id = id.parse().ok()?;
            Some(Target { namespace, id })
        };
        busiest.into_iter().take(max).filter_map(parse).collect()
    }

    /// The operation that was recorded last.
    fn last(&self) -> Option<Op> {
        self.with(|history| history.ops.last().cloned())
    }
}
