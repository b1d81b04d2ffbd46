//! `ratchet start`: runs a node until SIGTERM, SIGINT or a fault.

use std::{io::IsTerminal, path::PathBuf};

use clap::Args;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::EnvFilter;

use super::{
    exit::CommandError,
    settings::{LOG_FILTER, LogFormat, Settings, read_file},
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
        log_to_stderr(settings.log.as_deref(), format)?;
        let config = Config { dev: self.dev, ..settings.config() };
        let signals = || Ok((signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?));
        let signals = signals().map_err(|e: std::io::Error| {
            CommandError::other(format!("cannot listen for SIGTERM and SIGINT: {e}"))
        })?;
        Ok(serve(config, signals).await?)
    }
}

/// Runs a node until a signal stops it or it fails.
///
/// # Errors
/// [`StartError`] if the node cannot start, or if a fault stopped it.
async fn serve(
    config: Config, (mut terminate, mut interrupt): (Signal, Signal),
) -> Result<(), StartError> {
    let starting = server::start(config, Seams::default());
    let node = tokio::select! {
        node = starting => node?,
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
    };
    tokio::select! {
        fault = node.failed() => {
            node.halt().await;
            return Err(fault.into());
        }
        _ = terminate.recv() => tracing::info!("SIGTERM: stopping"),
        _ = interrupt.recv() => tracing::info!("SIGINT: stopping"),
    }
    node.stop().await;
    Ok(())
}

/// Starts logging to standard error.
///
/// # Errors
/// If the filter is malformed, or logging is set up already.
fn log_to_stderr(filter: Option<&str>, format: LogFormat) -> Result<(), CommandError> {
    let filter = filter.unwrap_or(LOG_FILTER);
    let filter = EnvFilter::try_new(filter).map_err(|error| {
        CommandError::config(format!(
            "log is {filter:?}: {error}; it takes a filter such as \"info\" or \"ratchet=debug,warn\""
        ))
    })?;
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    let set = match format {
        LogFormat::Human => subscriber.try_init(),
        LogFormat::Json => subscriber.json().try_init(),
    };
    set.map_err(|error| CommandError::other(format!("cannot set up logging: {error}")))
}
