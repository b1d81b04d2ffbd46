//! Raises the keys and the sections of a checked file, and reads them back. Several messages are under way at a time, and each
//! is sent again after an error that may pass: raising a key twice does no harm.

use std::{fs::File, io, path::Path, time::Duration};

use futures::{StreamExt, stream};
use indicatif::ProgressBar;
use ratchet_client::{Client, Error, Key};
use tokio::sync::mpsc;

use super::{
    check::{Checked, Summed},
    ranges::IdRange,
    reader,
    rows::{Expected, Faults, Row, RowFormat, RowOf, written},
};
use crate::cli::command_error::CommandError;

/// How many keys or sections a message has at most: as many as one entry of the log raises.
const MESSAGE_KEYS: usize = 8_192;
/// How many bytes of names a message has at most, more or less.
const MESSAGE_NAME_BYTES: usize = 500_000;
/// How many batches of rows are under way.
const BATCHES: usize = 6;
/// How often a message is sent again at most, and the pause before it.
const TRIES: u32 = 60;
const PAUSE: Duration = Duration::from_millis(500);

/// A checked file, and where it goes.
pub struct RowSender<'a> {
    /// The cluster.
    pub client: &'a Client,
    /// The format of the file.
    pub format: RowFormat,
    /// The namespace.
    pub expected: &'a Expected,
    /// The facts that the check found in the file.
    pub checked: &'a Checked,
}

/// The error of an import after which `lower` keys are lower than their rows say. By its record, an earlier import had raised
/// the first `skipped` rows. `kept` is the record, if it cannot be removed.
pub fn refused(lower: &Faults, skipped: u64, kept: Option<&Path>) -> CommandError {
    let (all, listed) = (lower.all, lower.listed());
    let record = match kept {
        None => "The record is removed".to_owned(),
        Some(path) => format!("Remove the record {}, which this command cannot", path.display()),
    };
    CommandError::other(match skipped {
        0 => format!("{all} keys are lower than they were raised to, which is a bug:{listed}"),
        _ => format!(
            "{all} keys are lower than their rows say:{listed}\nBy its record, an earlier import had raised \
             {skipped} rows: elsewhere, or before the namespace was created again. {record}; import again: \
             it begins with the first row"
        ),
    })
}

/// Rows that are raised together: with one message, or with several if they are of many sections.
type RowBatch = Vec<Row>;

impl RowSender<'_> {
    /// Raises what the rows after the first `done` are of. `note` is told how many rows, from the first one, are
    /// raised.
    ///
    /// # Errors
    /// If the file is not what was checked, or the cluster does not raise one.
    pub async fn raise(
        &self, file: &mut File, done: u64, bar: &ProgressBar,
        note: impl Fn(u64) -> Result<(), CommandError>,
    ) -> Result<(), CommandError> {
        bar.inc(done);
        let mut raised = done;
        self.each_batch(
            file,
            done,
            async |batch| {
                self.raise_rows(&batch).await?;
                Ok(batch.len() as u64)
            },
            |rows| {
                raised += rows;
                bar.inc(rows);
                note(raised)
            },
        )
        .await
        .map_err(|error| {
            let rows = self.checked.rows;
            error.and(&format!(
                "; {raised} of {rows} rows are raised: to import the file again raises the others"
            ))
        })
    }

    /// Reads all rows back, and compares. Returns the keys that are lower than their rows say.
    ///
    /// # Errors
    /// If the file is not what was checked, or the cluster does not answer.
    pub async fn read_back(
        &self, file: &mut File, bar: &ProgressBar,
    ) -> Result<Faults, CommandError> {
        let mut faults = Faults::default();
        self.each_batch(
            file,
            0,
            async |batch| Ok((batch.len() as u64, self.lower(&batch).await?)),
            |(rows, lower)| {
                bar.inc(rows);
                lower.iter().for_each(|(line, why)| faults.note(*line, why));
                Ok(())
            },
        )
        .await?;
        Ok(faults)
    }

    /// Raises the keys and the sections of some rows.
    async fn raise_rows(&self, rows: &[Row]) -> Result<(), CommandError> {
        let namespace = &self.expected.namespace;
        let mut keys = keys(rows).map(|(row, key)| (key.clone(), row.number));
        while let Some(some) = next_message(&mut keys) {
            let floors = || some.iter().cloned();
            patiently(async || self.client.raise_many(namespace, floors()).await).await?;
        }
        let sections = self.sections(rows);
        let mut sections = sections.map(|(row, section)| (section.first, row.number));
        while let Some(some) = next_message(&mut sections) {
            let floors = || some.iter().copied();
            patiently(async || self.client.raise_sections(namespace, floors()).await).await?;
        }
        Ok(())
    }

    /// Reads the keys of some rows, and the first and the last id of each of their sections. Tells those that are lower
    /// than their rows say, with their lines.
    async fn lower(&self, rows: &[Row]) -> Result<Vec<(u64, String)>, CommandError> {
        let namespace = &self.expected.namespace;
        let keys = keys(rows).map(|(row, key)| (row, key.clone()));
        let ends = self
            .sections(rows)
            .flat_map(|(row, section)| [section.first, section.last].map(|id| (row, Key::Id(id))));
        let mut asked = keys.chain(ends);
        let mut lower = Vec::new();
        while let Some(some) = next_message(&mut asked) {
            let keys = || some.iter().map(|(_, key)| key.clone());
            let last =
                patiently(async || self.client.current_many(namespace, keys()).await).await?;
            for ((Row { line, number, .. }, key), last) in some.iter().zip(last) {
                let last = last.unwrap_or(0);
                if last < self.expected.last_number(*number) {
                    let key = written(key);
                    lower.push((*line, format!("key {key} is at {last}, not at {number}")));
                }
            }
        }
        Ok(lower)
    }

    /// The sections that some rows are of, each with its row.
    fn sections<'r>(&self, rows: &'r [Row]) -> impl Iterator<Item = (&'r Row, IdRange)> {
        let size = self.expected.section_size();
        rows.iter().flat_map(move |row| {
            let range = match &row.of {
                RowOf::Key(_) => None,
                RowOf::Sections(range) => Some(*range),
            };
            let sections = range.into_iter().flat_map(move |range| range.sections(size));
            sections.map(move |section| (row, section))
        })
    }

    /// Has `send` send the rows after the first `skip`, several batches at a time, and tells `sent` of what comes of
    /// them, in their order.
    async fn each_batch<T>(
        &self, file: &mut File, skip: u64, send: impl AsyncFn(RowBatch) -> Result<T, CommandError>,
        mut sent: impl FnMut(T) -> Result<(), CommandError>,
    ) -> Result<(), CommandError> {
        let file = file.try_clone().map_err(|error| unreadable(&error))?;
        let (batches, arriving) = mpsc::channel(BATCHES);
        let (format, expected) = (self.format, self.expected.clone());
        let reading = tokio::task::spawn_blocking(move || {
            read_batches(file, format, &expected, skip, &batches)
        });
        let arriving = stream::unfold(arriving, async |mut arriving| {
            let batch = arriving.recv().await?;
            Some((batch, arriving))
        });
        let mut sending = std::pin::pin!(arriving.map(|batch| send(batch)).buffered(BATCHES));
        while let Some(outcome) = sending.next().await {
            sent(outcome?)?;
        }
        let read = reading.await.map_err(|error| CommandError::other(error.to_string()))?;
        let sum = read.map_err(|error| unreadable(&error))?;
        match sum == (self.checked.bytes, self.checked.checksum) {
            true => Ok(()),
            false => Err(CommandError::other(
                "the file was changed while it was imported; import it again",
            )),
        }
    }
}

/// The keys that some rows are of, each with its row.
fn keys(rows: &[Row]) -> impl Iterator<Item = (&Row, &Key)> {
    rows.iter().filter_map(|row| match &row.of {
        RowOf::Key(key) => Some((row, key)),
        RowOf::Sections(_) => None,
    })
}

/// The next ones that fit a message. A row of many sections is not taken apart at once: it may have a million.
fn next_message<T>(rest: &mut impl Iterator<Item = T>) -> Option<Vec<T>> {
    let message: Vec<T> = rest.take(MESSAGE_KEYS).collect();
    (!message.is_empty()).then_some(message)
}

fn unreadable(error: &io::Error) -> CommandError {
    CommandError::other(format!("cannot read the file again: {error}"))
}

/// Sends the rows after the first `skip` to `batches`. Returns how many bytes were read, and their checksum.
fn read_batches(
    file: File, format: RowFormat, expected: &Expected, skip: u64, batches: &mpsc::Sender<RowBatch>,
) -> io::Result<(u64, u32)> {
    let mut summed = Summed::new(file, ProgressBar::hidden());
    let (mut rows, mut bytes, mut sections, mut batch) = (0, 0, 0, RowBatch::new());
    reader::read(&mut summed, format, expected, |row| {
        // One that is wrong now was changed: the checksum tells.
        let Ok(row) = row else { return true };
        rows += 1;
        if rows <= skip {
            return true;
        }
        match &row.of {
            RowOf::Key(Key::Id(_)) => {}
            RowOf::Key(Key::Name(name)) => bytes += name.len(),
            RowOf::Sections(range) => sections += range.count(expected.section_size()),
        }
        batch.push(row);
        let is_small = bytes < MESSAGE_NAME_BYTES && sections < MESSAGE_KEYS as u64;
        if batch.len() < MESSAGE_KEYS && is_small {
            return true;
        }
        (bytes, sections) = (0, 0);
        batches.blocking_send(std::mem::take(&mut batch)).is_ok()
    })?;
    if !batch.is_empty() {
        // Nobody receives it if the import has failed, which is told.
        let _ = batches.blocking_send(batch);
    }
    Ok(summed.sum())
}

/// Asks until there is an answer, or no hope for one: to raise a key again does no harm.
async fn patiently<T>(ask: impl AsyncFn() -> Result<T, Error>) -> Result<T, CommandError> {
    let mut tries = 0;
    loop {
        match ask().await {
            Ok(answer) => return Ok(answer),
            Err(error) if error.is_retryable() && tries < TRIES => {
                tries += 1;
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}
