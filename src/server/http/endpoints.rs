//! The routes of the methods that `proto` describes for HTTP (`google.api.http`).
//!
//! The build writes a row for each method, with the fields that stand in its path (`build.rs`). These fields are set one by
//! one. `message.rs` reads the rest of the message, and one of the functions in `answers.rs` has the message answered. The JSON
//! is proto's own, made from the messages in the client's package.

use std::{borrow::Cow, cmp::Reverse, collections::BTreeSet, sync::LazyLock};

use axum::http::{HeaderValue, Method, StatusCode, request::Parts};
use futures::future::BoxFuture;
use serde::Serialize;

use super::{
    answers::{ids, one_of_stream, operation, sequence, sequence_of_key},
    bodies::{HttpAnswer, reserved_json},
    headers::Due,
    message::{Received, of_kind, of_known_kind, said_once, take_request_id},
    path::{FIELDS_MAX, PARTS_MAX, PathParts, PathValues, decoded},
    problem::Problem,
};
use crate::{
    node::{Guarded, NodeContext, ROUTE_UNWANTED, Reservation},
    proto::{Refusal, refusal, v1},
    server::{connections::owner::Owner, written::shown},
};

/// The way to ask for a method over HTTP, as the method's option in `proto` says.
pub struct Endpoint {
    /// The method of HTTP.
    pub verb: &'static str,
    /// The path, with the names of fields in braces.
    pub path: &'static str,
    /// The path without its action.
    route: &'static str,
    /// The text after the last field, such as `:promote` in `/v1/nodes/{id}:promote`.
    action: &'static str,
    /// Whether the other fields stand in the body; if not, they follow the question mark.
    pub has_body: bool,
    /// Whether a header may name the request.
    pub has_name: bool,
    /// The name of the service.
    pub service: &'static str,
    /// The name of the method.
    pub rpc: &'static str,
    /// The name of the message that asks.
    pub request: &'static str,
    /// The name of the message that answers.
    pub answer: &'static str,
    /// Whether the time until the answer is recorded as the time of a request.
    pub is_timed: bool,
    /// Carries the method out.
    serve: Serve,
}

type Serve = for<'a> fn(Received<'a>) -> BoxFuture<'a, Result<HttpAnswer, Problem>>;

/// The HTTP status of the answer to a method.
pub fn status(rpc: &str) -> StatusCode {
    match rpc.starts_with("Create") {
        true => StatusCode::CREATED,
        false => StatusCode::OK,
    }
}

impl Endpoint {
    /// Carries the method out for a request.
    pub fn carry_out<'a>(
        &self, received: Received<'a>,
    ) -> BoxFuture<'a, Result<HttpAnswer, Problem>> {
        (self.serve)(received)
    }

    /// Whether a request with `method` asks for it.
    fn takes(&self, method: &Method) -> bool {
        self.verbs().any(|verb| method == verb)
    }

    /// The HTTP methods that ask for it. HTTP answers HEAD as GET, without the body.
    fn verbs(&self) -> impl Iterator<Item = &'static str> {
        [self.verb].into_iter().chain((self.verb == "GET").then_some("HEAD"))
    }
}

macro_rules! endpoints {
    ($($verb:ident $path:literal $route:literal $action:literal $has_body:literal $answered_by:ident $service:ident $rpc:ident $request:ident {
        in_path: $($in_path:ident)*; $of_kind:ident: $($key:ident)*; request_id: $($id:ident)?; route_version: $($version:ident)?
    } $answer:ident;)*) => {
        /// All endpoints.
        pub const ENDPOINTS: &[Endpoint] = &[$(Endpoint {
            verb: stringify!($verb),
            path: $path,
            route: $route,
            action: $action,
            has_body: $has_body,
            has_name: !stringify!($($id)?).is_empty(),
            service: stringify!($service),
            rpc: stringify!($rpc),
            request: stringify!($request),
            answer: stringify!($answer),
            is_timed: !matches!(stringify!($answered_by).as_bytes(), b"operation"),
            #[allow(unused_mut, unused_variables)] // Not all messages have all of these fields.
            serve: |mut received| Box::pin(async move {
                let (context, due) = (received.context, received.due);
                let id = received.request_id()?;
                let mut message = match $has_body {
                    true => v1::$request::default(),
                    false => received.in_query()?,
                };
                $(message.$in_path = received.in_path(stringify!($in_path), $has_body)?;)*
                let _held = if $has_body {
                    let (mut body, held): (v1::$request, _) = received.in_body().await?;
                    $(said_once(stringify!($in_path), &body.$in_path)?;
                    body.$in_path = message.$in_path;)*
                    message = body;
                    held
                } else {
                    received.without_body().await?
                };
                $(take_request_id(&mut message.$id, id)?;)?
                // A caller that knows no route is not told one: it asks no other node than this one.
                $(if message.$version == 0 {
                    message.$version = ROUTE_UNWANTED;
                })?
                $(let written = message.$key.take();
                message.$key = $of_kind(context, message.wanted(), written, due).await?;)*
                let answer = $answered_by(context, message, due).await?;
                answered(stringify!($rpc), answer)
            }),
        }),*];
    };
}

include!(concat!(env!("OUT_DIR"), "/http.rs"));

/// The endpoints whose paths differ in the action alone.
pub struct HttpRoute {
    parts: Vec<PathPart>,
    endpoints: Vec<&'static Endpoint>,
    /// The actions of the endpoints, the longest one first. If a path ends with several of them, the longest one counts.
    actions: Vec<&'static str>,
}

/// A part of a path, between two slashes.
#[derive(Debug, PartialEq, Eq)]
enum PathPart {
    /// This text.
    Text(&'static str),
    /// The value of the field of this name.
    Field(&'static str),
}

impl PathPart {
    fn of(path: &'static str) -> PathPart {
        let field = path.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
        field.map_or(PathPart::Text(path), PathPart::Field)
    }

    fn fits(&self, part: &str) -> bool {
        match self {
            PathPart::Text(text) => *text == part,
            PathPart::Field(_) => true,
        }
    }
}

static ROUTES: LazyLock<Vec<HttpRoute>> = LazyLock::new(|| {
    let paths: BTreeSet<&str> = ENDPOINTS.iter().map(|one| one.route).collect();
    let route = |path: &'static str| {
        let endpoints: Vec<_> = ENDPOINTS.iter().filter(|one| one.route == path).collect();
        let mut actions: Vec<_> = endpoints.iter().map(|one| one.action).collect();
        actions.sort_by_key(|action| Reverse(action.len()));
        let parts: Vec<PathPart> = path.split('/').map(PathPart::of).collect();
        assert!(
            parts.len() <= PARTS_MAX,
            "{path} has {} parts: no request would find it",
            parts.len()
        );
        let fields = parts.iter().filter(|part| matches!(part, PathPart::Field(_))).count();
        assert!(
            fields <= FIELDS_MAX,
            "{path} has {fields} fields: there is no room for their values"
        );
        HttpRoute { parts, endpoints, actions }
    };
    paths.into_iter().map(route).collect()
});

impl HttpRoute {
    /// The route of `path`, and the parts of `path`.
    pub fn to(path: &str) -> Option<(&'static HttpRoute, PathParts<'_>)> {
        let found = PathParts::of(path)?;
        let parts = found.all();
        // The last part is empty.
        if path.ends_with('/') {
            return None;
        }
        let route = ROUTES.iter().find(|route| {
            route.parts.len() == parts.len()
                && route.parts.iter().zip(parts).all(|(own, part)| own.fits(part))
        });
        Some((route?, found))
    }

    /// Reads the head of a request for a path of this route, which has these `parts`. The request came over a connection which
    /// `owner` has opened. Returns its deadline and its caller, the endpoint that it asks for, and the values in the path.
    ///
    /// # Errors
    /// Those of [`Due::said_in`]; UNIMPLEMENTED if the path does not take the method, INVALID_ARGUMENT if a value is no text.
    pub fn asked<'a>(
        &self, context: &NodeContext, owner: &Owner, (head, parts): (&'a Parts, PathParts<'a>),
    ) -> Result<(Due, &'static Endpoint, PathValues<'a>), Problem> {
        let due = Due::said_in(&head.headers, owner, context)?;
        let (endpoint, values) = self.named(&head.method, head.uri.path(), parts)?;
        Ok((due, endpoint, values))
    }

    /// The endpoint that a method and a path name, and the values of the path's fields. A colon that is escaped belongs to a
    /// field, and ends no action.
    ///
    /// # Errors
    /// UNIMPLEMENTED if they name none, INVALID_ARGUMENT if a value is no text.
    fn named<'a>(
        &self, method: &Method, path: &str, parts: PathParts<'a>,
    ) -> Result<(&'static Endpoint, PathValues<'a>), Problem> {
        let action = self.actions.iter().copied().find(|action| path.ends_with(action));
        let of_action = || self.endpoints.iter().filter(|one| Some(one.action) == action);
        let Some(endpoint) = of_action().find(|one| one.takes(method)) else {
            let taken: BTreeSet<&str> = of_action().flat_map(|one| one.verbs()).collect();
            let taken = taken.into_iter().collect::<Vec<_>>().join(", ");
            let why = self.not_taken(method, (path, parts), action, &taken)?;
            return Err(Problem::of_method(why, HeaderValue::try_from(taken).ok()));
        };
        Ok((endpoint, self.values(parts.without_end(endpoint.action))?))
    }

    /// The values of the fields in a path without its action.
    fn values<'a>(&self, parts: PathParts<'a>) -> Result<PathValues<'a>, Refusal> {
        let (mut values, mut many) = (<[Cow<'a, str>; FIELDS_MAX]>::default(), 0);
        for (own, &part) in self.parts.iter().zip(parts.all()) {
            if let PathPart::Field(field) = own {
                // A route has no more fields than that.
                values[many] = decoded(field, part)?;
                many += 1;
            }
        }
        Ok(values.into_iter().take(many))
    }

    /// The reason why a path does not take a method. The path ends with `action`, and takes the methods `taken`.
    fn not_taken(
        &self, method: &Method, (path, parts): (&str, PathParts<'_>), action: Option<&str>,
        taken: &str,
    ) -> Result<Refusal, Refusal> {
        if let Some(action) = action.filter(|action| !action.is_empty()) {
            let of_name = match self.parts.last() {
                Some(PathPart::Field("key")) => {
                    "; where that is the end of a name, write its colon as %3A"
                }
                _ => "",
            };
            return Ok(refusal!(
                Unsupported,
                "{path} ends with '{action}', which takes {taken}, not {method}{of_name}"
            ));
        }
        let others = self.endpoints.iter().filter(|one| one.takes(method));
        let others: Vec<_> = others.map(|one| format!("'{}'", one.action)).collect();
        if others.is_empty() {
            return Ok(refusal!(Unsupported, "{path} does not take {method}"));
        }
        let last = self.values(parts)?.next_back().unwrap_or_default();
        Ok(refusal!(
            Unsupported,
            "the path ends with '{}'; here it must end with {}",
            shown(last.as_bytes()),
            others.join(" or ")
        ))
    }
}

/// The answer to a method.
fn answered(
    rpc: &str, (answer, reserved): (impl Serialize, Option<Reservation>),
) -> Result<HttpAnswer, Problem> {
    let mut response = reserved_json(&answer, reserved)?;
    *response.status_mut() = status(rpc);
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The name of the method that a request names, and the values of its path's fields.
    fn named(method: &str, path: &str) -> Result<(&'static str, Vec<String>), Problem> {
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        let (route, parts) = HttpRoute::to(path).expect("a route");
        let (endpoint, values) = route.named(&method, path, parts)?;
        Ok((endpoint.rpc, values.map(Cow::into_owned).collect()))
    }

    #[test]
    fn each_path_of_proto_leads_to_its_endpoint() {
        for one in ENDPOINTS {
            let path = one.path.replace(['{', '}'], "");
            let alike = |other: &&Endpoint| other.path.replace(['{', '}'], "") == path;
            let verbs = ENDPOINTS.iter().filter(alike).filter(|other| other.verb == one.verb);
            assert_eq!(verbs.count(), 1, "{} {path}", one.verb);
            let (rpc, values) = named(one.verb, &path).expect(&path);
            let fields = one.path.split('{').skip(1).filter_map(|rest| rest.split('}').next());
            assert_eq!((rpc, values), (one.rpc, fields.map(str::to_owned).collect()), "{path}");
        }
        for none in
            ["", "/", "/v1/nodes/", "/v1/nodes/1/2", "/v1//keys", "v1/nodes", "/v1/nodes/1/"]
        {
            assert!(HttpRoute::to(none).is_none(), "{none}");
        }
        // The message says that its namespace is empty.
        let nowhere = named("GET", "/v1/namespaces//keys/1").expect("an endpoint");
        assert_eq!(nowhere, ("Current", vec![String::new(), "1".to_owned()]));
    }

    #[test]
    fn a_value_is_decoded_and_an_action_is_not_part_of_it() {
        for (method, path, rpc, values) in [
            ("POST", "/v1/namespaces/n/keys/a%2Fb%3A%20c:next", "Next", ["n", "a/b: c"]),
            ("POST", "/v1/namespaces/n/keys/abc%3Anext:next", "Next", ["n", "abc:next"]),
            ("GET", "/v1/namespaces/n/keys/abc%3Anext", "Current", ["n", "abc:next"]),
            ("HEAD", "/v1/namespaces/%6E/keys/a:b", "Current", ["n", "a:b"]),
            ("GET", "/v1/formats/a%7Cb/ids/1", "DecodeId", ["a|b", "1"]),
        ] {
            let values = values.map(str::to_owned).to_vec();
            assert_eq!(named(method, path).expect(path), (rpc, values), "{path}");
        }
        let no_text = named("POST", "/v1/namespaces/n/keys/%FF:next").expect_err("no text");
        assert_eq!(no_text.detail(), "Invalid URL: Invalid UTF-8 in `key`");
    }

    #[test]
    fn a_method_that_a_path_does_not_take_is_told_those_that_it_takes() {
        let key = "/v1/namespaces/n/keys/abc";
        for (method, action, allow, says) in [
            ("GET", ":next", "POST", "keys/abc:next ends with ':next', which takes POST, not GET"),
            ("HEAD", ":next", "POST", "; where that is the end of a name, write its colon as %3A"),
            ("DELETE", ":raise", "POST", "takes POST, not DELETE"),
            ("POST", "", "GET, HEAD", "ends with 'abc'; here it must end with ':next' or ':raise'"),
            ("POST", "%3Anext", "GET, HEAD", "ends with 'abc:next'; here it must end with"),
            ("POST", ":take", "GET, HEAD", "ends with 'abc:take'; here it must end with"),
            ("DELETE", "", "GET, HEAD", "keys/abc does not take DELETE"),
        ] {
            let path = format!("{key}{action}");
            let problem = named(method, &path).expect_err(&path);
            assert!(problem.detail().contains(says), "{method} {path}: {problem:?}");
            let answer = axum::response::IntoResponse::into_response(problem);
            assert_eq!(answer.status(), StatusCode::METHOD_NOT_ALLOWED);
            assert_eq!(answer.headers()["allow"], allow, "{method} {path}");
        }
    }
}
