//! The owner of a connection, and the asker of each call over it. A token in the headers of a call counts more than a
//! certificate, and the local socket counts more than both.

use std::{net::IpAddr, sync::Arc};

use hyper::{HeaderMap, header::AUTHORIZATION, http::Extensions};

use super::stream::Stream;
use crate::{
    metrics::Interface,
    node::{Access, Asker, Entrance, SeveralTokens},
    proto::Refusal,
    sequence::{Credential, NO_NETWORK, TokenHash, network_of},
    server::header_values::values,
};

/// The word before a token in a header.
const BEARER: &[u8] = b"bearer ";

/// The owner of a connection, as far as the connection tells.
#[derive(Debug, Clone)]
pub struct Owner {
    certificate: Option<Arc<str>>,
    network: u64,
    entrance: Option<Entrance>,
    is_tls: bool,
    /// Whether the connection is one of the local socket.
    is_local: bool,
}

/// An owner of whom nothing is known, and no address.
static NOBODY: Owner = Owner {
    certificate: None,
    network: NO_NETWORK,
    entrance: None,
    is_tls: false,
    is_local: false,
};

impl Owner {
    /// The owner of `stream`, which is one of `interface`.
    pub fn of(stream: &Stream, interface: Interface) -> Owner {
        let address = stream.socket().peer_addr().map(|address| address.ip());
        let address = address.unwrap_or(IpAddr::from([0, 0, 0, 0])).to_canonical();
        let entrance = Some(Entrance { interface, address: Some(address), is_admin_port: false });
        let network = network_of(address);
        let (certificate, is_tls) = (stream.client(), stream.is_tls());
        Owner { certificate, network, entrance, is_tls, is_local: false }
    }

    /// This owner, who has come to the port for administrators.
    pub fn at_admin_port(self) -> Owner {
        let entrance = self.entrance.map(|at| Entrance { is_admin_port: true, ..at });
        Owner { entrance, ..self }
    }

    /// An owner who may open the data directory, and has come over the local socket.
    pub fn local() -> Owner {
        let interface = Interface::grpc;
        let entrance = Some(Entrance { interface, address: None, is_admin_port: false });
        Owner { is_local: true, entrance, ..Owner::nobody() }
    }

    /// An owner of whom nothing is known, and no address: there is no connection.
    pub fn nobody() -> Owner {
        NOBODY.clone()
    }

    /// The owner of the connection over which a request with these extensions came. The fuzzer has no connection.
    pub fn in_extensions(extensions: &Extensions) -> &Owner {
        extensions.get().unwrap_or(&NOBODY)
    }

    /// Whether the connection speaks TLS.
    pub fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// The connection, which this task serves, begins: it counts for its principal, if that is known by a certificate.
    pub fn begins(&self, access: &Access) {
        // If that principal has as many connections as it may have, its first call is told so.
        let _ = access.connection_is_used_by(&self.asker());
    }

    /// The asker, by the connection alone.
    pub fn asker(&self) -> Asker {
        if self.is_local {
            return Asker::local().through(self.entrance);
        }
        let shown = match &self.certificate {
            Some(uri) => Credential::Certificate(uri.clone()),
            None => Credential::Nothing,
        };
        Asker::caller(shown, self.network).through(self.entrance)
    }

    /// The asker with this token.
    pub fn with_token(&self, token: &[u8]) -> Asker {
        self.asker().with_token(token)
    }

    /// The asker with the token that has this hash.
    pub fn with_hash(&self, hash: TokenHash) -> Asker {
        self.asker().with_hash(hash)
    }

    /// The asker of a call with these headers, as [`Owner::shown_in`]. The audit tells of a caller that shows several
    /// tokens.
    ///
    /// # Errors
    /// UNAUTHENTICATED if there are several tokens.
    pub fn asks_with(&self, headers: &HeaderMap, access: &Access) -> Result<Asker, Refusal> {
        self.shown_in(headers).map_err(|SeveralTokens| access.several_tokens(&self.asker()))
    }

    /// The asker of a call with these headers. Anything but a token, such as a password for a proxy, is left alone. Over
    /// the local socket no token is looked at: it may be the one that is to be replaced.
    ///
    /// # Errors
    /// [`SeveralTokens`] if there are some.
    pub fn shown_in(&self, headers: &HeaderMap) -> Result<Asker, SeveralTokens> {
        if self.is_local {
            return Ok(self.asker());
        }
        let mut tokens = values(headers, AUTHORIZATION).filter_map(|value| {
            let (scheme, token) = value.as_bytes().split_at_checked(BEARER.len())?;
            scheme.eq_ignore_ascii_case(BEARER).then_some(token.trim_ascii())
        });
        match (tokens.next(), tokens.next()) {
            (None, _) => Ok(self.asker()),
            (Some(token), None) => Ok(self.with_token(token)),
            (Some(_), Some(_)) => Err(SeveralTokens),
        }
    }
}
