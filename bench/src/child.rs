//! The child processes and the temporary directory of a run. They are gone when the run ends, even if it
//! is killed (the directory then stays).

use std::{
    fs::File,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::time::TimeValLike,
    time::{ClockId, clock_getcpuclockid},
};
use rustix::{
    param::page_size,
    process::{Pid, Signal, kill_process},
};

use crate::error::Error;

/// The temporary directory for data and logs of a run.
pub struct Directory(tempfile::TempDir);

impl Directory {
    /// Creates the directory.
    ///
    /// # Errors
    /// If the directory cannot be created.
    pub fn new() -> Result<Directory, Error> {
        let made = tempfile::Builder::new().prefix("ratchet-bench-").tempdir();
        made.map(Directory)
            .map_err(|error| Error::other(format!("cannot make a temporary directory: {error}")))
    }

    /// The path of a file in it.
    pub fn place(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// A child process that dies with this process.
pub struct Process {
    name: String,
    command: Command,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a program with the arguments and the environment of `command`. Its output goes to a log in `directory`;
    /// if `piped`, only standard error does.
    ///
    /// # Errors
    /// If the log cannot be created, or `setpriv` or the program cannot be started.
    pub fn start(
        directory: &Directory, name: &str, command: &Command, piped: bool,
    ) -> Result<Process, Error> {
        let log = directory.place(&format!("{name}.log"));
        let mut command = mortal(command, &log, piped).map_err(|error| {
            Error::other(format!("cannot start {name}: its log {}: {error}", log.display()))
        })?;
        Ok(Process { name: name.to_owned(), child: spawn(name, &mut command)?, command, log })
    }

    /// Starts the program again, with the same arguments and environment. It must have ended.
    ///
    /// # Errors
    /// If `setpriv` or the program cannot be started.
    pub fn start_again(&mut self) -> Result<(), Error> {
        assert!(self.has_ended(), "{} runs still", self.name);
        self.child = spawn(&self.name, &mut self.command)?;
        Ok(())
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        // It fails if the process has ended by itself, which is as good.
        let _ = self.child.kill();
    }

    /// SIGTERM.
    ///
    /// # Errors
    /// If the signal cannot be sent to the process, although it runs.
    pub fn terminate(&mut self) -> Result<(), Error> {
        let pid = Pid::from_child(&self.child);
        match kill_process(pid, Signal::TERM) {
            Ok(()) => Ok(()),
            // It has ended by itself, which is as good.
            Err(_) if self.has_ended() => Ok(()),
            Err(error) => {
                Err(Error::other(format!("cannot send SIGTERM to {}: {error}", self.name)))
            }
        }
    }

    /// True if the process has ended.
    pub fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    /// Waits until the process has ended, for up to `patience`.
    ///
    /// # Errors
    /// If it still runs then; with the end of its log.
    pub async fn end(&mut self, patience: Duration) -> Result<(), Error> {
        let until = Instant::now() + patience;
        while !self.has_ended() {
            if Instant::now() > until {
                return Err(self.complaint("does not end"));
            }
            // The end of a process is no event of the runtime, so look again and again.
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }

    /// Its standard output, if it is piped; `None` the second time.
    pub fn output(&mut self) -> Option<std::process::ChildStdout> {
        self.child.stdout.take()
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The error for a process that `fails`, such as "does not answer", with the end of its log.
    pub fn complaint(&self, fails: &str) -> Error {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let last = lines[lines.len().saturating_sub(5)..].join("\n");
        Error::other(format!("{} {fails}; the end of its log:\n{last}", self.name))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail if the process has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a program to its end, with the arguments and the environment of `command`.
///
/// # Errors
/// As [`Process::start`]; or if the program fails, or still runs after `patience`; with the end of its log.
pub async fn run(
    directory: &Directory, name: &str, command: &Command, patience: Duration,
) -> Result<(), Error> {
    let mut process = Process::start(directory, name, command, false)?;
    process.end(patience).await?;
    match process.child.wait() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(process.complaint(&format!("failed, {status}"))),
        Err(error) => Err(Error::other(format!("{name}: {error}"))),
    }
}

/// `command` as a process that dies with this one. Its output is added to the file `log`.
///
/// # Errors
/// If the log cannot be created.
fn mortal(command: &Command, log: &Path, piped: bool) -> std::io::Result<Command> {
    let file = File::options().create(true).append(true).open(log)?;
    let out = file.try_clone()?;
    // setpriv, of util-linux, has the kernel kill the child when this process is killed.
    let mut mortal = Command::new("setpriv");
    mortal
        .args(["--pdeathsig", "KILL", "--"])
        .arg(command.get_program())
        .args(command.get_args())
        .stdin(Stdio::null())
        .stdout(if piped { Stdio::piped() } else { out.into() })
        .stderr(file);
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => mortal.env(name, value),
            None => mortal.env_remove(name),
        };
    }
    Ok(mortal)
}

fn spawn(name: &str, command: &mut Command) -> Result<Child, Error> {
    command.spawn().map_err(|error| Error::other(format!("cannot start {name}: setpriv: {error}")))
}

/// The path of this program.
///
/// # Errors
/// If the system does not tell it.
pub fn this_program() -> Result<PathBuf, Error> {
    std::env::current_exe()
        .map_err(|error| Error::other(format!("cannot find this program: {error}")))
}

/// A loopback address that no other process is likely to use: it contains the process id. At 127.0.0.1 a free port is
/// soon the port of somebody's outgoing connection. Where the system has no other loopback address: 127.0.0.1.
pub fn own_ip() -> Ipv4Addr {
    let process = std::process::id() % (35 * 256);
    let own = Ipv4Addr::new(127, 220 + (process / 256) as u8, (process % 256) as u8, 1);
    match TcpListener::bind((own, 0)) {
        Ok(_) => own,
        Err(_) => Ipv4Addr::LOCALHOST,
    }
}

/// `count` free ports at a loopback address of this machine. Another process may take one before it is used.
///
/// # Errors
/// If the system has no free port.
pub fn free_ports(count: usize) -> Result<Vec<SocketAddr>, Error> {
    let ip = own_ip();
    let bound: std::io::Result<Vec<TcpListener>> =
        (0..count).map(|_| TcpListener::bind((ip, 0))).collect();
    let addresses = bound.and_then(|all| all.iter().map(TcpListener::local_addr).collect());
    addresses.map_err(|error| Error::other(format!("no free port: {error}")))
}

/// How much memory of a process is in RAM, in bytes; `None` if the process has ended.
pub fn resident_bytes(process: u32) -> Option<u64> {
    let statm = std::fs::read_to_string(format!("/proc/{process}/statm")).ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * page_size() as u64)
}

/// The CPU time of a process so far, in nanoseconds, with that of its threads that have ended; `None` if the process has ended.
pub fn cpu_nanos(process: u32) -> Option<u64> {
    let process = nix::unistd::Pid::from_raw(i32::try_from(process).ok()?);
    let spent = clock_getcpuclockid(process).and_then(ClockId::now).ok()?;
    u64::try_from(spent.num_nanoseconds()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_thread_that_has_ended_counts() {
        let own = || cpu_nanos(std::process::id()).expect("this process runs");
        let before = own();
        let busy = std::thread::spawn(move || {
            while own() < before + 50_000_000 {
                std::hint::spin_loop();
            }
            own()
        });
        let at_its_end = busy.join().expect("no panic");
        assert!(own() >= at_its_end, "{} ns, and {at_its_end} before", own());
        let mut ended = Command::new("true").spawn().expect("a process");
        ended.wait().expect("it ends");
        assert_eq!(cpu_nanos(ended.id()), None);
    }
}
