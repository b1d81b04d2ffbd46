//! `ratchet export`: writes what `ratchet import` reads.

use std::{
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use clap::Args;
use ratchet_client::{Export as Parts, Key};
use serde_json::json;
use tempfile::NamedTempFile;

use super::{connection::Connection, exit::CommandError, output};

/// `ratchet export`.
#[derive(Debug, Args)]
pub struct Export {
    /// The namespace, for example "book"
    namespace: String,
    /// The file, which is replaced once all is written; standard output unless given
    #[arg(long)]
    output: Option<PathBuf>,
    #[command(flatten)]
    pub(super) connection: Connection,
}

impl Export {
    pub(super) async fn run(self) -> Result<(), CommandError> {
        let client = self.connection.client()?;
        let parts = client.export(&self.namespace).await?;
        let Some(path) = self.output else {
            write_rows(parts, io::stdout().lock(), "standard output").await?;
            return Ok(());
        };
        let shown = path.display().to_string();
        let failed = |error: io::Error| cannot_write(&shown, &error);
        let directory = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        let mut file =
            NamedTempFile::new_in(directory.unwrap_or(Path::new("."))).map_err(failed)?;
        let rows = write_rows(parts, &mut file, &shown).await?;
        file.persist(&path).map_err(|error| failed(error.error))?;
        let text = format!("{rows} rows in {shown}");
        output::result(self.connection.json, &json!({"rows": rows}), &text)
    }
}

async fn write_rows(mut parts: Parts, to: impl Write, shown: &str) -> Result<u64, CommandError> {
    let failed = |error: io::Error| cannot_write(shown, &error);
    let mut rows = csv::Writer::from_writer(BufWriter::new(to));
    let mut written = 0;
    let write = |rows: &mut csv::Writer<_>, key: &[u8], number: &[u8]| {
        rows.write_record([key, number])
            .map_err(|error| failed(io::Error::other(error)))
    };
    write(&mut rows, b"key", b"number")?;
    while let Some(part) = parts.next().await? {
        for (key, number) in part {
            let number = number.to_string();
            match key {
                Key::Id(id) => write(&mut rows, id.to_string().as_bytes(), number.as_bytes())?,
                Key::Name(name) => write(&mut rows, &name, number.as_bytes())?,
            }
            written += 1;
        }
    }
    rows.flush().map_err(failed)?;
    Ok(written)
}

fn cannot_write(file: &str, error: &io::Error) -> CommandError {
    CommandError::other(format!("cannot write {file}: {error}"))
}
