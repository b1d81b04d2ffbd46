//! `ratchet start`: runs a node until SIGTERM, SIGINT, SIGHUP or a fault. `supervisor.rs` tells the supervisor that it serves
//! and that it stops, and `forced_end.rs` ends a process in which something hangs.

mod forced_end;
mod supervisor;

use std::{env, fs, future::pending, io, path::PathBuf, time::Duration};

use clap::Args;
use tokio::signal::unix::{Signal, SignalKind, signal};

use self::forced_end::{BEYOND_LIMIT_MAX, end_within};
use super::{
    command_error::CommandError,
    log::{FLUSH_MAX, log_to_stderr},
    settings::{LogFormat, Settings, read_file},
};
use crate::{
    node::{Config, Node, StartError},
    planted_bugs, server,
};

/// How long a node that has answered what was under way has to end. One whose disk hangs never does.
const END_MAX: Duration = Duration::from_secs(8);
/// How long a supervisor waits for that end: until the process is gone, however it ends, and a second more. One that killed it
/// in the same moment would hide the exit code.
const GONE_MAX: Duration =
    END_MAX.saturating_add(BEYOND_LIMIT_MAX).saturating_add(Duration::from_secs(1));

/// `ratchet start`.
#[derive(Debug, Args)]
pub struct StartArgs {
    /// A TOML file with any of the settings below, named like the flags with _ instead of -; flags and
    /// environment variables override it
    #[arg(long, env = "RATCHET_CONFIG")]
    config: Option<PathBuf>,
    /// For trying: found a cluster of one if the data directory is empty. Neither a variable nor the file can say so,
    /// and the directory of such a cluster is only ever started with --dev
    #[arg(long)]
    dev: bool,
    #[command(flatten)]
    settings: Settings,
}

impl StartArgs {
    pub(super) async fn run(self) -> Result<(), CommandError> {
        let file = match &self.config {
            Some(path) => read_file(path)?,
            None => Settings::default(),
        };
        let settings = self.settings.with_secrets(env::var_os)?.or(file);
        let format = settings.log_format.unwrap_or(LogFormat::Human);
        let log = log_to_stderr(settings.log.as_deref(), format)?;
        planted_bugs::asked_for().map_err(CommandError::config)?;
        let config = match self.dev {
            true => settings.config().for_trying(),
            false => settings.config(),
        };
        let signals = Signals::listen().map_err(|error| {
            CommandError::other(format!("cannot listen for SIGTERM, SIGINT and SIGHUP: {error}"))
        })?;
        let served = serve(config, signals).await;
        log.flush(FLUSH_MAX);
        Ok(served?)
    }
}

/// The signals that stop a node.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// `None` if the node was started with that signal ignored, as `nohup` does.
    hangup: Option<Signal>,
}

impl Signals {
    fn listen() -> io::Result<Signals> {
        let status = fs::read_to_string("/proc/self/status");
        let hangup = (!ignores_hangup(status)).then(|| signal(SignalKind::hangup()));
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: hangup.transpose()?,
        })
    }

    /// Waits for one of them; answers its name.
    async fn recv(&mut self) -> &'static str {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            _ = hangup => "SIGHUP",
        }
    }
}

/// Whether a process ignores SIGHUP, by its file `status` in /proc. The lowest bit of the mask is that of signal 1. Where that
/// file does not say so, as without /proc, SIGHUP is taken for the wish to stop: its default would kill the node without a
/// handover.
fn ignores_hangup(status: io::Result<String>) -> bool {
    let mask = status.and_then(|status| {
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        mask.ok_or_else(|| io::Error::other("it has no mask of ignored signals (SigIgn)"))
    });
    match mask {
        Ok(mask) => mask & 1 == 1,
        Err(error) => {
            tracing::warn!(
                %error,
                "/proc/self/status does not tell whether SIGHUP is ignored (nohup): it stops this node, with a handover"
            );
            false
        }
    }
}

/// Runs a node until a signal stops it or it fails.
///
/// # Errors
/// [`StartError`] if the node cannot start, or if a fault stopped it.
async fn serve(config: Config, mut signals: Signals) -> Result<(), StartError> {
    let timeout = Duration::from_millis(config.shutdown_timeout_ms);
    let stop_max = Node::stop_max(&config);
    let starting = server::start(config);
    let node = tokio::select! {
        biased;
        node = starting => node?,
        _ = signals.recv() => {
            supervisor::tell_stopping(GONE_MAX);
            // The runtime waits for the thread that opens the data.
            end_within(END_MAX, CommandError::hangs());
            return Ok(());
        }
    };
    supervisor::tell_ready();
    tokio::select! {
        biased;
        fault = node.failed() => {
            supervisor::tell_stopping(GONE_MAX);
            end_within(END_MAX, StartError::from(fault.clone()).into());
            node.halt().await;
            return Err(fault.into());
        }
        name = signals.recv() => tracing::info!("{name}: stopping"),
    }
    supervisor::tell_stopping(stop_max + GONE_MAX);
    node.hand_over().await;
    end_within(timeout + END_MAX, CommandError::hangs());
    // Before the end, in which Raft is stopped.
    let fault = node.context().fault();
    node.finish().await;
    fault.map_or(Ok(()), |fault| Err(fault.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_ignored_signals_says_whether_sighup_is_among_them() {
        let status = |mask: &str| {
            Ok(format!("Name:\tratchet\nSigIgn:\t{mask}\nSigCgt:\t0000000000000001\n"))
        };
        assert!(ignores_hangup(status("0000000000001001")));
        assert!(!ignores_hangup(status("0000000000001000")));
    }

    #[test]
    fn without_the_mask_of_ignored_signals_sighup_stops_a_node() {
        assert!(!ignores_hangup(Ok("Name:\tratchet\n".to_owned())));
        assert!(!ignores_hangup(Err(io::ErrorKind::NotFound.into())));
    }
}
