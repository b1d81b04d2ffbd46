//! `ratchet status`.

use clap::Args;
use serde_json::{Value, json};

use super::{Connection, Failed, output};
use crate::proto::v1;

/// `ratchet status`.
#[derive(Debug, Args)]
pub struct Status {
    #[command(flatten)]
    pub(super) connection: Connection,
}

impl Status {
    pub(super) async fn run(self) -> Result<(), Failed> {
        let status = self.connection.client()?.status().await?;
        output::either(self.connection.json, &to_json(&status), &to_text(&status))
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
            })
        })
        .collect();
    json!({
        "cluster": status.cluster,
        "set": status.set,
        "node": status.node,
        "leader": status.leader,
        "term": status.term,
        "nodes": nodes,
    })
}

fn to_text(status: &v1::StatusResponse) -> String {
    let head = ["NODE", "ROLE", "TERM", "LOG", "APPLIED", "LAG", "ADDRESS"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let known = |value: Option<u64>| value.map_or("-".to_owned(), |value| value.to_string());
    rows.extend(status.nodes.iter().map(|node| {
        vec![
            node.id.to_string(),
            role(node).to_owned(),
            status.term.to_string(),
            known(node.log_index),
            known(node.applied_index),
            known(node.lag),
            node.address.clone(),
        ]
    }));
    let asked = format!(
        "cluster {}, as node {} sees it{}",
        status.cluster,
        status.node,
        if status.leader.is_some() {
            ""
        } else {
            ": no leader is known"
        }
    );
    format!("{asked}\n{}", output::table(&rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_shows_what_is_known_and_a_dash_for_what_is_not() {
        let node = |id, role: v1::Role, lag| v1::NodeStatus {
            id,
            role: role.into(),
            voter: true,
            address: format!("10.0.0.{id}:7600"),
            peer_address: String::new(),
            log_index: Some(7),
            applied_index: (id == 1).then_some(7),
            lag,
        };
        let status = v1::StatusResponse {
            cluster: "c".into(),
            set: 1,
            node: 1,
            leader: Some(1),
            term: 3,
            nodes: vec![
                node(1, v1::Role::Leader, Some(0)),
                node(2, v1::Role::Follower, None),
            ],
        };
        let text = to_text(&status);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "NODE  ROLE      TERM  LOG  APPLIED  LAG  ADDRESS");
        assert_eq!(
            lines[3],
            "2     follower  3     7    -        -    10.0.0.2:7600"
        );
        assert_eq!(to_json(&status)["leader"], 1);
        assert_eq!(to_json(&status)["nodes"][1]["lag"], Value::Null);
    }
}
