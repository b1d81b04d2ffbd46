//! Every way to ask for numbers without a grant, at every interface. Each try is refused, is told the same whether the
//! namespace is there or not, and takes no number.

use std::net::SocketAddr;

use ratchet::{
    node::{
        Config, hash_of,
        settings::{ClientTls, PeerTls},
    },
    proto::{
        peer::asker::Shown,
        v1::{
            CreateNamespaceRequest, CreateTokenRequest, NextRequest, RevokeTokenRequest,
            access_client::AccessClient, sequencer_client::SequencerClient,
        },
    },
};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};
use tonic::{Code, Request, Status, transport::Channel};

use super::{
    admin_port,
    leader::{Follower, by, with_token},
};
use crate::{
    common::{
        certificates::Certificates,
        channel,
        closed::{ADMIN, Closed, asking, create, grant, next},
        cluster::Cluster,
        eventually, http, id, in_time, other_than, with_admin_port,
    },
    local_socket::{self, socket_of},
    tls,
};

#[derive(Debug, Clone, Copy, PartialEq)]
enum At {
    Grpc,
    Http,
    Redis,
    /// The port for administrators.
    Administrators,
    /// The socket in the data directory.
    LocalSocket,
    /// The leader's port for peers, for an attacker with the certificate of a node.
    Peer,
}

const PLACES: [At; 6] =
    [At::Grpc, At::Http, At::Redis, At::Administrators, At::LocalSocket, At::Peer];

#[derive(Debug, Clone, Copy, PartialEq)]
enum Attack {
    /// No TLS, where it is required.
    Plain,
    /// The certificate of another CA, where one is needed.
    ForeignCertificate,
    NoToken,
    /// A token that may do everything but this.
    WrongVerb,
    /// A token that may do this, elsewhere.
    WrongNamespace,
    Expired,
    Revoked,
    /// A token that another cluster knows.
    ForeignToken,
    /// A request for another cluster, with a token that may do everything.
    ForeignRequest,
    /// Two tokens, each of which may do everything.
    TwoTokens,
    /// The name of the administrator: the caller is another one, and may not speak for him.
    FalseName,
    /// A message that another node has sent, as it says.
    FalseSender,
}

const ATTACKS: [Attack; 12] = [
    Attack::Plain,
    Attack::ForeignCertificate,
    Attack::NoToken,
    Attack::WrongVerb,
    Attack::WrongNamespace,
    Attack::Expired,
    Attack::Revoked,
    Attack::ForeignToken,
    Attack::ForeignRequest,
    Attack::TwoTokens,
    Attack::FalseName,
    Attack::FalseSender,
];

/// The outcome of an attack at an interface.
enum Cell {
    /// The code of the refusal: gRPC's, the status over HTTP, or the first word to a Redis client.
    Refused(&'static str),
    /// This test tries it.
    Elsewhere(fn()),
    /// Why nobody can try it.
    Senseless(&'static str),
}

/// Every attack at every interface: the compiler finds one that is missing.
fn cell(attack: Attack, at: At) -> Cell {
    use At::{Administrators, Grpc, Http, LocalSocket, Peer, Redis};
    use Attack::*;
    use Cell::{Elsewhere, Refused, Senseless};
    match (attack, at) {
        (Plain | ForeignCertificate, Administrators) => {
            Elsewhere(admin_port::the_port_for_administrators_takes_clients_of_its_ca_alone)
        }
        (Plain | ForeignCertificate, LocalSocket) => {
            Elsewhere(local_socket::nobody_but_the_user_of_the_node_may_open_the_socket)
        }
        (
            NoToken | WrongVerb | WrongNamespace | Expired | Revoked | ForeignToken | TwoTokens,
            LocalSocket,
        ) => Senseless("whoever may open it may do everything, and no token is looked at"),
        (Plain | ForeignCertificate, Grpc | Http | Redis) => {
            Elsewhere(tls::each_interface_speaks_tls_with_clients_of_its_ca_and_with_nobody_else)
        }
        (Plain | ForeignCertificate, Peer) => Elsewhere(
            tls::a_living_cluster_turns_tls_between_its_nodes_on_node_by_node_and_changes_its_ca,
        ),
        (NoToken, Grpc | Administrators | Peer) => Refused("Unauthenticated"),
        (NoToken, Http) => Refused("401"),
        (NoToken, Redis) => Refused("-NOAUTH"),
        (WrongVerb | WrongNamespace, Grpc | Administrators | Peer) => Refused("PermissionDenied"),
        (WrongVerb | WrongNamespace, Http) => Refused("403"),
        (WrongVerb | WrongNamespace, Redis) => Refused("-NOPERM"),
        (Expired | Revoked | ForeignToken, Grpc | Administrators | Peer) => {
            Refused("Unauthenticated")
        }
        (Expired | Revoked | ForeignToken, Http) => Refused("401"),
        (Expired | Revoked | ForeignToken, Redis) => Refused("-WRONGPASS"),
        (ForeignRequest, Grpc | Administrators | LocalSocket | Peer) => {
            Refused("FailedPrecondition")
        }
        (ForeignRequest, Http) => Refused("409"),
        (ForeignRequest, Redis) => Senseless("no command names a cluster"),
        (TwoTokens, Grpc | Administrators) => Refused("Unauthenticated"),
        (TwoTokens, Http) => Refused("401"),
        (TwoTokens, Redis) => Senseless("the last AUTH counts"),
        (TwoTokens, Peer) => Senseless("a message has one asker at most"),
        (FalseName, Grpc | Http | Administrators | LocalSocket) => {
            Senseless("a call has no name beside its token")
        }
        (FalseName, Redis) => Refused("-WRONGPASS"),
        (FalseSender, Grpc | Http | Redis | Administrators | LocalSocket) => {
            Senseless("a caller is no node")
        }
        (FalseName | FalseSender, Peer) => Refused("FailedPrecondition"),
    }
}

/// The answer to a try.
#[derive(Debug, PartialEq)]
struct Told {
    code: String,
    text: String,
}

/// A number over gRPC or from the leader.
impl From<Result<(), Status>> for Told {
    fn from(answer: Result<(), Status>) -> Told {
        match answer {
            Ok(()) => Told { code: "Ok".to_owned(), text: String::new() },
            Err(refused) => {
                let metadata = format!("{:?}", refused.metadata());
                let text = format!("{} {metadata}", refused.message());
                Told { code: format!("{:?}", refused.code()), text }
            }
        }
    }
}

/// The words of each interface that say that the same request may be carried out later.
const ASK_AGAIN: [&str; 3] = ["Unavailable", "503", "-CLUSTERDOWN"];

/// The credentials that are shown with a try.
#[derive(Default)]
struct Shows<'a> {
    /// The name beside the token, to a Redis client.
    name: Option<&'a str>,
    tokens: Vec<&'a str>,
    /// For which cluster it is.
    cluster_id: Option<&'a str>,
}

impl Shows<'_> {
    async fn over_grpc(&self, channel: Channel, namespace: &str) -> Told {
        let asked =
            NextRequest { namespace: namespace.to_owned(), key: id(1), ..NextRequest::default() };
        let mut call = Request::new(asked);
        for token in &self.tokens {
            let value = format!("Bearer {token}").parse().expect("a header");
            call.metadata_mut().append("authorization", value);
        }
        if let Some(id) = self.cluster_id {
            call.metadata_mut().insert("ratchet-cluster-id", id.parse().expect("a header"));
        }
        let mut client = SequencerClient::new(channel);
        let answer = in_time("an answer", client.next(call)).await;
        answer.map(drop).map_err(without_date).into()
    }

    async fn over_http(&self, address: SocketAddr, namespace: &str) -> Told {
        let tokens = self.tokens.iter().map(|token| format!("authorization: Bearer {token}\r\n"));
        let cluster = self.cluster_id.map(|id| format!("ratchet-cluster-id: {id}\r\n"));
        let headers: String = tokens.chain(cluster).collect();
        let what = format!("POST /v1/namespaces/{namespace}/keys/1:next");
        let page = http(address, &what, &headers, "").await;
        // These differ with the moment, and with the length of the name.
        let differs = ["date: ", "content-length: "];
        let same = |line: &&str| !differs.iter().any(|start| line.starts_with(start));
        let head: Vec<&str> = page.head.lines().filter(same).collect();
        Told { code: page.status.to_string(), text: format!("{}\n{}", head.join("\n"), page.body) }
    }

    async fn over_redis(&self, address: SocketAddr, namespace: &str) -> Told {
        let name = self.name.map(|name| format!("{name} ")).unwrap_or_default();
        let logins = self.tokens.iter().map(|token| format!("AUTH {name}{token}"));
        let commands: Vec<String> = logins.chain([format!("INCR {namespace}:1")]).collect();
        let asking = async {
            let mut stream = BufReader::new(TcpStream::connect(address).await?);
            let mut told = String::new();
            for command in &commands {
                stream.write_all(format!("{command}\r\n").as_bytes()).await?;
                stream.read_line(&mut told).await?;
            }
            Ok::<_, std::io::Error>(told)
        };
        let told = in_time("replies", asking).await.expect("replies");
        // A caller that could not log in is told so of the command, too.
        let refused = told.lines().filter(|line| *line != "+OK").collect::<Vec<_>>();
        let code = refused[0].split(' ').next().unwrap_or_default().to_owned();
        assert!(refused.iter().all(|line| line.starts_with('-')), "{refused:?}");
        Told { code, text: refused.join("\n") }
    }
}

/// The time of an answer differs each time.
fn without_date(mut refused: Status) -> Status {
    refused.metadata_mut().remove("date");
    refused
}

/// A closed cluster, and the credentials of its attackers.
struct Scene {
    closed: Closed,
    certificates: Certificates,
    leader: u64,
    /// Another cluster.
    other: Cluster,
}

/// A node that is no member of the cluster, and has a certificate of its CA.
const NO_MEMBER: u64 = 4;
const OF_OTHERS: &str = "a-token-of-another-cluster";
const NO_NEXT: &str = "a-token-for-all-but-numbers";
const ELSEWHERE: &str = "a-token-for-numbers-elsewhere";
const ENDED: &str = "a-token-that-has-ended";
const REVOKED: &str = "a-token-that-was-revoked";

impl Scene {
    async fn new() -> Scene {
        let certificates = Certificates::new();
        let closed = Closed::with(|config: &mut Config| {
            let id = config.node_id;
            certificates.node(id, &config.listen.ip().to_string(), &[]);
            let path = |name: &str| Some(certificates.path(name).into());
            let files = || (path(&format!("node-{id}.crt")), path(&format!("node-{id}.key")));
            config.tls = ClientTls::Accept;
            (config.tls_cert, config.tls_key) = files();
            config.peer_tls = PeerTls::Accept;
            (config.peer_tls_cert, config.peer_tls_key) = files();
            config.peer_tls_ca = path("ca.crt");
            with_admin_port(config);
        })
        .await;
        certificates.node(NO_MEMBER, "localhost", &[]);
        let other = Cluster::start(1, |_| {}).await;
        let leader = closed.cluster.leader().await;
        let scene = Scene { closed, certificates, leader, other };
        scene.make_tokens().await;
        scene
    }

    async fn make_tokens(&self) {
        let mut admin = self.closed.admin(self.leader);
        let verbs = ["read:*", "raise:*", "namespaces:*"].map(grant).to_vec();
        create(&mut admin, NO_NEXT, "no-next", verbs).await.expect("a token");
        let elsewhere = vec![grant("next:order*")];
        create(&mut admin, ELSEWHERE, "elsewhere", elsewhere).await.expect("a token");
        create(&mut admin, REVOKED, "revoked", vec![grant("next:*")]).await.expect("a token");
        // On a slow machine the two seconds may pass before it is made: then once more.
        eventually("a token", async || {
            let now_ms = self.closed.cluster.nodes[&self.leader].context().group.wall_ms();
            let ends = CreateTokenRequest {
                name: "ended".to_owned(),
                sha256: hash_of(ENDED.as_bytes()).0.to_vec().into(),
                grants: vec![grant("next:*")],
                expires_ms: Some(now_ms + 2_000),
            };
            match admin.create_token(ends).await {
                Err(late) if late.code() == Code::InvalidArgument => None,
                made => Some(made.expect("a token")),
            }
        })
        .await;
        let revoke = RevokeTokenRequest { name: "revoked".to_owned(), id: None };
        admin.revoke_token(revoke).await.expect("revoked");
        // Each was good, or is, and the nodes have heard of all.
        let mut others = AccessClient::new(asking(self.other.address(1), None));
        create(&mut others, OF_OTHERS, "ci", vec![grant("next:*")]).await.expect("a token");
        next(&asking(self.other.address(1), Some(OF_OTHERS)), "book").await.expect("a number");
        for node in 1..=3 {
            for (token, code) in [
                (ENDED, Code::Unauthenticated),
                (REVOKED, Code::Unauthenticated),
                (OF_OTHERS, Code::Unauthenticated),
                (NO_NEXT, Code::PermissionDenied),
                (ELSEWHERE, Code::PermissionDenied),
            ] {
                let asking = self.closed.at(node, token);
                let is_refused = async || (next(&asking, "book").await == Err(code)).then_some(());
                eventually("the node has heard of the token", is_refused).await;
            }
            self.closed.has_no_token(node, "revoked").await;
        }
    }

    fn shows(&self, attack: Attack) -> Shows<'_> {
        let token = |token| Shows { tokens: vec![token], ..Shows::default() };
        match attack {
            Attack::NoToken => Shows::default(),
            Attack::WrongVerb => token(NO_NEXT),
            Attack::WrongNamespace => token(ELSEWHERE),
            Attack::Expired => token(ENDED),
            Attack::Revoked => token(REVOKED),
            Attack::ForeignToken => token(OF_OTHERS),
            Attack::TwoTokens => Shows { tokens: vec![ADMIN, ADMIN], ..Shows::default() },
            Attack::FalseName => Shows { name: Some("admin"), ..token(self.closed.token("next")) },
            Attack::Plain
            | Attack::ForeignCertificate
            | Attack::ForeignRequest
            | Attack::FalseSender => token(ADMIN),
        }
    }

    /// Attacks node `node` for a number of a namespace, and returns the answer.
    async fn attack(&self, attack: Attack, at: At, node: u64, namespace: &str) -> Told {
        let addresses = self.closed.cluster.nodes[&node].addresses();
        let other_id = id_of(&self.other);
        let mut shows = self.shows(attack);
        shows.cluster_id = (attack == Attack::ForeignRequest).then_some(&*other_id);
        match at {
            At::Grpc => shows.over_grpc(channel(addresses.client), namespace).await,
            At::Administrators => {
                shows.over_grpc(channel(addresses.admin.expect("a port")), namespace).await
            }
            At::LocalSocket => {
                shows.over_grpc(socket_of(&self.closed.cluster, node), namespace).await
            }
            At::Http => shows.over_http(addresses.http.expect("a port"), namespace).await,
            At::Redis => shows.over_redis(addresses.resp.expect("a port"), namespace).await,
            At::Peer => self.over_peer(attack, &shows, namespace).await,
        }
    }

    /// Attacks as a node that speaks for somebody.
    async fn over_peer(&self, attack: Attack, shows: &Shows<'_>, namespace: &str) -> Told {
        let (node, token) = match attack {
            // Of a member the leader would take it.
            Attack::FalseName => (NO_MEMBER, Some(ADMIN)),
            _ => (other_than(self.leader), shows.tokens.first().copied()),
        };
        let mut follower = self.follower(node).await;
        let asker = token.and_then(with_token);
        match attack {
            Attack::FalseName => follower.header.from = NO_MEMBER,
            Attack::ForeignRequest => {
                let store = &self.other.nodes[&1].context().this_node.store;
                follower.header.to_incarnation = store.incarnation();
            }
            Attack::FalseSender => {
                let third = 6 - self.leader - follower.header.from;
                let store = &self.closed.cluster.nodes[&third].context().this_node.store;
                (follower.header.from, follower.header.from_incarnation) =
                    (third, store.incarnation());
            }
            _ => {}
        }
        let create = CreateNamespaceRequest { name: namespace.to_owned(), ..Default::default() };
        let method = "ratchet.v1.Admin/CreateNamespace";
        if [Attack::ForeignRequest, Attack::FalseName, Attack::FalseSender].contains(&attack) {
            // An operation is another call than a number.
            let told = Told::from(follower.try_administer(method, &create, asker.clone()).await);
            assert_eq!(told.code, "FailedPrecondition", "{attack:?}: {told:?}");
        }
        follower.try_forward(namespace, asker).await.map_err(without_date).into()
    }

    /// A node that speaks to the leader over a connection with its certificate, as a member that is not the leader.
    async fn follower(&self, id: u64) -> Follower {
        let peer = self.closed.cluster.configs[&self.leader].peer_listen;
        let channel = self.certificates.channel(peer, Some(&format!("node-{id}")));
        Follower::over(channel, &self.closed.cluster).await
    }

    /// The term, as the node knows it that led at first.
    fn term(&self) -> u64 {
        self.closed.cluster.nodes[&self.leader].context().group.leadership().borrow().term
    }

    /// The next number of the key that all try.
    async fn next(&self) -> u64 {
        next(&self.closed.at(self.leader, ADMIN), "book").await.expect("a number")
    }
}

fn id_of(cluster: &Cluster) -> String {
    cluster.nodes[&1].context().services.members.printed_cluster_id()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_attack_at_every_interface_is_refused_and_told_nothing_and_takes_no_number() {
    let scene = Scene::new().await;
    // A caller that has the grant gets a number in each of these ways.
    let mut follower = scene.follower(other_than(scene.leader)).await;
    eventually("a number", async || follower.try_forward("book", with_token(ADMIN)).await.ok())
        .await;
    let (mut term, mut last) = (scene.term(), scene.next().await);
    let mut tried = 0;
    for attack in ATTACKS {
        for at in PLACES {
            let code = match cell(attack, at) {
                Cell::Refused(code) => code,
                Cell::Elsewhere(test) => {
                    let _: fn() = test;
                    continue;
                }
                Cell::Senseless(why) => {
                    assert!(!why.is_empty());
                    continue;
                }
            };
            let nodes = match at {
                At::Peer => vec![scene.leader],
                _ => vec![scene.leader, other_than(scene.leader)],
            };
            for node in nodes {
                let what = format!("{attack:?} at {at:?} of node {node}");
                // One is there, the other is not.
                let mut told = Vec::new();
                for namespace in ["book", "nowhere"] {
                    // A node that could not ask the leader about a token in time is asked again.
                    let one = eventually(&what, async || {
                        let one = scene.attack(attack, at, node, namespace).await;
                        (!ASK_AGAIN.contains(&one.code.as_str())).then_some(one)
                    })
                    .await;
                    assert_eq!(one.code, code, "{what}: {one:?}");
                    assert!(!one.text.contains("a-token-"), "{what}: {one:?}");
                    told.push(one.text.replace(namespace, "?"));
                }
                assert_eq!(told[0], told[1], "{what}");
                let (known, number) = (scene.term(), scene.next().await);
                // Another leader, which a slow machine may bring, goes on in another chunk.
                match scene.term() == term {
                    true => assert_eq!(number, last + 1, "{what}: somebody took a number"),
                    false => assert!(number > last, "{what}: {number} after {last}"),
                }
                (term, last) = (known, number);
                tried += 1;
            }
        }
    }
    assert!(tried > 60, "{tried} were tried");
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_gets_in_by_the_name_of_somebody_whom_no_caller_can_be() {
    let scene = Scene::new().await;
    let last = scene.next().await;
    let mut follower = scene.follower(other_than(scene.leader)).await;
    for (shown, code) in [
        (
            Shown::TokenSha256(hash_of(OF_OTHERS.as_bytes()).0.to_vec().into()),
            Code::Unauthenticated,
        ),
        (
            Shown::TokenSha256(hash_of(ADMIN.as_bytes()).0[1..].to_vec().into()),
            Code::InvalidArgument,
        ),
        (Shown::TokenSha256(ADMIN.into()), Code::InvalidArgument),
        (Shown::TokenSha256(Default::default()), Code::InvalidArgument),
        (Shown::Certificate("anonymous".to_owned()), Code::PermissionDenied),
        (Shown::Certificate("local".to_owned()), Code::PermissionDenied),
        (Shown::Certificate("ratchet://test/1".to_owned()), Code::PermissionDenied),
        (Shown::Certificate("ratchet://test/client/admin".to_owned()), Code::PermissionDenied),
        (Shown::Certificate(String::new()), Code::PermissionDenied),
        (Shown::Local(false), Code::Unauthenticated),
    ] {
        let told = follower.try_forward("book", by(shown.clone())).await.map_err(|it| it.code());
        assert_eq!(told, Err(code), "a number for {shown:?}");
        let create = CreateNamespaceRequest { name: "theirs".to_owned(), ..Default::default() };
        let told = follower
            .try_administer("ratchet.v1.Admin/CreateNamespace", &create, by(shown.clone()))
            .await
            .map_err(|it| it.code());
        assert_eq!(told, Err(code), "a namespace for {shown:?}");
    }
    assert_eq!(scene.next().await, last + 1, "nobody took one");
}
