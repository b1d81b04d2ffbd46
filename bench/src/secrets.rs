//! The secrets of a secure cluster that is started for the run: certificates, a token that may do everything, and one for
//! callers. `ratchet` makes all of them, in the temporary directory of the run.
//!
//! Nobody looks for them in the files that a run leaves behind: the directory, with the logs of the nodes in it, is removed
//! at the end. Only figures and the names of options are printed, and drawn in a chart. If a program fails, the last lines of
//! its log are printed, too. That `ratchet` tells no secret there is a test of the node's (`tests/secrets.rs`).

use std::{
    fmt,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    child::{Directory, own_ip, run},
    error::Error,
    tls::{Certificates, TlsOptions},
    token::{Token, TokenOptions},
};

/// The name of the cluster, which is in each certificate.
pub const CLUSTER: &str = "bench";
/// The name of the callers' certificate, and of their token.
const CALLERS: &str = "bench";
/// The file with the token that may do everything.
const ADMIN: &str = "admin.token";
/// How long a command may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// The variables of this process's environment that `ratchet` would read instead of the values on its command line.
const VARIABLES: [&str; 6] = [
    "RATCHET_SERVER",
    "RATCHET_CLUSTER_ID",
    "RATCHET_CLIENT_TLS_CA",
    "RATCHET_CLIENT_TLS_CERT",
    "RATCHET_CLIENT_TLS_KEY",
    "RATCHET_TOKEN_FILE",
];

/// The ends that show a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// Servers, to their clients. Nodes speak no TLS with one another.
    ByServers,
    /// Both ends of each connection, also those between nodes.
    ByAll,
}

/// The certificates and tokens of a run.
pub struct Secrets {
    program: PathBuf,
    dir: PathBuf,
    shown: Shown,
    callers: Arc<Certificates>,
}

impl fmt::Debug for Secrets {
    /// Leaves the secrets out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrets").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl Secrets {
    /// Makes the certificates of `nodes` nodes and of the callers, by `program`, which is `ratchet`.
    ///
    /// # Errors
    /// If `program` fails.
    pub async fn make(
        directory: &Directory, program: &Path, nodes: u64, shown: Shown,
    ) -> Result<Secrets, Error> {
        let dir = directory.place("secrets");
        let make = async |words: &[&str]| {
            let mut command = Command::new(program);
            command.arg("cert").args(words).arg("--dir").arg(&dir);
            run(directory, "ratchet cert", &command, PATIENCE).await
        };
        make(&["ca"]).await?;
        // The echo listens at the second one.
        let hosts = format!("{},{}", own_ip(), Ipv4Addr::LOCALHOST);
        for id in (1..=nodes).map(|id| id.to_string()) {
            make(&["node", "--cluster", CLUSTER, "--node-id", &id, "--host", &hosts]).await?;
        }
        make(&["client", "--cluster", CLUSTER, "--name", CALLERS]).await?;
        let callers = TlsOptions {
            tls_ca: Some(dir.join("ca.crt")),
            tls_cert: (shown == Shown::ByAll).then(|| certificate(&dir, "client", CALLERS)),
            tls_key: (shown == Shown::ByAll).then(|| key(&dir, "client", CALLERS)),
        };
        let callers = callers.read()?.ok_or_else(|| Error::other("no certificate of a CA"))?;
        Ok(Secrets { program: program.to_owned(), dir, shown, callers: Arc::new(callers) })
    }

    /// The certificates for connections of callers.
    pub fn of_callers(&self) -> Arc<Certificates> {
        self.callers.clone()
    }

    /// The flags of `ratchet start` for a node.
    pub fn of_node(&self, id: u64) -> Vec<String> {
        let (ca, id) = (self.dir.join("ca.crt"), id.to_string());
        let (cert, key) = (certificate(&self.dir, "node", &id), key(&self.dir, "node", &id));
        let file = |flag: &str, path: &Path| format!("--{flag}={}", path.display());
        let mut flags =
            vec!["--tls=require".to_owned(), file("tls-cert", &cert), file("tls-key", &key)];
        if self.shown == Shown::ByAll {
            flags.extend([
                file("tls-client-ca", &ca),
                "--peer-tls=require".to_owned(),
                file("peer-tls-cert", &cert),
                file("peer-tls-key", &key),
                file("peer-tls-ca", &ca),
            ]);
        }
        flags
    }

    /// The arguments of the echo, which has the certificate of node 1.
    pub fn of_echo(&self) -> Vec<String> {
        let (cert, key) = (certificate(&self.dir, "node", "1"), key(&self.dir, "node", "1"));
        let mut flags =
            vec![format!("--tls-cert={}", cert.display()), format!("--tls-key={}", key.display())];
        if self.shown == Shown::ByAll {
            flags.push(format!("--tls-client-ca={}", self.dir.join("ca.crt").display()));
        }
        flags
    }

    /// Founds a cluster whose nodes were just started, once they listen, with the token that may do everything. Returns that
    /// token.
    ///
    /// # Errors
    /// If the nodes do not answer in time; with the end of the command's log.
    pub async fn found(&self, directory: &Directory, server: &str) -> Result<Token, Error> {
        let admin = self.dir.join(ADMIN);
        let mut command = self.asking(server);
        // A file that is there already has the token of another cluster of this run.
        command.arg("found").arg("--admin-token-file").arg(&admin);
        let until = Instant::now() + PATIENCE;
        loop {
            match run(directory, "ratchet found", &command, PATIENCE).await {
                Ok(()) => return read_token(admin),
                Err(error) if Instant::now() > until => return Err(error),
                // That a process listens is no event, so ask again and again.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// Has a founded cluster create the token of the callers, with one grant, as `ratchet token create` takes it. Returns it.
    ///
    /// # Errors
    /// If the cluster refuses, or does not answer in time; with the end of the command's log.
    pub async fn create_token(
        &self, directory: &Directory, server: &str, grant: &str,
    ) -> Result<Token, Error> {
        let file = self.dir.join("callers.token");
        let mut command = self.asking(server);
        command
            .args(["token", "create", CALLERS, "--grant", grant, "--file"])
            .arg(&file)
            .arg("--token-file")
            .arg(self.dir.join(ADMIN));
        run(directory, "ratchet token", &command, PATIENCE).await?;
        read_token(file)
    }

    /// `ratchet`, which asks a server over TLS.
    fn asking(&self, server: &str) -> Command {
        let mut command = Command::new(&self.program);
        for variable in VARIABLES {
            command.env_remove(variable);
        }
        command.env("RATCHET_SERVER", server).env("RATCHET_CLIENT_TLS_CA", self.dir.join("ca.crt"));
        if self.shown == Shown::ByAll {
            command
                .env("RATCHET_CLIENT_TLS_CERT", certificate(&self.dir, "client", CALLERS))
                .env("RATCHET_CLIENT_TLS_KEY", key(&self.dir, "client", CALLERS));
        }
        command
    }
}

/// Where `ratchet cert` writes a certificate.
fn certificate(dir: &Path, kind: &str, name: &str) -> PathBuf {
    dir.join(format!("{kind}-{name}.crt"))
}

/// Where it writes the key.
fn key(dir: &Path, kind: &str, name: &str) -> PathBuf {
    dir.join(format!("{kind}-{name}.key"))
}

fn read_token(file: PathBuf) -> Result<Token, Error> {
    let token = TokenOptions { token_file: Some(file) }.read()?;
    token.ok_or_else(|| Error::other("no token"))
}
