//! The certificates of one side that are in use. Their files are read at the start, and again when their contents change, or
//! somebody asks for it.
//!
//! Invariant: what is in use was whole, and fitted together, when it was read. The certificates that were read last are in use.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};

use super::material::{Contents, Files, Material};
use crate::node::FileRead;

/// The time that a change of two files takes at most, as a rule.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How often files are read that keep changing.
const READINGS_MAX: usize = 10;
/// How long a disk may take to tell what the files hold.
const READING_TIME_MAX: Duration = Duration::from_secs(10);

/// The certificates of one side, as they were read last.
pub struct Certificates {
    files: Files,
    current: ArcSwap<Material>,
    contents: Mutex<Contents>,
    /// Held from a reading until what it brought is in use.
    turn: tokio::sync::Mutex<()>,
    told: Mutex<ToldTexts>,
}

/// The texts that were told, so that each is told once.
#[derive(Default)]
struct ToldTexts {
    /// Of files that cannot be used.
    of_files: Once,
    /// Of the certificate in use.
    of_use: Once,
}

/// The last text that was told of something that may be wrong; empty while nothing is.
#[derive(Default)]
struct Once(String);

impl Once {
    fn tell(&mut self, why: Option<String>) {
        if let Some(why) = &why
            && *why != self.0
        {
            tracing::error!("{why}");
        }
        self.0 = why.unwrap_or_default();
    }
}

impl fmt::Debug for Certificates {
    /// Without what the files hold.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Certificates").field(&self.files).finish()
    }
}

impl Certificates {
    /// Reads the files; once more if they do not fit together, since they may be half way through a change.
    ///
    /// # Errors
    /// A text if one cannot be read, is not what it should be, or does not fit the others.
    pub async fn read(files: Files) -> Result<Certificates, String> {
        let (contents, material) = match files.material() {
            Ok(read) => read,
            Err(_) => {
                sleep(AGAIN_AFTER).await;
                files.material()?
            }
        };
        files.warn_of_readers();
        let certificates = Certificates {
            current: ArcSwap::from_pointee(material),
            contents: Mutex::new(contents),
            turn: tokio::sync::Mutex::default(),
            told: Mutex::default(),
            files,
        };
        certificates.tell_host(&certificates.current.load());
        certificates.told.lock().of_use.tell(certificates.invalid());
        Ok(certificates)
    }

    /// The certificates in use.
    pub fn current(&self) -> Arc<Material> {
        self.current.load_full()
    }

    /// For how many seconds the certificate is valid; fewer than 0 if it has ended.
    pub fn seconds_left(&self) -> f64 {
        let left = self.current.load().facts.seconds_left(SystemTime::now());
        #[allow(clippy::cast_precision_loss)] // Less than 2^52 s.
        let left = left as f64;
        left
    }

    /// Takes the files if their contents have changed. Somebody may be half way through changing them. So they are read twice,
    /// and only if they stay the same are they taken, or does the log say why not. Until then, and if they do not fit together,
    /// the earlier ones stay in use.
    pub async fn refresh(self: &Arc<Self>) {
        let taken = self.take_changes().await;
        // The log has it. The next look tries again.
        let _ = self.tell(taken);
    }

    /// Takes the files at once if their contents have changed: the operator who asks for that has written them. If they cannot
    /// be used, they are read once more before the log says so: one of them may be half written all the same. Returns of each
    /// file whether it has changed.
    ///
    /// # Errors
    /// The line that the log has if they cannot be used. The earlier ones stay in use.
    pub async fn reload(self: &Arc<Self>) -> Result<Vec<FileRead>, String> {
        let taken = match self.take_at_once().await {
            Err(_) => {
                sleep(AGAIN_AFTER).await;
                self.take_at_once().await
            }
            taken => taken,
        };
        let (taken, files) = match taken {
            Ok(files) => (Ok(files.iter().any(|file| file.changed)), files),
            Err(why) => (Err(why), Vec::new()),
        };
        self.tell(taken).map(|()| files)
    }

    /// Tells the log, once, what came of reading the files again: `taken` says whether they had changed, and are in use now.
    ///
    /// # Errors
    /// A text about files that cannot be used.
    fn tell(&self, taken: Result<bool, String>) -> Result<(), String> {
        if let Ok(true) = taken {
            let current = self.current.load();
            tracing::info!(
                cas = current.roots.len(),
                days_left = current.facts.seconds_left(SystemTime::now()) / 86_400,
                "{}",
                self.files.certificate.told("changed files are in use")
            );
        }
        let refused = taken.err().map(|why| format!("{why}; what was read before stays in use"));
        self.told.lock().of_files.tell(refused.clone());
        self.told.lock().of_use.tell(self.invalid());
        refused.map_or(Ok(()), Err)
    }

    /// Whether the contents had changed, and are in use now.
    async fn take_changes(self: &Arc<Self>) -> Result<bool, String> {
        let mut contents = self.read_again().await;
        if self.is_in_use(&contents) {
            return Ok(false);
        }
        for _ in 0..READINGS_MAX {
            sleep(AGAIN_AFTER).await;
            let _turn = self.turn.lock().await;
            let again = self.read_again().await;
            if self.is_in_use(&again) {
                return Ok(false);
            }
            if again == contents {
                return self.take(again?).await.map(|()| true);
            }
            contents = again;
        }
        Err(self.files.certificate.told("it, its key or the CAs keep changing; write them once"))
    }

    /// The files, and which of them had changed. Their contents are in use now.
    async fn take_at_once(self: &Arc<Self>) -> Result<Vec<FileRead>, String> {
        let _turn = self.turn.lock().await;
        let contents = self.read_again().await?;
        let files = self.files.compared(&self.contents.lock(), &contents);
        // A file that has not changed is taken, too: tickets that were given before open nothing any more.
        self.take(contents).await?;
        Ok(files)
    }

    fn is_in_use(&self, read: &Result<Contents, String>) -> bool {
        read.as_ref().is_ok_and(|contents| *contents == *self.contents.lock())
    }

    async fn read_again(&self) -> Result<Contents, String> {
        let files = self.files.clone();
        let reading = timeout(READING_TIME_MAX, off_the_workers(move || files.contents())).await;
        reading.unwrap_or_else(|_| Err(self.files.certificate.told("its disk does not answer")))
    }

    async fn take(self: &Arc<Self>, contents: Contents) -> Result<(), String> {
        let certificates = self.clone();
        off_the_workers(move || certificates.take_now(contents)).await
    }

    fn take_now(&self, contents: Contents) -> Result<(), String> {
        let material = Material::of(&self.files, &contents)?;
        // The CAs are taken even if the certificate in use has expired.
        if material.chain != self.current.load().chain
            && let Some(why) = self.why_invalid(&material)
        {
            return Err(why);
        }
        self.files.warn_of_readers();
        self.tell_host(&material);
        self.current.store(Arc::new(material));
        *self.contents.lock() = contents;
        Ok(())
    }

    /// Warns of a certificate that clients refuse which go to the address that this node tells them.
    fn tell_host(&self, material: &Material) {
        if let Some(host) = &self.files.host
            && let Some(why) = material.host_refused(host)
        {
            let why = format!("clients that reach this node by {host} refuse it ({why})");
            tracing::warn!("{}; make it for that host, too", self.files.certificate.told(&why));
        }
    }

    fn invalid(&self) -> Option<String> {
        self.why_invalid(&self.current.load())
    }

    fn why_invalid(&self, material: &Material) -> Option<String> {
        let why = material.facts.invalid_at(SystemTime::now())?;
        Some(self.files.certificate.told(&format!("it {why}; give another one")))
    }
}

/// Runs `read`, which reads files, on a thread that may block.
///
/// # Errors
/// The error of `read`, and a text if it panics.
async fn off_the_workers<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let reading = tokio::task::spawn_blocking(read);
    reading.await.unwrap_or_else(|error| Err(error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;
    use crate::{
        node::{Config, settings::PeerTls},
        server::tls::tests::{Ca, YEAR, ca, pair},
    };

    /// The files of node 1, and where they are.
    struct Written {
        dir: TempDir,
        config: Config,
    }

    impl Written {
        fn new(ca: &Ca, [certificate, key]: &[String; 2]) -> Written {
            let dir = TempDir::new().expect("a directory");
            let path = |name: &str| Some(dir.path().join(name));
            let config = Config {
                cluster: "test".to_owned(),
                peer_tls: PeerTls::Require,
                peer_tls_cert: path("crt"),
                peer_tls_key: path("key"),
                peer_tls_ca: path("ca"),
                ..Config::default()
            };
            let written = Written { dir, config };
            for (name, text) in [("crt", certificate), ("key", key), ("ca", &ca.pem())] {
                written.write(name, text);
            }
            written
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.dir.path().join(name), text).expect("written");
        }

        async fn read(&self) -> Result<Arc<Certificates>, String> {
            let files = Files::for_peers(&self.config).expect("TLS is on");
            Certificates::read(files).await.map(Arc::new)
        }

        async fn refused(&self, what: &[&str]) {
            let refused = self.read().await.map(drop).expect_err("it cannot be used");
            for text in what {
                assert!(refused.contains(text), "{refused}: {text}");
            }
            assert!(!refused.contains('\n'), "{refused}");
            assert!(!refused.contains("PRIVATE"), "{refused}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn files_that_cannot_be_used_are_refused_by_name_and_with_what_to_do() {
        let (ca_1, ca_2) = (ca(), ca());
        let (mine, other) = (pair(&ca_1, 1, YEAR), pair(&ca_1, 1, YEAR));
        let with = |name: &str, text: &str| {
            let written = Written::new(&ca_1, &mine);
            written.write(name, text);
            written
        };
        with("crt", &mine[0]).read().await.expect("all fit");
        let cut = |text: &str| text[..text.len() / 2].to_owned();
        with("crt", &cut(&mine[0])).refused(&["peer_tls_cert ", "/crt: it breaks off"]).await;
        with("crt", "").refused(&["peer_tls_cert ", "it holds no certificate"]).await;
        with("crt", &mine[1]).refused(&["peer_tls_cert ", "it holds no certificate"]).await;
        with("key", &cut(&mine[1])).refused(&["peer_tls_key ", "/key: it breaks off"]).await;
        with("key", &mine[0]).refused(&["peer_tls_key ", "without a passphrase"]).await;
        with("key", &other[1])
            .refused(&["peer_tls_key ", "is not the key of peer_tls_cert "])
            .await;
        with("ca", &mine[1]).refused(&["peer_tls_ca ", "it holds no certificate"]).await;
        with("ca", &ca_2.pem())
            .refused(&["peer_tls_cert ", "no peer would take it", "/ca has to sign it"])
            .await;
        let of_2 = pair(&ca_1, 2, YEAR);
        Written::new(&ca_1, &of_2)
            .refused(&["peer_tls_cert ", "it names node 2, and this is node 1"])
            .await;
        let mut missing = with("crt", &mine[0]);
        missing.config.peer_tls_key = Some("/nowhere/key".into());
        missing.refused(&["peer_tls_key /nowhere/key: No such file"]).await;
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_not_valid_is_told_and_does_not_keep_a_node_from_starting() {
        let ca = ca();
        for (days, why) in [([-2, -1], "has expired"), ([1, 2], "is not valid yet")] {
            let written = Written::new(&ca, &pair(&ca, 1, days));
            let certificates = written.read().await.expect("it starts");
            let told = certificates.invalid().expect("it is told");
            assert!(told.contains("peer_tls_cert ") && told.contains(why), "{told}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn files_that_change_are_taken_when_they_fit_and_those_before_stay_in_use_until_then() {
        let ca_1 = ca();
        let (first, second) = (pair(&ca_1, 1, YEAR), pair(&ca_1, 1, [-1, 400]));
        let written = Written::new(&ca_1, &first);
        let certificates = written.read().await.expect("all fit");
        let shown = |certificates: &Certificates| certificates.current().chain.clone();
        let before = shown(&certificates);
        certificates.refresh().await;
        assert_eq!(shown(&certificates), before);
        // Half of a change.
        written.write("crt", &second[0]);
        certificates.refresh().await;
        assert_eq!(shown(&certificates), before);
        assert!(certificates.told.lock().of_files.0.contains("is not the key of"));
        written.write("key", &second[1]);
        certificates.refresh().await;
        assert_ne!(shown(&certificates), before);
        assert_eq!(certificates.told.lock().of_files.0, "");
        // One that has expired is worse than the one in use.
        let [certificate, key] = pair(&ca_1, 1, [-2, -1]);
        let used = shown(&certificates);
        written.write("crt", &certificate);
        written.write("key", &key);
        certificates.refresh().await;
        assert_eq!(shown(&certificates), used);
        assert!(certificates.told.lock().of_files.0.contains("has expired"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_reload_takes_files_at_once_and_tells_which_changed_and_what_cannot_be_used() {
        let ca = ca();
        let (first, second) = (pair(&ca, 1, YEAR), pair(&ca, 1, [-1, 400]));
        let written = Written::new(&ca, &first);
        let certificates = written.read().await.expect("all fit");
        let reload = async || {
            let files = certificates.reload().await?;
            let told = |file: &FileRead| (file.setting, file.changed);
            Ok::<_, String>(files.iter().map(told).collect::<Vec<_>>())
        };
        let shown = || certificates.current().chain.clone();
        let began = tokio::time::Instant::now();
        let unchanged = [("peer_tls_cert", false), ("peer_tls_key", false), ("peer_tls_ca", false)];
        let first_keys = certificates.current();
        assert_eq!(reload().await.expect("the same files"), unchanged);
        assert!(!Arc::ptr_eq(&first_keys, &certificates.current()), "new keys for tickets");
        assert!(began.elapsed() < AGAIN_AFTER, "at once");
        let before = shown();
        // Half of a change.
        written.write("crt", &second[0]);
        for _ in 0..2 {
            let refused = reload().await.expect_err("the key is another one's");
            assert!(refused.contains("is not the key of peer_tls_cert "), "{refused}");
            assert!(refused.ends_with("; what was read before stays in use"), "{refused}");
            assert_eq!(certificates.told.lock().of_files.0, refused, "the line in the log");
        }
        assert_eq!(shown(), before);
        // The other half comes before the files are read once more.
        let began = tokio::time::Instant::now();
        let other_half = async {
            sleep(AGAIN_AFTER / 2).await;
            written.write("key", &second[1]);
        };
        let changed = [("peer_tls_cert", true), ("peer_tls_key", true), ("peer_tls_ca", false)];
        let (reloaded, ()) = tokio::join!(reload(), other_half);
        assert_eq!(reloaded.expect("they fit"), changed);
        assert!(began.elapsed() >= AGAIN_AFTER, "once more");
        let began = tokio::time::Instant::now();
        assert_ne!(shown(), before);
        assert_eq!(certificates.told.lock().of_files.0, "");
        assert_eq!(reload().await.expect("the same files"), unchanged);
        assert!(began.elapsed() < AGAIN_AFTER, "at once");
        // Files that were taken are no change any more.
        certificates.refresh().await;
        assert!(began.elapsed() < AGAIN_AFTER);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_printed_of_certificates_has_no_key() {
        let ca = ca();
        let files = pair(&ca, 1, YEAR);
        let printed = format!("{:?}", Written::new(&ca, &files).read().await.expect("all fit"));
        assert!(printed.contains("peer_tls_key"), "{printed}");
        let bytes = format!("{:?}", &files[1].as_bytes()[..20]);
        let inner = bytes.trim_matches(['[', ']']);
        assert!(!printed.contains("BEGIN") && !printed.contains(inner), "{printed}");
    }
}
