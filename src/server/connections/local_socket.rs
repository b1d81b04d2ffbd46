//! The local socket of a node: a Unix socket in its data directory, over which it speaks as on the port for clients.
//!
//! Invariant: only this process's user and root can connect. The node accepts no connection before the file has that mode. No
//! two nodes listen in one directory: the node that binds holds the directory's lock.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::{FileTypeExt, PermissionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::{
    net::{UnixListener, UnixSocket, UnixStream},
    time::sleep,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    CLIENT_CALLS, CLIENT_WINDOWS, Ends,
    acceptor::ACCEPT_PAUSE,
    answering::Answering,
    http2,
    places::{ConnectionPlace, WhenFull},
    serve_http2,
};
use crate::{server::rare_warning::RareWarning, storage::LOCAL_SOCKET};

/// How many connections there may be at a time. A further one is closed.
const CONNECTIONS_MAX: usize = 16;
/// How many connections may wait to be accepted.
const BACKLOG: u32 = 64;
/// Its user alone may connect.
const MODE: u32 = 0o600;
/// How many bytes the path of a socket may have (`sun_path`, without the byte that ends it).
const PATH_BYTES_MAX: usize = 107;

/// A local socket that is listened on.
#[derive(Debug)]
pub struct LocalSocket {
    path: PathBuf,
    listener: UnixListener,
}

impl LocalSocket {
    /// Listens in the data directory `dir`, whose lock this process holds. `None` if that is not possible, with a warning: a
    /// node needs no local socket to serve its ports.
    pub fn bind(dir: &Path) -> Option<LocalSocket> {
        let path = dir.join(LOCAL_SOCKET);
        match listen(&path) {
            Ok(listener) => Some(LocalSocket { path, listener }),
            Err(why) => {
                tracing::warn!("there is no local socket {}: {why}", path.display());
                None
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Serves its connections with `service` until `stop`. Then it accepts no more, removes the file, and returns once the
    /// calls in progress are answered. A connection may be idle for `idle`.
    pub async fn serve(self, service: impl Answering, idle: Duration, stop: CancellationToken) {
        let LocalSocket { path, listener } = self;
        let (serving, warning) = (TaskTracker::new(), RareWarning::default());
        loop {
            let accepted = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                accepted = listener.accept() => accepted,
            };
            let why = match accepted {
                Ok((socket, _)) if serving.len() < CONNECTIONS_MAX => {
                    serving.spawn(serve_connection(socket, service.clone(), idle, stop.clone()));
                    continue;
                }
                Ok(_) => {
                    format!("closed a connection: it has {CONNECTIONS_MAX}, and may have no more")
                }
                Err(error) => {
                    sleep(ACCEPT_PAUSE).await;
                    format!("cannot accept connections: {error}")
                }
            };
            if warning.is_due() {
                tracing::warn!("local socket {}: {why}", path.display());
            }
        }
        drop(listener);
        // This does not run on a worker of the runtime, because the disk may hang. A file that is left behind is removed by the
        // next start.
        if let Err(error) = tokio::fs::remove_file(&path).await {
            tracing::debug!(%error, "the local socket is not removed");
        }
        serving.close();
        serving.wait().await;
    }
}

async fn serve_connection(
    socket: UnixStream, service: impl Answering, idle: Duration, stop: CancellationToken,
) {
    let place = ConnectionPlace::new(WhenFull::RefuseNew, None);
    let http2 = http2((CLIENT_CALLS, CLIENT_WINDOWS), idle, &place);
    let ends = Ends { idle, too_old_at: None, stop };
    if let Err(error) = serve_http2(socket, http2, service, place, ends).await {
        tracing::debug!(error, "a connection of the local socket failed");
    }
}

/// Listens at `path`.
///
/// # Errors
/// A text that says why that is not possible, and what to do.
fn listen(path: &Path) -> Result<UnixListener, String> {
    let bytes = path.as_os_str().len();
    if bytes > PATH_BYTES_MAX {
        return Err(format!(
            "its path has {bytes} bytes, and the system takes {PATH_BYTES_MAX}; choose a shorter data_dir"
        ));
    }
    made(path).map_err(|error| {
        format!(
            "{error}; see that its disk has room and takes sockets, and that no other file is there"
        )
    })
}

fn made(path: &Path) -> io::Result<UnixListener> {
    // A node that crashed has left it.
    if fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        fs::remove_file(path)?;
    }
    let socket = UnixSocket::new_stream()?;
    socket.bind(path)?;
    fs::set_permissions(path, Permissions::from_mode(MODE))?;
    socket.listen(BACKLOG)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    #[tokio::test]
    async fn a_socket_is_its_users_alone_and_takes_the_place_of_one_that_was_left() {
        let dir = TempDir::new().expect("a directory");
        for _ in 0..2 {
            let socket = LocalSocket::bind(dir.path()).expect("a socket");
            let mode = fs::metadata(socket.path()).expect("a file").permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            UnixStream::connect(socket.path()).await.expect("a connection");
        }
        let left = dir.path().join(LOCAL_SOCKET);
        let refused = UnixStream::connect(&left).await.expect_err("nobody listens");
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[tokio::test]
    async fn what_is_in_its_place_and_is_no_socket_stays() {
        let dir = TempDir::new().expect("a directory");
        let path = dir.path().join(LOCAL_SOCKET);
        fs::write(&path, "mine").expect("written");
        assert!(LocalSocket::bind(dir.path()).is_none());
        assert_eq!(fs::read_to_string(&path).expect("a file"), "mine");
    }

    #[tokio::test]
    async fn a_path_that_is_too_long_is_told_with_what_to_do() {
        let dir = TempDir::new().expect("a directory");
        let length = PATH_BYTES_MAX - dir.path().as_os_str().len() - "/".len();
        let longest = dir.path().join("s".repeat(length));
        listen(&longest).expect("it has as many bytes as it may have");
        let refused = listen(&longest.with_extension("s")).expect_err("too long");
        let told = refused.contains("has 109 bytes") && refused.contains("takes 107");
        assert!(told && refused.contains("choose a shorter data_dir"), "{refused}");
    }
}
