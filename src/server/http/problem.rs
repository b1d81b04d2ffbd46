//! Problems: the failures of requests, in the form of RFC 9457 (`application/problem+json`). Every refusal becomes one. Its
//! reason and its code decide the HTTP status.

use axum::{
    Json,
    extract::Request,
    http::{HeaderValue, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use serde_json::{Value, json};
use tonic::Status;

use crate::{
    metrics::Label,
    proto::{Code, Refusal, name_of_outcome, name_of_reason, refusal, v1::Reason},
    server::metadata::CLUSTER_ID,
};

/// After how many milliseconds a caller may try again if a refusal with UNAVAILABLE does not say it.
const UNAVAILABLE_MS: u64 = 1_000;

/// A failure of a request. It is counted once it is an answer.
#[derive(Debug)]
pub struct Problem {
    refusal: Refusal,
    status: StatusCode,
    /// The methods that the path takes, if the request had another one.
    allow: Option<HeaderValue>,
}

impl<E> From<E> for Problem
where
    Refusal: From<E>,
{
    fn from(error: E) -> Self {
        let refusal = Refusal::from(error);
        Problem { status: status_of(&refusal), refusal, allow: None }
    }
}

/// A problem as it is sent.
#[derive(Debug, Serialize)]
struct Details<'a> {
    /// The meaning of the HTTP status.
    title: &'a str,
    /// The HTTP status.
    status: u16,
    /// gRPC's name for it.
    code: &'a str,
    /// The reason, for programs.
    reason: &'a str,
    /// The outcome of the request.
    outcome: &'a str,
    /// The text: what was wrong, with which value, and what to do.
    detail: &'a str,
    /// After how many milliseconds the caller may ask again.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    /// The time of the clock of request ids, if the message was made too long ago, or later than now.
    #[serde(skip_serializing_if = "Option::is_none")]
    request_clock_ms: Option<u64>,
}

/// A problem, for the description of the API.
pub fn describe() -> Value {
    let text = |about: &str| json!({"type": "string", "description": about});
    let number = |about: &str| json!({"type": "integer", "minimum": 0, "description": about});
    json!({
        "type": "object",
        "description": "What went wrong.",
        "properties": {
            "title": text("What the HTTP status means."),
            "status": number("The HTTP status."),
            "code": text("gRPC's name for it."),
            "reason": text("Why, for programs."),
            "outcome": text(
                "What became of the request: NOT_DONE, UNKNOWN (it may have been carried out, or may still be) or ONGOING; \
                 UNSPECIFIED after a fault of the node: look before you ask again."
            ),
            "detail": text("What was wrong, with which value, and what to do."),
            "retry_after_ms": number("After how many milliseconds to ask again."),
            "request_clock_ms": number(
                "What the clock of request ids shows, if the message was made too long ago, or later than now."
            ),
        },
        "required": ["title", "status", "code", "reason", "outcome", "detail"],
    })
}

/// The answer that tells of a problem, for the description of the API.
pub fn describe_answer() -> Value {
    let schema = json!({"$ref": "#/components/schemas/Problem"});
    json!({
        "description": "What went wrong.",
        "content": {"application/problem+json": {"schema": schema}},
        "headers": describe_headers(),
    })
}

/// The headers of every answer, for the description of the API.
pub fn describe_headers() -> Value {
    let uuid = json!({"type": "string", "format": "uuid"});
    json!({CLUSTER_ID.as_str(): {"description": "The cluster that answers.", "schema": uuid}})
}

impl Problem {
    /// The path does not take the request's method. It takes the methods in `allow`. If that is `None`, axum names them.
    pub fn of_method(refusal: Refusal, allow: Option<HeaderValue>) -> Problem {
        Problem { refusal, status: StatusCode::METHOD_NOT_ALLOWED, allow }
    }

    /// The answer that tells of the problem in a form of the caller's.
    pub fn told_as(&self, told: impl IntoResponse) -> Response {
        let mut answer = told.into_response();
        answer.extensions_mut().insert(self.code());
        answer
    }

    /// The code that gRPC has for it.
    pub fn code(&self) -> Code {
        self.refusal.code()
    }

    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The text: what was wrong, and what to do.
    pub fn detail(&self) -> &str {
        self.refusal.message()
    }
}

/// The HTTP status of the reason, or else of the code.
fn status_of(refusal: &Refusal) -> StatusCode {
    use Reason::*;
    if let RequestIdReused | RequestIdRequired | RequestIdUnsupported | RequestIdExpired =
        refusal.reason()
    {
        return StatusCode::UNPROCESSABLE_ENTITY;
    }
    match refusal.code() {
        Code::Ok => StatusCode::OK,
        Code::InvalidArgument => StatusCode::BAD_REQUEST,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::FailedPrecondition | Code::OutOfRange | Code::AlreadyExists | Code::Aborted => {
            StatusCode::CONFLICT
        }
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Code::Unavailable | Code::Cancelled => StatusCode::SERVICE_UNAVAILABLE,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        Code::Unknown | Code::Internal | Code::DataLoss => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.status;
        let code = self.code();
        let unsaid = (code == Code::Unavailable).then_some(UNAVAILABLE_MS);
        let retry_after_ms = self.refusal.retry_after_ms.or(unsaid);
        let details = Details {
            title: status.canonical_reason().unwrap_or_default(),
            status: status.as_u16(),
            code: Code::VALUES[code.place()],
            reason: name_of_reason(self.refusal.reason()),
            outcome: name_of_outcome(self.refusal.outcome()),
            detail: self.detail(),
            retry_after_ms,
            request_clock_ms: self.refusal.request_clock_ms,
        };
        let mut response = self.told_as((status, Json(details)));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if code == Code::Unauthenticated {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(methods) = self.allow {
            headers.insert(header::ALLOW, methods);
        }
        if let Some(millis) = retry_after_ms {
            headers.insert(header::RETRY_AFTER, millis.div_ceil(1_000).into());
        }
        response
    }
}

/// Answers a request for a path where nothing is.
pub async fn nothing_here(uri: Uri) -> Problem {
    let path = uri.path();
    let why = format!(
        "{path} does not exist; numbers are taken with POST /v1/namespaces/book/keys/42:next"
    );
    Refusal::from(Status::not_found(why)).into()
}

/// Answers a request with a method that the path does not take.
pub async fn other_method(request: Request) -> Problem {
    takes_only(&request, None)
}

/// Answers a request with a method that the path does not take. `allow` names the methods that the path takes, if axum does
/// not name them.
pub fn takes_only(request: &Request, allow: Option<&'static str>) -> Problem {
    let (method, path) = (request.method(), request.uri().path());
    let refusal = refusal!(Unsupported, "{path} does not take {method}");
    Problem::of_method(refusal, allow.map(HeaderValue::from_static))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::v1::Outcome;

    #[test]
    fn the_description_names_each_outcome_and_says_what_to_do_after_one_that_is_not_told() {
        let described = &describe()["properties"]["outcome"]["description"];
        let described = described.as_str().expect("a text");
        for outcome in (0..100).filter_map(|number| Outcome::try_from(number).ok()) {
            assert!(described.contains(name_of_outcome(outcome)), "{described}");
        }
        assert!(described.contains("look before you ask again"), "{described}");
    }
}
