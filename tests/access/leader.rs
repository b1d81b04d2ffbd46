//! The leader looks at the caller itself: a follower that lets everybody in, or a program that speaks like one, gets no
//! further.

use prost::Message;
use ratchet::{
    node::hash_of,
    proto::{
        Refusal,
        peer::{
            AdministerRequest, Asker, ForwardRequest, ForwardRequests, Header, KnowsTokenRequest,
            TakeIdNumbersRequest, administer_reply, asker::Shown, forward_reply,
            peer_client::PeerClient,
        },
        v1::{CreateNamespaceRequest, NextRequest},
    },
};
use tonic::{Code, Status, transport::Channel};

use super::methods::{Case, cases};
use crate::common::{
    PATIENCE, channel,
    closed::{ADMIN, Closed, VERBS},
    cluster::Cluster,
    eventually, id, in_time, other_than,
};

/// The number of the network of a caller at 127.0.0.1.
const NETWORK: u64 = 0xffff_7f00_0001;
/// An operation that only nodes ask for.
const TAKE_ID_NUMBERS: &str = "ratchet.peer.v1.Leader/TakeIdNumbers";
pub(super) const KNOWS_TOKEN: &str = "ratchet.peer.v1.Leader/KnowsToken";
/// The servers of methods that followers pass on, by their names in `proto`.
const BY_LEADER: &str = "SERVED_BY_LEADER";
const BY_SEQUENCE: &str = "SERVED_BY_SEQUENCE";

/// A program that speaks like a follower, at the leader's port for peers.
pub(super) struct Follower {
    peer: PeerClient<Channel>,
    pub header: Header,
}

impl Follower {
    async fn of(cluster: &Cluster) -> Follower {
        let leader = cluster.leader().await;
        Follower::over(channel(cluster.configs[&leader].peer_listen), cluster).await
    }

    /// One that speaks over this connection to the leader's port for peers.
    pub async fn over(channel: Channel, cluster: &Cluster) -> Follower {
        let leader = cluster.leader().await;
        let from = other_than(leader);
        let incarnation = |id: u64| cluster.nodes[&id].context().this_node.store.incarnation();
        let header = Header {
            cluster: "test".to_owned(),
            set: 1,
            from,
            to: leader,
            to_incarnation: incarnation(leader),
            election_timeout_ms: cluster.configs[&leader].election_timeout_ms,
            from_incarnation: incarnation(from),
        };
        Follower { peer: PeerClient::new(channel), header }
    }

    /// Forwards a request for a number. Returns the code of the refusal. It is asked again if the leader could not see in
    /// time that it leads.
    async fn forward(&mut self, by: Option<Asker>) -> Option<Code> {
        eventually("an answer", async || {
            let told = self.forward_once(by.clone()).await;
            (told != Some(Code::Unavailable)).then_some(told)
        })
        .await
    }

    async fn forward_once(&mut self, by: Option<Asker>) -> Option<Code> {
        self.try_forward("book", by).await.err().map(|refused| refused.code())
    }

    /// Forwards a request for a number of a namespace, once.
    pub async fn try_forward(&mut self, namespace: &str, by: Option<Asker>) -> Result<(), Status> {
        let asked =
            NextRequest { namespace: namespace.to_owned(), key: id(1), ..NextRequest::default() };
        self.try_forward_as("ratchet.v1.Sequencer/Next", &asked, by).await
    }

    /// Forwards a request of any kind, once.
    async fn try_forward_as(
        &mut self, method: &str, message: &impl Message, by: Option<Asker>,
    ) -> Result<(), Status> {
        let request = ForwardRequest {
            id: 7,
            left_ms: PATIENCE.as_millis() as u64,
            caller: Some(NETWORK),
            method: method.to_owned().into(),
            message: message.encode_to_vec().into(),
            by,
            ..ForwardRequest::default()
        };
        let requests =
            ForwardRequests { header: Some(self.header.clone()), requests: vec![request] };
        // The stream stays open until the reply is there.
        let (messages, stream) = tokio::sync::mpsc::channel(1);
        messages.send(requests).await.expect("sent");
        let stream = tokio_stream::wrappers::ReceiverStream::new(stream);
        let mut replies = in_time("a stream", self.peer.forward(stream)).await?.into_inner();
        let reply = in_time("a reply", replies.message()).await?.expect("one");
        assert_eq!(reply.replies.len(), 1, "{reply:?}");
        let reply = &reply.replies[0];
        assert_eq!(reply.id, 7);
        match reply.reply.as_ref().expect("a reply") {
            forward_reply::Reply::Answer(_) => Ok(()),
            forward_reply::Reply::Error(failure) => Err(Refusal::from(failure.clone()).into()),
            forward_reply::Reply::NotLeader(why) => panic!("it leads: {why:?}"),
        }
    }

    /// Has the leader carry out a method, once. Returns the code of the refusal.
    async fn try_case(&mut self, case: &Case, by: Option<Asker>) -> Option<Code> {
        let method = case.name.trim_start_matches('/');
        let told = match case.served_by.as_deref() {
            Some(BY_LEADER) => self.try_administer(method, &case.asked, by).await,
            Some(BY_SEQUENCE) => self.try_forward_as(method, &case.asked, by).await,
            other => panic!("{method} is served by {other:?}"),
        };
        told.err().map(|refused| refused.code())
    }

    /// Has an operation carried out. Returns the code of the refusal. As with a number, it may be asked again.
    async fn administer(
        &mut self, method: &str, message: &impl Message, by: Option<Asker>,
    ) -> Option<Code> {
        eventually("an answer", async || {
            let told = self.administer_once(method, message, by.clone()).await;
            (told != Some(Code::Unavailable)).then_some(told)
        })
        .await
    }

    async fn administer_once(
        &mut self, method: &str, message: &impl Message, by: Option<Asker>,
    ) -> Option<Code> {
        self.try_administer(method, message, by).await.err().map(|refused| refused.code())
    }

    /// Has an operation carried out, once.
    pub async fn try_administer(
        &mut self, method: &str, message: &impl Message, by: Option<Asker>,
    ) -> Result<(), Status> {
        let asked = AdministerRequest {
            header: Some(self.header.clone()),
            left_ms: PATIENCE.as_millis() as u64,
            caller: Some(NETWORK),
            method: method.to_owned(),
            message: message.encode_to_vec().into(),
            by,
            ..AdministerRequest::default()
        };
        let reply = in_time("a reply", self.peer.administer(asked)).await?;
        match reply.into_inner().reply.expect("a reply") {
            administer_reply::Reply::Answer(_) => Ok(()),
            administer_reply::Reply::Error(failure) => Err(Refusal::from(failure).into()),
            administer_reply::Reply::NotLeader(why) => panic!("it leads: {why:?}"),
        }
    }
}

pub(super) fn by(shown: Shown) -> Option<Asker> {
    Some(Asker { shown: Some(shown) })
}

pub(super) fn with_token(token: &str) -> Option<Asker> {
    by(Shown::TokenSha256(hash_of(token.as_bytes()).0.to_vec().into()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_that_lets_everybody_in_gets_nothing_for_those_to_whom_nothing_is_granted() {
    let closed = Closed::start().await;
    let mut follower = Follower::of(&closed.cluster).await;
    let namespace = |name: &str| CreateNamespaceRequest {
        name: name.to_owned(),
        ..CreateNamespaceRequest::default()
    };
    let create = "ratchet.v1.Admin/CreateNamespace";
    let (mine, theirs) = (namespace("mine"), namespace("theirs"));
    for (asker, refused) in [
        (None, Code::Unauthenticated),
        (by(Shown::Local(false)), Code::Unauthenticated),
        (with_token("it is not known"), Code::Unauthenticated),
        (with_token(closed.token("read")), Code::PermissionDenied),
        (with_token(closed.token("raise")), Code::PermissionDenied),
    ] {
        let told = follower.forward(asker.clone()).await;
        assert_eq!(told, Some(refused), "a number for {asker:?}");
        let told = follower.administer(create, &theirs, asker.clone()).await;
        assert_eq!(told, Some(refused), "a namespace for {asker:?}");
    }
    // The same messages, of callers that may send them.
    assert_eq!(follower.forward(with_token(closed.token("next"))).await, None);
    let asker = with_token(closed.token("namespaces"));
    assert_eq!(follower.administer(create, &mine, asker.clone()).await, None);
    let again = follower.administer(create, &mine, asker.clone()).await;
    assert_eq!(again, Some(Code::AlreadyExists));
    assert_eq!(follower.administer(create, &theirs, asker).await, None, "nobody has made it");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_leader_does_for_a_follower_what_its_caller_is_granted_whichever_method_it_passes_on() {
    let closed = Closed::start().await;
    let elsewhere = closed.tokens_on("elsewhere*").await;
    let mut follower = Follower::of(&closed.cluster).await;
    let is_passed_on = |case: &Case| {
        case.served_by.as_deref().is_some_and(|by| [BY_LEADER, BY_SEQUENCE].contains(&by))
    };
    let cases: Vec<Case> = cases().into_iter().filter(is_passed_on).collect();
    assert!(cases.len() > 25, "{} methods", cases.len());
    for case in &cases {
        let wanted = case.verb.as_deref().expect("followers pass nothing on that anybody may do");
        let askers = VERBS.map(|verb| {
            let refused = (verb != wanted).then_some(Code::PermissionDenied);
            (with_token(closed.token(verb)), refused)
        });
        let of_others = with_token(&elsewhere[wanted]);
        let of_others = (!case.is_on_some).then_some((of_others, Some(Code::PermissionDenied)));
        let nobody = [None, with_token("it is not known")];
        let nobody = nobody.map(|asker| (asker, Some(Code::Unauthenticated)));
        for (asker, refused) in askers.into_iter().chain(of_others).chain(nobody) {
            // A leader that could not see in time that it leads is asked again.
            let told = eventually("an answer", async || {
                let told = follower.try_case(case, asker.clone()).await;
                (refused.is_none() || told != Some(Code::Unavailable)).then_some(told)
            })
            .await;
            let by_asker = [Code::Unauthenticated, Code::PermissionDenied];
            match refused {
                Some(_) => assert_eq!(told, refused, "{} for {asker:?}", case.name),
                None => assert!(
                    told.is_none_or(|code| !by_asker.contains(&code)),
                    "{} for {asker:?}: {told:?}",
                    case.name
                ),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nodes_ask_one_another_for_is_granted_to_no_caller() {
    let closed = Closed::start().await;
    let mut follower = Follower::of(&closed.cluster).await;
    let take = TakeIdNumbersRequest {
        namespace: "nowhere".to_owned(),
        format: "rongcloud".to_owned(),
        key: id(1),
        count: 1,
    };
    let knows = KnowsTokenRequest { sha256: hash_of(ADMIN.as_bytes()).0.to_vec().into() };
    for (asker, refused) in [
        (None, Code::Unauthenticated),
        (with_token("it is not known"), Code::Unauthenticated),
        (with_token(closed.token("next")), Code::PermissionDenied),
        (with_token(ADMIN), Code::PermissionDenied),
        (by(Shown::Local(true)), Code::PermissionDenied),
    ] {
        let told = follower.administer(TAKE_ID_NUMBERS, &take, asker.clone()).await;
        assert_eq!(told, Some(refused), "{asker:?}");
        let told = follower.administer(KNOWS_TOKEN, &knows, asker.clone()).await;
        assert_eq!(told, Some(refused), "{asker:?}");
    }
    // A node is let in. There is no such namespace.
    let node = by(Shown::Node(follower.header.from));
    let told = follower.administer(TAKE_ID_NUMBERS, &take, node.clone()).await;
    assert_eq!(told, Some(Code::NotFound));
    assert_eq!(follower.administer(KNOWS_TOKEN, &knows, node).await, None);
}
