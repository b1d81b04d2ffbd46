//! A connection to a server that does not speak gRPC, over TLS or not.

use std::{io, sync::Arc};

use tokio::net::TcpStream;
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{ClientConfig, pki_types::ServerName},
};
use tokio_util::either::Either;

use crate::token::Token;

/// A connection.
pub type Socket = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// How connections are made, and the credentials that are shown over them.
#[derive(Clone, Default)]
pub struct Manner {
    /// `None`: they are plain.
    pub tls: Option<Arc<ClientConfig>>,
    /// `None`: nothing is shown.
    pub token: Option<Token>,
}

impl Manner {
    /// Connects to `address`, "host:port", and shakes hands if connections are over TLS. The token is not shown yet.
    ///
    /// # Errors
    /// If nobody listens there, or the handshake fails.
    pub async fn connect(&self, address: &str) -> io::Result<Socket> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let Some(tls) = &self.tls else {
            return Ok(Socket::Left(stream));
        };
        let stream = TlsConnector::from(tls.clone()).connect(host_of(address)?, stream).await?;
        Ok(Socket::Right(Box::new(stream)))
    }
}

/// The host of "host:port", which the server's certificate has to name.
///
/// # Errors
/// If it is no name and no IP address.
pub fn host_of(address: &str) -> io::Result<ServerName<'static>> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let name = ServerName::try_from(host.to_owned());
    name.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, format!("{host:?}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_an_address_is_what_a_certificate_has_to_name() {
        for (address, host) in
            [("127.0.0.1:7600", "127.0.0.1"), ("[::1]:7600", "::1"), ("db-1:7600", "db-1")]
        {
            assert_eq!(host_of(address).unwrap().to_str(), host);
        }
        host_of("a b:1").unwrap_err();
    }
}
