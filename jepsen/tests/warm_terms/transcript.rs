//! Puts an action into words.

use crate::{
    actions::{Act, Act::*},
    ledger::*,
    record::{Chunk, Record},
    rules::Rules,
    search::Told,
    state::*,
};

/// Each line also has the result of the action.
impl Told for Rules {
    fn tell(&self, before: &State, act: Act) -> String {
        let mut after = before.clone();
        let _ = self.act(&mut after, act);
        let (term, ledger, record) = (after.term, after.table.ledger, after.table.record);
        let memory = |n: usize| numbers(after.nodes[n].leads.and_then(|leads| leads.memory));
        let logged = match after.table == before.table {
            true => "refused".to_owned(),
            false => format!(
                "epochs {}, the section's max_seq is {} as of epoch {}",
                ledger.epoch, record.max_seq, record.epoch
            ),
        };
        let begins = || match ledger.writer == term {
            true => format!("it holds epoch {}", ledger.epoch),
            false => "its first entry is refused".to_owned(),
        };
        match act {
            Elect(n) => format!("node {n} is elected for term {term}: {}", begins()),
            BeginEpoch(n) => format!("node {n} begins an epoch instead: {}", begins()),
            CatchUp(n) => format!("node {n} applies all that is committed"),
            Apply(n) => format!("node {n} applies an entry; its memory: {}", memory(n)),
            Read(n) => {
                let read = after.nodes[n].leads.and_then(|leads| leads.read);
                let Record { max_seq, epoch, .. } = read.unwrap_or_default();
                format!(
                    "node {n} reads the section's record: max_seq {max_seq} as of epoch {epoch}"
                )
            }
            Use(n) => format!("node {n} uses what it read; its memory: {}", memory(n)),
            Bump(n, _) => format!("node {n} logs a bump: {logged}"),
            Checkpoint(n) => format!("node {n} logs a checkpoint: {logged}"),
            Take(n) => {
                let taken = after.nodes[n].leads.and_then(|leads| leads.memory);
                let number = taken.map_or(0, |chunk| chunk.cur_seq);
                let term = after.nodes[n].leads.map_or(0, |leads| leads.term);
                format!("node {n} HANDS OUT {number} in term {term}")
            }
            Close(n) => format!("node {n} closes its gate"),
            Leave(n) => format!("the call inside leaves node {n} without a number"),
            Send(n, to) => format!("node {n} sends its memory to node {to}: {}", memory(n)),
            LogHandOff(n, to) => format!("node {n} hands off to node {to}: {logged}"),
            Trim(n) => format!("node {n} logs a trim: {logged}"),
            ReturnEpoch(n) => format!("node {n} returns its epoch: {logged}"),
            Reopen(n) => format!("node {n} opens its gate again"),
            Abandon(n) => format!("node {n} loses its memory, and closes its gate"),
            Restart(n) => format!("node {n} crashes and restarts"),
            RaiseMax => "the namespace's max is raised".to_owned(),
            Release(n) => format!("node {n} evicts the section, and logs a release: {logged}"),
            Raise(n) => format!("node {n} raises a floor: {logged}; its memory: {}", memory(n)),
            Delete(n) => {
                format!("node {n} has the namespace deleted and created again: {logged}")
            }
            BeginFill(n) => {
                let Record { max_seq, epoch, .. } = after.nodes[n].fill.unwrap_or_default();
                format!(
                    "node {n} reads for its memory of records: max_seq {max_seq} as of epoch {epoch}"
                )
            }
            EndFill(n) => {
                let Record { max_seq, epoch, .. } = after.nodes[n].recent.unwrap_or_default();
                format!("node {n} has the record in memory: max_seq {max_seq} as of epoch {epoch}")
            }
            TakeGapless(n) => format!("node {n} takes a number by an entry: {logged}"),
        }
    }
}

fn numbers(memory: Memory) -> String {
    match memory {
        None => "nothing".to_owned(),
        Some(Chunk { cur_seq, ceiling }) => format!("({cur_seq}, {ceiling}]"),
    }
}
