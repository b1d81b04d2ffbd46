//! The flags of every subcommand that asks a cluster, and the client that they make. A subcommand implements `Ask`, and
//! `Asking` adds these flags to its own.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use ratchet_client::{Builder, Client, Error, Tls};

use super::{command_error::CommandError, files::read_named, token_file::SecretToken};

/// A subcommand that asks a cluster, with the flags that say which one.
#[derive(Debug, Args)]
pub struct Asking<C: Args> {
    #[command(flatten)]
    command: C,
    #[command(flatten)]
    connection: Connection,
}

/// The action of such a subcommand.
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
    /// Show the token in this file, which has it in one line, as `ratchet token create` writes it. Without TLS the network can
    /// read it
    #[arg(long, global = true, value_name = "FILE", env = "RATCHET_TOKEN_FILE")]
    pub token_file: Option<PathBuf>,
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
    /// If a server's address is malformed, or a certificate, a key or a token cannot be read or used.
    pub fn client(&self) -> Result<Client, Error> {
        self.patient_client(Duration::ZERO)
    }

    /// Creates a client that waits for `at_least` at least.
    ///
    /// # Errors
    /// If a server's address is malformed, or a certificate, a key or a token cannot be read or used.
    pub fn patient_client(&self, at_least: Duration) -> Result<Client, Error> {
        self.client_of(&self.server, at_least)
    }

    /// Creates a client of these servers, which waits for `at_least` at least.
    ///
    /// # Errors
    /// If a server's address is malformed, or a certificate, a key or a token cannot be read or used.
    pub fn client_of(&self, servers: &[String], at_least: Duration) -> Result<Client, Error> {
        let token = self.token()?;
        self.client_showing(token.as_ref(), servers, at_least)
    }

    /// Creates a client of these servers, which waits for `at_least` at least, and shows this token, and not the one that a
    /// flag names.
    ///
    /// # Errors
    /// If a server's address is malformed, or a certificate, a key or the token cannot be read or used.
    pub fn client_showing(
        &self, token: Option<&SecretToken>, servers: &[String], at_least: Duration,
    ) -> Result<Client, Error> {
        self.builder(token, servers, at_least)?.build()
    }

    /// Creates a client that asks the server that is named, and no other one.
    ///
    /// # Errors
    /// As [`Connection::client`]; also if several servers are named.
    pub fn client_of_one(&self) -> Result<Client, Error> {
        let (servers, token) = (&self.server, self.token()?);
        match servers.len() {
            1 => {
                let builder = self.builder(token.as_ref(), servers, Duration::ZERO)?;
                builder.follow_leader(false).build()
            }
            several => Err(Error::Invalid(format!(
                "this asks one node for itself, and --server names {several} of them ({}); name one",
                servers.join(", ")
            ))),
        }
    }

    /// The token that a flag names.
    fn token(&self) -> Result<Option<SecretToken>, Error> {
        let file = self.token_file.as_deref();
        file.map(|path| SecretToken::read("--token-file", path)).transpose()
    }

    fn builder(
        &self, token: Option<&SecretToken>, servers: &[String], at_least: Duration,
    ) -> Result<Builder, Error> {
        let timeout = Duration::from_millis(self.timeout_ms).max(at_least);
        let mut builder = Client::builder().servers(servers).timeout(timeout);
        if let Some(id) = &self.cluster_id {
            builder = builder.cluster_id(id);
        }
        if let Some(tls) = self.tls()? {
            builder = builder.tls(tls);
        }
        if let Some(token) = token {
            builder = builder.token(token.text());
        }
        Ok(builder)
    }

    /// The certificates, if connections are to be TLS.
    fn tls(&self) -> Result<Option<Tls>, Error> {
        let Some(ca) = &self.tls_ca else {
            return Ok(None);
        };
        let tls = Tls::new(read_named("--tls-ca", ca)?);
        Ok(Some(match (&self.tls_cert, &self.tls_key) {
            (Some(cert), Some(key)) => {
                tls.identity(read_named("--tls-cert", cert)?, read_named("--tls-key", key)?)
            }
            _ => tls,
        }))
    }
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
        for flag in ["--tls-ca", "--token-file"] {
            let named = parsed(&[&format!("{flag}=/nowhere/file")]).expect("a command line");
            let refused = named.client().expect_err("no such file").to_string();
            let why = format!("cannot read {flag} /nowhere/file: No such file");
            assert!(refused.starts_with(&why), "{refused}");
        }
    }

    #[test]
    fn the_token_in_a_file_is_shown_and_one_that_no_call_could_carry_is_told_with_its_flag() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let flag = format!("--token-file={}", path.display());
        let client = |text: &str| {
            std::fs::write(&path, text).unwrap();
            parsed(&[&flag]).expect("a command line").client()
        };
        let shows = format!("{:?}", client("secret\n").expect("a token"));
        assert!(shows.contains("has_token: true"), "{shows}");
        let refused = client("sec ret").expect_err("two words").to_string();
        let told = refused.starts_with(&format!("--token-file {}: byte 4", path.display()));
        assert!(told && !refused.contains("sec"), "{refused}");
    }
}
