//! Tells the supervisor that the node serves, and that it stops. The protocol is systemd's: a datagram of lines to the socket
//! that the variable NOTIFY_SOCKET names. Without that variable nobody is told.
//!
//! Invariant: a supervisor that is gone, or does not read, holds up no node for longer than [`SEND_MAX`].

use std::{
    env,
    ffi::OsStr,
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
    path::Path,
    time::Duration,
};

const SOCKET: &str = "NOTIFY_SOCKET";
/// How long a supervisor has to make room for a message.
const SEND_MAX: Duration = Duration::from_secs(1);

/// Tells that the node's ports listen. A unit that waits for this one may ask the node.
pub fn tell_ready() {
    tell("READY=1\n");
}

/// Tells that the node stops, and how long that takes at most. A supervisor that would kill it earlier gives it that time.
pub fn tell_stopping(limit: Duration) {
    tell(&format!("STOPPING=1\nEXTEND_TIMEOUT_USEC={}\n", limit.as_micros()));
}

fn tell(message: &str) {
    let Some(socket) = env::var_os(SOCKET) else {
        return;
    };
    if let Err(error) = send(&socket, message.as_bytes()) {
        tracing::warn!(
            %error,
            ?socket,
            "the supervisor could not be told {message:?}; it may think that this node hangs. Is {SOCKET} its socket?"
        );
    }
}

fn send(socket: &OsStr, message: &[u8]) -> io::Result<()> {
    let address = match socket.as_bytes() {
        // One without a file.
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(Path::new(socket))?,
    };
    let from = UnixDatagram::unbound()?;
    from.set_write_timeout(Some(SEND_MAX))?;
    from.send_to_addr(message, &address).map(drop)
}
