//! The reads at the end of a run: the busiest keys through every node.

use std::{collections::HashMap, time::Duration};

use crate::{
    history::{Action, Op, Outcome},
    nemesis::Injector,
    record::Recorder,
    target::Target,
    workload,
};

/// How many keys are read at most, the busiest first.
const KEYS_MAX: usize = 30;
const TRIES: usize = 20;
const RETRY_EVERY: Duration = Duration::from_millis(100);

/// Reads each key through every member, and takes a number of it. Returns the last try of each.
pub async fn read(injector: &Injector) -> Vec<Op> {
    let recorder = &injector.recorder;
    let mut reads = Vec::new();
    for target in busiest(recorder, KEYS_MAX) {
        for id in &injector.members {
            let mut client = injector.cluster.client(*id);
            for action in [Action::Current, Action::Next { count: 1 }] {
                for attempt in 1..=TRIES {
                    let (process, node) = (recorder.new_process(), u64::from(*id));
                    let outcome =
                        workload::ask(recorder, &mut client, node, process, &target, action).await;
                    if outcome == Outcome::Ok || attempt == TRIES {
                        break;
                    }
                    tokio::time::sleep(RETRY_EVERY).await;
                }
                reads.extend(recorder.with(|history| history.ops.last().cloned()));
            }
        }
    }
    reads
}

/// The keys that callers of numbers asked for most often, at most `max`.
pub fn busiest(recorder: &Recorder, max: usize) -> Vec<Target> {
    let mut busiest: Vec<(usize, String)> = recorder.with(|history| {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for op in &history.ops {
            *counts.entry(&op.key).or_default() += 1;
        }
        let named = counts.into_iter();
        named.map(|(key, count)| (count, key.to_owned())).collect()
    });
    busiest.sort_unstable_by(|one, other| other.cmp(one));
    let targets = busiest.into_iter().filter_map(|(_, name)| Target::from_name(&name));
    targets.take(max).collect()
}
