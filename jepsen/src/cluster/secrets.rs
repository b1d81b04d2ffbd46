//! The certificates of a secure cluster, and the token that it is founded with.

use std::{
    fs::File,
    io::{self, Write},
    net::IpAddr,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use super::leaks;
use crate::{
    access::{Access, Files},
    clock::Clock,
    network::Port,
};

/// The name of the cluster, which is in each certificate.
pub(super) const CLUSTER: &str = "jepsen";
/// The name of the callers' certificate.
const CALLERS: &str = "callers";
/// How far the clock is back by which certificates are made. Nodes compare them with wall clocks that jump back, by six hours
/// at most.
const MADE_BEFORE_S: i64 = 24 * 3_600;

/// The secrets of a cluster.
pub(super) struct Secrets {
    dir: PathBuf,
    /// The credentials of callers.
    pub access: Arc<Access>,
}

impl Secrets {
    /// Makes the certificates of these nodes, and of the callers, by `ratchet cert`, and draws a token. `preload` is the
    /// library of clocks: without it no wall clock jumps.
    ///
    /// # Errors
    /// A file cannot be written, or the program fails.
    pub fn make(
        binary: &Path, dir: &Path, preload: Option<&Path>, nodes: &[(Port, IpAddr)],
    ) -> io::Result<Secrets> {
        let maker =
            CertificateMaker { binary, dir: dir.join("secrets"), clock: clock(dir, preload)? };
        maker.make(&["ca"])?;
        for (id, host) in nodes {
            let (id, host) = (id.to_string(), host.to_string());
            maker.make(&["node", "--cluster", CLUSTER, "--node-id", &id, "--host", &host])?;
        }
        maker.make(&["client", "--cluster", CLUSTER, "--name", CALLERS])?;
        let dir = maker.dir;
        let token = dir.join("admin.token");
        write_token(&token)?;
        let access = Access::read(Files {
            binary: binary.to_owned(),
            ca: dir.join("ca.crt"),
            certificate: dir.join(format!("client-{CALLERS}.crt")),
            key: dir.join(format!("client-{CALLERS}.key")),
            token,
        })?;
        Ok(Secrets { dir, access: Arc::new(access) })
    }

    /// Sees that no file below `dir` tells one of them.
    ///
    /// # Errors
    /// A file does, or cannot be read.
    pub fn check_untold(&self, dir: &Path) -> io::Result<()> {
        leaks::check(dir, &self.dir)
    }

    /// The flags of `ratchet start` for a node.
    pub fn of_node(&self, id: Port) -> Vec<String> {
        let file = |flag: &str, name: &str| format!("--{flag}={}", self.dir.join(name).display());
        let [certificate, key] = ["crt", "key"].map(|end| format!("node-{id}.{end}"));
        vec![
            "--tls=require".to_owned(),
            file("tls-cert", &certificate),
            file("tls-key", &key),
            // Before a cluster is founded nobody has a token in it. The caller that founds it shows a certificate.
            file("tls-client-ca", "ca.crt"),
            "--peer-tls=require".to_owned(),
            file("peer-tls-cert", &certificate),
            file("peer-tls-key", &key),
            file("peer-tls-ca", "ca.crt"),
        ]
    }
}

/// The library of clocks, and a clock for certificates.
fn clock<'a>(dir: &Path, preload: Option<&'a Path>) -> io::Result<Option<(&'a Path, Clock)>> {
    let Some(library) = preload else {
        return Ok(None);
    };
    let mut clock = Clock::new(dir.join("clock-of-certificates"))?;
    clock.set_wall_offset(-MADE_BEFORE_S)?;
    Ok(Some((library, clock)))
}

/// Runs `ratchet cert`.
struct CertificateMaker<'a> {
    binary: &'a Path,
    dir: PathBuf,
    clock: Option<(&'a Path, Clock)>,
}

impl CertificateMaker<'_> {
    fn make(&self, words: &[&str]) -> io::Result<()> {
        let mut command = Command::new(self.binary);
        command.arg("cert").args(words).arg("--dir").arg(&self.dir).env_clear();
        if let Some((library, clock)) = &self.clock {
            command.env("LD_PRELOAD", library).env("RATCHET_JEPSEN_CLOCK", clock.path());
        }
        let output = command.output()?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let words = words.join(" ");
        Err(io::Error::other(format!("{} cert {words}: {}", self.binary.display(), said.trim())))
    }
}

/// Draws a token, and writes it to a file that its owner alone can read.
fn write_token(path: &Path) -> io::Result<()> {
    let halves = [(); 2].map(|()| format!("{:032x}", rand::random::<u128>()));
    let mut file = File::options().create_new(true).write(true).mode(0o600).open(path)?;
    writeln!(file, "ratchet_{}", halves.concat())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn a_token_is_long_and_is_for_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let [one, other] = ["one", "other"].map(|name| {
            let path = dir.path().join(name);
            write_token(&path).unwrap();
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
            fs::read_to_string(path).unwrap()
        });
        assert_eq!(one.len(), "ratchet_".len() + 64 + 1);
        assert_ne!(one, other);
    }
}
