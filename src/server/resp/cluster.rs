//! CLUSTER: the members as a Redis cluster of one shard. The leader is its master, and all slots are its. Clients of Redis
//! clusters then ask the leader first, and another node if it does not answer.

use std::fmt::Write;

use super::{reader::RedisCommand, replies::Replies};
use crate::node::{NodeContext, RespNode};

/// The number of slots of a Redis cluster.
const SLOTS: u64 = 16_384;

/// Answers CLUSTER and its subcommands.
pub fn answer(context: &NodeContext, command: RedisCommand<'_>, replies: &mut Replies) {
    let subcommand = command.at(1).unwrap_or_default();
    let nodes = context.services.members.resp_nodes();
    match subcommand.to_ascii_lowercase().as_slice() {
        b"slots" => slots(&nodes, replies),
        b"shards" => shards(&nodes, replies),
        b"nodes" => replies.text(&list(context, &nodes)),
        b"info" => replies.text(&info(context, &nodes)),
        b"myid" => replies.bulk(name(context.config.node_id)),
        // KEYSLOT.
        _ => replies.number(0),
    }
}

/// The nodes that answer. A node that the leader does not hear is left out: clients that read from replicas would wait for it.
fn slots(nodes: &[RespNode], replies: &mut Replies) {
    let heard = || nodes.iter().filter(|node| node.is_heard);
    replies.array(1);
    replies.array(2 + heard().count());
    replies.number(0);
    replies.number(SLOTS - 1);
    for node in heard() {
        replies.array(4);
        replies.bulk(&node.host);
        replies.number(node.port);
        replies.bulk(name(node.id));
        replies.map(0);
    }
}

fn shards(nodes: &[RespNode], replies: &mut Replies) {
    replies.array(1);
    replies.map(2);
    replies.bulk("slots");
    replies.array(2);
    replies.number(0);
    replies.number(SLOTS - 1);
    replies.bulk("nodes");
    replies.array(nodes.len());
    for node in nodes {
        replies.map(7);
        replies.field("id", name(node.id));
        replies.bulk("port");
        replies.number(node.port);
        replies.field("ip", &node.host);
        replies.field("endpoint", &node.host);
        replies.field("role", if node.is_first { "master" } else { "replica" });
        replies.bulk("replication-offset");
        replies.number(0);
        replies.field("health", if node.is_heard { "online" } else { "fail" });
    }
}

/// The lines of CLUSTER NODES.
fn list(context: &NodeContext, nodes: &[RespNode]) -> String {
    let first = nodes.first().map_or(0, |node| node.id);
    let mut text = String::new();
    for node in nodes {
        let myself = if node.id == context.config.node_id { "myself," } else { "" };
        let (role, of, slots) = match node.is_first {
            true => ("master", "-".to_owned(), format!(" 0-{}", SLOTS - 1)),
            false => ("slave", name(first), String::new()),
        };
        let (failed, link) = match node.is_heard {
            true => ("", "connected"),
            false => (",fail", "disconnected"),
        };
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{} {}:{}@0 {myself}{role}{failed} {of} 0 0 {} {link}{slots}",
            name(node.id),
            node.host,
            node.port,
            context.group.set_metrics.term.get()
        );
    }
    text
}

fn info(context: &NodeContext, nodes: &[RespNode]) -> String {
    let has_leader = context.group.leadership().borrow().leader.is_some();
    let state = if has_leader { "ok" } else { "fail" };
    format!(
        "cluster_enabled:1\r\ncluster_state:{state}\r\ncluster_slots_assigned:{SLOTS}\r\ncluster_slots_ok:{SLOTS}\r\n\
         cluster_known_nodes:{}\r\ncluster_size:1\r\ncluster_current_epoch:{}\r\n",
        nodes.len(),
        context.group.set_metrics.term.get()
    )
}

/// A node's name, as Redis names its nodes: 40 hexadecimal digits.
fn name(id: u64) -> String {
    format!("{id:040x}")
}
