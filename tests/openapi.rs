//! The description of the HTTP interface is true: schemathesis makes up requests from it, valid ones and others, and
//! compares the answers with it. `cluster/test` installs it.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

use crate::common::{PATIENCE, cluster::Cluster, http, http_get, with_http};

/// The release that cluster/prerequisites installs.
const SCHEMATHESIS: &str = "schemathesis-4.32.5";

/// The program, in the cache.
fn program() -> PathBuf {
    let home = || PathBuf::from(std::env::var_os("HOME").expect("a home")).join(".cache");
    let cache = std::env::var_os("XDG_CACHE_HOME").map_or_else(home, PathBuf::from);
    cache.join("ratchet").join(SCHEMATHESIS).join("bin/st")
}

/// Runs it against `url`, a node of the cluster with this id. Returns whether it found nothing, and its output.
async fn check(url: String, cluster_id: String) -> (bool, String) {
    let dir = tempfile::TempDir::new().expect("a temporary directory");
    let ran = tokio::task::spawn_blocking(move || {
        let ran = Command::new(program())
            .args(["run", &url, "--no-color", "--continue-on-failure"])
            .args(["--phases", "examples,fuzzing,stateful"])
            .args(["--max-examples", "40", "--seed", "12"])
            // Two checks are left out. A valid request may still be refused: the cluster has limits that a schema does
            // not tell. And a key may end with ":next", so that its path takes more methods than are described.
            .args(["--exclude-checks", "positive_data_acceptance,allow_header_conformance"])
            .args(["--request-timeout", &PATIENCE.as_secs().to_string()])
            // Another one, which it would make up, is refused.
            .args(["--header", &format!("ratchet-cluster-id: {cluster_id}")])
            // It would make up one of a millisecond, in which a busy machine does not answer, and call that a server error.
            .args(["--header", &format!("ratchet-timeout-ms: {}", PATIENCE.as_millis())])
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .output();
        ran.expect("schemathesis runs; cluster/prerequisites --tests installs it")
    });
    let output = ran.await.expect("no panic");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.success(), text)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_described_is_what_is_answered() {
    let cluster = Cluster::start(1, |config| {
        with_http(config);
        config.count_max = 1_000;
    })
    .await;
    let address = cluster.nodes[&1].addresses().http.expect("a port");
    let cluster_id = cluster.nodes[&1].context().services.members.printed_cluster_id();
    let page = http_get(address, "/openapi.json").await;
    let described: serde_json::Value = serde_json::from_str(&page.body).expect("JSON");
    let paths = described["paths"].as_object().expect("paths").values();
    let described: usize = paths.map(|path| path.as_object().expect("operations").len()).sum();
    let (is_true, printed) = check(format!("http://{address}/openapi.json"), cluster_id).await;
    assert!(is_true, "{printed}");
    let tested = printed.contains(&format!("Tested: {described}\n"));
    assert!(tested, "every operation is asked for: {printed}");
    let next = "POST /v1/namespaces/book/keys/42:next";
    let page = http(address, next, "", "").await;
    assert_eq!(page.status, 200, "the node is as well as before");
}
