//! `ratchet worker`: the worker ids of a namespace.

use clap::{Args, Subcommand};
use ratchet_client::api as v1;

use super::{
    command_error::CommandError,
    connection::{Ask, Connection},
    output::{self, date_and_time},
};

/// A lease reaches ten seconds ahead of its leader's time. One that reaches so far was made under a wrong clock.
const FAR_MS: u64 = 600_000;

/// `ratchet worker`.
#[derive(Debug, Args)]
pub struct WorkerArgs {
    #[command(subcommand)]
    command: WorkerCommand,
}

#[derive(Debug, Subcommand)]
enum WorkerCommand {
    /// List the worker ids that were ever leased, and their last leases
    List {
        /// The namespace, for example "orders"
        namespace: String,
    },
    /// End a lease that reaches too far ahead, because a leader's wall clock was wrong
    ///
    /// Its ceiling falls to two minutes or so above the leader's time, and the worker id is free once that has passed. Of a
    /// namespace whose ids have a date, worker 0 is the date: ids have today's date again.
    TakeBack {
        /// The namespace, for example "orders"
        namespace: String,
        /// The worker id; 0 for the date
        worker: u32,
        /// The lease's ceiling, as `ratchet worker list` shows it: no other lease is ended
        #[arg(long, value_name = "MS")]
        ceiling_ms: u64,
        /// I answer for it: nobody makes ids under the lease any more, and ids with times above its new end, which were made
        /// under it, may be made again when those times have come
        #[arg(long)]
        vouch: bool,
    },
}

impl Ask for WorkerArgs {
    async fn run(self, connection: &Connection) -> Result<(), CommandError> {
        let (client, json) = (connection.client()?, connection.json);
        match self.command {
            WorkerCommand::List { namespace } => {
                let list = client.list_workers(namespace).await?;
                output::result(json, &list, &to_text(&list))
            }
            WorkerCommand::TakeBack { namespace, worker, ceiling_ms, vouch } => {
                let taking = client.take_worker_back(&namespace, worker, ceiling_ms, vouch);
                let taken = taking.await?;
                output::result(json, &taken, &taken_back(worker, &taken))
            }
        }
    }
}

fn taken_back(worker: u32, taken: &v1::TakeWorkerBackResponse) -> String {
    let until = date_and_time(taken.ceiling_ms);
    let left_ms = taken.ceiling_ms.saturating_sub(taken.now_ms);
    format!(
        "the lease of worker id {worker} ends at {until} UTC; the worker id is free in {} s",
        left_ms.div_ceil(1_000)
    )
}

/// A row for each worker id, and how many are free.
fn to_text(list: &v1::ListWorkersResponse) -> String {
    let head = ["WORKER", "HOLDER", "STATE"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let mut held = 0;
    for worker in &list.workers {
        // As the leader decides: at its ceiling a worker id is still held.
        let state = match worker.ceiling_ms.checked_sub(list.now_ms) {
            Some(left) if left > FAR_MS => {
                held += 1;
                let (until, ceiling) = (date_and_time(worker.ceiling_ms), worker.ceiling_ms);
                format!(
                    "held until {until} UTC: a clock was wrong (ceiling {ceiling}, see take-back)"
                )
            }
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
        list.workers = vec![worker(2, 4_000_000_000_000)];
        let far = "held until 2096-10-02 07:06:40 UTC: a clock was wrong (ceiling 4000000000000, see take-back)";
        assert!(to_text(&list).contains(far), "{}", to_text(&list));
        let taken = v1::TakeWorkerBackResponse { ceiling_ms: 140_000, now_ms: 10_000 };
        let told = taken_back(2, &taken);
        assert!(
            told.ends_with("ends at 1970-01-01 00:02:20 UTC; the worker id is free in 130 s"),
            "{told}"
        );
        list.workers.clear();
        assert_eq!(to_text(&list), "1024 of 1024 worker ids are free");
    }
}
