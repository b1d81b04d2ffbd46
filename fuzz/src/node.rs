//! A node for the targets that need one: a cluster of one, without ports.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode},
};
use ratchet::{
    node::{Addresses, Asker, Config, Node, NodeContext, Seams, hash_of},
    proto::v1::{CreateTokenRequest, Grant, SetGrantsRequest, Verb},
    server::fuzzing,
    storage::BlockingExecutor,
};
use tempfile::TempDir;
use tokio::{
    runtime::{Builder, Runtime},
    time::Instant,
};
use tower::ServiceExt;

/// How long the node may take until it leads.
const START_TIME_MAX: Duration = Duration::from_secs(60);

/// The one token of a node that wants tokens, which may take numbers of books; and its name.
pub const TOKEN: &str = "ratchet_of-the-fuzzer";
/// See [`TOKEN`].
pub const TOKEN_NAME: &str = "fuzzer";

/// A node on the caller's thread: it does something only while [`FuzzedNode::run`] runs. It has the namespaces of a fresh
/// cluster, and `names`, whose keys are names.
pub struct FuzzedNode {
    runtime: Runtime,
    context: Arc<NodeContext>,
    _node: Node,
    _dir: TempDir,
}

/// A table of one row.
fn table(name: &str, text: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(name.to_owned(), text.to_owned())])
}

impl FuzzedNode {
    /// Starts a node, and waits until it leads.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start() -> Self {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let dir = TempDir::new().expect("a temporary directory");
        let config = Config {
            data_dir: dir.path().join("data"),
            dev: true,
            http_listen: Some(([127, 0, 0, 1], 0).into()),
            leaf_tags: table("order", "book:1"),
            tinyid_types: table("test", "book:2"),
            tinyid_tokens: table("test", "0f673adf"),
            yuewen_types: [("1", "book:3"), ("2", "book:{bookid}")]
                .map(|(name, text)| (name.to_owned(), text.to_owned()))
                .into(),
            ..Config::default()
        };
        // Nobody has to reach it.
        let addresses = Addresses {
            client: config.listen,
            peer: config.peer_listen,
            metrics: None,
            http: None,
            resp: Some(config.listen),
            admin: None,
        };
        let mut seams = Seams::default();
        seams.storage.blocking = BlockingExecutor::Inline;
        let node = runtime.block_on(async {
            let node = Node::start(config, seams, addresses).await.expect("a node");
            let leading = create_names(node.context());
            tokio::time::timeout(START_TIME_MAX, leading).await.expect("the node leads");
            node
        });
        FuzzedNode { runtime, context: node.context().clone(), _node: node, _dir: dir }
    }

    /// Starts a node of a cluster in which nobody may do anything without [`TOKEN`].
    ///
    /// # Panics
    /// If it does not start.
    pub fn start_closed() -> Self {
        let node = FuzzedNode::start();
        node.run(async {
            let (operations, local) = (&node.context.operations, Asker::local());
            let deadline = Instant::now() + START_TIME_MAX;
            let grant = Grant { verb: Verb::Next.into(), namespaces: "book".to_owned() };
            let token = CreateTokenRequest {
                name: TOKEN_NAME.to_owned(),
                sha256: hash_of(TOKEN.as_bytes()).0.to_vec().into(),
                grants: vec![grant],
                expires_ms: None,
            };
            operations.ask(&token, &local, deadline).await.expect("a token");
            let nothing = SetGrantsRequest {
                principal: "anonymous".to_owned(),
                addresses: None,
                grants: Vec::new(),
            };
            operations.ask(&nothing, &local, deadline).await.expect("granted to nobody");
        });
        node
    }

    /// The context that the node's interfaces use.
    pub fn context(&self) -> Arc<NodeContext> {
        self.context.clone()
    }

    /// Runs something at the node.
    pub fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }
}

/// Creates the namespace `names`, once the node leads.
async fn create_names(context: &Arc<NodeContext>) {
    let routes: Router = fuzzing::http_routes(context.clone());
    loop {
        let create = Request::post("/v1/namespaces")
            .body(Body::from(r#"{"name": "names", "key_kind": "KEY_KIND_NAME"}"#));
        let create = create.expect("a request");
        let Ok(answered) = routes.clone().oneshot(create).await;
        if answered.status() == StatusCode::CREATED {
            return;
        }
        tokio::task::yield_now().await;
    }
}
