//! Recoveries that are cut short.

use super::*;
use crate::{
    sequence::{AccessChange, Grant, PRINCIPALS_MAX, PrincipalKey},
    storage::recovery::margin::RaisePlan,
};

/// Opens the database as a recovery does.
fn database(dir: &Path) -> Result<Database, StoreError> {
    let options = StoreOptions::new(Arc::new(BootClock));
    let newest = identity::newest_release(identity::read_marker(dir)?.as_ref());
    Database::open(dir, data_dir::lock(dir)?, newest, &options)
}

fn plan(survivor: &Survivor<'_>, margin_steps: u64) -> Result<RaisePlan, StoreError> {
    let dir = survivor.db.dir();
    steps(margin_steps).plan(&survivor.known, BootClock.wall_ms(), dir)
}

#[test]
fn a_recovery_that_is_cut_short_before_the_switch_changes_nothing() {
    let dir = directory(3, Vec::new());
    let before = open(dir.path()).unwrap().owner.load().identity.clone();
    let raise = || -> Result<(), StoreError> {
        let db = Arc::new(database(dir.path())?);
        let survivor = Survivor::read(&db, SET, before.clone(), BootClock.wall_ms())?;
        let plan = plan(&survivor, 50)?;
        raised_table::raise(&survivor, &plan, false).map(drop)
    };
    raise().unwrap();
    let store = open(dir.path()).unwrap();
    assert_eq!((&store.owner.load().identity, ceiling(&store, 1)), (&before, 100));
    drop(store);
    // Another run, with another margin, starts from the unraised ceilings.
    recover(dir.path(), SET, &steps(1), false).unwrap();
    let store = open(dir.path()).unwrap();
    assert_eq!(ceiling(&store, 1), 190);
    assert_ne!(store.incarnation(), before.incarnation);
}

#[test]
fn a_recovery_that_is_cut_short_after_the_switch_is_completed_by_another_run() {
    let key = PrincipalKey::Certificate("ratchet://test/client/ci".to_owned());
    let granted = AccessChange::Grant {
        key: key.clone(),
        grants: Grant::everything(),
        principals_max: PRINCIPALS_MAX,
    };
    let dir = directory(3, vec![Command::ChangeAccess(granted)]);
    let before = open(dir.path()).unwrap().owner.load().identity.clone();
    let switch = || -> Result<Pending, StoreError> {
        let db = database(dir.path())?;
        let db = Arc::new(db);
        let survivor = Survivor::read(&db, SET, before.clone(), BootClock.wall_ms())?;
        let plan = plan(&survivor, 50)?;
        switch::switch(&survivor, raised_table::raise(&survivor, &plan, false)?)
    };
    let pending = switch().unwrap();
    let refused = open(dir.path()).err().expect("refused").to_string();
    assert!(refused.contains("ratchet recover"), "{refused}");
    // The marker was written, and then the power was cut.
    let db = database(dir.path()).unwrap();
    identity::write_marker(&db, &pending.identity, false).unwrap();
    drop(db);
    assert!(open(dir.path()).is_err());
    let (would, named) = super::super::recover(dir.path(), SET, &steps(7), true).unwrap();
    assert!(named.get(&key).is_some(), "the principals of the raised table");
    let done = recover(dir.path(), SET, &steps(7), false).unwrap();
    assert!(would == done && done.completed_only);
    let store = open(dir.path()).unwrap();
    assert_eq!(ceiling(&store, 1), 680, "raised once, by the first run's margin");
    assert_eq!(store.owner.load().identity, pending.identity);
}
