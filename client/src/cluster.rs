//! The cluster that a client asks, and the headers that introduce the client with every call.
//!
//! Invariant: once the cluster is known, it stays the same, and every call says which one it is. Every call shows the token, if
//! there is one.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataMap, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::Channel,
};

use crate::{
    api::Route,
    error::{Error, OtherCluster},
    members::Members,
};

/// The caller's token, behind the word Bearer.
const AUTHORIZATION: &str = "authorization";
/// The cluster that a call is meant for; in a refusal, the one that the server belongs to.
const CLUSTER_ID: &str = "ratchet-cluster-id";
/// The version of the members that the client knows.
const MEMBERS_VERSION: &str = "ratchet-members-version";
/// The route, if the server knows newer members.
const ROUTE: &str = "ratchet-route-bin";

/// A connection whose calls name their cluster and their caller.
pub type Connection = InterceptedService<Channel, CallHeaders>;

/// The id of a cluster, and how it is sent.
#[derive(Debug, Clone)]
pub struct ClusterId {
    id: String,
    header: MetadataValue<Ascii>,
}

impl ClusterId {
    /// The cluster with this id.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is none.
    pub fn parse(id: &str) -> Result<ClusterId, Error> {
        let id = id.to_ascii_lowercase();
        let is_uuid = id.len() == 36
            && (id.bytes().enumerate()).all(|(place, byte)| match place {
                8 | 13 | 18 | 23 => byte == b'-',
                _ => byte.is_ascii_hexdigit(),
            });
        match MetadataValue::try_from(&id) {
            Ok(header) if is_uuid => Ok(ClusterId { id, header }),
            _ => Err(Error::Invalid(format!(
                "{id:?} is no id of a cluster; give the UUID that `ratchet status` shows"
            ))),
        }
    }
}

/// A client's knowledge of its cluster.
#[derive(Debug)]
pub struct Known {
    cluster: OnceLock<ClusterId>,
    /// The members, and the servers that the client was given.
    pub members: Mutex<Members>,
    /// Whether the client learns the members.
    pub follow_leader: bool,
}

impl Known {
    /// Knows these servers, and the cluster if it is given.
    pub fn new(given: &[String], cluster: Option<ClusterId>, follow_leader: bool) -> Known {
        Known {
            cluster: cluster.map_or_else(OnceLock::new, OnceLock::from),
            members: Mutex::new(Members::new(given)),
            follow_leader,
        }
    }

    /// The id of the cluster, once it is known.
    pub fn cluster_id(&self) -> Option<&str> {
        self.cluster.get().map(|cluster| &*cluster.id)
    }

    /// Takes in which cluster `server` says it belongs to, if it says so. The first one is this client's.
    ///
    /// # Errors
    /// If it is another one than this client's.
    pub fn check(&self, server: &str, told: &str) -> Result<(), Status> {
        if told.is_empty() {
            return Ok(());
        }
        let Ok(told) = ClusterId::parse(told) else {
            return Err(Status::internal(format!("it says that its cluster is {told:?}")));
        };
        let cluster = self.cluster.get_or_init(|| told.clone());
        match cluster.id == told.id {
            true => Ok(()),
            false => Err(self.other(server, told.id)),
        }
    }

    /// The failure of a server that belongs to the cluster `found`.
    pub fn other(&self, server: &str, found: String) -> Status {
        let expected = self.cluster_id().unwrap_or_default().to_owned();
        tracing::warn!(server, expected, found, "the server belongs to another cluster");
        let other = OtherCluster { expected, found };
        let mut status = Status::failed_precondition(other.to_string());
        status.set_source(Arc::new(other));
        status
    }

    /// The version of the members to ask with: newer ones come with the answer, and so does the id of the cluster. `None` if
    /// neither is wanted.
    fn members_version(&self) -> Option<u64> {
        match self.cluster.get() {
            None => Some(0),
            Some(_) => self.follow_leader.then(|| self.members.lock().version()),
        }
    }
}

/// Adds the client's knowledge and its token to each call.
#[derive(Clone)]
pub struct CallHeaders {
    /// The client's knowledge of the cluster.
    pub known: Arc<Known>,
    /// The header with the token; `None` without one.
    pub authorization: Option<MetadataValue<Ascii>>,
}

impl Interceptor for CallHeaders {
    fn call(&mut self, mut call: Request<()>) -> Result<Request<()>, Status> {
        let metadata = call.metadata_mut();
        if let Some(authorization) = &self.authorization {
            metadata.insert(AUTHORIZATION, authorization.clone());
        }
        if let Some(cluster) = self.known.cluster.get() {
            metadata.insert(CLUSTER_ID, cluster.header.clone());
        }
        if let Some(version) = self.known.members_version() {
            metadata.insert(MEMBERS_VERSION, version.into());
        }
        Ok(call)
    }
}

/// The route that came with an answer.
pub fn route_in(metadata: &MetadataMap) -> Option<Route> {
    let route = metadata.get_bin(ROUTE)?.to_bytes().ok()?;
    prost::Message::decode(route).ok()
}

/// The cluster of a server that refuses a call because it is meant for another one.
pub fn cluster_in_refusal(status: &Status) -> Option<String> {
    let cluster = status.metadata().get(CLUSTER_ID)?;
    cluster.to_str().ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::Token;

    const FIRST: &str = "f47ac10b-58cc-4372-a567-0e02b2c3d479";
    const SECOND: &str = "11111111-58cc-4372-a567-0e02b2c3d479";

    fn known(cluster: Option<&str>, follow_leader: bool) -> Known {
        let cluster = cluster.map(|id| ClusterId::parse(id).expect("an id"));
        Known::new(&["a:1".to_owned()], cluster, follow_leader)
    }

    fn headers_of(known: Known, authorization: Option<MetadataValue<Ascii>>) -> MetadataMap {
        let mut headers = CallHeaders { known: Arc::new(known), authorization };
        headers.call(Request::new(())).expect("a call").metadata().clone()
    }

    fn said(known: Known) -> (Option<String>, Option<String>) {
        let call = headers_of(known, None);
        assert!(call.get(AUTHORIZATION).is_none(), "it has no token");
        let text = |name| call.get(name).map(|told| told.to_str().unwrap().to_owned());
        (text(CLUSTER_ID), text(MEMBERS_VERSION))
    }

    #[test]
    fn the_first_cluster_that_answers_is_the_clients_and_every_other_one_is_refused() {
        let known = known(None, true);
        known.check("a:1", "").expect("a server that does not know");
        assert_eq!(known.cluster_id(), None);
        known.check("a:1", FIRST).expect("the first one");
        known.check("b:1", &FIRST.to_ascii_uppercase()).expect("the same");
        let refused = known.check("c:1", SECOND).expect_err("another one");
        let other = OtherCluster::of(&refused).expect("the reason");
        assert_eq!((&*other.expected, &*other.found), (FIRST, SECOND));
        let Error::OtherCluster { server, expected, found } = Error::status("c:1", &refused) else {
            panic!("{refused}");
        };
        assert_eq!((&*server, &*expected, &*found), ("c:1", FIRST, SECOND));
        known.check("d:1", "x").expect_err("no id");
    }

    #[test]
    fn a_call_says_what_the_client_knows_and_asks_for_what_it_lacks() {
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(said(known(None, true)), (None, text("0")));
        assert_eq!(said(known(None, false)), (None, text("0")), "it lacks the id");
        assert_eq!(said(known(Some(FIRST), true)), (text(FIRST), text("0")));
        assert_eq!(said(known(Some(FIRST), false)), (text(FIRST), None));
    }

    #[test]
    fn a_call_shows_the_token_whatever_else_it_says() {
        let token = Token::new("ratchet_x".to_owned()).authorization().expect("a token");
        for known in [known(None, false), known(Some(FIRST), true)] {
            let call = headers_of(known, Some(token.clone()));
            let shown = call.get(AUTHORIZATION).expect("the token");
            assert_eq!(shown, "Bearer ratchet_x");
            assert!(shown.is_sensitive(), "logs and tables of headers leave it out");
        }
    }

    #[test]
    fn what_is_no_uuid_is_no_id() {
        for none in ["", "prod", &FIRST[1..], &FIRST.replace('-', "0"), &FIRST.replace('f', "g")] {
            let refused = ClusterId::parse(none).expect_err(none).to_string();
            assert!(refused.contains("ratchet status"), "{refused}");
        }
    }
}
