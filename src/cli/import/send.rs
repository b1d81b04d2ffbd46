//! Raises the keys of a checked file, and reads them back.

use std::{fs::File, io, time::Duration};

use futures::{StreamExt, stream};
use indicatif::ProgressBar;
use ratchet_client::{Client, Error, Key};
use tokio::sync::mpsc;

use super::{
    super::exit::CommandError,
    check::{Checked, Summed, written},
    reader::read,
    rows::{Expected, FAULTS_SHOWN, Format, Row},
};

/// How many rows a message has at most.
const MESSAGE_ROWS: usize = 16_384;
/// How many bytes of names a message has at most, more or less.
const MESSAGE_NAME_BYTES: usize = 500_000;
/// How many messages are under way.
const MESSAGES: usize = 6;
/// How often a message is sent again at most, and the pause before it.
const TRIES: u32 = 60;
const PAUSE: Duration = Duration::from_millis(500);

/// A checked file, and where it goes.
pub struct Import<'a> {
    /// The cluster.
    pub client: &'a Client,
    /// What the file is.
    pub format: Format,
    /// The namespace.
    pub expected: &'a Expected,
    /// What was found in the file.
    pub checked: &'a Checked,
}

/// The rows of a message.
type Message = Vec<Row>;

impl Import<'_> {
    /// Raises the keys of the rows after the first `done`. `note` is told how many rows, from the first one, are
    /// raised.
    ///
    /// # Errors
    /// If the file is not what was checked, or the cluster does not raise a key.
    pub async fn raise(
        &self,
        file: &mut File,
        done: u64,
        bar: &ProgressBar,
        note: impl Fn(u64) -> Result<(), CommandError>,
    ) -> Result<(), CommandError> {
        bar.inc(done);
        let mut raised = done;
        let namespace = &self.expected.namespace;
        self.each_message(
            file,
            done,
            async |message| {
                let floors = || message.iter().map(|row| (row.key.clone(), row.number));
                patiently(async || self.client.raise_many(namespace, floors()).await).await?;
                Ok(message.len() as u64)
            },
            |rows| {
                raised += rows;
                bar.inc(rows);
                note(raised)
            },
        )
        .await
    }

    /// Reads all keys, and compares them with their rows.
    ///
    /// # Errors
    /// If a key is lower than its row says, the file is not what was checked, or the cluster does not answer.
    pub async fn read_back(&self, file: &mut File, bar: &ProgressBar) -> Result<(), CommandError> {
        let namespace = &self.expected.namespace;
        let (mut faults, mut shown) = (0u64, Vec::new());
        self.each_message(
            file,
            0,
            async |message| {
                let keys = || message.iter().map(|row| row.key.clone());
                let last =
                    patiently(async || self.client.current_many(namespace, keys()).await).await?;
                let rows = message.len() as u64;
                let read = message.into_iter().zip(last);
                let lower = read.filter(|(row, last)| {
                    last.unwrap_or(0) < self.expected.last_number(row.number)
                });
                Ok((rows, lower.collect::<Vec<(Row, Option<u64>)>>()))
            },
            |(rows, lower)| {
                bar.inc(rows);
                for (row, last) in lower {
                    faults += 1;
                    if shown.len() < FAULTS_SHOWN {
                        let Row { line, key, number } = row;
                        let (key, last) = (written(&key), last.unwrap_or(0));
                        shown.push(format!(
                            "line {line}: key {key} is at {last}, not at {number}"
                        ));
                    }
                }
                Ok(())
            },
        )
        .await?;
        match faults {
            0 => Ok(()),
            _ => Err(CommandError::other(format!(
                "{faults} keys are lower than they were raised to, which is a bug:\n  {}",
                shown.join("\n  ")
            ))),
        }
    }

    /// Has `send` send the rows after the first `skip`, several messages at a time, and tells `sent` of what comes of
    /// them, in their order.
    async fn each_message<T>(
        &self,
        file: &mut File,
        skip: u64,
        send: impl AsyncFn(Message) -> Result<T, CommandError>,
        mut sent: impl FnMut(T) -> Result<(), CommandError>,
    ) -> Result<(), CommandError> {
        let file = file.try_clone().map_err(|error| unreadable(&error))?;
        let (messages, arriving) = mpsc::channel(MESSAGES);
        let (format, expected) = (self.format, self.expected.clone());
        let reading = tokio::task::spawn_blocking(move || {
            read_messages(file, format, &expected, skip, &messages)
        });
        let arriving = stream::unfold(arriving, async |mut arriving| {
            let message = arriving.recv().await?;
            Some((message, arriving))
        });
        let mut sending = std::pin::pin!(arriving.map(|message| send(message)).buffered(MESSAGES));
        while let Some(outcome) = sending.next().await {
            sent(outcome?)?;
        }
        let read = reading
            .await
            .map_err(|error| CommandError::other(error.to_string()))?;
        let sum = read.map_err(|error| unreadable(&error))?;
        match sum == (self.checked.bytes, self.checked.checksum) {
            true => Ok(()),
            false => Err(CommandError::other(
                "the file was changed while it was imported; import it again",
            )),
        }
    }
}

fn unreadable(error: &io::Error) -> CommandError {
    CommandError::other(format!("cannot read the file again: {error}"))
}

/// Sends the rows after the first `skip` to `messages`. Returns how many bytes were read, and their checksum.
fn read_messages(
    file: File,
    format: Format,
    expected: &Expected,
    skip: u64,
    messages: &mpsc::Sender<Message>,
) -> io::Result<(u64, u32)> {
    let mut summed = Summed::new(file, ProgressBar::hidden());
    let (mut rows, mut bytes, mut message) = (0, 0, Message::new());
    read(&mut summed, format, expected, |row| {
        // One that is wrong now was changed: the checksum tells.
        let Ok(row) = row else { return true };
        rows += 1;
        if rows <= skip {
            return true;
        }
        bytes += name_bytes(&row.key);
        message.push(row);
        if message.len() < MESSAGE_ROWS && bytes < MESSAGE_NAME_BYTES {
            return true;
        }
        bytes = 0;
        messages.blocking_send(std::mem::take(&mut message)).is_ok()
    })?;
    if !message.is_empty() {
        // Nobody receives it if the import has failed, which is told.
        let _ = messages.blocking_send(message);
    }
    Ok(summed.sum())
}

fn name_bytes(key: &Key) -> usize {
    match key {
        Key::Id(_) => 0,
        Key::Name(name) => name.len(),
    }
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
