//! `ratchet id`: ids with a shape.

use clap::{Args, Subcommand};
use ratchet_client::api::DecodedId;
use ratchet_ids::{Format, Source};
use serde_json::{Value, json};

use super::{
    command_error::CommandError,
    connection::{Ask, Asking, Connection},
    numbers::key_of,
    output,
};

/// `ratchet id`.
#[derive(Debug, Args)]
pub struct IdArgs {
    #[command(subcommand)]
    command: IdCommand,
}

#[derive(Debug, Subcommand)]
enum IdCommand {
    /// Make the next ids of a namespace that has a format
    Next(Asking<Next>),
    /// Take an id apart: show its time and its other fields
    Decode {
        /// The format: the name of a built-in one, or its text
        format: String,
        /// The id, as it is written
        id: String,
        #[command(flatten)]
        shown: Shown,
    },
    /// Tell the parts of a format, how many ids it has in a second, and when it ends
    Explain {
        /// The format: the name of a built-in one, or its text
        format: String,
        #[command(flatten)]
        shown: Shown,
    },
    /// List the built-in formats
    Formats {
        #[command(flatten)]
        shown: Shown,
    },
}

#[derive(Debug, Args)]
struct Shown {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Next {
    /// The namespace, for example "orders"
    namespace: String,
    /// The key whose ids they are, where the format has no worker: an id (0 to 2^64-1) or a name
    key: Option<String>,
    /// The key is a name, even if it looks like a number
    #[arg(long, requires = "key")]
    name: bool,
    /// How many ids to make
    #[arg(long, default_value_t = 1)]
    count: u32,
    /// A parameter of the format, for example type=3. Give one for each
    #[arg(long = "parameter", value_name = "NAME=VALUE", value_parser = parameter)]
    parameters: Vec<(String, u64)>,
}

fn parameter(text: &str) -> Result<(String, u64), String> {
    let parts = text.split_once('=').and_then(|(name, value)| {
        let value = value.parse().ok()?;
        (!name.is_empty()).then(|| (name.to_owned(), value))
    });
    parts.ok_or_else(|| format!("{text:?} is no parameter; write NAME=VALUE, as in type=3"))
}

impl IdArgs {
    pub(super) async fn run(self) -> Result<(), CommandError> {
        let (done, json) = match self.command {
            IdCommand::Next(next) => return next.run().await,
            IdCommand::Decode { format, id, shown } => (decode(&format, &id), shown.json),
            IdCommand::Explain { format, shown } => (explain(&format), shown.json),
            IdCommand::Formats { shown } => (Ok(formats()), shown.json),
        };
        let shown = done.and_then(|(value, text)| output::result(json, &value, &text));
        shown.map_err(|error| error.in_json(json))
    }
}

impl Ask for Next {
    async fn run(self, connection: &Connection) -> Result<(), CommandError> {
        let client = connection.client()?;
        let parameters = self.parameters.iter();
        let parameters: Vec<_> = parameters.map(|(name, value)| (&name[..], *value)).collect();
        let key = self.key.as_deref().map(|key| key_of(key, self.name));
        let made = client.next_ids(&self.namespace, key, self.count, &parameters);
        let texts = made.await?;
        let value = json!({ "ids": texts });
        output::result(connection.json, &value, &texts.join("\n"))
    }
}

fn parsed(format: &str) -> Result<Format, CommandError> {
    Format::parse(format).map_err(|invalid| CommandError::refused(invalid.to_string()))
}

/// The parts of an id, as JSON and as text.
fn decode(format: &str, id: &str) -> Result<(Value, String), CommandError> {
    let format = parsed(format)?;
    let decoded = format.decode(id);
    let decoded = decoded.map_err(|error| CommandError::refused(format!("{id:?}: {error}")))?;
    let fields = decoded.fields().map(|(field, value)| (field.name().to_owned(), value));
    let time = decoded.date_time().to_string();
    let value = DecodedId {
        time: time.clone(),
        time_ms: decoded.parts().time_ms,
        fields: fields.collect(),
    };
    let value = serde_json::to_value(value);
    let value = value.map_err(|error| CommandError::other(error.to_string()))?;
    let mut rows = vec![vec!["time".to_owned(), time]];
    rows.extend(
        (decoded.fields()).map(|(field, value)| vec![field.name().to_owned(), value.to_string()]),
    );
    Ok((value, output::table(&rows)))
}

fn explain(format: &str) -> Result<(Value, String), CommandError> {
    let format = parsed(format)?;
    let fields = format.fields().iter();
    let fields: Vec<Value> = fields
        .map(|field| json!({"name": field.name(), "width": field.width(), "max": field.max().to_string()}))
        .collect();
    let source = match format.source() {
        Source::Worker => "worker",
        Source::Key => "key",
        Source::Date => "date",
    };
    let value = json!({
        "name": format.name(),
        "format": format.to_string(),
        "source": source,
        "fields": fields,
        "ids_per_second": format.ids_per_second().map(|rate| rate.to_string()),
        "workers": format.workers_max().to_string(),
        "first": format.date_time(format.first_ms()).to_string(),
        "last": format.date_time(format.last_ms()).to_string(),
    });
    Ok((value, format.explain().to_string().trim_end().to_owned()))
}

fn formats() -> (Value, String) {
    let all = Format::built_in().map(|(name, text)| json!({"name": name, "format": text}));
    let value = json!({"formats": all.collect::<Vec<_>>()});
    let rows: Vec<Vec<String>> =
        Format::built_in().map(|(name, text)| vec![name.to_owned(), text.to_owned()]).collect();
    (value, output::table(&rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_is_a_name_and_a_value_or_refused_with_what_to_write() {
        assert_eq!(parameter("type=3"), Ok(("type".to_owned(), 3)));
        for none in ["type", "=3", "type=", "type=-1", "type=x"] {
            let why = parameter(none).unwrap_err();
            assert!(why.contains(none) && why.contains("NAME=VALUE"), "{why}");
        }
    }
}
