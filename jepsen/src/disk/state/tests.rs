//! Power cuts: the files, names and removals that are durable, and those that are lost.

use std::{thread, time::Duration};

use super::*;

fn state() -> (State, INodeNo) {
    (State::empty(1), INodeNo::ROOT)
}

fn file(state: &mut State, dir: INodeNo, name: &str) -> INodeNo {
    let made = state.make(dir, name.as_ref(), Inode::File(Content::default()));
    made.unwrap().ino
}

fn dir(state: &mut State, parent: INodeNo, name: &str) -> INodeNo {
    let made = state.make(parent, name.as_ref(), Inode::Dir(Names::default()));
    made.unwrap().ino
}

#[test]
fn a_synced_file_goes_with_a_directory_whose_own_name_was_not_synced() {
    let (mut state, root) = state();
    let data = dir(&mut state, root, "data");
    let marker = file(&mut state, data, "NODE");
    state.sync(marker).unwrap();
    state.sync(data).unwrap();
    let mut kept = state.image.clone();
    state.lose_all();
    assert!(state.find(root, "data".as_ref()).is_err());
    assert_eq!(state.image.inodes.len(), 1, "the root alone is left");

    std::mem::swap(&mut state.image, &mut kept);
    state.sync(root).unwrap();
    state.lose_all();
    assert!(state.find(data, "NODE".as_ref()).is_ok());
}

#[test]
fn fsync_of_a_file_alone_saves_its_name_only_where_order_is_not_kept() {
    for seed in 0..50 {
        let (mut state, root) = state();
        let data = dir(&mut state, root, "data");
        let synced = file(&mut state, data, "file");
        state.sync(synced).unwrap();
        let mut rng = StdRng::seed_from_u64(seed);
        let drawn = Loss::draw(0, 1, &mut StdRng::seed_from_u64(seed));
        state.lose_names(&mut rng);
        let stands = state.find(data, "file".as_ref()).is_ok();
        assert_eq!(stands, matches!(drawn, Loss::Any), "seed {seed}: {drawn:?}");
    }
}

#[test]
fn what_was_removed_stays_until_the_removal_is_durable_and_nobody_reads_it() {
    let (mut state, root) = state();
    let removed = file(&mut state, root, "removed");
    state.write(removed, 0, b"bytes").unwrap();
    state.sync(removed).unwrap();
    state.sync(root).unwrap();
    state.opened(removed.into());
    state.remove(root, "removed".as_ref()).unwrap();
    let image = state.image.clone();
    state.lose_all();
    let back = state.find(root, "removed".as_ref()).unwrap();
    assert_eq!(state.file(INodeNo(back)).unwrap().bytes, b"bytes");

    state.image = image;
    state.sync(root).unwrap();
    assert!(state.file(removed).is_ok(), "it is open");
    state.released(removed.into());
    state.sync(root).unwrap();
    assert!(state.file(removed).is_err());
}

#[test]
fn either_half_of_a_rename_between_directories_may_be_lost() {
    let (mut state, root) = state();
    let (one, other) = (dir(&mut state, root, "one"), dir(&mut state, root, "other"));
    file(&mut state, one, "file");
    for synced in [root, one, other] {
        state.sync(synced).unwrap();
    }
    let name = "file".as_ref();
    state.rename((one, name), (other, name)).unwrap();
    let image = state.image.clone();
    state.sync(one).unwrap();
    state.lose_all();
    assert!(state.find(one, name).is_err() && state.find(other, name).is_err());
    state.image = image;
    state.sync(other).unwrap();
    state.lose_all();
    assert!(state.find(one, name).is_ok() && state.find(other, name).is_ok());
}

#[test]
fn an_fsync_of_a_disk_that_hangs_ends_when_the_disk_answers_again() {
    let disk = Arc::new(Mutex::new(State::empty(1)));
    disk.lock().set_faults(DiskFaults { pace: Pace::Hanging, ..DiskFaults::default() });
    let wait = disk.lock().sync(INodeNo::ROOT).unwrap().unwrap();
    assert_eq!(disk.lock().counts.sync_delayed, 1);
    let waiting = {
        let disk = disk.clone();
        thread::spawn(move || wait.end(&disk))
    };
    thread::sleep(Duration::from_millis(20));
    assert!(!waiting.is_finished());
    disk.lock().set_faults(DiskFaults::default());
    waiting.join().unwrap();
    assert_eq!(disk.lock().sync(INodeNo::ROOT).unwrap(), None);
    // One that began before is over, too, although nobody was told of it.
    wait.end(&disk);
}
