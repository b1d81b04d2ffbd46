//! The status page: one page that works without JavaScript. With JavaScript it is renewed each second.
//!
//! Each second at most one rendering is made for all who watch, and one for all who load the page. A watcher that does not read
//! gets the latest one once it reads again.
//!
//! `page/view.rs` has the content of the page, and `page/render.rs` writes it as HTML, with charts (`page/chart.rs`).
//! `page/login.rs` decides who may see the page. `page/sessions.rs` has the sessions of browsers, because a browser cannot send
//! a token.
//!
//! Invariant: the content of the page is gathered from memory and from the leader; no disk is read for it.

mod chart;
pub mod login;
mod render;
mod sessions;
mod view;

use std::{sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    http::{HeaderName, header, request::Parts},
    response::{Html, Response},
};
use futures::StreamExt;
use tokio::{
    sync::{Mutex, watch},
    time::{Instant, MissedTickBehavior, interval},
};
use tokio_stream::wrappers::WatchStream;
use tokio_util::sync::CancellationToken;

use super::{
    bodies::uncacheable,
    headers::{ContextState, Due},
    problem::Problem,
};
use crate::{
    metrics::{Label, SkipCause},
    node::{Asker, CountedKind, NodeContext},
    proto::v1,
    server::connections::owner::Owner,
};
use login::{PAGE, let_in};
use sessions::Sessions;
use view::{NAMESPACES_MAX, View};

/// How many keys are shown.
const HOT_KEYS: usize = 10;
/// How long the node waits for the leader's view of the cluster.
const PATIENCE: Duration = Duration::from_millis(800);
/// For how long a rendering of the whole page is used.
const RENEWED_AFTER: Duration = Duration::from_secs(1);
/// How long somebody may watch; a browser that still shows the page begins anew.
const WATCH_TIME_MAX: Duration = Duration::from_secs(15 * 60);

/// The content security policy of the page.
const POLICY: (HeaderName, &str) = (
    header::CONTENT_SECURITY_POLICY,
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
     img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// The parts of the page that change, as they were last rendered.
#[derive(Clone)]
pub struct Live {
    parts: watch::Sender<Bytes>,
    /// The whole page, and the time of its rendering. Callers that load the page meanwhile wait for the rendering.
    last: Arc<Mutex<Option<(Instant, Bytes)>>>,
    /// The sessions of the browsers that have logged in.
    pub sessions: Sessions,
    stop: CancellationToken,
}

impl Live {
    /// Makes parts that nobody watches yet. Watching ends at `stop`.
    pub fn new(stop: CancellationToken) -> Live {
        Live {
            parts: watch::Sender::new(Bytes::new()),
            last: Arc::default(),
            sessions: Sessions::default(),
            stop,
        }
    }

    /// Renders the parts each second while somebody watches.
    pub async fn run(self, context: Arc<NodeContext>) {
        let mut ticks = interval(Duration::from_secs(1));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if self.parts.receiver_count() > 0 {
                let view = gather(&context).await;
                self.parts.send_replace(event(&render::live(&view)));
            }
        }
    }

    /// `GET /events`: server-sent events, each with all parts that change.
    ///
    /// # Errors
    /// If the caller may not see the page, or callers watch as many pages as they may.
    pub async fn watch(
        &self, context: &ContextState, due: &Due, head: &Parts,
    ) -> Result<Response, Problem> {
        let visitor = let_in(context, &self.sessions, due, head).await?;
        let access = context.services.access.clone();
        let counted = context.callers.begin(CountedKind::Page, "status pages open")?;
        let end = tokio::time::sleep(WATCH_TIME_MAX);
        let parts = WatchStream::from_changes(self.parts.subscribe());
        let events = parts
            .map(move |parts| {
                let _counted = &counted;
                // A part comes each second, and each is checked: a visitor that may not see the page any more gets no further
                // part.
                visitor.check(&access).map(|()| parts)
            })
            .take_until(end)
            .take_until(self.stop.clone().cancelled_owned());
        let head = [
            (header::CONTENT_TYPE, "text/event-stream"),
            // Has a proxy pass each event on at once.
            (HeaderName::from_static("x-accel-buffering"), "no"),
        ];
        Ok(uncacheable((head, Body::from_stream(events))))
    }

    /// The page as it is now, or was less than a second ago.
    pub async fn page(&self, context: &Arc<NodeContext>) -> Response {
        let mut last = self.last.lock().await;
        let page = match &*last {
            Some((rendered, page)) if rendered.elapsed() < RENEWED_AFTER => page.clone(),
            _ => {
                let page = Bytes::from(render::page(&gather(context).await));
                *last = Some((Instant::now(), page.clone()));
                page
            }
        };
        uncacheable(([POLICY], Html(page)))
    }
}

/// An event with `data`.
fn event(data: &str) -> Bytes {
    // A server-sent event cannot hold a line's end. Each line has a field of its own instead.
    let lines = data.split(['\n', '\r']).flat_map(|line| ["data: ", line, "\n"]);
    lines.chain(["\n"]).collect::<String>().into()
}

/// Gathers the content of the page: asks the node, which asks the leader.
async fn gather(context: &Arc<NodeContext>) -> View {
    let node = Asker::node(context.config.node_id);
    let asking = context.operations.ask(&v1::StatusRequest {}, &node, Instant::now() + PATIENCE);
    let status = asking.await.map_or_else(|_| context.services.status.now(), |(status, _)| status);
    // All nodes have the same setting, except while it is changed. Then it is `accept`, and all of them take a plain request.
    let scheme = if context.config.tls.takes_plain() { "http" } else { "https" };
    let page = |node: &v1::NodeStatus| {
        let told = context.services.members.introduction_of(node.id)?;
        let address = Some(told.http_address).filter(|address| !address.is_empty())?;
        Some(format!("{scheme}://{address}/"))
    };
    let skipped = |cause: &SkipCause| {
        let name = SkipCause::VALUES[cause.place()];
        (name, context.metrics.skipped(*cause))
    };
    let (namespaces, namespaces_count) = context.services.of_group.first_namespaces(NAMESPACES_MAX);
    let stranger = Owner::nobody().asker();
    View {
        node: context.config.node_id,
        pages: status.nodes.iter().map(page).collect(),
        status,
        activity: context.services.status.activity(),
        hottest: context.services.status.hottest_keys(HOT_KEYS),
        skipped: SkipCause::ALL.iter().map(skipped).collect(),
        namespaces,
        namespaces_count,
        open: context.services.status.open(),
        is_closed: context.services.access.check(&stranger, PAGE).is_err(),
    }
}
