//! `ratchet next` and `ratchet current`.

use clap::Args;
use serde_json::json;

use super::{Connection, Failed, output};
use crate::proto::v1::{self, key::Kind};

/// Which key.
#[derive(Debug, Args)]
struct KeyArgs {
    /// The namespace, for example "book"
    namespace: String,
    /// The key: an unsigned 64-bit integer is an id, anything else a name
    key: String,
    /// Take the key for a name even if it looks like an id
    #[arg(long)]
    name: bool,
}

impl KeyArgs {
    fn key(&self) -> v1::Key {
        let kind = match self.key.parse() {
            Ok(id) if !self.name => Kind::Id(id),
            _ => Kind::Name(self.key.clone().into_bytes().into()),
        };
        v1::Key { kind: Some(kind) }
    }
}

/// `ratchet next`.
#[derive(Debug, Args)]
pub struct Next {
    #[command(flatten)]
    key: KeyArgs,
    /// How many numbers
    #[arg(long, default_value_t = 1)]
    count: u64,
    #[command(flatten)]
    pub(super) connection: Connection,
}

impl Next {
    pub(super) async fn run(self) -> Result<(), Failed> {
        let mut client = self.connection.client()?;
        let key = self.key.key();
        let answer = client.next(&self.key.namespace, key, self.count).await?;
        let v1::NextResponse {
            first,
            last,
            increment,
            ..
        } = answer;
        let value = json!({"first": first, "last": last, "increment": increment});
        let text = if first == last {
            first.to_string()
        } else {
            format!("{first} .. {last} (increment {increment})")
        };
        output::either(self.connection.json, &value, &text)
    }
}

/// `ratchet current`.
#[derive(Debug, Args)]
pub struct Current {
    #[command(flatten)]
    key: KeyArgs,
    #[command(flatten)]
    pub(super) connection: Connection,
}

impl Current {
    pub(super) async fn run(self) -> Result<(), Failed> {
        let mut client = self.connection.client()?;
        let last = client.current(&self.key.namespace, self.key.key()).await?;
        let text = last.map_or("none yet".to_owned(), |last| last.to_string());
        output::either(self.connection.json, &json!({"last": last}), &text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(key: &str, name: bool) -> Kind {
        let args = KeyArgs {
            namespace: "book".into(),
            key: key.into(),
            name,
        };
        args.key().kind.unwrap()
    }

    #[test]
    fn integers_are_ids_unless_said_otherwise() {
        assert_eq!(kind("42", false), Kind::Id(42));
        assert_eq!(kind("18446744073709551615", false), Kind::Id(u64::MAX));
        assert_eq!(kind("42", true), Kind::Name(b"42".as_slice().into()));
        assert_eq!(kind("-1", false), Kind::Name(b"-1".as_slice().into()));
        assert_eq!(kind("", false), Kind::Name(b"".as_slice().into()));
    }
}
