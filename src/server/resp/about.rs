//! The node and its commands, as Redis clients are told of them: INFO, HELLO and COMMAND. Clients read in it which commands
//! they may send, and whether the node is a master.

use std::fmt::Write;

use super::{
    reader::RedisCommand,
    refused::Refused,
    replies::Replies,
    table::{CommandEntry, all, find},
};
use crate::{node::NodeContext, version};

/// The release of Redis that these commands and replies are those of. By it clients choose the commands that they send.
const REDIS_VERSION: &str = "7.0.0";

/// Clients ask no replica for numbers, and every node answers: a follower asks the leader.
const ROLE: &str = "master";

/// The text of INFO.
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
        context.group.set_metrics.term.get(),
        metrics.numbers.get(),
        metrics.answers.get(),
    );
    text
}

/// Writes the answer of HELLO for connection number `id`.
pub fn greet(id: u64, replies: &mut Replies) {
    let version = replies.version;
    replies.map(7);
    replies.field("server", "redis");
    replies.field("version", REDIS_VERSION);
    replies.bulk("proto");
    replies.number(version.number());
    replies.bulk("id");
    replies.number(id);
    replies.field("mode", "cluster");
    replies.field("role", ROLE);
    replies.bulk("modules");
    replies.array(0);
}

/// COMMAND, and its subcommands.
///
/// # Errors
/// If LIST has options.
pub fn commands(command: RedisCommand<'_>, replies: &mut Replies) -> Result<(), Refused> {
    let subcommand = command.at(1).unwrap_or_default();
    let named: Vec<&[u8]> = command.rest().skip(1).collect();
    let every = || all().flat_map(|entry| std::iter::once(entry).chain(entry.subcommands));
    match subcommand.to_ascii_lowercase().as_slice() {
        b"count" => replies.number(all().count()),
        b"list" if !named.is_empty() => {
            return Err(Refused::invalid("syntax error: COMMAND LIST has no options here"));
        }
        b"list" => {
            replies.array(every().count());
            every().for_each(|entry| replies.bulk(entry.name));
        }
        b"docs" => {
            let entries: Vec<&CommandEntry> = match named.is_empty() {
                true => all().collect(),
                false => named.into_iter().filter_map(find).collect(),
            };
            replies.map(entries.len());
            entries.iter().for_each(|entry| entry.write_docs(replies));
        }
        // INFO, and no subcommand.
        _ if named.is_empty() => {
            replies.array(all().count());
            all().for_each(|entry| entry.write_info(replies));
        }
        _ => {
            replies.array(named.len());
            for name in named {
                match find(name) {
                    Some(entry) => entry.write_info(replies),
                    None => replies.null(),
                }
            }
        }
    }
    Ok(())
}
