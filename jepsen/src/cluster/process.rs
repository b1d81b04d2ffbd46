//! A node's process: running, paused or ended.

use std::{
    os::unix::process::ExitStatusExt,
    process::{Child, ExitStatus},
};

use rustix::process::{Pid, Signal, kill_process};

/// A node's process.
#[derive(Debug)]
pub enum Process {
    /// It was never started.
    NotStarted,
    /// It runs.
    Running(Child),
    /// It was stopped by SIGSTOP.
    Paused(Child),
    /// It ended.
    Ended(ExitStatus),
}

impl Process {
    /// Whether it runs or is paused.
    pub fn is_alive(&mut self) -> bool {
        self.exit_status();
        match self {
            Process::Running(_) | Process::Paused(_) => true,
            Process::NotStarted | Process::Ended(_) => false,
        }
    }

    /// How it ended, if it did.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        if let Process::Running(child) = self
            && let Ok(Some(status)) = child.try_wait()
        {
            *self = Process::Ended(status);
        }
        match self {
            Process::Ended(status) => Some(*status),
            Process::NotStarted | Process::Running(_) | Process::Paused(_) => None,
        }
    }

    /// kill -9. Waits until the process has ended; returns whether the signal ended it.
    pub fn kill(&mut self) -> bool {
        let (Process::Running(child) | Process::Paused(child)) = self else {
            return false;
        };
        // This fails if the process has ended by itself. Its status then says so.
        let _ = child.kill();
        let Ok(status) = child.wait() else {
            return false;
        };
        *self = Process::Ended(status);
        status.signal() == Some(Signal::KILL.as_raw())
    }

    /// SIGTERM.
    pub fn terminate(&self) {
        if let Process::Running(child) = self {
            // This fails if the process has just ended, which is the purpose of the signal.
            let _ = kill_process(Pid::from_child(child), Signal::TERM);
        }
    }

    /// SIGSTOP. Returns whether the process is paused now.
    pub fn pause(&mut self) -> bool {
        *self = match std::mem::replace(self, Process::NotStarted) {
            Process::Running(child)
                if kill_process(Pid::from_child(&child), Signal::STOP).is_ok() =>
            {
                Process::Paused(child)
            }
            unchanged => unchanged,
        };
        matches!(self, Process::Paused(_))
    }

    /// SIGCONT.
    pub fn resume(&mut self) {
        *self = match std::mem::replace(self, Process::NotStarted) {
            Process::Paused(child) => {
                // This fails if somebody else killed the process. Its status will say so.
                let _ = kill_process(Pid::from_child(&child), Signal::CONT);
                Process::Running(child)
            }
            unchanged => unchanged,
        };
    }
}
