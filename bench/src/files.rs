//! The limit on files that a process may open: each connection is one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::error::Error;

/// Has this process and its child processes open `count` files each: raises its own limit to the one that it is allowed.
///
/// # Errors
/// If fewer are allowed.
pub fn allow(count: u64) -> Result<(), Error> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    if maximum.is_some_and(|maximum| maximum < count) {
        return Err(Error::config(format!(
            "the process may open {} files, and {count} are needed; raise the limit with ulimit -Hn {count}, or ask \
             for fewer connections",
            maximum.unwrap_or(0)
        )));
    }
    let wanted = Rlimit { current: maximum, maximum };
    setrlimit(Resource::Nofile, wanted).map_err(|error| {
        Error::other(format!("cannot raise the limit on open files to {maximum:?}: {error}"))
    })
}
