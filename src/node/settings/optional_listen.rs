//! The address of a port that a setting may leave out.

use std::{net::SocketAddr, str::FromStr};

use serde::Deserialize;

/// The address of a port that may be left out, as it is given: an address, or "off".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct OptionalListen(Option<SocketAddr>);

impl FromStr for OptionalListen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(OptionalListen(None));
        }
        let address = text.parse().map_err(|_| {
            format!("{text:?} is no address; give one as 127.0.0.1:7602, or \"off\"")
        })?;
        Ok(OptionalListen(Some(address)))
    }
}

impl TryFrom<String> for OptionalListen {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<OptionalListen> for Option<SocketAddr> {
    fn from(OptionalListen(address): OptionalListen) -> Self {
        address
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_may_be_left_out_is_an_address_or_off_and_is_refused_with_its_value() {
        assert_eq!("off".parse(), Ok(OptionalListen(None)));
        let refused = "here".parse::<OptionalListen>().unwrap_err();
        assert!(refused.contains("\"here\""), "{refused}");
    }
}
