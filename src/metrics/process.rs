//! Metrics of the process, under the names that Prometheus' client libraries use.
//!
//! Invariant: a value that the system does not tell keeps its last reading.

use std::{
    fs,
    sync::{LazyLock, atomic::AtomicU64, atomic::Ordering::Relaxed},
};

use prometheus_client::{encoding::text::encode_registry, metrics::counter::Counter};
use rustix::{
    process::{Resource, getrlimit},
    time::{ClockId, clock_gettime},
};

use super::gauge::{Gauge, Seconds, whole};

metrics! {
    /// Metrics of the whole process, however many nodes run in it.
    Process in "process" {
        /// CPU time of the process, user and system.
        cpu_seconds: Counter<f64, AtomicU64>,
        /// Time when the process started, since the Unix epoch.
        start_time_seconds: Seconds,
        /// Memory of the process that is in RAM.
        resident_memory_bytes: Gauge,
        /// Address space of the process.
        virtual_memory_bytes: Gauge,
        /// Open file descriptors.
        open_fds: Gauge,
        /// Limit on open file descriptors.
        max_fds: Gauge,
        /// Lines of the log that were dropped: standard error did not take them.
        log_lines_dropped: Counter,
    }
}

/// The metrics of this process.
pub static PROCESS: LazyLock<Process> = LazyLock::new(|| {
    let process = Process::default();
    if let Some(seconds) = start_time() {
        process.start_time_seconds.set(seconds);
    }
    process
});

impl Process {
    /// Reads all values. Blocks; with many open file descriptors for some milliseconds.
    pub fn measure(&self) {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let seconds = cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9;
        // CPU time never falls, so the counter may be set.
        self.cpu_seconds.inner().store(seconds.to_bits(), Relaxed);
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        if let Some(bytes) = field_bytes(&status, "VmRSS:") {
            self.resident_memory_bytes.set(bytes);
        }
        if let Some(bytes) = field_bytes(&status, "VmSize:") {
            self.virtual_memory_bytes.set(bytes);
        }
        if let Ok(open) = fs::read_dir("/proc/self/fd") {
            // Without the descriptor that reads this directory.
            self.open_fds.set(whole(open.count().saturating_sub(1)));
        }
        let most = getrlimit(Resource::Nofile).current;
        self.max_fds.set(most.map_or(i64::MAX, whole));
    }

    /// Appends the metrics to a text.
    pub fn write(&self, text: &mut String) -> std::fmt::Result {
        encode_registry(text, &self.registry)
    }
}

/// A field of /proc/self/status in bytes. The file has lines such as "VmRSS:     1234 kB".
fn field_bytes(status: &str, field: &str) -> Option<i64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kilobytes: i64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1_024)
}

/// When the process started, in seconds since the Unix epoch.
fn start_time() -> Option<f64> {
    /// The unit of times in /proc, on every Linux that Rust runs on.
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The second field is the command's name in parentheses, which may hold any character. The start
    // time is the 22nd field, in ticks since the machine started.
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks: f64 = fields.split_whitespace().nth(19)?.parse().ok()?;
    let machine = fs::read_to_string("/proc/stat").ok()?;
    let boot = machine.lines().find_map(|line| line.strip_prefix("btime "));
    let boot: f64 = boot?.trim().parse().ok()?;
    Some(boot + ticks / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    #[test]
    fn measured_values_are_those_of_this_process() {
        let process = &*PROCESS;
        let files: Vec<_> = (0..10).map(|_| fs::File::open("/dev/null")).collect();
        process.measure();
        let before = process.cpu_seconds.get();
        assert!(before > 0.0);
        assert!(process.open_fds.get() >= files.len() as i64);
        assert!(process.max_fds.get() > process.open_fds.get());
        let resident = process.resident_memory_bytes.get();
        assert!(resident > 1 << 20, "{resident}");
        assert!(process.virtual_memory_bytes.get() > resident);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let age = now.unwrap().as_secs_f64() - process.start_time_seconds.get();
        assert!((-2.0..86_400.0).contains(&age), "{age} s old");
        process.measure();
        assert!(process.cpu_seconds.get() >= before);
    }

    #[test]
    fn a_field_of_the_status_file_is_read_in_bytes() {
        let status = "Name:\tx\nVmSize:\t  20 kB\nVmRSS:\t    12 kB\n";
        assert_eq!(field_bytes(status, "VmRSS:"), Some(12 << 10));
        assert_eq!(field_bytes(status, "VmSwap:"), None);
    }
}
