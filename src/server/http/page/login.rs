//! Decides who may see the status page: callers that may see the status. A request shows its caller itself, or names a session.
//! A session begins with a token in a form.
//!
//! `../../foreign_page.rs` has refused the requests of another site's page before. So no such page logs anybody in or out.
//!
//! Invariant: a token is in no answer, no error and no log.

use axum::{
    body::Body,
    extract::Request,
    http::{HeaderName, HeaderValue, StatusCode, header, request::Parts},
    response::{Html, Response},
};

use super::{
    render,
    sessions::{SessionKey, Sessions, cookie, shown_in},
};
use crate::{
    node::{Access, Asker, hash_of},
    proto::{Code, Refusal, refuse},
    sequence::{Verb, Wanted},
    server::{
        connections::owner::Owner,
        http::{
            bodies::{bytes_up_to, check_encoding, uncacheable},
            headers::{ContextState, Due},
            problem::Problem,
        },
    },
};

/// The right that the status page needs: the one that the status needs.
pub const PAGE: Wanted<'static> = Wanted::OnAll(Verb::Read);
/// How many bytes the form has at most, as it is sent.
const FORM_BYTES_MAX: usize = 4 << 10;
/// The field of the form.
const TOKEN: &str = "token";
/// The text for a browser whose session is not known.
const ENDED: &str = "the session has ended: it lasts eight hours, as long as its token is good, and until the node is \
                     started again";

/// The content security policy of the page with the form.
const POLICY: (HeaderName, &str) = (
    header::CONTENT_SECURITY_POLICY,
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'self'; \
     frame-ancestors 'none'",
);

/// The caller that was let in.
pub struct Visitor {
    by: Asker,
    /// The session that let the caller in, if one did.
    session: Option<(Sessions, SessionKey)>,
}

impl Visitor {
    /// Checks that the caller still may see the page.
    ///
    /// # Errors
    /// UNAUTHENTICATED if its session has ended; else those of [`Access::check`].
    pub fn check(&self, access: &Access) -> Result<(), Refusal> {
        let Some((sessions, key)) = &self.session else {
            return access.check(&self.by, PAGE);
        };
        if sessions.token_of(*key).is_none() {
            refuse!(Unauthenticated, "{ENDED}; log in again");
        }
        let checked = access.check(&self.by, PAGE);
        if let Err(refusal) = &checked
            && refusal.code() == Code::Unauthenticated
        {
            sessions.end(*key);
        }
        checked
    }
}

/// Lets in a caller that may see the page. The request with this head shows the caller, or names a session.
///
/// # Errors
/// UNAUTHENTICATED or PERMISSION_DENIED if neither lets it in; UNAVAILABLE if nobody could be asked about its token;
/// RESOURCE_EXHAUSTED if its principal has as many connections as it may have.
pub async fn let_in(
    context: &ContextState, sessions: &Sessions, due: &Due, head: &Parts,
) -> Result<Visitor, Refusal> {
    let refusal = match context.admission.admit(&due.by, PAGE, due.deadline).await {
        Ok(()) => return Ok(Visitor { by: due.by.clone(), session: None }),
        Err(refusal) => refusal,
    };
    let owner = Owner::in_extensions(&head.extensions);
    let mut visitors = shown_in(&head.headers, &context.config).into_iter().filter_map(|key| {
        let by = owner.with_hash(sessions.token_of(key)?);
        Some(Visitor { by, session: Some((sessions.clone(), key)) })
    });
    // This node knew the token when the session began. So no other node has to be asked.
    let access = &context.services.access;
    let visitor = visitors.find(|visitor| visitor.check(access).is_ok()).ok_or(refusal)?;
    access.connection_is_used_by(&visitor.by)?;
    Ok(visitor)
}

/// The answer to a caller that is not let in: the form, in the place of the page.
pub fn instead_of_page(context: &ContextState, head: &Parts, refusal: Refusal) -> Response {
    let has_shown = !shown_in(&head.headers, &context.config).is_empty();
    refused(refusal, has_shown.then_some(ENDED))
}

/// The form, with the text `why` above it. The HTTP status tells why the form is shown. No header asks for a password, because
/// a browser would open a window of its own for it.
fn refused(refusal: Refusal, why: Option<&str>) -> Response {
    let problem = Problem::from(refusal);
    let status = match problem.code() {
        // The page may be granted to another token.
        Code::PermissionDenied => StatusCode::UNAUTHORIZED,
        _ => problem.status(),
    };
    let page = Html(render::login(why, false));
    uncacheable(problem.told_as((status, [POLICY], page)))
}

/// `GET /login`: the form, and a button that ends the session.
pub async fn form(context: ContextState, head: Parts, sessions: Sessions) -> Response {
    let mut shown = shown_in(&head.headers, &context.config).into_iter();
    let has_session = shown.any(|key| sessions.token_of(key).is_some());
    uncacheable(([POLICY], Html(render::login(None, has_session))))
}

/// `POST /login`: begins a session, and shows the page.
pub async fn log_in(
    context: ContextState, due: Due, request: Request, sessions: Sessions,
) -> Response {
    let (head, body) = request.into_parts();
    match begin(&context, &due, &head, body, &sessions).await {
        Ok(cookie) => to_page(cookie),
        Err(refusal) => {
            let why = refusal.message().to_owned();
            refused(refusal, Some(&why))
        }
    }
}

/// Begins a session with the token in the form. Returns the cookie.
async fn begin(
    context: &ContextState, due: &Due, head: &Parts, body: Body, sessions: &Sessions,
) -> Result<HeaderValue, Refusal> {
    check_encoding(&head.headers)?;
    let (form, _held) = bytes_up_to(FORM_BYTES_MAX, context, body, due).await?;
    let mut fields = form_urlencoded::parse(&form);
    let token = fields.find(|(name, _)| name == TOKEN).map(|(_, token)| token);
    let Some(token) = token.as_deref().map(str::trim).filter(|token| !token.is_empty()) else {
        refuse!(InvalidRequest, "the form has no token in its field '{TOKEN}'; give one");
    };
    let owner = Owner::in_extensions(&head.extensions);
    context.services.access.check_shows_no_token(&due.by)?;
    context.admission.admit(&owner.with_token(token.as_bytes()), PAGE, due.deadline).await?;
    let id = sessions.begin(hash_of(token.as_bytes()));
    let cookie = cookie(&context.config, Some(&id), owner.is_tls())?;
    // The sessions that the browser had before end: it forgets them.
    shown_in(&head.headers, &context.config).into_iter().for_each(|key| sessions.end(key));
    Ok(cookie)
}

/// `POST /logout`: ends the session.
///
/// # Errors
/// INTERNAL if the cookie is no header.
pub async fn log_out(
    context: ContextState, head: Parts, sessions: Sessions,
) -> Result<Response, Problem> {
    shown_in(&head.headers, &context.config).into_iter().for_each(|key| sessions.end(key));
    let is_tls = Owner::in_extensions(&head.extensions).is_tls();
    Ok(to_page(cookie(&context.config, None, is_tls)?))
}

/// Has the browser keep a cookie, and show the page.
fn to_page(cookie: HeaderValue) -> Response {
    let head = [(header::LOCATION, HeaderValue::from_static("/")), (header::SET_COOKIE, cookie)];
    uncacheable((StatusCode::SEE_OTHER, head))
}
