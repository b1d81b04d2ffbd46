//! The end of a process in which something hangs, such as a thread that waits for the disk.
//!
//! Invariant: what ends so has handed over, or could not. For its data it is a crash, which loses nothing that was
//! acknowledged.

use std::{process, thread, time::Duration};

use crate::cli::command_error::{CommandError, PRINT_MAX};

/// How long the libraries of the process have to end. RocksDB waits for its threads.
const EXIT_MAX: Duration = Duration::from_secs(2);
/// How long a process goes on at most beyond the limit of [`end_within`]: it tells why it ends, and then its libraries end.
pub(super) const BEYOND_LIMIT_MAX: Duration = PRINT_MAX.saturating_add(EXIT_MAX);

/// Ends the process as `error` says, unless it has ended by itself within `limit`.
pub(super) fn end_within(limit: Duration, error: CommandError) {
    let waiting = move || {
        thread::sleep(limit);
        let why = format!(
            "; and the process did not end within {} s: its disk may hang, so it ends without closing its data",
            limit.as_secs()
        );
        error.and(&why).end(abort_within);
    };
    if let Err(error) = thread::Builder::new().name("ratchet-end".to_owned()).spawn(waiting) {
        tracing::warn!(%error, "no thread looks after the end of this process: if its disk hangs, it does not end");
    }
}

/// Aborts the process unless it has ended within [`EXIT_MAX`]. A supervisor sees the signal then, and no exit code: only unsafe
/// code could end a process with a code and without its exit handlers.
fn abort_within() {
    let waiting = || {
        thread::sleep(EXIT_MAX);
        process::abort();
    };
    if thread::Builder::new().spawn(waiting).is_err() {
        process::abort();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        env,
        process::{Command, Stdio},
    };

    use super::*;

    /// Set for the process that hangs.
    const HANGS: &str = "RATCHET_TEST_HANGS";

    fn hang() {
        end_within(Duration::from_millis(1), CommandError::hangs());
        loop {
            thread::park();
        }
    }

    #[test]
    fn a_process_that_hangs_ends_with_a_message_and_the_code_of_a_disk_that_cannot_be_used() {
        if env::var_os(HANGS).is_some() {
            return hang();
        }
        let test = "cli::start::forced_end::tests::a_process_that_hangs_ends_with_a_message_and_the_code_of_a_disk_that_cannot_be_used";
        let mut command = Command::new(env::current_exe().expect("this program"));
        command.args(["--exact", test, "--nocapture"]).env(HANGS, "1").stdin(Stdio::null());
        let ended = command.output().expect("the process runs");
        assert_eq!(ended.status.code(), Some(74), "{ended:?}");
        let told = String::from_utf8_lossy(&ended.stderr);
        assert!(told.contains("its disk may hang"), "{told}");
    }
}
