//! Puts the harness into network, mount and process namespaces. A process that it starts there ends with it.

use std::{
    env, io,
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, Stdio},
};

const INSIDE: &str = "RATCHET_JEPSEN_INSIDE";
const UNSHARE: [&str; 6] = ["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"];

/// Whether this process is in namespaces of its own already.
pub fn is_inside() -> bool {
    env::var_os(INSIDE).is_some()
}

fn unshare() -> Command {
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(UNSHARE);
    command
}

/// Starts this program again in namespaces of its own. Returns only if that is not possible, with the reason.
pub fn enter() -> String {
    let tried = unshare()
        .arg("ip")
        .args(["tuntap", "add", "dev", "rj-try", "mode", "tun"])
        .stdin(Stdio::null())
        .output();
    match tried {
        Ok(output) if output.status.success() => {}
        Ok(output) => return String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => return error.to_string(),
    }
    let program = match env::current_exe() {
        Ok(program) => program,
        Err(error) => return error.to_string(),
    };
    let mut command = unshare();
    command.arg(program).args(env::args_os().skip(1)).env(INSIDE, "1");
    command.exec().to_string()
}

/// Mounts an empty `/run`, where `ip` keeps named network namespaces: nobody else sees them.
///
/// # Errors
/// `mount` is missing or fails.
pub fn mount_run() -> io::Result<()> {
    let mounted = Command::new("mount").args(["-t", "tmpfs", "tmpfs", "/run"]).status()?;
    if mounted.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("mount of /run: {mounted}")))
}

/// Puts a file into the place of another one, for this process and its child processes.
///
/// # Errors
/// `mount` is missing or fails.
pub fn mount_file(file: &Path, place: &Path) -> io::Result<()> {
    let mounted = Command::new("mount").arg("--bind").args([file, place]).status()?;
    if mounted.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("mount of {}: {mounted}", place.display())))
}
