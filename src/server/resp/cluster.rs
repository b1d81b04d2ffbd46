//! CLUSTER: the members as a Redis cluster of one shard. The leader is its master, and all slots are its. Clients of Redis
//! clusters then ask the leader first, and another node if it does not answer.

use std::fmt::Write;

use super::{
    reader::Command,
    replies::{Refused, Replies},
};
use crate::{
    node::{NodeContext, RespNode},
    proto::refusal,
    server::written::shown,
};

/// The number of slots of a Redis cluster.
const SLOTS: u64 = 16_384;

/// Answers CLUSTER and its subcommands.
///
/// # Errors
/// If there is no such subcommand, or no leader is known.
pub fn answer(
    context: &NodeContext, command: Command<'_>, replies: &mut Replies,
) -> Result<(), Refused> {
    let subcommand = command.at(1).unwrap_or_default();
    match (subcommand.to_ascii_lowercase().as_slice(), command.len()) {
        (b"slots", 1) => slots(&nodes(context)?, replies),
        (b"shards", 1) => shards(&nodes(context)?, replies),
        (b"nodes", 1) => replies.bulk(list(context, &nodes(context)?)),
        (b"info", 1) => replies.bulk(info(context)),
        (b"myid", 1) => replies.bulk(name(context.config.node_id)),
        (b"keyslot", 2) => replies.number(0),
        _ => {
            return Err(Refused::invalid(format!(
                "unknown subcommand or wrong number of arguments for 'cluster {}'; there are SLOTS, SHARDS, NODES, \
                 INFO, MYID and KEYSLOT",
                shown(subcommand)
            )));
        }
    }
    Ok(())
}

/// The nodes that Redis clients can reach: the leader first.
fn nodes(context: &NodeContext) -> Result<Vec<RespNode>, Refused> {
    let nodes = context.services.members.resp_nodes();
    match nodes.first() {
        Some(first) if first.leads => Ok(nodes),
        _ => Err(Refused {
            word: "CLUSTERDOWN",
            ..Refused::from(refusal!(
                NoLeader,
                "no leader is known, or it does not serve Redis clients; ask again"
            ))
        }),
    }
}

fn slots(nodes: &[RespNode], replies: &mut Replies) {
    replies.array(1);
    replies.array(2 + nodes.len());
    replies.number(0);
    replies.number(SLOTS - 1);
    for node in nodes {
        replies.array(4);
        replies.bulk(&node.host);
        replies.number(node.port);
        replies.bulk(name(node.id));
        replies.array(0);
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
        replies.field("role", role(node));
        replies.bulk("replication-offset");
        replies.number(0);
        replies.field("health", "online");
    }
}

/// The lines of CLUSTER NODES.
fn list(context: &NodeContext, nodes: &[RespNode]) -> String {
    let leader = nodes.first().map_or(0, |node| node.id);
    let mut text = String::new();
    for node in nodes {
        let (role, of, slots) = match node.leads {
            true => ("master", "-".to_owned(), format!(" 0-{}", SLOTS - 1)),
            false => ("slave", name(leader), String::new()),
        };
        let myself = match node.id == context.config.node_id {
            true => "myself,",
            false => "",
        };
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{} {}:{}@0 {myself}{role} {of} 0 0 {} connected{slots}",
            name(node.id),
            node.host,
            node.port,
            context.metrics.term.get()
        );
    }
    text
}

fn info(context: &NodeContext) -> String {
    let state = if nodes(context).is_ok() { "ok" } else { "fail" };
    format!(
        "cluster_enabled:1\r\ncluster_state:{state}\r\ncluster_slots_assigned:{SLOTS}\r\ncluster_slots_ok:{SLOTS}\r\n\
         cluster_known_nodes:{}\r\ncluster_size:1\r\ncluster_current_epoch:{}\r\n",
        context.services.members.resp_nodes().len(),
        context.metrics.term.get()
    )
}

fn role(node: &RespNode) -> &'static str {
    match node.leads {
        true => "master",
        false => "replica",
    }
}

/// A node's name, as Redis names its nodes: 40 hexadecimal digits.
fn name(id: u64) -> String {
    format!("{id:040x}")
}
