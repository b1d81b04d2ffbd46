//! `ratchet worker`: the worker ids of a namespace.

use clap::{Args, Subcommand};
use ratchet_client::api as v1;
use serde_json::{Value, json};

use super::{connection::Connection, exit::CommandError, output};

/// `ratchet worker`.
#[derive(Debug, Args)]
pub struct Worker {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the worker ids that were ever leased, and their last leases
    List {
        /// The namespace, for example "orders"
        namespace: String,
        #[command(flatten)]
        connection: Connection,
    },
}

impl Worker {
    pub(super) fn wants_json(&self) -> bool {
        let Command::List { connection, .. } = &self.command;
        connection.json
    }

    pub(super) async fn run(self) -> Result<(), CommandError> {
        let Command::List { namespace, connection } = self.command;
        let list = connection.client()?.list_workers(namespace).await?;
        output::result(connection.json, &to_json(&list), &to_text(&list))
    }
}

fn to_json(list: &v1::ListWorkersResponse) -> Value {
    let workers = list.workers.iter().map(|worker| {
        json!({
            "worker": worker.worker,
            "holder": worker.holder,
            "from_ms": worker.from_ms,
            "ceiling_ms": worker.ceiling_ms,
            "written_ms": worker.written_ms,
        })
    });
    json!({
        "workers": workers.collect::<Vec<_>>(),
        "workers_max": list.workers_max,
        "now_ms": list.now_ms,
    })
}

/// A row for each worker id, and how many are free.
fn to_text(list: &v1::ListWorkersResponse) -> String {
    let head = ["WORKER", "HOLDER", "STATE"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let mut held = 0;
    for worker in &list.workers {
        // As the leader decides: at its ceiling a worker id is still held.
        let state = match worker.ceiling_ms.checked_sub(list.now_ms) {
            Some(left) => {
                held += 1;
                format!("held for {:.1} s", left as f64 / 1e3)
            }
            None => {
                let since = list.now_ms - worker.ceiling_ms;
                format!("free for {} s", since / 1_000)
            }
        };
        rows.push(vec![worker.worker.to_string(), worker.holder.clone(), state]);
    }
    let free = u64::from(list.workers_max) - held;
    let summary = format!("{free} of {} worker ids are free", list.workers_max);
    match list.workers.is_empty() {
        true => summary,
        false => format!("{}\n{summary}", output::table(&rows)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_id_is_held_until_its_ceiling_has_passed() {
        let worker = |worker, ceiling_ms| v1::Worker {
            worker,
            holder: format!("host-{worker}"),
            ceiling_ms,
            ..v1::Worker::default()
        };
        let mut list = v1::ListWorkersResponse {
            workers: vec![worker(0, 12_500), worker(3, 10_000), worker(10, 4_000)],
            workers_max: 1_024,
            now_ms: 10_000,
        };
        let text = "WORKER  HOLDER   STATE\n\
                    0       host-0   held for 2.5 s\n\
                    3       host-3   held for 0.0 s\n\
                    10      host-10  free for 6 s\n\
                    1022 of 1024 worker ids are free";
        assert_eq!(to_text(&list), text);
        let shown = to_json(&list);
        assert_eq!(shown["workers"][2]["ceiling_ms"], 4_000);
        assert!(shown["workers"][2].get("token").is_none(), "{shown}");
        list.workers.clear();
        assert_eq!(to_text(&list), "1024 of 1024 worker ids are free");
    }
}
