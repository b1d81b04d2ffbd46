//! `ratchet cert`: the certificates of a cluster, in one directory.
//!
//! `cert/authority.rs` makes the keys, and signs.
//!
//! `ca.crt` may hold several CAs, so that a CA is changed without an outage: the newest comes first, and `ca.key` is its key.
//!
//! Invariant: a key of a CA is never overwritten, and no key is ever printed.

mod authority;

use std::{
    net::{IpAddr, Ipv6Addr},
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand, value_parser};
use ratchet_ids::{DateTime, Offset};
use rcgen::{SanType, string::Ia5String};
use rustls::pki_types::DnsName;
use serde_json::{Map, Value, json};

use self::authority::{Authority, CertificateSubject, Pair, Unusable};
use super::{
    command_error::CommandError,
    files::{self, Existing, Readers, Staged},
    output::{self, date_and_time},
};
use crate::{
    clock::{BootClock, Clock},
    sequence::{NodeId, check_name, client_uri, node_uri},
};

/// A hundred years.
const DAYS_MAX: u64 = 36_500;

/// `ratchet cert`.
#[derive(Debug, Args)]
pub struct CertArgs {
    #[command(subcommand)]
    command: CertCommand,
}

#[derive(Debug, Subcommand)]
enum CertCommand {
    /// Make a CA: ca.crt, which every node and client gets, and ca.key, which signs their certificates
    Ca(Ca),
    /// Make the certificate of a node, for its clients and for the other nodes: node-N.crt and node-N.key
    Node(Node),
    /// Make the certificate of a client: client-NAME.crt and client-NAME.key
    Client(Client),
}

#[derive(Debug, Args)]
struct Directory {
    /// The directory of the certificates and keys
    #[arg(long)]
    dir: PathBuf,
    /// Print the result, or the error, as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Ca {
    #[command(flatten)]
    directory: Directory,
    /// For how many days it is valid
    #[arg(long, default_value_t = 3650, value_parser = value_parser!(u64).range(1..=DAYS_MAX))]
    days: u64,
    /// Add a CA to those in ca.crt. It signs from now on; the old ones stay valid
    #[arg(long)]
    add: bool,
}

#[derive(Debug, Args)]
struct Node {
    /// The name of the cluster
    #[arg(long)]
    cluster: String,
    /// The id of the node
    #[arg(long, value_parser = value_parser!(u64).range(1..))]
    node_id: NodeId,
    /// The names and addresses at which clients reach it, without a port, separated by commas. localhost, 127.0.0.1 and ::1 are
    /// not among them unless they are given
    #[arg(long = "host", required = true, value_delimiter = ',', value_name = "HOST")]
    hosts: Vec<String>,
    #[command(flatten)]
    signed: SignedArguments,
}

#[derive(Debug, Args)]
struct Client {
    /// The name of the cluster
    #[arg(long)]
    cluster: String,
    /// The name of the client
    #[arg(long)]
    name: String,
    #[command(flatten)]
    signed: SignedArguments,
}

/// A certificate that a CA signs.
#[derive(Debug, Args)]
struct SignedArguments {
    #[command(flatten)]
    directory: Directory,
    /// For how many days it is valid; no longer than the CA
    #[arg(long, default_value_t = 825, value_parser = value_parser!(u64).range(1..=DAYS_MAX))]
    days: u64,
    /// Renew: replace the certificate and the key of this name
    #[arg(long)]
    replace: bool,
}

/// The outcome of a command, as JSON and as text.
type Made = (Value, String);

impl CertArgs {
    pub(super) fn run(self) -> Result<(), CommandError> {
        let now_ms = BootClock.wall_ms();
        let (made, json) = match self.command {
            CertCommand::Ca(ca) => (ca.make(now_ms), ca.directory.json),
            CertCommand::Node(node) => (node.make(now_ms), node.signed.directory.json),
            CertCommand::Client(client) => (client.make(now_ms), client.signed.directory.json),
        };
        let shown = made.and_then(|(value, text)| output::result(json, &value, &text));
        shown.map_err(|error| error.in_json(json))
    }
}

impl Directory {
    fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The CA that signs.
    fn authority(&self) -> Result<Authority, CommandError> {
        let (certificates, key) = (self.file("ca.crt"), self.file("ca.key"));
        let dir = self.dir.display();
        let make_one = format!("make a CA: ratchet cert ca --dir {dir}");
        let text = files::read(&certificates, &make_one)?;
        let fetch = "bring the key of the CA back from where it is kept";
        let secret = files::read(&key, fetch)?;
        Authority::read(&text, &secret).map_err(|why| unusable(&certificates, &key, why))
    }
}

fn unusable(certificates: &Path, key: &Path, why: Unusable) -> CommandError {
    let (certificates, key) = (certificates.display(), key.display());
    CommandError::refused(match why {
        Unusable::Key => format!("{key} holds no private key as PEM that can sign; bring it back"),
        Unusable::Certificates => format!(
            "{certificates} holds no certificates as PEM, or a damaged one; bring it back from a node"
        ),
        Unusable::NoPair => format!(
            "no certificate in {certificates} is of the key in {key}; bring both files of one CA together, or make a CA with \
             ratchet cert ca --add"
        ),
        Unusable::NoAuthority => {
            format!("the certificate of {key} in {certificates} is not a CA's; give a CA's")
        }
        Unusable::OtherTool => format!(
            "the CA in {certificates} was made by another tool, and its name has more parts than this one writes; make the \
             certificates with that tool"
        ),
    })
}

impl Ca {
    fn make(&self, now_ms: u64) -> Result<Made, CommandError> {
        let (certificates, key) = (self.directory.file("ca.crt"), self.directory.file("ca.key"));
        let (old, old_key) = self.found(&certificates, &key)?;
        files::make(&self.directory.dir)?;
        // The time makes the names of two CAs differ.
        let name = format!("Ratchet CA {}", time(now_ms));
        let pair =
            authority::new_authority(name, now_ms / 1_000, self.days).map_err(cannot_make)?;
        let text = format!("{}{old}", pair.certificate);
        let text = Staged::new(certificates, &text, Readers::All)?;
        let secret = Staged::new(key.clone(), &pair.key, Readers::Owner)?;
        let kept = old_key.map(|old_key| files::keep_copy(&key, &old_key)).transpose()?;
        // The first key comes before its certificate: without the latter nothing is signed. A further one comes after it: if
        // this ends in between, the old key still signs, and its certificate is still there.
        let (certificates, key) = if self.add {
            let certificates = text.publish(Existing::Replaced)?;
            let existing = if kept.is_some() { Existing::Replaced } else { Existing::Kept };
            (certificates, secret.publish(existing)?)
        } else {
            let key = secret.publish(Existing::Kept)?;
            (text.publish(Existing::Kept)?, key)
        };
        Ok(told_of_ca(&certificates, &key, kept.as_deref(), pair.until))
    }

    /// The old CAs, and the key of the newest if it is there. Nothing, unless one is added.
    fn found(
        &self, certificates: &Path, key: &Path,
    ) -> Result<(String, Option<String>), CommandError> {
        if self.add {
            let text = files::read(certificates, "to make the first CA, leave --add out")?;
            if authority::certificates_in(&text).is_none() {
                return Err(unusable(certificates, key, Unusable::Certificates));
            }
            // It may be kept elsewhere.
            let remedy = "make it readable, so that it can be kept";
            let secret = files::is_there(key)?.then(|| files::read(key, remedy)).transpose()?;
            return Ok((text, secret));
        }
        if files::is_there(certificates)? {
            return Err(CommandError::refused(format!(
                "{} exists already; to add a CA to it, as when the CA is changed, give --add",
                certificates.display()
            )));
        }
        if files::is_there(key)? {
            return Err(CommandError::refused(format!(
                "{} exists already, without {}; bring that back, or move the key away",
                key.display(),
                certificates.display()
            )));
        }
        Ok((String::new(), None))
    }
}

fn told_of_ca(certificates: &Path, key: &Path, kept: Option<&Path>, until: u64) -> Made {
    let [certificates, key] = [certificates, key].map(|path| path.display().to_string());
    let kept = kept.map(|path| path.display().to_string());
    let mut lines = vec![
        format!("wrote {certificates} and {key}"),
        format!("the CA is valid until {} UTC", date_and_time(until * 1_000)),
        format!("{certificates} goes to every node and client"),
        format!("{key} is needed only to make certificates: keep it away from the nodes"),
    ];
    if let Some(kept) = &kept {
        lines.push(format!("the key that signed until now is {kept}"));
    }
    let value = json!({
        "certificate": certificates,
        "key": key,
        "valid_until": time(until * 1_000),
        "old_key": kept,
    });
    (value, lines.join("\n"))
}

impl Node {
    fn make(&self, now_ms: u64) -> Result<Made, CommandError> {
        let Node { cluster, node_id, hosts, signed } = self;
        check("cluster", cluster)?;
        let hosts: Result<Vec<SanType>, _> = hosts.iter().map(|text| host(text)).collect();
        let uri = node_uri(cluster, *node_id);
        let subject =
            CertificateSubject::node(format!("node {node_id} of {cluster}"), uri.clone(), hosts?);
        let made =
            signed.make(&format!("node-{node_id}"), subject.map_err(cannot_make)?, now_ms)?;
        let authority = signed.directory.file("ca.crt").display().to_string();
        let settings = [
            ("tls_cert", &made.certificate),
            ("tls_key", &made.key),
            ("peer_tls_cert", &made.certificate),
            ("peer_tls_key", &made.key),
            ("peer_tls_ca", &authority),
        ];
        let lines = settings.map(|(name, path)| format!("\n{name} = {path:?}")).concat();
        let told = match signed.replace {
            // The node has its settings.
            true => String::new(),
            // The right values of tls and peer_tls depend on the cluster: one value for all would open the ports of some.
            false => format!(
                "\nfiles in the settings of node {node_id}; put the directory there in the place of this one, and the lines before \
                 the first [table]:{lines}\ntls and peer_tls stand beside them: \"require\" if the cluster is new; what the other \
                 nodes have if this one is added; in a living cluster without TLS the rounds that the page about certificates tells"
            ),
        };
        let text = format!("{}{told}", made.text());
        let settings: Map<String, Value> =
            settings.map(|(name, path)| (name.to_owned(), json!(path))).into_iter().collect();
        let mut value = made.value(cluster, &uri);
        value["node_id"] = json!(node_id.to_string());
        value["settings"] = Value::Object(settings);
        Ok((value, text))
    }
}

impl Client {
    fn make(&self, now_ms: u64) -> Result<Made, CommandError> {
        let Client { cluster, name, signed } = self;
        check("cluster", cluster)?;
        check("name", name)?;
        let uri = client_uri(cluster, name);
        let subject =
            CertificateSubject::client(format!("client {name} of {cluster}"), uri.clone());
        let made = signed.make(&format!("client-{name}"), subject.map_err(cannot_make)?, now_ms)?;
        let mut value = made.value(cluster, &uri);
        value["name"] = json!(name);
        Ok((value, made.text()))
    }
}

/// The files of a new certificate.
struct Written {
    certificate: String,
    key: String,
    until: u64,
}

impl Written {
    fn text(&self) -> String {
        let Written { certificate, key, until } = self;
        let until = date_and_time(until * 1_000);
        format!("wrote {certificate} and {key}\nvalid until {until} UTC")
    }

    fn value(&self, cluster: &str, uri: &str) -> Value {
        json!({
            "certificate": self.certificate,
            "key": self.key,
            "valid_until": time(self.until * 1_000),
            "cluster": cluster,
            "uri": uri,
        })
    }
}

impl SignedArguments {
    /// Makes the files `name.crt` and `name.key`.
    fn make(
        &self, name: &str, subject: CertificateSubject, now_ms: u64,
    ) -> Result<Written, CommandError> {
        let files = ["crt", "key"].map(|end| self.directory.file(&format!("{name}.{end}")));
        for path in &files {
            if !self.replace && files::is_there(path)? {
                return Err(CommandError::refused(format!(
                    "{} exists already; to renew the certificate and its key give --replace",
                    path.display()
                )));
            }
        }
        let pair = self.sign(subject, now_ms / 1_000)?;
        let [certificate, key] = files;
        let certificate = Staged::new(certificate, &pair.certificate, Readers::All)?;
        let key = Staged::new(key, &pair.key, Readers::Owner)?;
        let existing = if self.replace { Existing::Replaced } else { Existing::Kept };
        // Either may come first: a node reads both files again every 10 s, and takes them only if they fit each other.
        let key = key.publish(existing)?.display().to_string();
        let certificate = certificate.publish(existing)?.display().to_string();
        Ok(Written { certificate, key, until: pair.until })
    }

    /// Has it signed. Tells if it ends earlier than was asked for.
    fn sign(&self, subject: CertificateSubject, now: u64) -> Result<Pair, CommandError> {
        let authority = self.directory.authority()?;
        let certificates = self.directory.file("ca.crt");
        let end = date_and_time(authority.until.saturating_mul(1_000));
        if authority.until <= now {
            return Err(CommandError::refused(format!(
                "the CA in {} ended at {end} UTC; add a new one: ratchet cert ca --dir {} --add",
                certificates.display(),
                self.directory.dir.display()
            )));
        }
        let pair = authority.issue(subject, now, self.days).map_err(cannot_make)?;
        if authority::last_second(now, self.days) > authority.until {
            output::warn(&format!(
                "the certificate ends with its CA, at {end} UTC, before the {} days are over; ratchet cert ca --add makes a CA \
                 that lasts longer",
                self.days
            ));
        }
        Ok(pair)
    }
}

/// The time in JSON, and in the names of CAs.
fn time(ms: u64) -> String {
    DateTime::new(ms, Offset::default()).to_string()
}

fn cannot_make(error: rcgen::Error) -> CommandError {
    CommandError::other(format!("cannot make the certificate: {error}"))
}

fn check(flag: &str, name: &str) -> Result<(), CommandError> {
    check_name(name).map_err(|_| {
        CommandError::refused(format!(
            "{flag} is {name:?}; it takes 1 to 64 characters out of A-Z a-z 0-9 . _ -"
        ))
    })
}

/// A name or an address as it stands in a certificate.
fn host(text: &str) -> Result<SanType, CommandError> {
    if let Some(host) = parsed_host(text) {
        return Ok(host);
    }
    let is_port =
        |(host, port): &(&str, &str)| parsed_host(host).is_some() && port.parse::<u16>().is_ok();
    let without_port = text.rsplit_once(':').filter(is_port);
    let why = match without_port {
        Some((host, _)) => format!("has a port; write {host}: a certificate is of all ports"),
        None => "is no DNS name and no IP address; write one, such as db-1.example.org, 10.0.0.1 or 2001:db8::1".to_owned(),
    };
    Err(CommandError::refused(format!("host {text:?} {why}")))
}

fn parsed_host(text: &str) -> Option<SanType> {
    if let Some(inside) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return inside.parse::<Ipv6Addr>().ok().map(|address| SanType::IpAddress(address.into()));
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(SanType::IpAddress(address));
    }
    // It leaves out a dot at the end, which no certificate may have.
    let name = DnsName::try_from(text).ok()?;
    Ia5String::try_from(name.as_ref()).ok().map(SanType::DnsName)
}

#[cfg(test)]
mod tests;
