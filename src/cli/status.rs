//! `ratchet status`.

use std::{
    io::{IsTerminal, stdout},
    time::Duration,
};

use clap::Args;
use futures::{StreamExt, stream::FuturesUnordered};
use serde_json::{Value, json};

use super::{Connection, Failed, output};
use ratchet_client::{Client, Error, api as v1};

/// Moves a terminal's cursor to the top and clears what is below.
const REDRAW: &str = "\x1b[H\x1b[J";

/// `ratchet status`.
#[derive(Debug, Args)]
pub struct Status {
    /// Show it again and again, every so many seconds, until Ctrl-C: on a terminal in place, else
    /// one after the other
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2",
          value_parser = clap::value_parser!(u32).range(1..=86_400))]
    watch: Option<u32>,
    #[command(flatten)]
    pub(super) connection: Connection,
}

impl Status {
    pub(super) async fn run(self) -> Result<(), Failed> {
        let client = self.connection.client()?;
        if let Some(seconds) = self.watch {
            let pause = Duration::from_secs(seconds.into());
            return tokio::select! {
                biased;
                interrupted = tokio::signal::ctrl_c() => interrupted
                    .map_err(|error| Failed::other(format!("cannot wait for Ctrl-C: {error}"))),
                watched = self.watch(&client, pause) => watched,
            };
        }
        let status = self.ask(&client).await?;
        output::either(self.connection.json, &to_json(&status), &to_text(&status))?;
        verdict(&status)
    }

    /// Shows it until nobody reads any more. A cluster that does not answer is no reason to end.
    async fn watch(&self, client: &Client, pause: Duration) -> Result<(), Failed> {
        let json = self.connection.json;
        let redraw = stdout().is_terminal() && !json;
        loop {
            let (text, failed) = match self.ask(client).await {
                Ok(status) if json => (format!("{}\n", to_json(&status)), verdict(&status).err()),
                Ok(status) => (format!("{}\n\n", to_text(&status)), verdict(&status).err()),
                Err(error) => (String::new(), Some(Failed::from(error))),
            };
            let start = if redraw { REDRAW } else { "" };
            if !output::to_reader(format!("{start}{text}").as_bytes())? {
                return Ok(());
            }
            if let Some(failed) = failed {
                failed.tell(json);
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Asks whoever answers; where that one knows no leader that serves, all servers: one of them may
    /// be on the better side of a partition.
    async fn ask(&self, client: &Client) -> Result<v1::StatusResponse, Error> {
        let first = client.status().await?;
        if first.serving || self.connection.server.len() == 1 {
            return Ok(first);
        }
        let patience = Duration::from_millis(self.connection.timeout_ms);
        let each = self.connection.server.iter().map(|server| async move {
            let client = Client::builder()
                .servers([server])
                .timeout(patience)
                .build()?;
            client.status().await
        });
        let mut answers: FuturesUnordered<_> = each.collect();
        while let Some(answer) = answers.next().await {
            if let Ok(status) = answer
                && status.serving
            {
                return Ok(status);
            }
        }
        Ok(first)
    }
}

/// What a script wants to know: is there a leader, and are all voters there?
fn verdict(status: &v1::StatusResponse) -> Result<(), Failed> {
    if !status.serving {
        return Err(Failed::no_leader(match status.leader {
            Some(leader) if leader == status.node => {
                format!("node {leader} leads and hears from no majority of the voters")
            }
            Some(leader) => format!("node {leader}, the last known leader, does not answer"),
            None => format!("node {} knows no leader", status.node),
        }));
    }
    let missing = status
        .nodes
        .iter()
        .filter(|node| node.voter && node.missing);
    let missing: Vec<String> = missing
        .map(|node| format!("node {} was not heard {}", node.id, since(node)))
        .collect();
    match missing.as_slice() {
        [] => Ok(()),
        missing => Err(Failed::voter_missing(missing.join(", "))),
    }
}

fn role(node: &v1::NodeStatus) -> &'static str {
    match node.role() {
        v1::Role::Leader => "leader",
        v1::Role::Follower => "follower",
        v1::Role::Candidate => "candidate",
        v1::Role::Learner => "learner",
        v1::Role::Unspecified => "unknown",
    }
}

/// The role, where the node is there to play it.
fn presence(node: &v1::NodeStatus) -> &'static str {
    match (node.missing, node.voter) {
        (false, _) => role(node),
        (true, true) => "missing voter",
        (true, false) => "missing learner",
    }
}

/// When a node was last heard.
fn heard(node: &v1::NodeStatus) -> String {
    match node.silent_ms {
        None => "-".to_owned(),
        Some(_) if !node.missing => "now".to_owned(),
        Some(_) if node.unheard_in_term => format!("not {}", since(node)),
        Some(silent) => format!("{} ago", span(silent)),
    }
}

/// Since when it was not.
fn since(node: &v1::NodeStatus) -> String {
    let silent = span(node.silent_ms.unwrap_or(0));
    match node.unheard_in_term {
        true => format!("for {silent} or longer"),
        false => format!("for {silent}"),
    }
}

/// A time in its two greatest units.
fn span(millis: u64) -> String {
    let seconds = millis / 1_000;
    match seconds {
        0 => format!("{millis}ms"),
        1..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d{}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

fn build(node: &v1::NodeStatus) -> String {
    match &node.build {
        Some(build) if !build.version.is_empty() => format!("{} {}", build.version, build.commit),
        _ => "-".to_owned(),
    }
}

fn to_json(status: &v1::StatusResponse) -> Value {
    let nodes: Vec<Value> = status
        .nodes
        .iter()
        .map(|node| {
            json!({
                "id": node.id,
                "role": role(node),
                "voter": node.voter,
                "address": node.address,
                "peer_address": node.peer_address,
                "log_index": node.log_index,
                "applied_index": node.applied_index,
                "lag": node.lag,
                "missing": node.missing,
                "silent_ms": node.silent_ms,
                "unheard_in_term": node.unheard_in_term,
                "version": node.build.as_ref().map(|build| &build.version),
                "commit": node.build.as_ref().map(|build| &build.commit),
            })
        })
        .collect();
    json!({
        "cluster": status.cluster,
        "set": status.set,
        "node": status.node,
        "leader": status.leader,
        "term": status.term,
        "serving": status.serving,
        "nodes": nodes,
    })
}

fn to_text(status: &v1::StatusResponse) -> String {
    let head = [
        "NODE", "ROLE", "TERM", "LOG", "APPLIED", "LAG", "HEARD", "VERSION", "ADDRESS",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let known = |value: Option<u64>| value.map_or("-".to_owned(), |value| value.to_string());
    rows.extend(status.nodes.iter().map(|node| {
        vec![
            node.id.to_string(),
            presence(node).to_owned(),
            status.term.to_string(),
            known(node.log_index),
            known(node.applied_index),
            known(node.lag),
            heard(node),
            build(node),
            node.address.clone(),
        ]
    }));
    let asked = format!(
        "cluster {}, as node {} sees it{}",
        status.cluster,
        status.node,
        match (status.serving, status.leader) {
            (true, _) => "",
            (false, None) => ": no leader is known",
            (false, Some(_)) => ": no leader answers",
        }
    );
    format!("{asked}\n{}", output::table(&rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: u64, role: v1::Role) -> v1::NodeStatus {
        v1::NodeStatus {
            id,
            role: role.into(),
            voter: role != v1::Role::Learner,
            address: format!("10.0.0.{id}:7600"),
            log_index: Some(7),
            ..v1::NodeStatus::default()
        }
    }

    fn status(nodes: Vec<v1::NodeStatus>) -> v1::StatusResponse {
        v1::StatusResponse {
            cluster: "c".into(),
            set: 1,
            node: 1,
            leader: Some(1),
            term: 3,
            serving: true,
            nodes,
        }
    }

    fn silent(mut node: v1::NodeStatus, ms: u64) -> v1::NodeStatus {
        (node.silent_ms, node.missing) = (Some(ms), ms > 300);
        node
    }

    #[test]
    fn the_table_shows_what_is_known_and_a_dash_for_what_is_not() {
        let mut leader = node(1, v1::Role::Leader);
        (leader.applied_index, leader.lag) = (Some(7), Some(0));
        leader.build = Some(v1::Build {
            version: "0.1.0".into(),
            commit: "c0ffee".into(),
        });
        let mut never = silent(node(4, v1::Role::Learner), 7_300_000);
        never.unheard_in_term = true;
        let status = status(vec![
            leader,
            silent(node(2, v1::Role::Follower), 30),
            silent(node(3, v1::Role::Follower), 61_000),
            never,
        ]);
        let text = to_text(&status);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "cluster c, as node 1 sees it");
        let columns = |line: &str| -> Vec<String> {
            let cells = line.split("  ").map(str::trim);
            cells
                .filter(|cell| !cell.is_empty())
                .map(str::to_owned)
                .collect()
        };
        let shown = |line: usize| columns(lines[line]).join("|");
        assert_eq!(
            shown(1),
            "NODE|ROLE|TERM|LOG|APPLIED|LAG|HEARD|VERSION|ADDRESS"
        );
        assert_eq!(shown(2), "1|leader|3|7|7|0|-|0.1.0 c0ffee|10.0.0.1:7600");
        assert_eq!(shown(3), "2|follower|3|7|-|-|now|-|10.0.0.2:7600");
        assert_eq!(shown(4), "3|missing voter|3|7|-|-|1m1s ago|-|10.0.0.3:7600");
        let learner = "4|missing learner|3|7|-|-|not for 2h1m or longer|-|10.0.0.4:7600";
        assert_eq!(shown(5), learner);
        let json = to_json(&status);
        assert_eq!(
            (&json["leader"], &json["serving"]),
            (&1.into(), &true.into())
        );
        assert_eq!(json["nodes"][0]["commit"], "c0ffee");
        assert_eq!(json["nodes"][1]["lag"], Value::Null);
        assert_eq!(json["nodes"][2]["role"], "follower");
        assert_eq!(json["nodes"][2]["missing"], true);
        assert_eq!(json["nodes"][3]["silent_ms"], 7_300_000);
    }

    #[test]
    fn the_verdict_names_who_is_missing() {
        let follower = |id| node(id, v1::Role::Follower);
        let says = |status: &v1::StatusResponse| format!("{:?}", verdict(status));
        let healthy = status(vec![node(1, v1::Role::Leader), silent(follower(2), 10)]);
        assert!(verdict(&healthy).is_ok());
        let learner = silent(node(3, v1::Role::Learner), 10_000);
        assert!(
            verdict(&status(vec![learner])).is_ok(),
            "nobody waits for a learner"
        );
        let mut unheard = silent(follower(3), 5_000);
        unheard.unheard_in_term = true;
        let missing = status(vec![silent(follower(2), 61_000), unheard]);
        let text = says(&missing);
        assert!(text.contains("exit: 7"), "{text}");
        assert!(
            text.contains("node 2 was not heard for 1m1s, node 3 was not heard for 5s or longer"),
            "{text}"
        );
        let alone = v1::StatusResponse {
            serving: false,
            ..missing
        };
        let text = says(&alone);
        assert!(
            text.contains("exit: 5") && text.contains("no majority"),
            "{text}"
        );
        let elsewhere = v1::StatusResponse { node: 2, ..alone };
        assert!(says(&elsewhere).contains("node 1, the last known leader"));
        let nobody = v1::StatusResponse {
            leader: None,
            ..elsewhere
        };
        let text = says(&nobody);
        assert!(
            text.contains("exit: 5") && text.contains("node 2 knows no leader"),
            "{text}"
        );
    }

    #[test]
    fn a_span_is_told_in_its_two_greatest_units() {
        let spans = [
            0, 999, 1_000, 59_999, 60_000, 3_599_000, 3_600_000, 90_000_000,
        ];
        let told = [
            "0ms", "999ms", "1s", "59s", "1m0s", "59m59s", "1h0m", "1d1h",
        ];
        assert_eq!(spans.map(span), told);
    }
}
