//! A memory that is full, and new keys whose callers do not wait until there is room.

use super::*;
use crate::allocator::{
    floor::FloorOf, key_table::hasher::SHARDS, outcome::Why, section::answers::RaiseAnswer,
};

/// Far more new keys than may wait in the smallest memory.
const NEW: std::ops::Range<u64> = 1_000_000..1_200_000;

/// Asks for new keys and hangs up. Returns the sections that need something, and how many keys were refused.
fn ask_and_leave(memory: &Memory, namespace: &Namespace) -> (Vec<MemoryPlace>, usize) {
    let (mut places, mut refused) = (Vec::new(), 0);
    for id in NEW {
        let (answer, need) = memory.take(namespace, Key::Id(id), 1);
        match answer {
            TakeAnswer::Done(Err(Why::MemoryFull { max_mb: 0 })) => refused += 1,
            TakeAnswer::Done(other) => panic!("{other:?}"),
            TakeAnswer::Later(_) => places.extend(need.map(|(place, _)| place)),
        }
    }
    (places, refused)
}

fn keys(memory: &Memory) -> usize {
    memory.shards().footprint().keys
}

#[tokio::test]
async fn while_the_memory_is_full_a_bounded_number_of_new_keys_wait_and_no_more_is_kept() {
    let dir = TempDir::new().expect("a directory");
    let (mut memory, book) = second_term(&dir).await;
    memory.room = Arc::new(Room::of(0));
    let warm = Key::Id(7);
    assert_eq!(first_of(&memory.take(&book, warm, 1).0), Some(101));
    memory.room().set_full(true);
    let (places, refused) = ask_and_leave(&memory, &book);
    assert!(places.len() >= 65_536, "a whole message of new keys fits");
    assert_eq!(places.len() + refused, NEW.count());
    assert_eq!(keys(&memory), 1 + places.len(), "nothing is kept of the others");
    let refused_id = NEW.end - 1;
    let (raised, need) = memory.raise(&book, (FloorOf::Key, Key::Id(refused_id)), 5);
    let full = Why::MemoryFull { max_mb: 0 };
    assert!(matches!(&raised, RaiseAnswer::Done(Err(why)) if *why == full), "{raised:?}");
    assert_eq!(need, None);
    assert_eq!(first_of(&memory.take(&book, warm, 1).0), Some(102), "it is in use");
    // The reader comes by: nobody waits any more.
    for place in places {
        let noted = memory.begin_read(place).expect("a section");
        let need = memory.record_read(place, &noted, SectionRecord::default(), &book);
        assert_eq!(need, None);
    }
    let (answer, _) = memory.take(&book, Key::Id(refused_id), 1);
    assert!(matches!(answer, TakeAnswer::Later(_)), "{answer:?}");
}

#[tokio::test]
async fn a_new_id_of_a_shared_section_with_numbers_is_served_while_the_memory_is_full() {
    let dir = TempDir::new().expect("a directory");
    let (_, mut memory, users) = in_its_second_epoch(&dir, 100).await;
    memory.room = Arc::new(Room::of(0));
    assert_eq!(first_of(&memory.take(&users, Key::Id(7), 1).0), Some(101));
    memory.room().set_full(true);
    // Calls count, and not only sections: a hundred ids wait for each.
    let (mut sections, mut waiting, mut refused) = (0, Vec::new(), 0);
    for id in NEW {
        match memory.take(&users, Key::Id(id), 1) {
            (TakeAnswer::Later(later), need) => {
                waiting.push(later);
                sections += usize::from(need.is_some());
            }
            (TakeAnswer::Done(_), _) => refused += 1,
        }
    }
    let waiting = waiting.len();
    assert!(waiting > 100 * sections / 2 && waiting < 1_700 * SHARDS as usize, "{waiting}");
    assert!(refused > 0);
    let (answer, _) = memory.take(&users, Key::Id(8), 1);
    assert_eq!(first_of(&answer), Some(101), "its neighbour has numbers");
}

#[tokio::test]
async fn callers_that_ask_for_one_key_time_after_time_and_leave_are_not_kept() {
    let dir = TempDir::new().expect("a directory");
    let (memory, book) = second_term(&dir).await;
    let mut stays = Vec::new();
    for turn in 0..100_000 {
        let (answer, _) = memory.take(&book, Key::Id(8), 1);
        assert!(matches!(answer, TakeAnswer::Later(_)), "{answer:?}");
        let (raised, _) = memory.raise(&book, (FloorOf::Key, Key::Id(8)), 5);
        assert!(matches!(raised, RaiseAnswer::Later(_)), "{raised:?}");
        if turn % 10_000 == 0 {
            stays.push(answer);
        }
    }
    let (_, shard) = memory.shards.find(&book, Key::Id(8));
    let waiting = memory.shards.lock(shard).first_waiters();
    assert!((10..50).contains(&waiting), "{waiting}");
}
