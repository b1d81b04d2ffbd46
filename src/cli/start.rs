//! `ratchet start`: runs a node until SIGTERM, SIGINT, SIGHUP or a fault.

use std::{fs, future::pending, io, path::PathBuf};

use clap::Args;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{
    exit::CommandError,
    log::log_to_stderr,
    settings::{LogFormat, Settings, read_file},
};
use crate::{
    node::{Config, Seams, StartError},
    server,
};

/// `ratchet start`.
#[derive(Debug, Args)]
pub struct Start {
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

impl Start {
    pub(super) async fn run(self) -> Result<(), CommandError> {
        let file = match &self.config {
            Some(path) => read_file(path)?,
            None => Settings::default(),
        };
        let settings = self.settings.or(file);
        let format = settings.log_format.unwrap_or(LogFormat::Human);
        let log = log_to_stderr(settings.log.as_deref(), format)?;
        let config = Config { dev: self.dev, ..settings.config() };
        let signals = Signals::listen().map_err(|error| {
            CommandError::other(format!("cannot listen for SIGTERM, SIGINT and SIGHUP: {error}"))
        })?;
        let served = serve(config, signals).await;
        log.flush();
        Ok(served?)
    }
}

/// The signals that stop a node.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// `None` if whoever started the node has it ignore that signal, as `nohup` does.
    hangup: Option<Signal>,
}

impl Signals {
    fn listen() -> io::Result<Signals> {
        let status = fs::read_to_string("/proc/self/status")?;
        let hangup = (!ignores_hangup(&status)).then(|| signal(SignalKind::hangup()));
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
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            _ = hangup => "SIGHUP",
        }
    }
}

/// Whether a process ignores SIGHUP, by its file `status` in /proc. The lowest bit of the mask is that of signal 1.
fn ignores_hangup(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & 1 == 1)
}

/// Runs a node until a signal stops it or it fails.
///
/// # Errors
/// [`StartError`] if the node cannot start, or if a fault stopped it.
async fn serve(config: Config, mut signals: Signals) -> Result<(), StartError> {
    let starting = server::start(config, Seams::default());
    let node = tokio::select! {
        node = starting => node?,
        _ = signals.recv() => return Ok(()),
    };
    tokio::select! {
        fault = node.failed() => {
            node.halt().await;
            return Err(fault.into());
        }
        name = signals.recv() => tracing::info!("{name}: stopping"),
    }
    node.stop().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_ignored_signals_says_whether_sighup_is_among_them() {
        let status =
            |mask: &str| format!("Name:\tratchet\nSigIgn:\t{mask}\nSigCgt:\t0000000000000001\n");
        assert!(ignores_hangup(&status("0000000000001001")));
        assert!(!ignores_hangup(&status("0000000000001000")));
        assert!(!ignores_hangup("Name:\tratchet\n"));
    }
}
