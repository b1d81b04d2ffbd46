//! An administrator names an address for a new node. The program that listens there is greeted. Neither its words nor
//! those of the connection about it are passed on: a cluster is no way to look into a network.

use std::{net::SocketAddr, sync::Arc};

use ratchet::proto::v1::{AddNodeRequest, admin_client::AdminClient};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, crypto::ring},
};
use tonic::{Code, Status};

use crate::common::{
    certificates::{Certificates, Pair},
    free_ports, in_time, own_ip,
    processes::Processes,
};

/// The node that is to be added.
const NEW: u64 = 9;
/// The words of the program that listens, which nobody is to hear by way of the cluster.
const BANNER: &str = "SSH-2.0-a-banner-of-a-stranger";

/// The words of libraries about a connection.
const OF_TRANSPORT: &[&str] = &[
    "transport",
    "os error",
    "Connection refused",
    "connection refused",
    "connection closed",
    "closed connection",
    "reset by peer",
    "Broken pipe",
    "broken pipe",
    "hyper",
    "h2 ",
    "http2",
    "HTTP/2",
    "frame",
    "GoAway",
    "rustls",
    "peer certificate",
    "BadSignature",
    "UnknownIssuer",
    "InvalidCertificate",
    "InvalidContentType",
    "corrupt message",
    "unexpected end",
    "grpc-status",
];

/// Listens at an address of its own, and does the same with each connection, until it is dropped.
struct Listener {
    address: SocketAddr,
    serving: JoinHandle<()>,
}

impl Listener {
    async fn serve<F: Future<Output = ()> + Send + 'static>(
        each: impl Fn(TcpStream) -> F + Send + 'static,
    ) -> Listener {
        let listener = TcpListener::bind((own_ip(), 0)).await.expect("a port");
        let address = listener.local_addr().expect("its address");
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(each(stream));
            }
        });
        Listener { address, serving }
    }

    /// One that says this to a caller that connects, and reads until the other end has had enough.
    async fn saying(text: String) -> Listener {
        Listener::serve(move |mut stream| {
            let text = text.clone();
            async move {
                // The node that connects may not listen.
                let _ = stream.write_all(text.as_bytes()).await;
                let _ = stream.read_to_end(&mut Vec::new()).await;
            }
        })
        .await
    }

    /// One that speaks TLS with this certificate, and says its banner after the handshake.
    async fn with_tls((chain, key): Pair) -> Listener {
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(chain, key);
        let mut config = config.expect("a pair");
        config.alpn_protocols = vec![b"h2".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Listener::serve(move |stream| {
            let acceptor = acceptor.clone();
            async move {
                // The node that connects may not believe it.
                if let Ok(mut stream) = acceptor.accept(stream).await {
                    let _ = stream.write_all(BANNER.as_bytes()).await;
                    let _ = stream.read_to_end(&mut Vec::new()).await;
                }
            }
        })
        .await
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// A cluster of one whose nodes speak TLS with one another, once it is founded.
async fn cluster_of_one(certificates: &Certificates) -> Processes {
    let mut cluster = Processes::configured(1, &[]);
    let host = cluster.places[&1].peer_listen.ip().to_string();
    certificates.node(1, &host, &[]);
    cluster.own_flags.insert(1, certificates.peer_flags(1, "require"));
    cluster.spawn(1);
    cluster.found_at_socket().await;
    cluster.client(1).next_at_last(1).await;
    cluster
}

/// The answer to an administrator that names this address for a new node.
async fn told(cluster: &Processes, address: SocketAddr) -> Status {
    let mut admin: AdminClient<_> = cluster.client(1).admin;
    let asked = AddNodeRequest { id: NEW, peer_address: address.to_string() };
    in_time("an answer", admin.add_node(asked)).await.expect_err("it is no node of the cluster")
}

#[tokio::test(flavor = "multi_thread")]
async fn who_adds_a_node_is_told_nothing_of_what_else_listens_at_the_address() {
    let (certificates, others) = (Certificates::new(), Certificates::new());
    let cluster = cluster_of_one(&certificates).await;
    let other_cluster = cluster_of_one(&others).await;
    for made in [&certificates, &others] {
        made.node(NEW, "localhost", &[]);
    }
    certificates.node(8, "localhost", &[]);
    certificates.client("billing");
    let of_others = ["--cluster", "secret-cluster", "--node-id", "7", "--host", "localhost"];
    certificates.make(&[&["node"][..], &of_others].concat());
    let [nobody] = free_ports(own_ip());
    let page = format!("HTTP/1.1 500 Internal\r\nServer: {BANNER}\r\nContent-Length: 0\r\n\r\n");
    let listeners = [
        ("it says a banner", Listener::saying(BANNER.to_owned()).await),
        ("it speaks HTTP", Listener::saying(page).await),
        ("it says nothing", Listener::saying(String::new()).await),
        ("it hangs up", Listener::serve(|stream| async { drop(stream) }).await),
        ("it is of another CA", Listener::with_tls(others.pair("node-9")).await),
        ("it is another node", Listener::with_tls(certificates.pair("node-8")).await),
        ("it is of another cluster", Listener::with_tls(certificates.pair("node-7")).await),
        ("it is a client", Listener::with_tls(certificates.pair("client-billing")).await),
        ("it has the node's certificate", Listener::with_tls(certificates.pair("node-9")).await),
    ];
    let others_node = other_cluster.places[&1].peer_listen;
    let all = listeners.iter().map(|(what, listener)| (*what, listener.address));
    let all = all.chain([("nobody listens", nobody), ("a node of another cluster", others_node)]);
    for (what, address) in all {
        let told = told(&cluster, address).await;
        let codes = [Code::Unavailable, Code::FailedPrecondition];
        assert!(codes.contains(&told.code()), "{what}: {told:?}");
        let text = told.message();
        // The reason itself, apart from the address that the administrator gave.
        let reason = text.replace(&address.to_string(), "ADDRESS");
        for word in OF_TRANSPORT.iter().chain(&[BANNER, "secret-cluster", "node 7", "node 8"]) {
            assert!(!reason.contains(word), "{what}, and {word:?} is told: {text}");
        }
        assert!(text.contains(&address.to_string()), "{what}: {text}");
    }
}
