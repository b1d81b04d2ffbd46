//! `ratchet next`, `ratchet current` and `ratchet raise`: take numbers of a key, show its last one, raise its floor.

use clap::Args;

use super::{
    command_error::CommandError,
    connection::{Ask, Connection},
    output,
};
use ratchet_client::{
    Key, Numbers,
    api::{CurrentResponse, NextResponse, RaiseResponse},
};

/// The arguments that name a key.
#[derive(Debug, Args)]
pub struct KeyArgs {
    /// The namespace, for example "book"
    pub(super) namespace: String,
    /// The key: an unsigned 64-bit integer is an id, any other text a name
    key: String,
    /// The key is a name even if it looks like an id
    #[arg(long)]
    name: bool,
}

impl KeyArgs {
    /// The key.
    pub(super) fn key(&self) -> Key {
        key_of(&self.key, self.name)
    }
}

/// The key that a text stands for: an id if it looks like one, unless it is said to be a name.
pub fn key_of(text: &str, is_name: bool) -> Key {
    let is_id = !is_name && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(id) if is_id => Key::Id(id),
        Ok(_) | Err(_) => Key::from(text),
    }
}

/// `ratchet next`.
#[derive(Debug, Args)]
pub struct NextArgs {
    #[command(flatten)]
    key: KeyArgs,
    /// How many numbers to take
    #[arg(long, default_value_t = 1)]
    count: u64,
    /// A name for this request, 1 to 64 bytes, for example a UUID: run the command again with it, and the same
    /// numbers are printed, as long as the id is remembered
    #[arg(long)]
    request_id: Option<String>,
}

impl Ask for NextArgs {
    async fn run(self, connection: &Connection) -> Result<(), CommandError> {
        let client = connection.client()?;
        let key = self.key.key();
        let (namespace, count) = (&self.key.namespace, self.count);
        let answer = match self.request_id {
            None => client.next_range(namespace, key, count).await?,
            Some(id) => client.next_once(namespace, key, count, id).await?,
        };
        let Numbers { first, last, increment } = answer;
        let value = NextResponse { first, last, increment, route: None };
        let text = if first == last {
            first.to_string()
        } else {
            format!("{first} .. {last} (increment {increment})")
        };
        output::result(connection.json, &value, &text)
    }
}

/// `ratchet current`.
#[derive(Debug, Args)]
pub struct CurrentArgs {
    #[command(flatten)]
    key: KeyArgs,
}

impl Ask for CurrentArgs {
    async fn run(self, connection: &Connection) -> Result<(), CommandError> {
        let client = connection.client()?;
        let last = client.current(&self.key.namespace, self.key.key()).await?;
        let text = last.map_or("none yet".to_owned(), |last| last.to_string());
        output::result(connection.json, &CurrentResponse { last, route: None }, &text)
    }
}

/// `ratchet raise`.
#[derive(Debug, Args)]
pub struct RaiseArgs {
    #[command(flatten)]
    key: KeyArgs,
    /// The numbers handed out later are greater than this one
    #[arg(long)]
    at_least: u64,
}

impl Ask for RaiseArgs {
    async fn run(self, connection: &Connection) -> Result<(), CommandError> {
        let client = connection.client()?;
        let raising = client.raise(&self.key.namespace, self.key.key(), self.at_least);
        let raised = raising.await?;
        let value = RaiseResponse { floor: raised.floor, raised: raised.is_higher, route: None };
        let text = match raised.is_higher {
            true => raised.floor.to_string(),
            false => format!("{} (unchanged: it was not below {})", raised.floor, self.at_least),
        };
        output::result(connection.json, &value, &text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(key: &str, name: bool) -> Key {
        let args = KeyArgs { namespace: "book".into(), key: key.into(), name };
        args.key()
    }

    #[test]
    fn an_unsigned_integer_is_an_id_unless_the_name_flag_is_set() {
        assert_eq!(key("42", false), Key::Id(42));
        assert_eq!(key("18446744073709551615", false), Key::Id(u64::MAX));
        assert_eq!(key("42", true), Key::from("42"));
        assert_eq!(key("-1", false), Key::from("-1"));
        assert_eq!(key("", false), Key::from(""));
    }
}
