//! Watches from outside which node leads, and how many numbers the nodes count as skipped.

use std::{collections::BTreeMap, io, net::SocketAddr, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
    time::timeout,
};

use crate::{
    client::Client,
    cluster::METRICS_PORT,
    gaps::UncleanChanges,
    nodes::KnownNodes,
    proto::{Role, StatusResponse},
    record::Recorder,
};

const EVERY: Duration = Duration::from_millis(25);
/// How often a node's metrics are read, and how long that may take.
const SCRAPE_EVERY: Duration = Duration::from_millis(100);
const SCRAPE_MAX: Duration = Duration::from_millis(500);
/// How long the nodes may take to show metrics that are asked for.
const SCRAPED_MAX: Duration = Duration::from_secs(5);
/// The metrics that are read, up to the cause.
const SKIPPED: &str = "ratchet_numbers_skipped_total{cause=\"";
const EVICTED: &str = "ratchet_evicted_keys_total{cause=\"";

/// The time for which a node was seen to lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leadership {
    /// The node.
    pub node: u64,
    /// When it was first seen to lead, in nanoseconds since the start of the run.
    pub from_ns: u64,
    /// When it was last seen to lead.
    pub to_ns: u64,
    /// When it certainly led, or had led.
    pub known_ns: u64,
}

/// The observations of the terms.
#[derive(Default)]
pub struct Terms {
    leaderships: BTreeMap<u64, Leadership>,
    /// Nodes that said that they lead a term of another one.
    two_leaders: Vec<String>,
    highest: u64,
    lowest: Option<u64>,
    /// The counters of each node, by metric and series: the cause, and the labels that follow it.
    counted: BTreeMap<u64, BTreeMap<(&'static str, String), Counter>>,
    /// When each node was last asked for its metrics, and showed them.
    scraped_ns: BTreeMap<u64, u64>,
}

/// A counter that begins at 0 again when its process is started again.
#[derive(Debug, Default, Clone, Copy)]
struct Counter {
    last: u64,
    of_earlier_processes: u64,
}

impl Counter {
    fn read(&mut self, value: u64) {
        if value < self.last {
            self.of_earlier_processes += self.last;
        }
        self.last = value;
    }

    fn total(&self) -> u64 {
        self.of_earlier_processes + self.last
    }
}

/// Watches the nodes.
#[derive(Clone, Default)]
pub struct Monitor(Arc<Mutex<Terms>>);

impl Monitor {
    /// Asks all nodes for the leader, until the set is dropped.
    pub fn watch(&self, nodes: &KnownNodes, recorder: &Arc<Recorder>, tasks: &mut JoinSet<()>) {
        let (monitor, nodes, recorder) = (self.clone(), nodes.clone(), recorder.clone());
        tasks.spawn(async move {
            let mut watched: BTreeMap<u64, JoinSet<()>> = BTreeMap::new();
            loop {
                for (id, address) in nodes.read().iter() {
                    watched.entry(*id).or_insert_with(|| {
                        let mut task = JoinSet::new();
                        let client = Client::new(address.clone());
                        task.spawn(monitor.clone().watch_one(*id, client, recorder.clone()));
                        let metrics = SocketAddr::new(address.at.ip(), METRICS_PORT);
                        task.spawn(monitor.clone().scrape_one(*id, metrics, recorder.clone()));
                        task
                    });
                }
                tokio::time::sleep(EVERY).await;
            }
        });
    }

    async fn watch_one(self, id: u64, mut client: Client, recorder: Arc<Recorder>) {
        loop {
            let asked = recorder.now();
            if let Ok(status) = client.status().await {
                let leads = says_it_leads(&status, id);
                self.note(status.term, leads.then_some(id), asked, recorder.now());
            }
            tokio::time::sleep(EVERY).await;
        }
    }

    async fn scrape_one(self, id: u64, metrics: SocketAddr, recorder: Arc<Recorder>) {
        loop {
            let asked_ns = recorder.now();
            if let Ok(Ok(counted)) = timeout(SCRAPE_MAX, scrape(metrics)).await {
                let mut terms = self.0.lock();
                let counters = terms.counted.entry(id).or_default();
                for (metric, series, count) in counted {
                    counters.entry((metric, series)).or_default().read(count);
                }
                terms.scraped_ns.insert(id, asked_ns);
            }
            tokio::time::sleep(SCRAPE_EVERY).await;
        }
    }

    /// Notes the answer of a node that was asked at `asked` and had answered at `answered`.
    fn note(&self, term: u64, leader: Option<u64>, asked: u64, answered: u64) {
        let terms = &mut *self.0.lock();
        terms.highest = terms.highest.max(term);
        terms.lowest = Some(terms.lowest.map_or(term, |lowest| lowest.min(term)));
        if let Some(node) = leader {
            let led = terms.leaderships.entry(term).or_insert(Leadership {
                node,
                from_ns: asked,
                to_ns: asked,
                known_ns: answered,
            });
            led.to_ns = led.to_ns.max(asked);
            led.known_ns = led.known_ns.min(answered);
            if led.node != node {
                let (first, why) = (led.node, "both said that they lead term");
                terms.two_leaders.push(format!("nodes {first} and {node} {why} {term}"));
            }
        }
    }

    /// The nodes that said that they lead one term, which no two may.
    pub fn two_leaders(&self) -> Vec<String> {
        self.0.lock().two_leaders.clone()
    }

    /// The leader of the latest term that had one.
    pub fn leader(&self) -> Option<u64> {
        self.0.lock().leaderships.values().next_back().map(|led| led.node)
    }

    /// The nodes that were seen to lead terms after `term`.
    pub fn leaders_after(&self, term: u64) -> Vec<u64> {
        let terms = self.0.lock();
        terms.leaderships.range(term + 1..).map(|(_, led)| led.node).collect()
    }

    /// The latest term of which a node knows, whether or not it has a leader.
    pub fn term(&self) -> u64 {
        self.0.lock().highest
    }

    /// How often a leader of another term was seen.
    pub fn changes(&self) -> u64 {
        (self.0.lock().leaderships.len() as u64).saturating_sub(1)
    }

    /// The leader changes that may have been unclean: one for each term that began, whether or not a leader of it
    /// was seen. The change to a term whose leader was seen is a graceful one if the term before it is in
    /// `handed_over`, which says when that term had not ended yet.
    pub fn unclean_changes(&self, handed_over: &BTreeMap<u64, u64>) -> Vec<UncleanChanges> {
        let terms = self.0.lock();
        let (mut unclean, mut before) = (Vec::new(), terms.lowest.unwrap_or(terms.highest));
        let seen = terms.leaderships.iter().map(|(term, led)| (*term, led.known_ns));
        for (term, to_ns) in seen.chain([(terms.highest, u64::MAX)]) {
            let is_graceful = term == before + 1 && handed_over.contains_key(&before);
            if term > before && !is_graceful {
                let earlier = handed_over.range(..=before).next_back();
                unclean.push(UncleanChanges {
                    from_ns: earlier.map_or(0, |(_, not_ended_ns)| *not_ended_ns),
                    to_ns,
                    count: term - before,
                });
            }
            before = before.max(term);
        }
        unclean
    }

    /// How many numbers the nodes counted as skipped because the fence failed after they were taken. The counts of the last
    /// 100 ms before a node ended may be missing.
    pub fn fence_skips(&self) -> u64 {
        self.skipped().get("fence").copied().unwrap_or_default()
    }

    /// How many numbers the nodes counted as skipped, by cause. Otherwise as [`Monitor::fence_skips`].
    pub fn skipped(&self) -> BTreeMap<String, u64> {
        self.counted(SKIPPED)
    }

    /// How many keys the nodes evicted from the memory. Otherwise as [`Monitor::fence_skips`].
    pub fn evicted_keys(&self) -> u64 {
        self.counted(EVICTED).values().sum()
    }

    /// The numbers that the nodes counted in one metric, by cause.
    fn counted(&self, metric: &str) -> BTreeMap<String, u64> {
        let mut counted = BTreeMap::new();
        for ((of, series), counter) in self.0.lock().counted.values().flatten() {
            if *of == metric {
                let cause = series.split('"').next().unwrap_or_default();
                *counted.entry(cause.to_owned()).or_default() += counter.total();
            }
        }
        counted
    }

    /// Waits until each of these nodes has shown its metrics to a question of after `since_ns`.
    ///
    /// # Errors
    /// A node does not show them within 5 s.
    pub async fn scraped_since(&self, since_ns: u64, nodes: &[u64]) -> Result<(), String> {
        let is_late =
            |node: &&u64| self.0.lock().scraped_ns.get(node).is_none_or(|ns| *ns < since_ns);
        let scraped = async {
            while nodes.iter().any(|node| is_late(&node)) {
                tokio::time::sleep(EVERY).await;
            }
        };
        timeout(SCRAPED_MAX, scraped).await.map_err(|_| {
            let late: Vec<&u64> = nodes.iter().filter(is_late).collect();
            format!(
                "the nodes {late:?} do not show their metrics within {} s",
                SCRAPED_MAX.as_secs()
            )
        })
    }

    /// The leaders, and when each of them led.
    pub fn leaderships(&self) -> Vec<Leadership> {
        self.0.lock().leaderships.values().copied().collect()
    }
}

/// Whether a node says of itself that it leads.
pub fn says_it_leads(status: &StatusResponse, id: u64) -> bool {
    let own = status.nodes.iter().find(|node| node.id == id);
    own.is_some_and(|node| node.role() == Role::Leader)
}

/// The counters of a node: metrics, series and numbers.
async fn scrape(metrics: SocketAddr) -> io::Result<Vec<(&'static str, String, u64)>> {
    let mut stream = TcpStream::connect(metrics).await?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    let counted: Vec<_> = text.lines().filter_map(count_of_line).collect();
    match counted.is_empty() {
        true => Err(io::Error::other(format!("{metrics} shows no line {SKIPPED:?}"))),
        false => Ok(counted),
    }
}

/// The metric, the series and the number of a line, if it is of one that is read. The series begins with the cause; the other
/// labels follow, if there are some.
fn count_of_line(line: &str) -> Option<(&'static str, String, u64)> {
    let (metric, rest) =
        [SKIPPED, EVICTED].into_iter().find_map(|name| Some((name, line.strip_prefix(name)?)))?;
    let (series, count) = rest.split_once("\"} ")?;
    Some((metric, series.to_owned(), count.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn a_line_of_a_metric_that_is_read_has_a_cause_and_a_number() {
        let line = "ratchet_numbers_skipped_total{cause=\"fence\"} 3";
        assert_eq!(count_of_line(line), Some((SKIPPED, "fence".to_owned(), 3)));
        let line = "ratchet_evicted_keys_total{cause=\"idle\",set=\"1\"} 17";
        assert_eq!(count_of_line(line), Some((EVICTED, "idle\",set=\"1".to_owned(), 17)));
        assert_eq!(count_of_line("ratchet_numbers_total 3"), None);
    }

    #[test]
    fn what_several_series_count_for_a_cause_is_added_up() {
        let monitor = Monitor::default();
        let mut terms = monitor.0.lock();
        let counters = terms.counted.entry(1).or_default();
        for (series, count) in
            [("idle\",set=\"1", 17), ("idle\",set=\"2", 3), ("room\",set=\"1", 5)]
        {
            counters.entry((EVICTED, series.to_owned())).or_default().read(count);
        }
        drop(terms);
        let expected = BTreeMap::from([("idle".to_owned(), 20), ("room".to_owned(), 5)]);
        assert_eq!(monitor.counted(EVICTED), expected);
        assert_eq!(monitor.evicted_keys(), 25);
    }

    #[test]
    fn a_counter_goes_on_where_its_earlier_process_ended() {
        let mut counter = Counter::default();
        for value in [3, 5, 5, 1, 4] {
            counter.read(value);
        }
        assert_eq!(counter.total(), 9);
    }

    #[test]
    fn a_change_is_graceful_if_the_term_was_handed_over_and_the_next_one_was_seen_to_have_a_leader()
    {
        let monitor = Monitor::default();
        assert_eq!(monitor.unclean_changes(&BTreeMap::new()), []);
        let leaders =
            [(3, Some(1)), (4, Some(2)), (5, None), (6, Some(1)), (7, Some(3)), (8, None)];
        for (term, leader) in leaders {
            monitor.note(term, leader, 10 * term, 10 * term + 5);
        }
        assert_eq!(monitor.leaders_after(3), [2, 1, 3]);
        assert_eq!(monitor.leaders_after(7), [0; 0]);
        let unclean = |handed_over: &[u64]| {
            let handed_over = handed_over.iter().map(|term| (*term, 10 * term));
            let unclean = monitor.unclean_changes(&handed_over.collect());
            let told = unclean.iter().map(|change| {
                let UncleanChanges { from_ns, to_ns, count } = *change;
                format!("{count} from {from_ns} to {to_ns}\n")
            });
            told.collect::<String>().replace(&u64::MAX.to_string(), "the end")
        };
        expect![[r#"
            1 from 0 to 45
            2 from 0 to 65
            1 from 0 to 75
            1 from 0 to the end
        "#]]
        .assert_eq(&unclean(&[]));
        // The leader of term 5, or its candidate, was not seen, and may have skipped numbers.
        expect![[r#"
            2 from 40 to 65
            1 from 60 to the end
        "#]]
        .assert_eq(&unclean(&[3, 4, 6]));
        // Nor was the leader of term 8. A term before the first one that was seen did not end meanwhile.
        expect![[r#"
            1 from 20 to 45
            2 from 20 to 65
            1 from 20 to 75
        "#]]
        .assert_eq(&unclean(&[2, 7]));
    }
}
