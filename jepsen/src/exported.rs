//! The exports at the end of a run, beside the numbers that callers got.

use std::{collections::BTreeMap, time::Duration};

use tokio_stream::StreamExt;
use tonic::Status;

use crate::{
    gaps::TakenOfKey,
    nemesis::Injector,
    proto::{ExportRequest, ExportResponse},
    target::{OWN, SHARED, Target},
};

/// How long a healed cluster may take to export a namespace.
const EXPORTED_MAX: Duration = Duration::from_secs(10);
/// How many wrong exports are told.
const TOLD_MAX: usize = 10;
const RETRY_EVERY: Duration = Duration::from_millis(50);

/// The rows that were exported: the first and the last id of each row, and its number.
#[derive(Debug, Clone, Default)]
pub struct Exported {
    /// The rows of each namespace, in the order of the ids.
    pub rows: BTreeMap<&'static str, Vec<(u64, u64, u64)>>,
    /// The exports that failed, in words.
    pub missing: Vec<String>,
}

impl Exported {
    /// Exports the namespaces of ids, once nobody asks any more.
    pub async fn read(injector: &Injector) -> Exported {
        let mut exported = Exported::default();
        for namespace in [OWN, SHARED] {
            match tokio::time::timeout(EXPORTED_MAX, rows(injector, namespace)).await {
                Ok(rows) => drop(exported.rows.insert(namespace, rows)),
                Err(_) => exported.missing.push(format!("nobody exports {namespace}")),
            }
        }
        exported
    }

    /// The errors in the exports. Each key that callers got numbers of must be there, with a number that is no lower.
    pub fn judge(&self, taken: &BTreeMap<String, TakenOfKey>) -> Vec<String> {
        let mut wrong = self.missing.clone();
        for (key, taken) in taken.iter().filter(|(_, taken)| taken.got > 0) {
            let Some(target) = Target::from_name(key) else { continue };
            let Some(rows) = self.rows.get(target.namespace) else { continue };
            let above = rows.partition_point(|(first, ..)| *first <= target.id);
            let row = above.checked_sub(1).map(|place| rows[place]);
            let row = row.filter(|(_, last, _)| target.id <= *last);
            let exported = row.map_or(0, |(_, _, number)| number);
            if exported < taken.last {
                wrong.push(format!("{key} got {}, and {exported} was exported", taken.last));
            }
        }
        wrong.truncate(TOLD_MAX);
        wrong
    }
}

/// The rows of a complete export.
async fn rows(injector: &Injector, namespace: &str) -> Vec<(u64, u64, u64)> {
    loop {
        for id in &injector.members {
            if let Ok(rows) = export(injector, *id, namespace).await {
                return rows;
            }
        }
        tokio::time::sleep(RETRY_EVERY).await;
    }
}

async fn export(
    injector: &Injector, id: crate::network::Port, namespace: &str,
) -> Result<Vec<(u64, u64, u64)>, Status> {
    let request = ExportRequest { namespace: namespace.to_owned() };
    let mut parts = injector.cluster.client(id).sequencer().export(request).await?.into_inner();
    let mut rows = Vec::new();
    while let Some(part) = parts.next().await {
        let part: ExportResponse = part?;
        let (first, last) = match part.first_ids.is_empty() {
            true => (&part.ids, &part.ids),
            false => (&part.first_ids, &part.last_ids),
        };
        let ids = first.iter().zip(last);
        rows.extend(ids.zip(&part.numbers).map(|((first, last), number)| (*first, *last, *number)));
        if part.rows.is_some() {
            rows.sort_unstable();
            return Ok(rows);
        }
    }
    Err(Status::unavailable("the export ended early"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_callers_got_is_exported_with_a_number_that_is_no_lower() {
        let exported = Exported {
            rows: BTreeMap::from([(OWN, vec![(1, 1, 7)]), (SHARED, vec![(0, 999, 9)])]),
            missing: Vec::new(),
        };
        let judged = |keys: &[(&str, u64)]| {
            let taken = |last| TakenOfKey { got: 1, last, ..TakenOfKey::default() };
            let keys = keys.iter().map(|(key, last)| ((*key).to_owned(), taken(*last)));
            exported.judge(&keys.collect()).join("; ")
        };
        assert_eq!(judged(&[("own/1", 7), ("shared/17", 9), ("named/1", 3)]), "");
        assert_eq!(
            judged(&[("own/1", 8), ("own/2", 1), ("shared/17", 10)]),
            "own/1 got 8, and 7 was exported; own/2 got 1, and 0 was exported; shared/17 got 10, and 9 was exported"
        );
    }
}
