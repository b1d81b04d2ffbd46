//! A Prometheus that scrapes nodes each second, under the rules of observe/alerts.yml with shorter times.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Mutex,
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::common::{eventually, free_ports, in_time, own_ip, processes::Process};

/// The name of the clusters: the job that scrapes them.
pub const JOB: &str = "test";

/// A program of Prometheus: on the PATH, or where cluster/prerequisites puts it.
pub fn program(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path =
        std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file());
    on_path.unwrap_or_else(|| {
        let home = || PathBuf::from(std::env::var_os("HOME").expect("a home")).join(".cache");
        let cache = std::env::var_os("XDG_CACHE_HOME").map_or_else(home, PathBuf::from);
        cache.join("ratchet/prometheus/usr/bin").join(name)
    })
}

/// A file in observe/.
pub fn observe(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("observe").join(file)
}

/// Rules with shorter times, so that an alert fires and ends within seconds: a minute of a range is a second, and ten seconds
/// at least; and a condition that holds for a second fires. Conditions and thresholds are as they are.
pub fn hasty(rules: &str) -> String {
    let mut hasty = String::new();
    for line in rules.lines() {
        let indent = line.len() - line.trim_start().len();
        match line.trim_start().starts_with("for: ") {
            true => hasty += &format!("{}for: 1s", &line[..indent]),
            false => hasty += &shorter_ranges(line),
        }
        hasty.push('\n');
    }
    hasty
}

fn shorter_ranges(line: &str) -> String {
    let mut parts = line.split('[');
    let mut shorter = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let minutes =
            part.split_once("m]").and_then(|(n, rest)| Some((n.parse::<u64>().ok()?, rest)));
        shorter += &match minutes {
            Some((minutes, rest)) => format!("[{}s]{rest}", minutes.max(10)),
            None => format!("[{part}"),
        };
    }
    shorter
}

/// A value of a series, by its labels.
pub type Series = BTreeMap<String, f64>;

/// An alert that fired, and was not quiet since.
struct Fired {
    cause: String,
    /// How long after its cause began.
    after: Duration,
    /// When the cause ended. `None` if it lasts.
    ended: Option<Instant>,
}

pub struct Prometheus {
    _process: Process,
    address: SocketAddr,
    dir: TempDir,
    fired: Mutex<BTreeMap<String, Fired>>,
}

impl Prometheus {
    /// Begins to scrape these addresses for metrics, and waits until all of them have been.
    pub async fn start(nodes: impl IntoIterator<Item = SocketAddr>) -> Prometheus {
        let dir = TempDir::new().expect("a directory");
        let [address] = free_ports(own_ip());
        let rules = fs::read_to_string(observe("alerts.yml")).expect("the rules");
        fs::write(dir.path().join("alerts.yml"), hasty(&rules)).expect("written");
        let nodes: Vec<String> = nodes.into_iter().map(|node| format!("\"{node}\"")).collect();
        let (count, nodes) = (nodes.len(), nodes.join(", "));
        // No scrape may take longer than a second, so that one of a node that is stopped ends.
        let config = format!(
            "global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}\n\
             rule_files: [alerts.yml]\n\
             scrape_configs:\n\
             - job_name: {JOB}\n  static_configs: [{{targets: [{nodes}]}}]\n"
        );
        let file = dir.path().join("prometheus.yml");
        fs::write(&file, config).expect("written");
        let log = File::create(dir.path().join("log")).expect("a log");
        let mut command = Command::new(program("prometheus"));
        command
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", dir.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .arg("--log.level=warn")
            // The machine is busy with the nodes.
            .env("GOMAXPROCS", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let process = command.spawn().unwrap_or_else(|error| {
            panic!(
                "{:?}: {error}; cluster/prerequisites --tests installs it",
                command.get_program()
            )
        });
        let fired = Mutex::default();
        let prometheus = Prometheus { _process: Process(process), address, dir, fired };
        eventually("Prometheus has seen all nodes", async || {
            let seen = prometheus.query("sum(up)").await.ok()?;
            (seen.values().sum::<f64>() == count as f64).then_some(())
        })
        .await;
        prometheus
    }

    /// Asks its HTTP interface. Answers the data.
    pub async fn ask(&self, path: &str, parameters: &[(&str, &str)]) -> Result<Value, String> {
        let parameters: String =
            form_urlencoded::Serializer::new(String::new()).extend_pairs(parameters).finish();
        let asking = async {
            let mut stream = TcpStream::connect(self.address).await?;
            // In this version of HTTP an answer comes in one part.
            let request = format!("GET /api/v1/{path}?{parameters} HTTP/1.0\r\n\r\n");
            stream.write_all(request.as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            Ok(answer)
        };
        let answer = in_time("an answer of Prometheus", asking).await;
        let answer = answer.map_err(|error: std::io::Error| {
            let log = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
            format!("{error}: {log}")
        })?;
        let (_, body) = answer.split_once("\r\n\r\n").ok_or("no head")?;
        let mut body: Value =
            serde_json::from_str(body).map_err(|error| format!("{error}: {body}"))?;
        match body["status"] == "success" {
            true => Ok(body["data"].take()),
            false => Err(body["error"].to_string()),
        }
    }

    /// The values of a query now.
    ///
    /// # Errors
    /// Why Prometheus cannot answer it.
    pub async fn query(&self, query: &str) -> Result<Series, String> {
        let data = self.ask("query", &[("query", query)]).await?;
        let series = data["result"].as_array().ok_or("no series")?;
        let value = |one: &Value| one["value"][1].as_str()?.parse().ok();
        let values = series.iter().map(|one| Some((one["metric"].to_string(), value(one)?)));
        values.collect::<Option<Series>>().ok_or_else(|| format!("no values: {data}"))
    }

    /// The alerts in any state, and the alerts among them that fire.
    async fn alerts(&self) -> (BTreeSet<String>, BTreeSet<String>) {
        let data = self.ask("alerts", &[]).await.expect("the alerts");
        let alerts = data["alerts"].as_array().expect("a list");
        let name =
            |alert: &Value| alert["labels"]["alertname"].as_str().expect("a name").to_owned();
        let firing = alerts.iter().filter(|alert| alert["state"] == "firing");
        (alerts.iter().map(name).collect(), firing.map(name).collect())
    }

    /// Waits until each of these alerts fires. Their cause has begun just now.
    pub async fn fire(&self, cause: &str, alerts: &[&str]) {
        let began = Instant::now();
        let mut fired = BTreeMap::new();
        for alert in alerts {
            let fires = async || {
                let firing = self.alerts().await.1;
                for seen in alerts.iter().filter(|alert| firing.contains(**alert)) {
                    fired.entry(*seen).or_insert_with(|| began.elapsed());
                }
                fired.contains_key(alert).then_some(())
            };
            eventually(&format!("{alert} fires"), fires).await;
        }
        for (alert, after) in fired {
            self.has_fired(alert, Fired { cause: cause.to_owned(), after, ended: None });
        }
    }

    /// Causes the fault again and again until an alert fires.
    pub async fn fires_while(&self, cause: &str, alert: &str, mut wrong: impl AsyncFnMut()) {
        let began = Instant::now();
        let fires = async || {
            wrong().await;
            self.alerts().await.1.contains(alert).then_some(())
        };
        eventually(&format!("{alert} fires"), fires).await;
        let (after, ended) = (began.elapsed(), Some(Instant::now()));
        self.has_fired(alert, Fired { cause: cause.to_owned(), after, ended });
    }

    fn has_fired(&self, alert: &str, fired: Fired) {
        self.fired.lock().expect("no panic").entry(alert.to_owned()).or_insert(fired);
    }

    /// Waits until each of these alerts is quiet. Not until all are: the disks of a busy machine are slow. The condition, if it
    /// lasted, has ended just now.
    pub async fn are_quiet(&self, alerts: &[&str]) {
        let now = Instant::now();
        let mut quiet = BTreeMap::new();
        for alert in alerts {
            let is_quiet = async || {
                let loud = self.alerts().await.0;
                for seen in alerts.iter().filter(|alert| !loud.contains(**alert)) {
                    quiet.entry(*seen).or_insert_with(Instant::now);
                }
                quiet.contains_key(alert).then_some(())
            };
            eventually(&format!("{alert} is quiet"), is_quiet).await;
        }
        for (alert, at) in quiet {
            if let Some(fired) = self.fired.lock().expect("no panic").remove(alert) {
                let lasted = at.duration_since(fired.ended.unwrap_or(now));
                print_row(alert, &fired, lasted);
            }
        }
    }

    /// The rules that were evaluated: their names, and for each why it could not be, if so.
    pub async fn rules(&self) -> BTreeMap<String, String> {
        let data = self.ask("rules", &[]).await.expect("the rules");
        let groups = data["groups"].as_array().expect("groups").iter();
        let rules = groups.flat_map(|group| group["rules"].as_array().expect("rules"));
        let text = |rule: &Value, field: &str| rule[field].as_str().unwrap_or_default().to_owned();
        rules
            .filter(|rule| rule["health"] != "unknown")
            .map(|rule| (text(rule, "name"), text(rule, "lastError")))
            .collect()
    }
}

/// Prints the row of an alert for the table in docs/runbooks.md, which has the same cause: it fired, and was quiet once it had
/// `lasted` longer than its cause.
fn print_row(alert: &str, fired: &Fired, lasted: Duration) {
    let row = format!("| {alert} | {} |", fired.cause);
    println!("{row} {:.1} s | {:.1} s |", fired.after.as_secs_f64(), lasted.as_secs_f64());
    let page = include_str!("../../docs/runbooks.md");
    assert!(page.contains(&row), "docs/runbooks.md has no row that begins with: {row}");
}

#[test]
fn times_are_shortened_and_thresholds_are_not() {
    let rules = "  for: 10m\n  expr: rate(a[2m]) + b[15m] > 10m[7d]\n";
    assert_eq!(hasty(rules), "  for: 1s\n  expr: rate(a[10s]) + b[15s] > 10m[7d]\n");
}
