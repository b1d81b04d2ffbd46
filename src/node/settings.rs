//! The list of settings: for each its help, environment variable, name, type, default and range. The node's
//! [`super::Config`] and the flags, variables and file of `ratchet start` are made from it.
//!
//! Types of settings have files of their own: `optional_listen.rs`, `peers.rs`, `tls.rs`, `sample.rs` for traces, and
//! `mapped_names.rs` and `segment_sizes.rs` for other generators' clients.
//!
//! To add a setting, add it here, and a section to docs/settings.md.

pub mod mapped_names;
mod optional_listen;
mod peers;
mod sample;
mod segment_sizes;
mod tls;

pub use optional_listen::OptionalListen;
pub use peers::Peers;
pub use sample::Sample;
pub use segment_sizes::SegmentSizes;
pub use tls::{ClientTls, PeerTls};

/// The longest time that a timing setting takes, in milliseconds.
pub const TIME_MS_MAX: u64 = 60_000;
/// The greatest value of `count_max`.
pub const COUNT_MAX_MAX: u64 = 1_000_000_000;

/// Calls the macro `$with` with the list of settings. An entry reads: help, environment variable, in brackets further
/// clap arguments of its flag, `=>`, name, type in the configuration, `as` the type in which it is given, default, and
/// range if it has one. Those after `secret:` have no flag: everybody on the machine can read the flags of a process. The types
/// and functions that entries name are those that are known by these names where this macro is called.
macro_rules! for_each_setting {
    ($with:ident) => {
        $with! {
            /// The cluster's name, the same on all nodes [default: ratchet]
            "RATCHET_CLUSTER" [] => cluster: String as String = "ratchet".to_owned();
            /// This node's id, at least 1, never reused [default: 1]
            "RATCHET_NODE_ID" [] => node_id: NodeId as NodeId = 1, 1..=u64::MAX;
            /// Where the node keeps its data [default: /var/lib/ratchet for root, else $XDG_DATA_HOME/ratchet or
            /// ~/.local/share/ratchet]
            "RATCHET_DATA_DIR" [] => data_dir: PathBuf as PathBuf = default_data_dir();
            /// Start only if a volume is mounted at data_dir, or at one of its parents but /; the image sets it; --dev needs
            /// none
            "RATCHET_REQUIRE_VOLUME" [num_args = 0..=1, default_missing_value = "true"] =>
                require_volume: bool as bool = false;
            /// Do not start as root; the image and the units set it
            "RATCHET_REFUSE_ROOT" [num_args = 0..=1, default_missing_value = "true"] =>
                refuse_root: bool as bool = false;
            /// Where to listen for clients [default: 127.0.0.1:7600]
            "RATCHET_LISTEN" [] => listen: SocketAddr as SocketAddr = loopback(7600);
            /// Where to listen for peers [default: 127.0.0.1:7601]
            "RATCHET_PEER_LISTEN" [] => peer_listen: SocketAddr as SocketAddr = loopback(7601);
            /// Where to serve /metrics, /livez and /readyz, or "off" [default: 127.0.0.1:7602]
            "RATCHET_METRICS_LISTEN" [] =>
                metrics_listen: Option<SocketAddr> as OptionalListen = Some(loopback(7602));
            /// Where to listen for HTTP clients, or "off" [default: 127.0.0.1:7603]
            "RATCHET_HTTP_LISTEN" [] =>
                http_listen: Option<SocketAddr> as OptionalListen = Some(loopback(7603));
            /// Names by which browsers may ask over HTTP, with commas between them. Addresses, localhost and the host of
            /// --advertise need not be listed, and programs may use any name
            "RATCHET_HTTP_HOSTS" [] => http_hosts: String as String = String::new();
            /// Where to listen for Redis clients, or "off" [default: 127.0.0.1:7604]
            "RATCHET_RESP_LISTEN" [] =>
                resp_listen: Option<SocketAddr> as OptionalListen = Some(loopback(7604));
            /// Where to listen for administrators, or "off"; with an address, the ports for clients refuse all calls that need
            /// the verb namespaces or admin [default: off]
            "RATCHET_ADMIN_LISTEN" [] => admin_listen: Option<SocketAddr> as OptionalListen = None;
            /// Where clients reach this node, "host:port" [default: the address of --listen]
            "RATCHET_ADVERTISE" [] => advertise: Option<String> as String = None;
            /// Where peers reach this node, "host:port" [default: as in --peers, or the address of
            /// --peer-listen]
            "RATCHET_PEER_ADVERTISE" [] => peer_advertise: Option<String> as String = None;
            /// The founding voters and their peer addresses, the same on all of them: "1=host:port,2=host:port,...";
            /// ratchet found makes them a cluster
            "RATCHET_PEERS" [] => peers: BTreeMap<NodeId, String> as Peers = BTreeMap::new();
            /// Let the node start although strangers reach it, on a port for clients beyond loopback without TLS, and everybody
            /// is granted something
            "RATCHET_INSECURE" [num_args = 0..=1, default_missing_value = "true"] =>
                insecure: bool as bool = false;
            /// Whether the ports for clients speak TLS: off, accept (a connection may), or require [default: off]
            "RATCHET_TLS" [] => tls: ClientTls as ClientTls = ClientTls::Off;
            /// The file with the certificate that clients see, and those between it and its CA, in PEM; it is read again when
            /// it changes
            "RATCHET_TLS_CERT" [] => tls_cert: Option<PathBuf> as PathBuf = None;
            /// The file with the key of tls_cert, in PEM, without a passphrase
            "RATCHET_TLS_KEY" [] => tls_key: Option<PathBuf> as PathBuf = None;
            /// The file with the CAs of clients, in PEM: with it, a connection with TLS needs a certificate of one of them
            "RATCHET_TLS_CLIENT_CA" [] => tls_client_ca: Option<PathBuf> as PathBuf = None;
            /// Whether nodes speak TLS with one another: off, accept (peers may), send (so does this node), or require
            /// [default: off]
            "RATCHET_PEER_TLS" [] => peer_tls: PeerTls as PeerTls = PeerTls::Off;
            /// The file with this node's certificate for peers, in PEM; it names ratchet://cluster/node_id
            "RATCHET_PEER_TLS_CERT" [] => peer_tls_cert: Option<PathBuf> as PathBuf = None;
            /// The file with the key of peer_tls_cert, in PEM, without a passphrase
            "RATCHET_PEER_TLS_KEY" [] => peer_tls_key: Option<PathBuf> as PathBuf = None;
            /// The file with the CAs of the nodes' certificates, in PEM
            "RATCHET_PEER_TLS_CA" [] => peer_tls_ca: Option<PathBuf> as PathBuf = None;
            /// Found the cluster without the namespaces book and uid; give it to all founding nodes
            "RATCHET_NO_DEFAULT_NAMESPACES" [num_args = 0..=1, default_missing_value = "true"] =>
                no_default_namespaces: bool as bool = false;
            /// The fence that answers pass when this node leads [default: lease]
            "RATCHET_FENCE" [] => fence: FenceKind as FenceKind = FenceKind::Lease;
            /// How often a leader sends a heartbeat, in milliseconds [default: 50]
            "RATCHET_HEARTBEAT_MS" [] => heartbeat_ms: u64 as u64 = 50, 1..=TIME_MS_MAX;
            /// How long a follower keeps out of elections after it heard of a leader, in milliseconds; the
            /// same on all nodes [default: 300]
            "RATCHET_ELECTION_TIMEOUT_MS" [] =>
                election_timeout_ms: u64 as u64 = 300, 1..=TIME_MS_MAX;
            /// How long a leader may answer after a majority acknowledged it, in milliseconds
            /// [default: 200]
            "RATCHET_LEASE_MS" [] => lease_ms: u64 as u64 = 200, 1..=TIME_MS_MAX;
            /// By how much lease_ms must be less than election_timeout_ms, for clocks that run at different rates, in
            /// milliseconds [default: 50]
            "RATCHET_DRIFT_MARGIN_MS" [] => drift_margin_ms: u64 as u64 = 50, 1..=TIME_MS_MAX;
            /// How far a leader's wall clock may be from those of a majority of the voters, in milliseconds; if it is further,
            /// it hands over, and makes no ids of a time if nobody fits [default: 60000]
            "RATCHET_CLOCK_APART_MAX_MS" [] =>
                clock_apart_max_ms: u64 as u64 = 60_000, 1_000..=31_536_000_000;
            /// The greatest count of one request [default: 1000000]
            "RATCHET_COUNT_MAX" [] => count_max: u64 as u64 = 1_000_000, 1..=COUNT_MAX_MAX;
            /// How long a request without a deadline may take, in milliseconds; at most
            /// request_timeout_max_ms [default: 5000]
            "RATCHET_REQUEST_TIMEOUT_MS" [] =>
                request_timeout_ms: u64 as u64 = 5_000, 1..=3_600_000;
            /// How long any request may take, whatever deadline its caller sets, in milliseconds
            /// [default: 60000]
            "RATCHET_REQUEST_TIMEOUT_MAX_MS" [] =>
                request_timeout_max_ms: u64 as u64 = 60_000, 1..=3_600_000;
            /// How many megabytes (2^20 bytes) waiting requests and unsent answers may hold; more are
            /// refused [default: 256]
            "RATCHET_MEMORY_REQUESTS_MAX_MB" [] =>
                memory_requests_max_mb: u64 as u64 = 256, 16..=1 << 20;
            /// How many connections clients may have at a time; fewer if the process may not open as many
            /// files [default: 10000]
            "RATCHET_CLIENT_CONNECTIONS_MAX" [] =>
                client_connections_max: u64 as u64 = 10_000, 1..=1 << 20;
            /// How many calls over gRPC may be in progress; further ones are refused [default: 32768]
            "RATCHET_CLIENT_CALLS_MAX" [] =>
                client_calls_max: u64 as u64 = 32_768, 1..=1 << 30;
            /// How large a part of client_connections_max, client_calls_max and memory_requests_max_mb, and of the places for
            /// exports and status pages, a principal, or the callers of one address, may hold, in percent [default: 50]
            "RATCHET_CLIENT_SHARE_PERCENT" [] =>
                client_share_percent: u64 as u64 = 50, 1..=100;
            /// How long a connection without a call under way is kept, in milliseconds; longer than balancers and pools
            /// keep theirs [default: 650000]
            "RATCHET_CONNECTION_IDLE_MS" [] =>
                connection_idle_ms: u64 as u64 = 650_000, 1..=86_400_000;
            /// For how long a client's connection over gRPC or HTTP is used, at most, in milliseconds; 0: as long as its
            /// caller likes [default: 0]
            "RATCHET_CONNECTION_AGE_MAX_MS" [] =>
                connection_age_max_ms: u64 as u64 = 0, 0..=86_400_000;
            /// How long a handover may take to close the term, and to return numbers (a sole voter:
            /// handover_timeout_ms, if longer), and how long a stopping node then waits for callers, in milliseconds
            /// [default: 5000]
            "RATCHET_SHUTDOWN_TIMEOUT_MS" [] =>
                shutdown_timeout_ms: u64 as u64 = 5_000, 1..=3_600_000;
            /// How many bytes of the applied log are kept, at least, for nodes that lag, but no more than a quarter of the
            /// disk's reserve; a node that lags further gets a snapshot [default: 268435456]
            "RATCHET_LOG_KEEP_BYTES" [] => log_keep_bytes: u64 as u64 = 256 << 20, 1_000..=1 << 40;
            /// How many times log_keep_bytes are kept, at most, while a node is sent a snapshot, because it needs them
            /// next [default: 8]
            "RATCHET_LOG_HOLD_TIMES" [] => log_hold_times: u64 as u64 = 8, 1..=1_000_000;
            /// How fast a leader sends a snapshot to a node, at most, in MB (2^20 bytes) a second [default: 8]
            "RATCHET_SNAPSHOT_MB_PER_SECOND" [] =>
                snapshot_mb_per_second: u64 as u64 = 8, 1..=1 << 20;
            /// How much of the disk of data_dir stays free, in MB (2^20 bytes), on a small disk a twentieth of it, and no less
            /// than 64; while less is free, this node as leader refuses new keys and namespaces; 0: it never does
            /// [default: 1024]
            "RATCHET_DISK_RESERVE_MB" [] =>
                disk_reserve_mb: u64 as u64 = 1_024, 0..=1 << 20;
            /// How much memory caches what is read of the database, and holds what is not in its files yet, in MB (2^20
            /// bytes) [default: 64]
            "RATCHET_BLOCK_CACHE_MB" [] => block_cache_mb: u64 as u64 = 64, 1..=1 << 20;
            /// How much memory holds the records of live sections, for the moment in which this node becomes
            /// leader, in MB (2^20 bytes), 68 bytes each without names; the others are read from the disk
            /// [default: 64]
            "RATCHET_RECENT_RECORDS_MB" [] =>
                recent_records_mb: u64 as u64 = 64, 0..=1 << 20;
            /// How much memory this node as leader has for keys, in MB (2^20 bytes), some 50 bytes a key; above
            /// 7/8 of it the keys that were idle longest are evicted, those of a shared section together, and above
            /// 15/16 new keys wait; the same on all nodes [default: 2048]
            "RATCHET_MEMORY_MAX_MB" [] => memory_max_mb: u64 as u64 = 2_048, 0..=1 << 20;
            /// After how long a key that nobody asks for, or a whole shared section, is evicted from the leader's
            /// memory, in milliseconds, or up to twice as long; 0: not before the memory is full [default: 600000]
            "RATCHET_KEY_IDLE_MS" [] => key_idle_ms: u64 as u64 = 600_000, 0..=86_400_000;
            /// How long a leader that hands over may go on serving while it sends its memory to its successor, in
            /// milliseconds; 0: it sends none. A sole voter that stops has as long to return numbers [default: 30000]
            "RATCHET_HANDOVER_TIMEOUT_MS" [] =>
                handover_timeout_ms: u64 as u64 = 30_000, 0..=3_600_000;
            /// How long a request id of a gapless namespace is remembered, in milliseconds, if its caller states no retry
            /// window [default: 600000]
            "RATCHET_REQUEST_ID_KEEP_MS" [] =>
                request_id_keep_ms: u64 as u64 = 600_000, 1_000..=86_400_000;
            /// How much is remembered under request ids at most, on the disks of each node, in MB (2^20 bytes), some 200
            /// bytes for a message of one key, and 30 for each further key; more is refused [default: 1024]
            "RATCHET_REQUEST_IDS_MAX_MB" [] =>
                request_ids_max_mb: u64 as u64 = 1024, 1..=1 << 20;
            /// How many namespaces have metrics of their own; further ones are counted together [default: 100]
            "RATCHET_METRICS_NAMESPACES_MAX" [] =>
                metrics_namespaces_max: u64 as u64 = 100, 0..=10_000;
            /// From how long on a call is logged as slow, with where its time went, in milliseconds; 0: none is
            /// [default: 500]
            "RATCHET_SLOW_CALL_MS" [] => slow_call_ms: u64 as u64 = 500, 0..=3_600_000;
            /// Where spans of traced calls are sent, by OTLP over gRPC, as "http://host:4317", or "https://host:4317" with
            /// --otlp-ca; without it, no call is traced
            "RATCHET_OTLP_ENDPOINT" [] => otlp_endpoint: Option<String> as String = None;
            /// The file with the CAs of the collector, in PEM, for an otlp_endpoint that begins with https://
            "RATCHET_OTLP_CA" [] => otlp_ca: Option<PathBuf> as PathBuf = None;
            /// Which part of the calls is traced whose callers do not say whether they are, from 0 to 1 [default: 0.01]
            "RATCHET_OTLP_SAMPLE" [] => otlp_sample: Sample as Sample = Sample::DEFAULT;
            /// The tags that clients of Leaf ask for, and the key of each: "tag=namespace:key,..."; a row {tag} is for
            /// every tag without one, and {tag} after "=" is the tag itself; without any row, they are not served
            "RATCHET_LEAF_TAGS" [] =>
                leaf_tags: BTreeMap<String, String> as TextTable = BTreeMap::new();
            /// The namespace whose ids clients of Leaf's snowflake service get, whichever key they ask for. Its format should
            /// be snowflake, for /decodeSnowflakeId; without it, they are not served
            "RATCHET_LEAF_SNOWFLAKE" [] => leaf_snowflake: String as String = String::new();
            /// The values of bizType that clients of Tinyid ask for, and the key of each:
            /// "bizType=namespace:key,..."; a row {bizType} is for every type without one, and {bizType} after "=" is the
            /// type itself; each has a token in the table tinyid_tokens of the file, or in the variable
            /// RATCHET_TINYID_TOKENS; without any row, they are not served
            "RATCHET_TINYID_TYPES" [] =>
                tinyid_types: BTreeMap<String, String> as TextTable = BTreeMap::new();
            /// How many numbers a segment has that a client of Tinyid takes, of each bizType: "100000", or
            /// "bizType=numbers,..."; a row {bizType} is for every type without one; at most count_max [default: 100000]
            "RATCHET_TINYID_SEGMENT" [] =>
                tinyid_segment: BTreeMap<String, u64> as SegmentSizes = SegmentSizes::default().into();
            /// The types that clients of Yuewen's id generator ask for, and the key of each:
            /// "type=namespace:key,..."; {name} in the place of a key is the parameter of that name; a row {type} is for
            /// every type without one; without any row, they are not served
            "RATCHET_YUEWEN_TYPES" [] =>
                yuewen_types: BTreeMap<String, String> as TextTable = BTreeMap::new();
            secret:
            /// The token of each bizType in tinyid_types: "bizType=token,..."; several tokens of one bizType have
            /// spaces between them; a row {bizType} is for every type without one
            "RATCHET_TINYID_TOKENS" =>
                tinyid_tokens: BTreeMap<String, String> as SecretTable = BTreeMap::new();
        }
    };
}

pub(crate) use for_each_setting;
