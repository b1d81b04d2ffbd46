//! `ratchet export`: writes the rows that `ratchet import` reads. A file gets its name once all rows are in it, so no file has
//! a part of an export. An exact export asks the leader for each key's last number, and is slower.

use std::{
    fs::{self, File, Metadata, Permissions},
    io::{self, BufWriter, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use clap::Args;
use futures::{Stream, StreamExt, stream};
use ratchet_client::{Client, Export, Exported, Key, api as v1};
use serde_json::json;
use tempfile::{Builder, NamedTempFile};

use super::{
    command_error::CommandError,
    connection::{Ask, Connection},
    output,
};

/// How many parts of an exact export are asked for at a time.
const PARTS: usize = 4;
/// How many keys a message asks for at most: with names of 256 bytes it has half of what a node takes.
const KEYS: usize = 2_048;

/// Some keys, or sections, and their numbers.
type ExportedPart = Vec<(Exported, u64)>;

/// `ratchet export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// The namespace, for example "book"
    namespace: String,
    /// Write to this file, which is replaced once all rows are written [default: standard output]
    #[arg(long)]
    output: Option<PathBuf>,
    /// Write the last number of each key. Without this a row has the key's ceiling, up to a step above. It is slower: the
    /// leader is asked for each key. Not where keys share sections
    #[arg(long)]
    exact: bool,
}

impl Ask for ExportArgs {
    async fn run(self, connection: &Connection) -> Result<(), CommandError> {
        let client = connection.client()?;
        let namespace = client.get_namespace(self.namespace.clone()).await?;
        let has_sections = namespace.section_size > 1;
        if self.exact && has_sections {
            return Err(no_exact_sections(&namespace));
        }
        let header = match has_sections {
            false => "key",
            true => "ids",
        };
        let ceilings = parts(client.export(&self.namespace).await?);
        let parts = match self.exact {
            false => ceilings.left_stream(),
            true => exact(&client, &self.namespace, ceilings).right_stream(),
        };
        let Some(path) = &self.output else {
            write_rows(header, parts, io::stdout().lock(), "standard output").await?;
            return Ok(());
        };
        let shown = path.display().to_string();
        let failed = |error: io::Error| cannot_write(&shown, &error);
        let replaced = fs::symlink_metadata(path).ok();
        if replaced.as_ref().is_some_and(|replaced| !replaced.is_file()) {
            return Err(CommandError::refused(format!(
                "{shown} is no regular file, and would be replaced by one; name another file, or leave --output out and \
                 redirect standard output"
            )));
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = parent.unwrap_or(Path::new("."));
        let mut file = new_file(directory, replaced).map_err(failed)?;
        let opened = File::open(directory).map_err(failed)?;
        let rows = write_rows(header, parts, &mut file, &shown).await?;
        keep(file, path, &opened).map_err(failed)?;
        let text = format!("{rows} rows in {shown}");
        output::result(connection.json, &json!({"rows": rows.to_string()}), &text)
    }
}

/// A file in `directory`, with the mode of the one that it replaces, or else the usual one.
fn new_file(directory: &Path, replaced: Option<Metadata>) -> io::Result<NamedTempFile> {
    let mode = replaced.as_ref().map_or(Permissions::from_mode(0o666), Metadata::permissions);
    let file = Builder::new().permissions(mode).tempfile_in(directory)?;
    if let Some(replaced) = replaced {
        // The umask may have taken something from it.
        file.as_file().set_permissions(replaced.permissions())?;
    }
    Ok(file)
}

/// Gives a file its name, in `directory`. It is on the disk then, whatever becomes of the machine.
fn keep(file: NamedTempFile, path: &Path, directory: &File) -> io::Result<()> {
    file.as_file().sync_all()?;
    file.persist(path)?;
    directory.sync_all()
}

/// Why there is no exact export of sections: each of their ids would have to be asked for.
fn no_exact_sections(namespace: &v1::Namespace) -> CommandError {
    let (name, size) = (&namespace.name, namespace.section_size);
    CommandError::refused(format!(
        "the keys of namespace {name:?} share sections of {size} ids: a row has a section and its ceiling, and the last \
         number of each of its ids is not asked for; export it without --exact"
    ))
}

fn parts(parts: Export) -> impl Stream<Item = Result<ExportedPart, CommandError>> {
    stream::unfold(parts, async |mut parts| {
        let part = parts.next().await.transpose()?;
        Some((part.map_err(CommandError::from), parts))
    })
}

/// The parts with the last numbers in the place of ceilings.
///
/// The ceilings are as of one moment. Each last number is asked for after that moment, so it covers all that was handed out
/// before, and what came later as well. The lower of the two covers the former and is not above the ceiling of the moment.
fn exact(
    client: &Client, namespace: &str,
    ceilings: impl Stream<Item = Result<ExportedPart, CommandError>>,
) -> impl Stream<Item = Result<ExportedPart, CommandError>> {
    let last_numbers = move |part: Result<ExportedPart, CommandError>| async move {
        let part = part?;
        let mut last = Vec::with_capacity(part.len());
        for rows in part.chunks(KEYS) {
            let keys = rows.iter().map(|(exported, _)| match exported {
                Exported::Key(key) => Some(key.clone()),
                Exported::Section { .. } => None,
            });
            let keys: Option<Vec<Key>> = keys.collect();
            let keys = keys.ok_or_else(|| {
                CommandError::other(format!(
                    "namespace {namespace:?} was created again meanwhile, with sections that ids share; export it again"
                ))
            })?;
            last.extend(client.current_many(namespace, keys).await?);
        }
        let rows = part.into_iter().zip(last);
        // One without a number may have a ceiling: its caller was gone when the numbers came.
        let rows = rows.map(|((key, ceiling), last)| (key, last.unwrap_or(ceiling).min(ceiling)));
        Ok(rows.collect::<ExportedPart>())
    };
    ceilings.map(last_numbers).buffered(PARTS)
}

async fn write_rows(
    header: &str, parts: impl Stream<Item = Result<ExportedPart, CommandError>>, to: impl Write,
    shown: &str,
) -> Result<u64, CommandError> {
    let mut parts = std::pin::pin!(parts);
    let failed = |error: io::Error| cannot_write(shown, &error);
    let mut rows = csv::Writer::from_writer(BufWriter::new(to));
    let mut written = 0;
    let write = |rows: &mut csv::Writer<_>, key: &[u8], number: &[u8]| {
        rows.write_record([key, number]).map_err(|error| failed(io::Error::other(error)))
    };
    write(&mut rows, header.as_bytes(), b"number")?;
    while let Some(part) = parts.next().await {
        for (exported, number) in part? {
            let key = match exported {
                Exported::Key(Key::Id(id)) => id.to_string().into(),
                Exported::Key(Key::Name(name)) => name,
                Exported::Section { first, last } => format!("{first}-{last}").into(),
            };
            write(&mut rows, &key, number.to_string().as_bytes())?;
            written += 1;
        }
    }
    rows.flush().map_err(failed)?;
    Ok(written)
}

fn cannot_write(file: &str, error: &io::Error) -> CommandError {
    CommandError::other(format!("cannot write {file}: {error}"))
}
