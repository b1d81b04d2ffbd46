//! The echo's TLS, which is that of a node's ports for clients.

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use axum::serve::Listener;
use clap::Args;
use futures::{Stream, StreamExt};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{RootCertStore, ServerConfig, crypto::ring, server::WebPkiClientVerifier},
    server::TlsStream,
};
use tokio_stream::wrappers::ReceiverStream;

use crate::{
    error::Error,
    tls::{certificates, private_key},
};

/// How many connections wait at most until they are served.
const WAITING_MAX: usize = 1_024;
/// How long nobody is let in after the system could not let one in, for example because too many files are open.
const PAUSE: Duration = Duration::from_millis(10);

/// The files of an echo with TLS.
#[derive(Debug, Args)]
pub struct EchoOptions {
    /// The certificate, a PEM file; without it connections are plain
    #[arg(long, requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The key of that certificate, a PEM file
    #[arg(long, requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// The CAs of clients, a PEM file: with it, a connection needs a certificate of one of them
    #[arg(long, requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
}

impl EchoOptions {
    /// How handshakes are made, without ALPN; `None` if connections are plain.
    ///
    /// # Errors
    /// If a file cannot be read, or used.
    pub fn read(&self) -> Result<Option<ServerConfig>, Error> {
        let (Some(cert), Some(key)) = (&self.tls_cert, &self.tls_key) else {
            return Ok(None);
        };
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(&error))?;
        let builder = match &self.tls_client_ca {
            None => builder.with_no_client_auth(),
            Some(ca) => {
                let roots = Arc::new(roots(ca)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                builder
                    .with_client_cert_verifier(verifier.build().map_err(|error| unusable(&error))?)
            }
        };
        let (chain, key) = (certificates("--tls-cert", &read(cert)?)?, private_key(&read(key)?)?);
        let mut config = builder.with_single_cert(chain, key).map_err(|error| unusable(&error))?;
        config.ticketer = ring::Ticketer::new().map_err(|error| unusable(&error))?;
        Ok(Some(config))
    }
}

fn unusable(error: &dyn std::fmt::Display) -> Error {
    Error::config(format!("the certificates of the echo cannot be used: {error}"))
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path)
        .map_err(|error| Error::config(format!("cannot read {}: {error}", path.display())))
}

fn roots(path: &Path) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    for ca in certificates("--tls-client-ca", &read(path)?)? {
        roots.add(ca).map_err(|error| unusable(&error))?;
    }
    Ok(roots)
}

/// Connections whose handshake is done.
pub struct Shaken {
    address: SocketAddr,
    streams: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
}

impl Shaken {
    /// Shakes hands with all that come. Each offers this ALPN protocol.
    ///
    /// # Errors
    /// If the system does not tell the address of `listener`.
    pub fn new(listener: TcpListener, tls: &ServerConfig, protocol: &[u8]) -> io::Result<Shaken> {
        let address = listener.local_addr()?;
        let mut tls = tls.clone();
        tls.alpn_protocols = vec![protocol.to_vec()];
        let (shaken, streams) = mpsc::channel(WAITING_MAX);
        tokio::spawn(let_in(listener, TlsAcceptor::from(Arc::new(tls)), shaken));
        Ok(Shaken { address, streams })
    }

    /// The connections, one after the other, for tonic.
    pub fn streams(self) -> impl Stream<Item = io::Result<TlsStream<TcpStream>>> {
        ReceiverStream::new(self.streams).map(|(stream, _)| Ok(stream))
    }
}

async fn let_in(
    listener: TcpListener, acceptor: TlsAcceptor,
    shaken: mpsc::Sender<(TlsStream<TcpStream>, SocketAddr)>,
) {
    loop {
        let Ok((socket, from)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let (acceptor, shaken) = (acceptor.clone(), shaken.clone());
        tokio::spawn(async move {
            // It fails if the caller has gone, which the handshake notices by itself.
            let _ = socket.set_nodelay(true);
            // A caller whose handshake fails tells that itself.
            if let Ok(stream) = acceptor.accept(socket).await {
                let _ = shaken.send((stream, from)).await;
            }
        });
    }
}

impl Listener for Shaken {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        match self.streams.recv().await {
            Some(shaken) => shaken,
            // Nobody lets in any more: the program ends.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}
