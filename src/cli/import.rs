//! `ratchet import`: raises many keys to the numbers in a file.
//!
//! All of the file is read and checked before anything is raised (`check.rs`), and names are compared (`alike.rs`). Then the
//! keys are raised (`send.rs`), and how far that is stands in a file beside it (`progress.rs`), so that an import that was
//! killed goes on where it was. To raise a key twice does no harm: a record that is behind costs time alone. At last every row
//! is read back.
//!
//! A row is of a key, or of the ids of whole sections (`ranges.rs`). `reader.rs` reads the rows: of CSV (`csv_rows.rs`), or
//! of another generator's table (`table_rows.rs`).

mod alike;
mod check;
mod csv_rows;
mod progress;
mod ranges;
mod reader;
mod rows;
mod send;
mod table_rows;

use std::{
    fs::File,
    io::{self, Seek, SeekFrom},
    path::PathBuf,
    time::Duration,
};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use ratchet_client::{Client, Code};
use serde_json::json;

use self::{
    alike::MappedKeys,
    check::{Checked, check},
    progress::Progress,
    rows::{Expected, RowFormat},
    send::RowSender,
};
use super::{
    command_error::CommandError,
    connection::{Ask, Connection},
    output,
};

/// How long a message may take at least, on all servers together. One that is given up too early is sent again while the
/// leader is still busy with it.
const MESSAGE_TIME: Duration = Duration::from_secs(30);

/// `ratchet import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// The namespace, for example "book"
    namespace: String,
    /// The file, or - for standard input. An import that was interrupted goes on where it was; one from standard input
    /// begins at the first row
    file: PathBuf,
    /// The form of the file: rows of "key,number" (or "first-last,number" for sections that ids share), or the rows of Leaf's
    /// table leaf_alloc or of Tinyid's tiny_id_info, as mysql --batch prints them
    #[arg(long, value_enum, default_value_t = RowFormat::Csv)]
    format: RowFormat,
    /// Check the file, and raise nothing
    #[arg(long)]
    dry_run: bool,
}

impl Ask for ImportArgs {
    async fn run(self, connection: &Connection) -> Result<(), CommandError> {
        let client = connection.patient_client(MESSAGE_TIME)?;
        let namespace = client.get_namespace(self.namespace.clone()).await?;
        let expected = Expected::new(&namespace)?;
        let shown = self.file.display().to_string();
        let mut file = match self.is_stdin() {
            true => spool().map_err(|error| cannot_read("standard input", &error))?,
            false => File::open(&self.file).map_err(|error| cannot_read(&shown, &error))?,
        };
        let bytes = file.metadata().map_err(|error| cannot_read(&shown, &error))?.len();
        let bar = progress_bar(connection, "checking", bytes);
        let mapped = mapped_keys(&client, &self.namespace).await?;
        let checked = check(&mut file, self.format, &expected, &mapped, &bar)
            .map_err(|error| cannot_read(&shown, &error))?;
        bar.finish_and_clear();
        judge(&checked, &expected, connection, &shown)?;
        if self.dry_run {
            let rows = checked.rows;
            let value = json!({"rows": rows.to_string(), "warnings": checked.warnings.shown()});
            let text = format!("{rows} rows are in order; nothing was raised");
            return output::result(connection.json, &value, &text);
        }
        let sending = RowSender {
            client: &client,
            format: self.format,
            expected: &expected,
            checked: &checked,
        };
        let done = self.raise(&sending, &mut file, connection).await?;
        tell_raised(&checked, done, connection)
    }
}

impl ImportArgs {
    fn is_stdin(&self) -> bool {
        self.file.as_os_str() == "-"
    }

    /// Raises what the rows of the checked `file` are of, and reads all of it back. Returns how many rows an earlier import had
    /// raised.
    ///
    /// # Errors
    /// If the file or the record beside it is not what it should be, the cluster does not raise all, or keys are lower than
    /// their rows say.
    async fn raise(
        &self, sending: &RowSender<'_>, file: &mut File, connection: &Connection,
    ) -> Result<u64, CommandError> {
        let shown = self.file.display().to_string();
        let checked = sending.checked;
        let beside = (!self.is_stdin()).then(|| progress::beside(&self.file));
        let cluster = sending.client.status().await?.cluster;
        let record = Progress {
            cluster,
            namespace: self.namespace.clone(),
            format: self.format,
            bytes: checked.bytes,
            checksum: checked.checksum,
            rows_done: 0,
        };
        let done = match &beside {
            Some(path) => progress::read(path, &record)?,
            None => 0,
        };
        let bar = progress_bar(connection, "raising", checked.rows);
        rewind(file).map_err(|error| cannot_read(&shown, &error))?;
        let note = |rows_done| match &beside {
            Some(path) => progress::write(path, &Progress { rows_done, ..record.clone() }),
            None => Ok(()),
        };
        sending.raise(file, done, &bar, note).await?;
        bar.finish_and_clear();
        let bar = progress_bar(connection, "reading back", checked.rows);
        rewind(file).map_err(|error| cannot_read(&shown, &error))?;
        let lower = sending.read_back(file, &bar).await?;
        bar.finish_and_clear();
        // Also if keys are lower: it says that they are raised, and the next import must not skip them.
        let removed = beside.as_ref().map_or(Ok(()), |path| progress::remove(path));
        if lower.all > 0 {
            let kept = beside.as_deref().filter(|_| removed.is_err());
            return Err(send::refused(&lower, done, kept));
        }
        removed.map(|()| done)
    }
}

/// Prints that all rows of a file are raised, the first `done` of them by an earlier import.
fn tell_raised(checked: &Checked, done: u64, connection: &Connection) -> Result<(), CommandError> {
    let value = json!({
        "rows": checked.rows.to_string(),
        "resumed_at": done.to_string(),
        "warnings": checked.warnings.shown(),
    });
    let read = match checked.has_ranges {
        false => "every key",
        true => "every key, and the first and the last id of every section,",
    };
    let text = format!("{} rows: {read} is at its number or above", checked.rows);
    output::result(connection.json, &value, &text)
}

/// Warns of the rows of a file that somebody should look at, unless the result has them.
///
/// # Errors
/// If it is not to be imported.
fn judge(
    checked: &Checked, expected: &Expected, connection: &Connection, shown: &str,
) -> Result<(), CommandError> {
    let Checked { faults, warnings, .. } = checked;
    if warnings.all > 0 && !connection.json {
        output::warn(&format!("{shown}:{}", warnings.listed()));
    }
    if faults.all > 0 {
        return Err(CommandError::refused(format!(
            "{shown}: {} rows are wrong, and nothing was raised:{}",
            faults.all,
            faults.listed()
        )));
    }
    match expected.beyond_keys_max(checked.sections) {
        Some(why) => Err(CommandError::refused(format!("{shown}: {why}"))),
        None => Ok(()),
    }
}

/// The keys that the settings of the asked server name in a namespace. A server of an earlier release does not tell them.
async fn mapped_keys(client: &Client, namespace: &str) -> Result<MappedKeys, CommandError> {
    match client.list_mapped_keys(namespace.to_owned()).await {
        Ok(answer) => Ok(MappedKeys::new(answer.keys)),
        Err(error) if error.code() == Some(Code::Unimplemented) => Ok(MappedKeys::default()),
        Err(error) => Err(error.into()),
    }
}

/// A bar on standard error, if that is a terminal.
fn progress_bar(connection: &Connection, what: &'static str, total: u64) -> ProgressBar {
    if connection.json {
        return ProgressBar::hidden();
    }
    let template = "{msg:12} [{bar:40}] {percent}% {per_sec}, {eta} left";
    let style = ProgressStyle::with_template(template);
    let bar = ProgressBar::new(total).with_message(what);
    match style {
        Ok(style) => bar.with_style(style.progress_chars("=> ")),
        Err(_) => bar,
    }
}

fn cannot_read(file: &str, error: &io::Error) -> CommandError {
    CommandError::other(format!("cannot read {file}: {error}"))
}

/// Copies standard input to a file without a name, so that it can be read again.
fn spool() -> io::Result<File> {
    let mut file = tempfile::tempfile()?;
    io::copy(&mut io::stdin().lock(), &mut file)?;
    rewind(&mut file)?;
    Ok(file)
}

fn rewind(file: &mut File) -> io::Result<()> {
    file.seek(SeekFrom::Start(0)).map(drop)
}
