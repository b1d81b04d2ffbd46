//! The answer in the leader's reply to an administrative request. Each kind of request is answered with a message of its own.

use crate::proto::{Refusal, refusal};

use super::{
    peer::{IdNumbers, administer_reply::Reply},
    v1,
};

macro_rules! answers {
    ($($kind:ident($answer:ty),)*) => {
        $(impl TryFrom<Reply> for $answer {
            type Error = Refusal;

            /// INTERNAL if the leader replied to another kind of request.
            fn try_from(reply: Reply) -> Result<Self, Refusal> {
                match reply {
                    Reply::$kind(answer) => Ok(answer),
                    _ => Err(refusal!(Internal, "the leader's reply does not match the request")),
                }
            }
        })*
    };
}

answers! {
    Namespace(v1::Namespace),
    Namespaces(v1::ListNamespacesResponse),
    DeletedNamespace(v1::DeleteNamespaceResponse),
    Status(v1::StatusResponse),
    Membership(v1::MembershipResponse),
    Transfer(v1::TransferLeadershipResponse),
    Keys(v1::ListKeysResponse),
    Gaps(v1::GapsResponse),
    Explanation(v1::Explanation),
    WorkerLease(v1::WorkerLease),
    ReleasedWorker(v1::ReleaseWorkerResponse),
    Workers(v1::ListWorkersResponse),
    TakenWorkerBack(v1::TakeWorkerBackResponse),
    IdNumbers(IdNumbers),
}
