//! The numbers that the nodes skipped, by cause, as their metrics tell.

use std::collections::BTreeMap;

use crate::{error::Error, http, target::Target};

/// A line of the metric, up to the cause.
const LINE: &str = "ratchet_numbers_skipped_total{cause=\"";

/// Numbers by cause.
pub type Skips = BTreeMap<String, u64>;

/// The skipped numbers that each node has counted since its process started.
pub struct Counters(BTreeMap<u64, Skips>);

impl Counters {
    /// Reads the counters of all nodes of `cluster`.
    ///
    /// # Errors
    /// If a node does not answer.
    pub async fn read(cluster: &Target) -> Result<Counters, Error> {
        let mut nodes = BTreeMap::new();
        for server in &cluster.servers {
            let Some(address) = &server.metrics else {
                continue;
            };
            let text = http::get(address, "/metrics").await.map_err(|error| {
                Error::other(format!("cannot read the metrics at {address}: {error}"))
            })?;
            nodes.insert(server.id, parse(&text));
        }
        Ok(Counters(nodes))
    }

    /// The numbers that were counted since `before`. The processes of the nodes `ended` are new since then: the
    /// counts of the old ones after `before` are not known.
    pub fn since(&self, before: &Counters, ended: &[u64]) -> Skips {
        let mut all = Skips::new();
        for (node, skips) in &self.0 {
            let before = before.0.get(node).filter(|_| !ended.contains(node));
            for (cause, count) in skips {
                let before = before.and_then(|before| before.get(cause));
                let new = count.saturating_sub(before.copied().unwrap_or(0));
                *all.entry(cause.clone()).or_default() += new;
            }
        }
        all
    }
}

fn parse(text: &str) -> Skips {
    let lines = text.lines().filter_map(|line| line.strip_prefix(LINE));
    let skips = lines.filter_map(|line| {
        let (cause, count) = line.split_once("\"} ")?;
        Some((cause.to_owned(), count.trim().parse().ok()?))
    });
    skips.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(nodes: &[(u64, u64)]) -> Counters {
        let of = |count| Skips::from([("fence".to_owned(), count)]);
        let nodes = nodes.iter().map(|(node, count)| (*node, of(*count)));
        Counters(nodes.collect())
    }

    #[test]
    fn the_counters_of_a_node_that_was_restarted_count_from_0() {
        let (before, after) = (counters(&[(1, 10), (2, 5)]), counters(&[(1, 3), (2, 6)]));
        assert_eq!(after.since(&before, &[1])["fence"], 3 + 1);
        let after = counters(&[(1, 12), (2, 5)]);
        assert_eq!(after.since(&before, &[])["fence"], 2);
    }

    #[test]
    fn skips_are_read_from_the_text_of_the_metrics() {
        let text = "# TYPE ratchet_numbers_skipped counter\n\
            ratchet_numbers_skipped_total{cause=\"leader_change\"} 9999\n\
            ratchet_numbers_skipped_total{cause=\"fence\"} 0\nratchet_bumps_total 7\n";
        let skips = parse(text);
        assert_eq!(skips.len(), 2);
        assert_eq!(skips["leader_change"], 9_999);
    }
}
