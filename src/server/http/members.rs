//! The members of the cluster, and which one leads.

use std::sync::Arc;

use axum::{Json, body::Body, extract::State};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    body,
    problem::{Problem, Problems},
    request::{Due, InPath, InQuery, Node, Timeout, action, in_path, in_query},
};
use crate::{
    node::NodeContext,
    proto::{Refusal, peer::administer_request::Request as Administer, refusal, v1},
    server::{
        administer::administer,
        written::{integer, shown},
    },
};

/// What a path ends with that makes a learner a voter.
const PROMOTE: &str = ":promote";

/// A new member.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Added {
    /// Its id, never used before.
    #[schema(minimum = 1)]
    id: u64,
    /// Where it listens for its peers, "host:port".
    peer_address: String,
}

/// What is recorded of a member that has moved.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Moved {
    /// Where it listens for its peers now, "host:port"; left out: as before. The node itself is asked for its
    /// address for clients.
    peer_address: Option<String>,
}

/// Whether the check of the new voters is left out.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Force {
    /// Change the membership even if a majority of the new voters does not answer or lags behind. If they do not come
    /// back, there are no numbers until `ratchet recover` makes another cluster.
    #[serde(default)]
    force: bool,
}

/// Which node is to lead.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct To {
    /// The voter that is to lead; left out: the one with the longest log.
    to: Option<u64>,
}

/// The members.
#[derive(Debug, Serialize, ToSchema)]
pub struct Members {
    /// The ids of those who vote.
    voters: Vec<u64>,
    /// The ids of the others.
    learners: Vec<u64>,
}

/// A cluster that is founded.
#[derive(Debug, Serialize, ToSchema)]
pub struct Founded {
    /// Its name.
    cluster: String,
    /// Its id, a UUID that never changes.
    cluster_id: String,
    /// False if it was founded before.
    founded: bool,
    /// The ids of those who vote.
    voters: Vec<u64>,
}

impl From<v1::FoundResponse> for Founded {
    fn from(done: v1::FoundResponse) -> Self {
        Founded {
            cluster: done.cluster,
            cluster_id: done.cluster_id,
            founded: done.founded,
            voters: done.voters,
        }
    }
}

/// The node that leads.
#[derive(Debug, Serialize, ToSchema)]
pub struct Leader {
    /// Its id.
    leader: u64,
    /// Its term.
    term: u64,
}

/// Founds a cluster of the asked node and the others in its setting `peers`, which hold no data yet. Asked again, it changes
/// nothing.
#[utoipa::path(post, path = "/v1/cluster:found", tag = "cluster", params(Timeout),
    responses((status = 200, body = Founded), Problems))]
pub async fn found(State(context): Node, due: Due) -> Result<Json<Founded>, Problem> {
    Ok(Json(context.found(due.deadline).await?.into()))
}

/// Adds a running node that holds no data. It becomes a learner.
#[utoipa::path(post, path = "/v1/members", tag = "cluster", params(Timeout),
    request_body = Added, responses((status = 200, body = Members), Problems))]
pub async fn add(State(context): Node, due: Due, body: Body) -> Result<Json<Members>, Problem> {
    let Added { id, peer_address } = body::json(&context, body, due).await?;
    let request = v1::AddNodeRequest { id, peer_address };
    change(&context, due, Administer::AddNode(request)).await
}

/// Makes a learner a voter. Waits until it has caught up; refused if it has not by the deadline.
#[utoipa::path(post, path = "/v1/members/{id}:promote", tag = "cluster",
    params(("id" = u64, Path, description = "The node's id."), Force, Timeout),
    responses((status = 200, body = Members), Problems))]
pub async fn promote(
    State(context): Node, due: Due, path: InPath<String>, force: InQuery<Force>,
) -> Result<Json<Members>, Problem> {
    let written = in_path(path)?;
    let to_promote = "to make a learner a voter";
    let id = action(&written, PROMOTE, to_promote, "PATCH, DELETE")?;
    let request = v1::NodeRequest { id: member(id)?, force: in_query(force, FORCE)?.force };
    change(&context, due, Administer::PromoteNode(request)).await
}

/// Records the new address of a member that has moved.
#[utoipa::path(patch, path = "/v1/members/{id}", tag = "cluster",
    params(("id" = u64, Path, description = "The node's id."), Timeout),
    request_body = Moved, responses((status = 200, body = Members), Problems))]
pub async fn update(
    State(context): Node, due: Due, path: InPath<String>, body: Body,
) -> Result<Json<Members>, Problem> {
    let id = member(&in_path(path)?)?;
    let Moved { peer_address } = body::json(&context, body, due).await?;
    let request = v1::UpdateNodeRequest { id, peer_address };
    change(&context, due, Administer::UpdateNode(request)).await
}

/// Removes a member.
#[utoipa::path(delete, path = "/v1/members/{id}", tag = "cluster",
    params(("id" = u64, Path, description = "The node's id."), Force, Timeout),
    responses((status = 200, body = Members), Problems))]
pub async fn remove(
    State(context): Node, due: Due, path: InPath<String>, force: InQuery<Force>,
) -> Result<Json<Members>, Problem> {
    let request =
        v1::NodeRequest { id: member(&in_path(path)?)?, force: in_query(force, FORCE)?.force };
    change(&context, due, Administer::RemoveNode(request)).await
}

/// Hands the leadership over, without a gap.
#[utoipa::path(post, path = "/v1/leader:transfer", tag = "cluster", params(To, Timeout),
    responses((status = 200, body = Leader), Problems))]
pub async fn transfer(
    State(context): Node, due: Due, to: InQuery<To>,
) -> Result<Json<Leader>, Problem> {
    let to = in_query(to, "to=ID")?.to;
    let request = Administer::TransferLeadership(v1::TransferLeadershipRequest { to });
    let (v1::TransferLeadershipResponse { leader, term }, _) =
        administer(&context, request, due.deadline).await?;
    Ok(Json(Leader { leader, term }))
}

/// What may follow the question mark of a change that may be forced.
const FORCE: &str = "force=true, or force=false";

/// Has the leader change the membership.
async fn change(
    context: &Arc<NodeContext>, due: Due, request: Administer,
) -> Result<Json<Members>, Problem> {
    let (v1::MembershipResponse { voters, learners }, _) =
        administer(context, request, due.deadline).await?;
    Ok(Json(Members { voters, learners }))
}

/// The id of a node in a path.
fn member(written: &str) -> Result<u64, Refusal> {
    integer(written.as_bytes()).ok_or_else(|| {
        refusal!(
            InvalidRequest,
            "'{}' is no id of a node; give an integer from 1 on",
            shown(written.as_bytes())
        )
    })
}
