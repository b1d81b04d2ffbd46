//! Processes and files that a run needs, and that go when it ends, however it ends.

use std::{
    ffi::OsStr,
    fs::File,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use crate::failed::Failed;

/// A directory for the data and logs of a run.
pub struct Directory(tempfile::TempDir);

impl Directory {
    /// A new one.
    pub fn new() -> Result<Directory, Failed> {
        let made = tempfile::Builder::new().prefix("ratchet-bench-").tempdir();
        made.map(Directory)
            .map_err(|error| Failed::other(format!("cannot make a temporary directory: {error}")))
    }

    /// A place in it.
    pub fn place(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// A process that dies with this one.
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `program`; its output goes to a log in `directory`, but for standard output where
    /// `piped`.
    ///
    /// # Errors
    /// Where it does not start.
    pub fn start(
        directory: &Directory,
        name: &str,
        program: &Path,
        args: &[impl AsRef<OsStr>],
        piped: bool,
    ) -> Result<Process, Failed> {
        let log = directory.place(&format!("{name}.log"));
        let failed = |what: &Path, error: std::io::Error| {
            Failed::other(format!("cannot start {name}: {}: {error}", what.display()))
        };
        let file = File::create(&log).map_err(|error| failed(&log, error))?;
        let out = file.try_clone().map_err(|error| failed(&log, error))?;
        // Of util-linux: has the kernel kill the child when we end in a way that we cannot act upon.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program)
            .args(args)
            .env_remove("RATCHET_CONFIG")
            .stdin(Stdio::null())
            .stdout(if piped { Stdio::piped() } else { out.into() })
            .stderr(file)
            .spawn()
            .map_err(|error| failed(Path::new("setpriv"), error))?;
        Ok(Process {
            name: name.to_owned(),
            child,
            log,
        })
    }

    /// Its standard output, once.
    pub fn output(&mut self) -> Option<std::process::ChildStdout> {
        self.child.stdout.take()
    }

    /// Its id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Why it cannot be used: what it said last.
    pub fn complaint(&self) -> Failed {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let last = lines[lines.len().saturating_sub(5)..].join("\n");
        Failed::other(format!("{} does not answer; it said:\n{last}", self.name))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// This program.
pub fn this_program() -> Result<PathBuf, Failed> {
    std::env::current_exe()
        .map_err(|error| Failed::other(format!("cannot find this program: {error}")))
}

/// A free port of this machine.
///
/// # Errors
/// Where the system has none.
pub fn free_ports(count: usize) -> Result<Vec<SocketAddr>, Failed> {
    let bound: std::io::Result<Vec<TcpListener>> = (0..count)
        .map(|_| TcpListener::bind("127.0.0.1:0"))
        .collect();
    let addresses = bound.and_then(|all| all.iter().map(TcpListener::local_addr).collect());
    addresses.map_err(|error| Failed::other(format!("no free port: {error}")))
}

/// How long the threads of a process ran so far, in nanoseconds; `None` once it is gone.
pub fn cpu_nanos(process: u32) -> Option<u64> {
    let mut total = 0;
    for task in std::fs::read_dir(format!("/proc/{process}/task")).ok()? {
        // A thread that ended meanwhile takes its share with it: a few microseconds.
        let stat = std::fs::read_to_string(task.ok()?.path().join("schedstat")).unwrap_or_default();
        let on_cpu = stat
            .split(' ')
            .next()
            .and_then(|nanos| nanos.parse::<u64>().ok());
        total += on_cpu.unwrap_or(0);
    }
    Some(total)
}
