//! Requests may say which cluster they are meant for, and every answer says which one gave it.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    extract::{Request, State},
    http::HeaderValue,
    response::Response,
};
use utoipa::{
    Modify,
    openapi::{
        Header, Object, ObjectBuilder, OpenApi, PathItem, RefOr, SchemaFormat,
        path::{ParameterBuilder, ParameterIn},
        schema::Type,
    },
};

use super::problem::Problem;
use crate::{
    node::NodeContext,
    server::addressee::{CLUSTER_ID, check},
};

/// Lets a request through that is meant for this cluster, or does not say for which.
///
/// # Errors
/// The problem that [`check`] finds.
pub async fn refuse(
    State(context): State<Arc<NodeContext>>, request: Request,
) -> Result<Request, Problem> {
    check(&context, request.headers())?;
    Ok(request)
}

/// Adds the cluster's id to an answer, if this node knows it.
pub async fn name(State(context): State<Arc<NodeContext>>, mut answer: Response) -> Response {
    if let Ok(id) = HeaderValue::try_from(context.printed_cluster_id())
        && !id.is_empty()
    {
        answer.headers_mut().insert(CLUSTER_ID, id);
    }
    answer
}

/// Describes both for every path.
pub struct Described;

impl Modify for Described {
    fn modify(&self, api: &mut OpenApi) {
        for path in api.paths.paths.values_mut() {
            describe(path);
        }
    }
}

fn describe(path: &mut PathItem) {
    let of_request = ParameterBuilder::new()
        .name(CLUSTER_ID)
        .parameter_in(ParameterIn::Header)
        .description(Some("The cluster that the request is meant for. Every other one refuses it."))
        .schema(Some(uuid()))
        .build();
    let operations =
        [&mut path.get, &mut path.post, &mut path.patch, &mut path.delete].into_iter().flatten();
    for operation in operations {
        let parameters = operation.parameters.get_or_insert_default();
        parameters.push(of_request.clone().into());
        for answer in operation.responses.responses.values_mut() {
            let mut of_answer = Header::new(uuid());
            of_answer.description = Some("The cluster that answers.".to_owned());
            if let RefOr::T(answer) = answer {
                answer.headers = BTreeMap::from([(CLUSTER_ID.to_owned(), of_answer.into())]);
            }
        }
    }
}

fn uuid() -> Object {
    let text = ObjectBuilder::new().schema_type(Type::String);
    text.format(Some(SchemaFormat::Custom("uuid".to_owned()))).build()
}
