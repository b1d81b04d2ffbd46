//! What the node tells of itself and its commands: INFO, HELLO and COMMAND.

use std::fmt::Write;

use super::{
    reader::Command,
    refused::Refused,
    replies::Replies,
    table::{self, Entry},
};
use crate::{node::NodeContext, server::written::shown, version};

/// The release of Redis whose commands and replies these are. Clients choose by it what they may ask.
const REDIS_VERSION: &str = "7.0.0";

/// Clients ask no replica for numbers, and every node answers: a follower asks the leader.
const ROLE: &str = "master";

/// What INFO tells.
pub fn text(context: &NodeContext) -> String {
    let (config, metrics) = (&context.config, &context.metrics);
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write!(
        text,
        "# Server\r\nredis_version:{REDIS_VERSION}\r\nredis_mode:cluster\r\nserver_name:ratchet\r\n\
         ratchet_version:{}\r\nratchet_cluster:{}\r\nratchet_cluster_id:{}\r\nratchet_node:{}\r\n\r\n\
         # Replication\r\nrole:{}\r\nratchet_term:{}\r\n\r\n\
         # Stats\r\nratchet_numbers:{}\r\nratchet_answers:{}\r\n\r\n\
         # Cluster\r\ncluster_enabled:1\r\n",
        version::VERSION,
        config.cluster,
        context.services.members.printed_cluster_id(),
        config.node_id,
        ROLE,
        metrics.term.get(),
        metrics.numbers.get(),
        metrics.answers.get(),
    );
    text
}

/// What HELLO tells connection number `id`.
pub fn greet(id: u64, replies: &mut Replies) {
    let version = replies.version;
    replies.map(7);
    for (name, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
        replies.bulk(name);
        replies.bulk(value);
    }
    replies.bulk("proto");
    replies.number(version.number());
    replies.bulk("id");
    replies.number(id);
    for (name, value) in [("mode", "cluster"), ("role", ROLE)] {
        replies.bulk(name);
        replies.bulk(value);
    }
    replies.bulk("modules");
    replies.array(0);
}

/// COMMAND, and its subcommands.
///
/// # Errors
/// If there is no such subcommand.
pub fn commands(command: Command<'_>, replies: &mut Replies) -> Result<(), Refused> {
    let subcommand = command.at(1).unwrap_or_default();
    let named: Vec<&[u8]> = command.rest().skip(1).collect();
    let all = || table::ALL.iter();
    match subcommand.to_ascii_lowercase().as_slice() {
        b"" => {
            replies.array(table::ALL.len());
            all().for_each(|entry| entry.write_info(replies));
        }
        b"count" => replies.number(table::ALL.len() as u64),
        b"list" => {
            replies.array(table::ALL.len());
            all().for_each(|entry| replies.bulk(entry.name));
        }
        b"info" if named.is_empty() => {
            replies.array(table::ALL.len());
            all().for_each(|entry| entry.write_info(replies));
        }
        b"info" => {
            replies.array(named.len());
            for name in named {
                match table::find(name) {
                    Some(entry) => entry.write_info(replies),
                    None => replies.null(),
                }
            }
        }
        b"docs" => {
            let entries: Vec<&Entry> = match named.is_empty() {
                true => all().collect(),
                false => named.into_iter().filter_map(table::find).collect(),
            };
            replies.map(entries.len());
            entries.iter().for_each(|entry| entry.write_docs(replies));
        }
        _ => {
            return Err(Refused::invalid(format!(
                "unknown subcommand '{}'; there are COUNT, DOCS, INFO and LIST",
                shown(subcommand)
            )));
        }
    }
    Ok(())
}
