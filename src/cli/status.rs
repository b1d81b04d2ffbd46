//! `ratchet status`: the nodes of the cluster, and whether a leader and all voters are there. The exit code says the same as
//! the table, for scripts. With `--watch` the status is shown again and again.

use std::{
    io::{IsTerminal, stdout},
    slice,
    time::Duration,
};

use clap::Args;
use futures::{StreamExt, stream::FuturesUnordered};
use ratchet_client::{Client, Error, api as v1};

use super::{
    command_error::CommandError,
    connection::{Ask, Connection},
    output::{self, date_and_time},
};

/// Moves a terminal's cursor to the top and clears the screen below it.
const REDRAW: &str = "\x1b[H\x1b[J";

/// `ratchet status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Repeat every SECONDS (2 if not given) until Ctrl-C; on a terminal each status replaces the one
    /// before, elsewhere it follows it
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2",
          value_parser = clap::value_parser!(u32).range(1..=86_400))]
    watch: Option<u32>,
}

impl Ask for StatusArgs {
    async fn run(self, connection: &Connection) -> Result<(), CommandError> {
        let client = connection.client()?;
        if let Some(seconds) = self.watch {
            let pause = Duration::from_secs(seconds.into());
            return tokio::select! {
                biased;
                interrupted = tokio::signal::ctrl_c() => interrupted
                    .map_err(|error| CommandError::other(format!("cannot wait for Ctrl-C: {error}"))),
                watched = watch(connection, &client, pause) => watched,
            };
        }
        let status = ask(connection, &client).await?;
        output::result(connection.json, &status, &to_text(&status))?;
        verdict(&status)
    }
}

/// Shows the status again and again until the reader closes standard output. Goes on if the cluster does not
/// answer.
async fn watch(
    connection: &Connection, client: &Client, pause: Duration,
) -> Result<(), CommandError> {
    let json = connection.json;
    let redraw = stdout().is_terminal() && !json;
    loop {
        let (text, failed) = match ask(connection, client).await {
            Ok(status) if json => (output::json(&status)?, verdict(&status).err()),
            Ok(status) => (format!("{}\n\n", to_text(&status)), verdict(&status).err()),
            Err(error) => (String::new(), Some(CommandError::from(error))),
        };
        let start = if redraw { REDRAW } else { "" };
        if !output::write_if_read(format!("{start}{text}").as_bytes())? {
            return Ok(());
        }
        if let Some(failed) = failed {
            failed.in_json(json).print();
        }
        tokio::time::sleep(pause).await;
    }
}

/// Asks the first server that answers. If it knows no serving leader, asks all servers: one of them may be on
/// the leader's side of a partition.
async fn ask(connection: &Connection, client: &Client) -> Result<v1::StatusResponse, Error> {
    let first = client.status().await?;
    if first.serving || connection.server.len() == 1 {
        return Ok(first);
    }
    let each = connection.server.iter().map(|server| async move {
        let client = connection.client_of(slice::from_ref(server), Duration::ZERO)?;
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

/// Checks the status for the exit code: an error if no leader serves, or if a voter is missing.
fn verdict(status: &v1::StatusResponse) -> Result<(), CommandError> {
    if !status.serving {
        return Err(CommandError::no_leader(match status.leader {
            Some(leader) if leader == status.node => {
                format!("node {leader} leads, but hears from no majority of the voters")
            }
            None if status.waits => format!(
                "node {0} belongs to no cluster: found a new one, once, with ratchet found --admin-token-file FILE, or add the node \
                 to a running one with ratchet node add {0}; if it had data, look for its data directory first",
                status.node
            ),
            Some(leader) => format!("node {leader}, the last known leader, does not answer"),
            None => format!("node {} knows no leader", status.node),
        }));
    }
    let missing = status.nodes.iter().filter(|node| node.voter && node.missing);
    let missing: Vec<String> =
        missing.map(|node| format!("node {} was not heard {}", node.id, since(node))).collect();
    match missing.as_slice() {
        [] => Ok(()),
        missing => Err(CommandError::voter_missing(missing.join(", "))),
    }
}

/// The node's role, or that it is missing.
fn presence(node: &v1::NodeStatus) -> String {
    match (node.missing, node.voter) {
        (false, _) => node.role().as_str_name().trim_start_matches("ROLE_").to_lowercase(),
        (true, true) => "missing voter".to_owned(),
        (true, false) => "missing learner".to_owned(),
    }
}

/// The column HEARD: when the leader last heard from the node.
fn heard(node: &v1::NodeStatus) -> String {
    match node.silent_ms {
        None => "-".to_owned(),
        Some(_) if !node.missing => "now".to_owned(),
        Some(_) if node.unheard_in_term => format!("not {}", since(node)),
        Some(silent) => format!("{} ago", span(silent)),
    }
}

/// For how long the leader has not heard from the node.
pub fn since(node: &v1::NodeStatus) -> String {
    let silent = span(node.silent_ms.unwrap_or(0));
    match node.unheard_in_term {
        true => format!("for {silent} or longer"),
        false => format!("for {silent}"),
    }
}

/// A duration in its two largest units.
pub fn span(millis: u64) -> String {
    let seconds = millis / 1_000;
    match seconds {
        0 => format!("{millis}ms"),
        1..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d{}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// The column VERSION: release and commit.
fn build(node: &v1::NodeStatus) -> String {
    match &node.build {
        Some(build) if !build.version.is_empty() => format!("{} {}", build.version, build.commit),
        _ => "-".to_owned(),
    }
}

/// The status as a table.
pub fn to_text(status: &v1::StatusResponse) -> String {
    let head = ["NODE", "ROLE", "TERM", "LOG", "APPLIED", "LAG", "HEARD", "VERSION", "ADDRESS"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let known = |value: Option<u64>| value.map_or("-".to_owned(), |value| value.to_string());
    rows.extend(status.nodes.iter().map(|node| {
        vec![
            node.id.to_string(),
            presence(node),
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
        "cluster {}{}, as node {} sees it{}",
        status.cluster,
        match status.cluster_id.as_str() {
            "" => String::new(),
            id => format!(" ({id})"),
        },
        status.node,
        match (status.serving, status.leader) {
            (true, _) => "",
            _ if status.waits => ": it holds no data, and waits to be founded or added",
            (false, None) => ": no leader is known",
            (false, Some(_)) => ": no leader answers",
        }
    );
    let memory = status.memory.map(|memory| memory_of(&memory));
    let disk = status.disk.as_ref().map(|disk| low_disk(status.node, disk));
    let clock = status.clock.and_then(|clock| clock_of(status.node, &clock));
    let open = status.nodes.iter().map(|node| node.open.as_str()).filter(|open| !open.is_empty());
    let open: String = open.flat_map(|open| ["\n", open]).collect();
    let further = [memory, disk, clock].map(Option::unwrap_or_default).concat();
    format!("{asked}\n{}{further}{open}", output::table(&rows))
}

/// A text about the leader's wall clock, as a further line. Nothing if a majority agrees with it.
fn clock_of(node: u64, clock: &v1::ClockStatus) -> Option<String> {
    let shows = date_and_time(clock.wall_ms);
    if clock.believed {
        let alone = "is the only voter: ids of a time go by its wall clock, which shows";
        return clock.alone.then(|| format!("\nnode {node} {alone} {shows} UTC"));
    }
    let differs = match clock.ahead_ms {
        Some(ms) => {
            let way = if ms < 0 { "behind" } else { "ahead of" };
            format!("{} {way} those of a majority", span(ms.unsigned_abs()))
        }
        None => "and those of a majority are not known".to_owned(),
    };
    let ids = match clock.makes_ids {
        true => "the time of ids goes on without it",
        false => "no ids of a time are made",
    };
    Some(format!("\nthe wall clock of node {node} shows {shows} UTC, {differs}: {ids}"))
}

/// A further line if the disk of the node that answered is low, or those of too many voters are; otherwise it is empty.
fn low_disk(node: u64, disk: &v1::DiskSpace) -> String {
    let mb = |bytes: u64| bytes >> 20;
    if !disk.low {
        return match disk.refuses_new_keys.as_str() {
            "" => String::new(),
            why => format!(
                "\nthe voters whose disks have room are no majority: {why}; new keys and namespaces are refused"
            ),
        };
    }
    format!(
        "\nthe disk of node {node} is nearly full: {} MB are free, the reserve is {} MB; new keys and namespaces are refused",
        mb(disk.free_bytes.unwrap_or_default()),
        mb(disk.reserve_bytes)
    )
}

/// A text about the leader's memory, as a further line.
fn memory_of(memory: &v1::LeaderMemory) -> String {
    let mb = |bytes: u64| bytes >> 20;
    format!(
        "\n{} keys in the leader's memory: {} MB of {} MB",
        memory.keys,
        mb(memory.bytes),
        mb(memory.bytes_max)
    )
}

#[cfg(test)]
mod tests;
