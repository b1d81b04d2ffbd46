//! The flags of every subcommand that asks a cluster, and the client that they make.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use ratchet_client::{Builder, Client, Error, Tls};

use super::output::CommandError;

/// A subcommand that asks a cluster, with the flags that say which one.
#[derive(Debug, Args)]
pub struct Asking<C: Args> {
    #[command(flatten)]
    command: C,
    #[command(flatten)]
    connection: Connection,
}

/// What such a subcommand does.
pub trait Ask {
    /// Asks, and prints the result.
    ///
    /// # Errors
    /// If the cluster refuses or does not answer, or the result cannot be printed.
    async fn run(self, connection: &Connection) -> Result<(), CommandError>;
}

impl<C: Args + Ask> Asking<C> {
    /// Runs the subcommand.
    ///
    /// # Errors
    /// The subcommand's, to be told as JSON if that is asked for.
    pub async fn run(self) -> Result<(), CommandError> {
        let Asking { command, connection } = self;
        command.run(&connection).await.map_err(|error| error.in_json(connection.json))
    }
}

/// Which servers to ask, how long to wait, and whether to print JSON. Subcommands of a subcommand have the flags, too.
#[derive(Debug, Args)]
pub struct Connection {
    /// The servers to ask, as "host:port", separated by commas; the first one that answers is used. On the machine of a node
    /// also unix:PATH, the file admin.sock in its data directory: it needs no token
    #[arg(
        long,
        global = true,
        env = "RATCHET_SERVER",
        default_value = "127.0.0.1:7600",
        value_delimiter = ','
    )]
    pub server: Vec<String>,
    /// The cluster to ask, by its id as `ratchet status` shows it; servers of another one are not asked
    #[arg(long, global = true, env = "RATCHET_CLUSTER_ID")]
    pub cluster_id: Option<String>,
    /// Connect over TLS, and believe servers whose certificates a CA in this PEM file has signed
    #[arg(long, global = true, value_name = "FILE", env = "RATCHET_CLIENT_TLS_CA")]
    pub tls_ca: Option<PathBuf>,
    /// The certificate to show to servers that let no others in, a PEM file
    #[arg(long, global = true, value_name = "FILE", env = "RATCHET_CLIENT_TLS_CERT",
          requires_all = ["tls_ca", "tls_key"])]
    pub tls_cert: Option<PathBuf>,
    /// The key of that certificate, a PEM file
    #[arg(long, global = true, value_name = "FILE", env = "RATCHET_CLIENT_TLS_KEY",
          requires_all = ["tls_ca", "tls_cert"])]
    pub tls_key: Option<PathBuf>,
    /// How long to wait for an answer, in milliseconds
    #[arg(long, global = true, env = "RATCHET_TIMEOUT_MS", default_value_t = 5_000,
          value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    pub timeout_ms: u64,
    /// Print the result, or the error, as JSON
    #[arg(long, global = true)]
    pub json: bool,
}

impl Connection {
    /// Creates the client.
    ///
    /// # Errors
    /// If a server's address is malformed, or a certificate or key cannot be read or used.
    pub fn client(&self) -> Result<Client, Error> {
        self.patient_client(Duration::ZERO)
    }

    /// Creates a client that waits for `at_least` at least.
    ///
    /// # Errors
    /// As [`Connection::client`].
    pub fn patient_client(&self, at_least: Duration) -> Result<Client, Error> {
        self.client_of(&self.server, at_least)
    }

    /// Creates a client of these servers, which waits for `at_least` at least.
    ///
    /// # Errors
    /// As [`Connection::client`].
    pub fn client_of(&self, servers: &[String], at_least: Duration) -> Result<Client, Error> {
        self.builder(servers, at_least)?.build()
    }

    /// Creates a client that asks the server that is named, and no other one.
    ///
    /// # Errors
    /// As [`Connection::client`]; also if several servers are named.
    pub fn client_of_one(&self) -> Result<Client, Error> {
        let servers = &self.server;
        match servers.len() {
            1 => self.builder(servers, Duration::ZERO)?.follow_leader(false).build(),
            several => Err(Error::Invalid(format!(
                "this asks one node for itself, and --server names {several} of them ({}); name one",
                servers.join(", ")
            ))),
        }
    }

    fn builder(&self, servers: &[String], at_least: Duration) -> Result<Builder, Error> {
        let timeout = Duration::from_millis(self.timeout_ms).max(at_least);
        let mut builder = Client::builder().servers(servers).timeout(timeout);
        if let Some(id) = &self.cluster_id {
            builder = builder.cluster_id(id);
        }
        if let Some(tls) = self.tls()? {
            builder = builder.tls(tls);
        }
        Ok(builder)
    }

    /// The certificates, if connections are to be TLS.
    fn tls(&self) -> Result<Option<Tls>, Error> {
        let Some(ca) = &self.tls_ca else {
            return Ok(None);
        };
        let tls = Tls::new(read("--tls-ca", ca)?);
        Ok(Some(match (&self.tls_cert, &self.tls_key) {
            (Some(cert), Some(key)) => {
                tls.identity(read("--tls-cert", cert)?, read("--tls-key", key)?)
            }
            _ => tls,
        }))
    }
}

/// What is in the file that a flag names.
fn read(flag: &str, path: &Path) -> Result<Vec<u8>, Error> {
    let shown = path.display();
    fs::read(path).map_err(|error| Error::Invalid(format!("cannot read {flag} {shown}: {error}")))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        connection: Connection,
    }

    fn parsed(args: &[&str]) -> Result<Connection, clap::Error> {
        let line = Line::try_parse_from(["ratchet"].iter().chain(args));
        line.map(|line| line.connection)
    }

    #[test]
    fn a_certificate_goes_with_its_key_and_a_ca() {
        for args in [&[][..], &["--tls-ca=a"], &["--tls-ca=a", "--tls-cert=c", "--tls-key=k"]] {
            parsed(args).expect("a command line");
        }
        for args in [&["--tls-ca=a", "--tls-cert=c"][..], &["--tls-cert=c", "--tls-key=k"]] {
            parsed(args).expect_err("a part is missing");
        }
    }

    #[test]
    fn what_one_node_is_asked_for_itself_is_asked_of_the_one_that_is_named() {
        let one = parsed(&["--server=a:1"]).expect("a command line").client_of_one();
        let one = format!("{:?}", one.expect("one server"));
        assert!(one.contains("[\"a:1\"]") && one.contains("follow_leader: false"), "{one}");
        let two = parsed(&["--server=a:1,b:1"]).expect("a command line").client_of_one();
        let refused = two.expect_err("which one").to_string();
        assert!(refused.contains("names 2 of them (a:1, b:1)"), "{refused}");
    }

    #[test]
    fn a_file_that_cannot_be_read_is_told_with_its_flag() {
        let ca = parsed(&["--tls-ca=/nowhere/ca.pem"]).expect("a command line");
        let refused = ca.client().expect_err("no such file").to_string();
        assert!(
            refused.starts_with("cannot read --tls-ca /nowhere/ca.pem: No such file"),
            "{refused}"
        );
    }
}
