//! The founding voters with their peer addresses, as the setting lists them.

use std::{collections::BTreeMap, str::FromStr};

use serde::Deserialize;

use crate::{node::text_table::TextTable, sequence::NodeId};

/// `peers` as they are given: "1=host:port,2=host:port", or a table in TOML.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "TextTable")]
pub struct Peers(BTreeMap<NodeId, String>);

impl TryFrom<TextTable> for Peers {
    type Error = String;

    fn try_from(given: TextTable) -> Result<Self, String> {
        let mut peers = BTreeMap::new();
        for (id, address) in BTreeMap::from(given) {
            if peers.insert(parse_id(&id)?, address).is_some() {
                return Err(format!("node {id} is named twice; remove one"));
            }
        }
        Ok(Peers(peers))
    }
}

impl FromStr for Peers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        TextTable::parse(text, "id=host:port")?.try_into()
    }
}

impl From<Peers> for BTreeMap<NodeId, String> {
    fn from(Peers(peers): Peers) -> Self {
        peers
    }
}

fn parse_id(id: &str) -> Result<NodeId, String> {
    id.parse().map_err(|_| format!("{id:?} is not a node id, an integer from 1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_a_list_and_each_node_is_named_once() {
        let expected = Peers(BTreeMap::from([(1, "a:1".into()), (2, "b:2".into())]));
        let parse = |text: &str| text.parse::<Peers>();
        assert_eq!(parse("1=a:1,2=b:2").unwrap(), expected);
        assert!(parse("1:a").unwrap_err().contains("\"1:a\""));
        assert!(parse("x=a:1").unwrap_err().contains("\"x\""));
        assert!(parse("1=a:1,1=b:1").unwrap_err().contains("twice"));
        assert!(parse("1=a:1,01=b:1").unwrap_err().contains("twice"));
    }
}
