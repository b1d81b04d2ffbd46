//! Administration: the leader carries it out, whichever node was asked.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    NodeContext,
    callers::Caller,
    leader_search::{Assumed, Attempt, Failure, ForLeader, NoAnswer, Origin, leader_of},
};
use crate::{
    allocator::Term,
    proto::{
        Code, Refusal,
        peer::{AdministerRequest, administer_reply::Reply, administer_request::Request},
        refusal, v1,
    },
    sequence::NodeId,
    storage::Member,
};

/// How long before the deadline an answer leaves at the latest.
pub(super) const ANSWER_MARGIN: Duration = Duration::from_millis(100);
/// How many election timeouts a node is waited for that was not heard lately. One that is up is heard within a heartbeat or
/// two, unless its machine is overloaded.
const SILENCE_ELECTIONS: u64 = 5;
/// How long another node's view of the status is waited for.
const STATUS_PATIENCE: Duration = Duration::from_millis(1_000);

impl ForLeader for Request {
    type Answer = Reply;

    /// A deposed leader that still owes the answer may carry the change out yet. Numbers for ids may be taken twice:
    /// those of the first time are lost.
    fn assume(&self, _node: &NodeContext, _trusts_itself: bool) -> Assumed {
        let may_be_asked_again = matches!(self, Request::TakeIdNumbers(_));
        Assumed { namespace: None, may_be_asked_again }
    }

    async fn serve_locally(
        &self, node: &Arc<NodeContext>, _: Origin, deadline: Instant,
    ) -> Attempt<Reply> {
        let leading = node.allocator.load_full().filter(|term| !term.is_over());
        let Some(term) = leading else {
            return Err(NoAnswer::Unanswered);
        };
        if !term.still_leads(deadline).await {
            return Err(NoAnswer::Unanswered);
        }
        node.carry_out(&term, self.clone(), deadline).await
    }

    async fn serve_remotely(
        &self, node: &Arc<NodeContext>, (leader, member): (NodeId, &Member), _: Assumed,
        deadline: Instant,
    ) -> Attempt<Reply> {
        let (is_status, is_harmless) = (matches!(self, Request::Status(_)), is_harmless(self));
        let patience = match is_status {
            true => deadline.min(Instant::now() + STATUS_PATIENCE),
            false => deadline,
        };
        let left = patience.saturating_duration_since(Instant::now());
        let message = AdministerRequest {
            header: Some(node.sender.header(leader, member)),
            budget_ms: u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
            caller: Caller::current().map(|caller| caller.network()),
            request: Some(self.clone()),
        };
        let address = &member.peer_address;
        match node.transport.administer(address, message, left).await {
            Ok(answer) => match answer.reply {
                Some(Reply::Error(error)) => Err(NoAnswer::Refused(error.into())),
                Some(Reply::NotLeader(_)) | None => Err(NoAnswer::Unanswered),
                Some(reply) => Ok(reply),
            },
            // A deletion that is carried out twice may delete a namespace that was created again meanwhile.
            Err(refusal)
                if !is_harmless
                    && (refusal.code() == Code::DeadlineExceeded
                        || matches!(self, Request::DeleteNamespace(_))) =>
            {
                Err(refusal!(
                    OutcomeUnknown,
                    "node {leader} leads and did not answer in time; whether the request was carried out is \
                     unknown: look before you ask again: {}",
                    refusal.message()
                ).into())
            }
            // It read the message, and found no request in it that it knows. It would not find one if it were asked again.
            Err(refusal) if matches!(refusal.code(), Code::InvalidArgument | Code::Unimplemented) => {
                Err(refusal!(
                    WrongState,
                    "node {leader} leads, and its release does not know this request; upgrade it: {}",
                    refusal.message()
                ).into())
            }
            Err(refusal) => {
                tracing::debug!(leader, %refusal, "administration");
                Err(if is_harmless { NoAnswer::Unanswered } else { NoAnswer::Unknown })
            }
        }
    }

    fn serve_without_leader(&self, node: &NodeContext) -> Option<Reply> {
        matches!(self, Request::Status(_)).then(|| Reply::Status(node.status()))
    }
}

/// True if it does no harm to carry a request out twice, and to tell its caller that it was not carried out.
fn is_harmless(request: &Request) -> bool {
    matches!(
        request,
        Request::Status(_)
            | Request::GetNamespace(_)
            | Request::ListNamespaces(_)
            | Request::ListKeys(_)
            | Request::Gaps(_)
            | Request::Explain(_)
            | Request::ListWorkers(_)
            | Request::LeaseWorker(_)
            | Request::ReleaseWorker(_)
            | Request::TakeIdNumbers(_)
    )
}

impl NodeContext {
    /// How long a node is waited for that was not heard lately.
    pub(super) fn silence_patience(&self) -> Duration {
        Duration::from_millis(SILENCE_ELECTIONS * self.config.election_timeout_ms)
    }

    /// Has the leader carry out a request before `deadline`.
    ///
    /// # Errors
    /// [`Failure`]: a refusal with what was wrong, or, for a peer's request, who leads instead.
    pub async fn administer(
        self: &Arc<Self>, request: Request, origin: Origin, deadline: Instant,
    ) -> Result<Reply, Failure> {
        self.route_to_leader(&request, origin, false, deadline).await
    }

    async fn carry_out(
        self: &Arc<Self>, leading: &Term, request: Request, deadline: Instant,
    ) -> Attempt<Reply> {
        let term = leading.term();
        Ok(match request {
            Request::ListKeys(list) => self.list_keys(leading, list, deadline).await?,
            Request::Gaps(gaps) => self.gaps(leading, gaps, deadline).await?,
            Request::Explain(explain) => self.explain(leading, explain, deadline).await?,
            Request::LeaseWorker(lease) => self.lease_worker(leading, lease, deadline).await?,
            Request::ReleaseWorker(held) => self.release_worker(leading, held, deadline).await?,
            Request::TakeIdNumbers(take) => self.take_id_numbers(leading, take, deadline).await?,
            Request::TakeWorkerBack(take) => self.take_worker_back(leading, take, deadline).await?,
            Request::ListWorkers(list) => self.list_workers(list, deadline).await?,
            Request::CreateNamespace(create) => self.create_namespace(term, create).await?,
            Request::UpdateNamespace(update) => self.update_namespace(term, update).await?,
            Request::DeleteNamespace(delete) => self.delete_namespace(term, delete).await?,
            Request::GetNamespace(get) => self.get_namespace(get)?,
            Request::ListNamespaces(_) => self.list_namespaces(),
            Request::Status(_) => Reply::Status(self.status()),
            Request::AddNode(add) => self.add_node(term, add, deadline).await?,
            Request::UpdateNode(update) => self.update_node(term, update, deadline).await?,
            Request::PromoteNode(node) => self.promote_node(term, node, deadline).await?,
            Request::RemoveNode(node) => self.remove_node(term, node, deadline).await?,
            Request::TransferLeadership(transfer) => self.transfer(transfer, deadline).await?,
        })
    }

    async fn transfer(
        self: &Arc<Self>, transfer: v1::TransferLeadershipRequest, deadline: Instant,
    ) -> Result<Reply, Refusal> {
        if let Some(to) = transfer.to {
            self.known(to)?;
        }
        let now = self.hand_over(transfer.to, deadline).await?;
        Ok(Reply::Transfer(v1::TransferLeadershipResponse {
            leader: leader_of(&now).unwrap_or_default(),
            term: now.term,
        }))
    }
}
