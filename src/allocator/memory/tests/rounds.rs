//! The hand that evicts keys, and its rounds.

use super::*;
use crate::allocator::key_table::hasher::SHARDS;

#[tokio::test]
async fn keys_are_evicted_from_all_shards_alike() {
    let dir = TempDir::new().expect("a directory");
    let (mut machine, memory, book) = in_its_second_epoch(&dir, 1).await;
    let ids: Vec<u64> = (1_000..1_000 + 512 * u64::from(SHARDS)).collect();
    for entry in bumps_of(&book, &ids) {
        machine.apply_now(2, [entry]).await;
    }
    machine.apply_now(3, [Command::BeginEpoch]).await;
    let memory = memory_of(3, memory.view().clone());
    for id in &ids {
        let (answer, _) = memory.take(&book, Key::Id(*id), 1);
        assert!(first_of(&answer).is_some(), "{id}");
    }
    let keys = || -> Vec<usize> {
        let shards = memory.shards().each();
        shards.map(|shard| shard.footprint().keys).collect()
    };
    let before = keys();
    let all = usize::MAX / 2;
    let (swept, at_end) = memory.evict(all, all);
    assert_eq!((swept.keys, at_end), (0, true), "the reference bits are cleared");
    let (swept, at_end) = memory.evict(all, ids.len() / 2);
    assert_eq!((swept.keys, at_end), (ids.len() / 2, false));
    let most = (before.iter().zip(keys())).map(|(before, now)| before - now).max();
    assert!(most <= Some(256), "{most:?} keys of a shard");
    let (swept, at_end) = memory.evict(all, all);
    assert_eq!((swept.keys, at_end), (ids.len() - ids.len() / 2, true));
    assert!(keys().iter().all(|keys| *keys == 0));
}
