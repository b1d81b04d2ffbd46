//! A disk under a real node, whose fsyncs fail or hang on demand.

use std::{
    future::ready,
    sync::{Arc, Condvar, Mutex},
};

use ratchet::storage::StoreOptions;

/// What an fsync does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fsync {
    Succeeds,
    /// It does not return until the disk is told otherwise.
    Hangs,
    Fails,
}

/// The disk of one node.
#[derive(Clone)]
pub struct Disk(Arc<(Mutex<Fsync>, Condvar)>);

impl Default for Disk {
    fn default() -> Self {
        Disk(Arc::new((Mutex::new(Fsync::Succeeds), Condvar::new())))
    }
}

impl Disk {
    /// What every fsync does from now on; those that hang go on.
    pub fn set(&self, fsync: Fsync) {
        let (state, changed) = &*self.0;
        *state.lock().unwrap() = fsync;
        changed.notify_all();
    }

    /// Every fsync hangs until the answer is dropped, and fails from then on.
    pub fn hang_then_fail(&self) -> Hanging {
        self.set(Fsync::Hangs);
        Hanging(self.clone())
    }

    /// `options` of a store on this disk.
    pub fn under(&self, options: &StoreOptions) -> StoreOptions {
        let disk = self.clone();
        StoreOptions {
            before_sync: Arc::new(move || Box::pin(ready(disk.sync()))),
            ..options.clone()
        }
    }

    fn sync(&self) -> Result<(), String> {
        let (state, changed) = &*self.0;
        let state = state.lock().unwrap();
        let state = changed.wait_while(state, |fsync| *fsync == Fsync::Hangs);
        match *state.unwrap() {
            Fsync::Fails => {
                Err("IO error: While fdatasync: 000009.log: Input/output error".to_owned())
            }
            Fsync::Succeeds | Fsync::Hangs => Ok(()),
        }
    }
}

/// A disk that hangs.
pub struct Hanging(Disk);

impl Drop for Hanging {
    fn drop(&mut self) {
        self.0.set(Fsync::Fails);
    }
}
