//! A node's configuration, and which settings go together.
//!
//! Invariant: in a configuration that passes [`Config::check`] the leader's lease ends before its followers' by more
//! than the margin for drift.

use std::{
    collections::BTreeMap, env, ffi::OsString, net::SocketAddr, ops::RangeInclusive, path::PathBuf,
    time::Duration,
};

pub use crate::allocator::FenceKind;

use super::settings::{
    COUNT_MAX_MAX, ClientTls, PeerTls, Sample, SegmentSizes, TIME_MS_MAX, for_each_setting,
    mapped_names::{MappedNames, TINYID_PARAMETER, check_segments, check_tokens},
};
use crate::sequence::{NodeId, check_name};

/// How many election timeouts to wait for a node that was not heard lately. One that is up is heard within a heartbeat or
/// two, unless its machine is overloaded.
const SILENCE_ELECTIONS: u64 = 5;

/// The reserve of a cluster of one, at most. With it the file `SPARE` has 12 MB.
const DEV_RESERVE_MB: u64 = 64;
/// How much such a cluster keeps of the applied log, at most: a quarter of the reserve.
const DEV_LOG_BYTES: u64 = 16 << 20;

macro_rules! config {
    ($(
        $(#[$($help:tt)*])*
        $variable:literal [$($flag:tt)*] =>
            $name:ident: $type:ty as $given:ty = $default:expr $(, $range:expr)?;
    )*
    secret: $(
        $(#[$($secret_help:tt)*])*
        $secret_variable:literal =>
            $secret:ident: $secret_type:ty as $secret_given:ty = $secret_default:expr;
    )*) => {
        /// A node's configuration. Times are in milliseconds.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Config {
            $($(#[$($help)*])* pub $name: $type,)*
            $($(#[$($secret_help)*])* pub $secret: $secret_type,)*
            /// A cluster of one founds itself, for trying. No setting: one that stays in a file or in the environment would
            /// found another cluster when the data is lost.
            pub dev: bool,
        }

        impl Default for Config {
            fn default() -> Self {
                Config { $($name: $default,)* $($secret: $secret_default,)* dev: false }
            }
        }

        impl Config {
            /// The range of each setting that has one.
            #[cfg(test)]
            pub fn ranges() -> Vec<(&'static str, RangeInclusive<u64>)> {
                vec![$($((stringify!($name), $range),)?)*]
            }

            fn check_ranges(&self) -> Result<(), ConfigError> {
                $($(in_range(stringify!($name), self.$name, $range)?;)?)*
                Ok(())
            }
        }
    };
}

for_each_setting!(config);

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// Where a node keeps its data unless it is told. Never in the working directory: from another one, the data would seem lost.
/// Empty if no place is known.
fn default_data_dir() -> PathBuf {
    let is_root = rustix::process::geteuid().is_root();
    data_dir_of(is_root, env::var_os("XDG_DATA_HOME"), env::var_os("HOME"))
}

fn data_dir_of(is_root: bool, data_home: Option<OsString>, home: Option<OsString>) -> PathBuf {
    if is_root {
        return "/var/lib/ratchet".into();
    }
    let absolute =
        |place: Option<OsString>| place.map(PathBuf::from).filter(|place| place.is_absolute());
    let data_home = absolute(data_home).or_else(|| Some(absolute(home)?.join(".local/share")));
    data_home.map(|place| place.join("ratchet")).unwrap_or_default()
}

/// Why a configuration cannot work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

impl Config {
    /// Checks each setting, and which settings go together.
    ///
    /// # Errors
    /// [`ConfigError`] if the node could not work so. It names the settings, their values and what to change.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.check_name()?;
        self.check_data_dir()?;
        self.check_user(rustix::process::geteuid().is_root())?;
        self.check_ranges()?;
        self.check_times()?;
        self.check_addresses()?;
        self.check_tls()?;
        self.check_peers()?;
        self.check_collector()?;
        self.check_drop_ins()
    }

    /// The same for a cluster of one that somebody tries (`--dev`): little of the disk is set aside for it,
    /// and its data may be lost.
    pub fn for_trying(self) -> Config {
        Config {
            dev: true,
            require_volume: false,
            disk_reserve_mb: self.disk_reserve_mb.min(DEV_RESERVE_MB),
            log_keep_bytes: self.log_keep_bytes.min(DEV_LOG_BYTES),
            ..self
        }
    }

    /// After how long a key that nobody asks for is evicted. `None`: never.
    pub(super) fn key_idle(&self) -> Option<Duration> {
        (self.key_idle_ms > 0).then(|| Duration::from_millis(self.key_idle_ms))
    }

    /// How long to wait for a node that was not heard lately.
    pub(super) fn silence_patience(&self) -> Duration {
        Duration::from_millis(SILENCE_ELECTIONS * self.election_timeout_ms)
    }

    fn check_name(&self) -> Result<(), ConfigError> {
        check_name(&self.cluster).map_err(|_| {
            ConfigError(format!(
                "cluster is {:?}; it takes 1 to 64 characters out of A-Z a-z 0-9 . _ -",
                self.cluster
            ))
        })
    }

    fn check_data_dir(&self) -> Result<(), ConfigError> {
        match self.data_dir.as_os_str().is_empty() {
            false => Ok(()),
            true => Err(ConfigError(
                "data_dir is not set, and there is neither XDG_DATA_HOME nor HOME to derive it from: set data_dir to the \
                 directory where this node keeps its data"
                    .to_owned(),
            )),
        }
    }

    fn check_user(&self, is_root: bool) -> Result<(), ConfigError> {
        match self.refuse_root && is_root {
            false => Ok(()),
            true => Err(ConfigError(
                "this process runs as root, and refuse_root is set, as in the image and the units: run it as another user, to \
                 whom data_dir belongs (the image does so, as user 65532, unless it is given --user or runAsUser), or set \
                 RATCHET_REFUSE_ROOT=false in its environment, which wins over a file"
                    .to_owned(),
            )),
        }
    }

    fn check_times(&self) -> Result<(), ConfigError> {
        let (timeout, longest) = (self.request_timeout_ms, self.request_timeout_max_ms);
        if timeout > longest {
            return Err(ConfigError(format!(
                "request_timeout_ms is {timeout}; it must lie between 1 and request_timeout_max_ms \
                 ({longest})"
            )));
        }
        let (election, lease, margin) =
            (self.election_timeout_ms, self.lease_ms, self.drift_margin_ms);
        if lease + margin >= election {
            return Err(ConfigError(format!(
                "lease_ms is {lease}; it must be less than election_timeout_ms ({election}) less \
                 drift_margin_ms ({margin}), or a deposed leader could answer after its successor: \
                 lower lease_ms, or raise election_timeout_ms on all nodes"
            )));
        }
        let heartbeat = self.heartbeat_ms;
        if heartbeat * 2 > lease || heartbeat * 2 >= election {
            return Err(ConfigError(format!(
                "heartbeat_ms is {heartbeat}; it must be at most half of lease_ms ({lease}) and less \
                 than half of election_timeout_ms ({election}), so that one lost heartbeat does no \
                 harm: lower it"
            )));
        }
        Ok(())
    }

    fn check_addresses(&self) -> Result<(), ConfigError> {
        let listeners = [
            ("listen", Some(self.listen)),
            ("peer_listen", Some(self.peer_listen)),
            ("metrics_listen", self.metrics_listen),
            ("http_listen", self.http_listen),
            ("resp_listen", self.resp_listen),
            ("admin_listen", self.admin_listen),
        ];
        for (at, (field, address)) in listeners.iter().enumerate() {
            for (other_field, other) in &listeners[at + 1..] {
                if let (Some(address), Some(other)) = (address, other)
                    && address == other
                    && address.port() != 0
                {
                    return Err(ConfigError(format!(
                        "{field} and {other_field} are both {address}; give each a port of its own"
                    )));
                }
            }
        }
        for (field, address, name_field, name) in [
            ("listen", self.listen, "advertise", &self.advertise),
            ("peer_listen", self.peer_listen, "peer_advertise", &self.peer_advertise),
        ] {
            let in_peers = field == "peer_listen" && self.peers.contains_key(&self.node_id);
            match name {
                Some(name) => check_address(name_field, name)?,
                None if in_peers => {}
                None if address.ip().is_unspecified() => {
                    return Err(ConfigError(format!(
                        "{field} is {address}, which tells nobody where this node is; set \
                         {name_field} to the host:port that others reach it at"
                    )));
                }
                None => {}
            }
        }
        Ok(())
    }

    fn check_tls(&self) -> Result<(), ConfigError> {
        let clients = [("tls_cert", &self.tls_cert), ("tls_key", &self.tls_key)];
        let optional = [("tls_client_ca", &self.tls_client_ca)];
        check_files("tls", self.tls != ClientTls::Off, &clients, &optional)?;
        let peers = [
            ("peer_tls_cert", &self.peer_tls_cert),
            ("peer_tls_key", &self.peer_tls_key),
            ("peer_tls_ca", &self.peer_tls_ca),
        ];
        check_files("peer_tls", self.peer_tls != PeerTls::Off, &peers, &[])
    }

    fn check_peers(&self) -> Result<(), ConfigError> {
        if self.peers.is_empty() {
            return Ok(());
        }
        if self.dev {
            return Err(ConfigError(
                "--dev is for a cluster of one, and peers names others: leave one of them out, and found a cluster of several \
                 nodes with: ratchet found"
                    .to_owned(),
            ));
        }
        let mut seen = BTreeMap::new();
        for (id, address) in &self.peers {
            in_range("a node id in peers", *id, 1..=u64::MAX)?;
            check_address("peers", address)?;
            if let Some(other) = seen.insert(address, id) {
                return Err(ConfigError(format!(
                    "peers gives {address} to both node {other} and node {id}; correct one"
                )));
            }
        }
        Ok(())
    }

    /// Checks where spans are sent. A part of the address that may be a password is not shown.
    fn check_collector(&self) -> Result<(), ConfigError> {
        let wrong = |why: &str| {
            ConfigError(format!(
                "otlp_endpoint {why}; it takes http://host:port, as in http://127.0.0.1:4317, or https://host:port with \
                 otlp_ca, the file with the CAs of the collector"
            ))
        };
        let Some(endpoint) = &self.otlp_endpoint else {
            return match self.otlp_ca {
                None => Ok(()),
                Some(_) => Err(wrong("is not set, and otlp_ca is")),
            };
        };
        let (plain, over_tls) =
            (endpoint.strip_prefix("http://"), endpoint.strip_prefix("https://"));
        let at = match (plain.or(over_tls), over_tls.is_some(), self.otlp_ca.is_some()) {
            (None, _, _) => return Err(wrong("does not begin with http:// or https://")),
            (_, true, false) => return Err(wrong("begins with https, and otlp_ca is not set")),
            (_, false, true) => return Err(wrong("speaks no TLS, and otlp_ca is set")),
            (Some(at), _, _) => at,
        };
        if at.contains(['@', '/', '?', '#']) {
            return Err(wrong("has more than an address: leave out a user, a path and a query"));
        }
        check_address("otlp_endpoint", at).map_err(|_| wrong(&format!("is {endpoint:?}")))
    }

    /// Refuses a setting whose clients ask over HTTP, if this node does not serve that.
    fn check_http_for(&self, field: &str, is_set: bool) -> Result<(), ConfigError> {
        match is_set && self.http_listen.is_none() {
            false => Ok(()),
            true => Err(ConfigError(format!(
                "{field} is set, but http_listen is off, where its clients ask: set http_listen to an address"
            ))),
        }
    }

    /// Checks what clients of other id generators may ask for.
    fn check_drop_ins(&self) -> Result<(), ConfigError> {
        for names in [self.leaf_names(), self.tinyid_names(), self.yuewen_names()] {
            names.check().map_err(ConfigError)?;
            self.check_http_for(names.setting, !names.rows.is_empty())?;
        }
        let snowflake = &self.leaf_snowflake;
        if !snowflake.is_empty() {
            self.check_http_for("leaf_snowflake", true)?;
            check_name(snowflake).map_err(|invalid| {
                ConfigError(format!("leaf_snowflake names no namespace: {invalid}"))
            })?;
        }
        check_tokens(&self.tinyid_types, &self.tinyid_tokens).map_err(ConfigError)?;
        match self.tinyid_types.is_empty() {
            true => Ok(()),
            false => check_segments(&self.tinyid_types, &self.tinyid_segment, self.count_max)
                .map_err(ConfigError),
        }
    }

    /// The names that clients of Leaf may ask for.
    pub fn leaf_names(&self) -> MappedNames<'_> {
        MappedNames {
            setting: "leaf_tags",
            parameter: "tag",
            takes_others: false,
            rows: &self.leaf_tags,
        }
    }

    /// The names that clients of Tinyid may ask for.
    pub fn tinyid_names(&self) -> MappedNames<'_> {
        MappedNames {
            setting: "tinyid_types",
            parameter: TINYID_PARAMETER,
            takes_others: false,
            rows: &self.tinyid_types,
        }
    }

    /// The names that clients of Yuewen's generator may ask for.
    pub fn yuewen_names(&self) -> MappedNames<'_> {
        MappedNames {
            setting: "yuewen_types",
            parameter: "type",
            takes_others: true,
            rows: &self.yuewen_types,
        }
    }
}

/// Checks that the files of `switch` are given if it is on, and none if it is off.
fn check_files(
    switch: &str, is_on: bool, needed: &[(&str, &Option<PathBuf>)],
    optional: &[(&str, &Option<PathBuf>)],
) -> Result<(), ConfigError> {
    let missing = needed.iter().find(|(_, file)| file.is_none());
    let given = needed.iter().chain(optional).find(|(_, file)| file.is_some());
    match (is_on, missing, given) {
        (true, Some((field, _)), _) => Err(ConfigError(format!(
            "{switch} is on, and {field} is not set: set it to the file, which `ratchet cert` can make"
        ))),
        (false, _, Some((field, _))) => Err(ConfigError(format!(
            "{field} is set, but {switch} is off: set {switch} to accept, or leave {field} out"
        ))),
        (true, None, _) | (false, _, None) => Ok(()),
    }
}

fn in_range(field: &str, value: u64, range: RangeInclusive<u64>) -> Result<(), ConfigError> {
    if range.contains(&value) {
        return Ok(());
    }
    let (min, max) = range.into_inner();
    Err(ConfigError(format!("{field} is {value}; it must lie between {min} and {max}")))
}

/// The host of an address of the form host:port, without the brackets of IPv6.
pub fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_matches(['[', ']'])
}

/// Checks that an address has the form host:port.
pub(super) fn check_address(field: &str, address: &str) -> Result<(), ConfigError> {
    let fits = address.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    if fits {
        Ok(())
    } else {
        Err(ConfigError(format!(
            "{field} holds {address:?}; it takes host:port, as in 10.0.0.1:7601"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut Config)) -> String {
        let mut config = Config::default();
        change(&mut config);
        config.check().expect_err("refused").0
    }

    #[test]
    fn the_defaults_work() {
        assert_eq!(Config::default().check(), Ok(()));
    }

    #[test]
    fn a_cluster_that_is_tried_sets_little_of_the_disk_aside_and_none_if_none_is_wanted() {
        let tried = Config::default().for_trying();
        assert_eq!((tried.dev, tried.disk_reserve_mb, tried.log_keep_bytes), (true, 64, 16 << 20));
        let none = Config { disk_reserve_mb: 0, log_keep_bytes: 1_000, ..Config::default() };
        let tried = none.for_trying();
        assert_eq!((tried.disk_reserve_mb, tried.log_keep_bytes), (0, 1_000));
    }

    #[test]
    fn a_lease_that_does_not_end_before_the_followers_by_the_margin_is_refused() {
        let text = refused(|c| c.lease_ms = 250);
        assert!(
            text.contains("lease_ms is 250") && text.contains("(300)") && text.contains("(50)")
        );
        assert!(refused(|c| c.drift_margin_ms = 100).contains("drift_margin_ms (100)"));
        let config = Config { lease_ms: 249, ..Config::default() };
        assert_eq!(config.check(), Ok(()));
    }

    #[test]
    fn times_and_limits_outside_their_ranges_are_refused_with_their_values() {
        assert!(refused(|c| c.heartbeat_ms = 0).contains("heartbeat_ms is 0"));
        assert!(refused(|c| c.heartbeat_ms = 101).contains("heartbeat_ms is 101"));
        assert!(refused(|c| c.election_timeout_ms = 60_001).contains("60001"));
        assert!(refused(|c| c.count_max = 0).contains("count_max is 0"));
        // A peer that lags by an entry or two would get a snapshot (openraft issue 2116).
        assert!(
            refused(|c| c.log_keep_bytes = 1)
                .contains("log_keep_bytes is 1; it must lie between 1000")
        );
        assert!(refused(|c| c.block_cache_mb = 0).contains("block_cache_mb is 0"));
        assert!(refused(|c| c.node_id = 0).contains("node_id is 0"));
        assert!(refused(|c| c.cluster = "a b".into()).contains("\"a b\""));
    }

    #[test]
    fn addresses_that_cannot_be_reached_or_collide_are_refused() {
        assert!(refused(|c| c.peer_listen = c.listen).contains("127.0.0.1:7600"));
        let shared = refused(|c| c.admin_listen = Some(c.listen));
        assert!(shared.contains("listen and admin_listen are both 127.0.0.1:7600"), "{shared}");
        assert!(refused(|c| c.listen = ([0, 0, 0, 0], 7600).into()).contains("advertise"));
        assert!(refused(|c| c.advertise = Some("nowhere".into())).contains("\"nowhere\""));
    }

    #[test]
    fn files_for_tls_go_with_tls() {
        let file = || Some(PathBuf::from("a"));
        assert!(refused(|c| c.tls = ClientTls::Accept).contains("tls_cert is not set"));
        assert!(refused(|c| c.tls_client_ca = file()).contains("tls is off"));
        assert!(refused(|c| c.peer_tls_key = file()).contains("peer_tls is off"));
        let without_ca = refused(|c| {
            (c.peer_tls, c.peer_tls_cert, c.peer_tls_key) = (PeerTls::Send, file(), file());
        });
        assert!(without_ca.contains("peer_tls_ca is not set"), "{without_ca}");
        let config = Config {
            tls: ClientTls::Require,
            tls_cert: file(),
            tls_key: file(),
            ..Config::default()
        };
        assert_eq!(config.check(), Ok(()));
    }

    #[test]
    fn a_collector_has_an_address_and_a_password_is_not_shown() {
        for (endpoint, why) in [
            ("https://collector:4317", "begins with https, and otlp_ca is not set"),
            ("collector:4317", "does not begin with http:// or https://"),
            ("http://collector", "is \"http://collector\""),
            ("http://collector:4317/v1/traces", "leave out a user, a path"),
            ("http://me:secret@collector:4317", "leave out a user"),
        ] {
            let told = refused(|c| c.otlp_endpoint = Some(endpoint.to_owned()));
            assert!(told.contains(why) && told.contains("http://host:port"), "{told}");
            assert!(!told.contains("secret"), "{told}");
        }
        let otlp_endpoint = Some("http://[::1]:4317".to_owned());
        assert_eq!(Config { otlp_endpoint, ..Config::default() }.check(), Ok(()));
        let with_ca = |endpoint: Option<&str>| Config {
            otlp_endpoint: endpoint.map(str::to_owned),
            otlp_ca: Some("ca.crt".into()),
            ..Config::default()
        };
        assert_eq!(with_ca(Some("https://collector:4317")).check(), Ok(()));
        for (endpoint, why) in [
            (Some("http://collector:4317"), "speaks no TLS, and otlp_ca is set"),
            (Some("https://me:secret@collector:4317"), "leave out a user"),
            (None, "is not set, and otlp_ca is"),
        ] {
            let told = with_ca(endpoint).check().unwrap_err().to_string();
            assert!(told.contains(why) && !told.contains("secret"), "{told}");
        }
    }

    #[test]
    fn peers_name_each_node_and_address_once_and_do_not_go_with_dev() {
        let peers = |text: &[(u64, &str)]| -> BTreeMap<u64, String> {
            text.iter().map(|(id, a)| (*id, (*a).to_owned())).collect()
        };
        assert!(
            refused(|c| c.peers = peers(&[(1, "a:1"), (3, "a:1")])).contains("node 1 and node 3")
        );
        assert!(refused(|c| c.peers = peers(&[(1, "a:0")])).contains("\"a:0\""));
        let trying = refused(|c| (c.peers, c.dev) = (peers(&[(1, "a:1")]), true));
        assert!(trying.contains("ratchet found"), "{trying}");
    }

    #[test]
    fn the_data_directory_does_not_depend_on_the_working_directory() {
        let of = |data_home: &str, home: &str| {
            let given = |text: &str| Some(OsString::from(text)).filter(|text| !text.is_empty());
            data_dir_of(false, given(data_home), given(home))
        };
        assert_eq!(of("/data", "/home/a"), PathBuf::from("/data/ratchet"));
        assert_eq!(of("", "/home/a"), PathBuf::from("/home/a/.local/share/ratchet"));
        assert_eq!(of("data", "/home/a"), PathBuf::from("/home/a/.local/share/ratchet"));
        assert_eq!(data_dir_of(true, None, None), PathBuf::from("/var/lib/ratchet"));
        assert_eq!(of("", "home"), PathBuf::new());
        assert!(refused(|c| c.data_dir = of("", "")).contains("data_dir is not set"));
    }

    #[test]
    fn root_is_refused_only_where_a_setting_says_so() {
        let of =
            |refuse_root, is_root| Config { refuse_root, ..Config::default() }.check_user(is_root);
        assert_eq!([of(false, true), of(true, false), of(false, false)], [Ok(()), Ok(()), Ok(())]);
        let refused = of(true, true).unwrap_err().to_string();
        assert!(refused.contains("refuse_root is set"), "{refused}");
    }

    #[test]
    fn what_other_generators_clients_ask_for_must_be_served_and_fit() {
        let table = |text: &[(&str, &str)]| -> BTreeMap<String, String> {
            let rows = text.iter();
            rows.map(|(tag, to)| ((*tag).to_owned(), (*to).to_owned())).collect()
        };
        let tags = table(&[("order", "order:1")]);
        let text = refused(|c| (c.leaf_tags, c.http_listen) = (tags.clone(), None));
        assert!(text.contains("leaf_tags is set"), "{text}");
        let text = refused(|c| c.yuewen_types = table(&[("1", "book")]));
        assert!(text.contains("yuewen_types maps \"1\""), "{text}");
        let text = refused(|c| c.yuewen_types = table(&[("1", "book:{a}{b}")]));
        assert!(text.contains("stands alone in the place of the key"), "{text}");
        let text = refused(|c| c.tinyid_types = tags.clone());
        assert!(text.contains("tinyid_tokens"), "{text}");
        let text = refused(|c| {
            (c.tinyid_types, c.tinyid_tokens) = (tags.clone(), table(&[("order", "secret")]));
            c.count_max = 99_999;
        });
        assert!(text.contains("tinyid_segment is 100000") && text.contains("(99999)"), "{text}");
    }
}
