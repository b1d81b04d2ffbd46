//! The error that ends a command, and the exit code that tells its kind.
//!
//! An error of the client or of a node becomes a [`CommandError`] here. It is told on standard error, as text or JSON.
//!
//! Invariant: each exit code stands in `--help` and on the pages that list them.

use std::{
    io::{self, Write},
    process::{self, ExitCode},
    sync::mpsc,
    thread,
    time::Duration,
};

use ratchet_client::{Code, Error};
use serde_json::json;

use crate::{node::StartError, tasks::Fault};

/// The exit codes, as `--help` lists them.
pub const HELP: &str = "\
Exit codes:
   0  success
   1  any error that has no code below
   2  the command line is malformed
   3  not found: a namespace, a node, a token
   4  refused: an argument is outside its limits, the name exists already, the numbers are used up,
      a namespace has all the keys that it may have, another membership change is in progress, or
      the cluster's state does not allow it
   5  unavailable: no server or no leader answers, or the server is overloaded; check the state,
      then try again
   6  the deadline passed, or whether the command was carried out is not known
   7  status: a voter is missing; the other nodes still hand out numbers
   8  not allowed: the cluster wants a token and is shown none, or one that it does not know, or too
      little is granted to it
  70  start: a part of the node panicked, which is a bug
  71  start: an address cannot be listened on
  74  start, recover: the disk fails, the data is damaged, too old or in use, the margin does not fit
      it, or the node had to stop, or hung when it stopped; the message says which
  75  start: the only voter gave its term up; all it needs is another start
  78  start, recover: the set-up is wrong, and no restart helps: a setting is not valid; data_dir
      holds other files, or belongs to another node, cluster or release; its user cannot use it; no
      volume is mounted there (require_volume); the process runs as root (refuse_root); strangers
      reach the node and are granted something (insecure), or could pass for a node of a cluster
      with tokens (peer_tls); or a recovery was cut short";

/// How long the last words of a process wait for their reader.
pub const PRINT_MAX: Duration = Duration::from_secs(2);

const OTHER: u8 = 1;
const NOT_FOUND: u8 = 3;
const REFUSED: u8 = 4;
const UNAVAILABLE: u8 = 5;
const DEADLINE: u8 = 6;
const PANIC: u8 = 70;
const VOTER_MISSING: u8 = 7;
const NOT_ALLOWED: u8 = 8;
const LISTEN: u8 = 71;
const STORE: u8 = 74;
const RESTART: u8 = 75;
const CONFIG: u8 = 78;

/// The error that ends the command: its exit code, its code for JSON, and its text.
#[derive(Debug)]
pub struct CommandError {
    exit: u8,
    code: String,
    message: String,
    /// Whether it is told as JSON.
    json: bool,
}

impl CommandError {
    fn new(exit: u8, code: impl ToString, message: impl Into<String>) -> Self {
        CommandError { exit, code: code.to_string(), message: message.into(), json: false }
    }

    /// An error without an exit code of its own.
    pub fn other(message: impl Into<String>) -> Self {
        CommandError::new(OTHER, "FAILED", message)
    }

    /// An error about the arguments, before the cluster is asked.
    pub fn refused(message: impl Into<String>) -> Self {
        CommandError::new(REFUSED, Code::InvalidArgument, message)
    }

    /// The error, which is told as JSON if `json`.
    pub fn in_json(self, json: bool) -> Self {
        CommandError { json, ..self }
    }

    /// The error, with `more` told after it.
    pub fn and(mut self, more: &str) -> Self {
        self.message.push_str(more);
        self
    }

    /// The cluster hands out no numbers at present.
    pub fn no_leader(message: impl Into<String>) -> Self {
        CommandError::new(UNAVAILABLE, Code::Unavailable, message)
    }

    /// The cluster hands out numbers, but some of its voters are missing.
    pub fn voter_missing(message: impl Into<String>) -> Self {
        CommandError::new(VOTER_MISSING, "VOTER_MISSING", message)
    }

    /// A node was told to stop, and something in it hangs.
    pub fn hangs() -> Self {
        let message = "the node was told to stop, and has handed over what it could";
        CommandError::new(STORE, "HANGS", message)
    }

    /// The configuration is not valid.
    pub fn config(message: impl Into<String>) -> Self {
        CommandError::new(CONFIG, "CONFIGURATION", message)
    }

    /// Prints the error to standard error and returns its exit code. It does not wait long for a reader that stalls: the caller
    /// of the process waits for its end.
    pub fn report(self) -> ExitCode {
        let exit = ExitCode::from(self.exit);
        self.print_in_time();
        exit
    }

    /// Prints the error to standard error, as [`CommandError::report`] does, and ends the process. `last` is called right
    /// before.
    pub fn end(self, last: impl FnOnce()) -> ! {
        let exit = self.exit;
        self.print_in_time();
        last();
        process::exit(exit.into())
    }

    fn print_in_time(self) {
        let (done, printed) = mpsc::channel();
        let printing = move || {
            self.print();
            // The thread that waits may have given up.
            let _ = done.send(());
        };
        if thread::Builder::new().spawn(printing).is_ok() {
            // It is printed, or cannot be.
            let _ = printed.recv_timeout(PRINT_MAX);
        }
    }

    /// Prints the error to standard error. If that is closed, nobody is there to be told.
    pub fn print(&self) {
        let text = match self.json {
            true => json!({"error": {"code": self.code, "message": self.message}}).to_string(),
            false => format!("error: {}", self.message),
        };
        let _ = writeln!(io::stderr(), "{text}");
    }
}

impl From<Error> for CommandError {
    fn from(error: Error) -> Self {
        let (exit, code) = match &error {
            Error::Invalid(_) => (REFUSED, Code::InvalidArgument.to_string()),
            Error::Server { code, .. } => (exit_of(*code), code.to_string()),
            Error::OutcomeUnknown { .. } => (DEADLINE, "OUTCOME_UNKNOWN".to_owned()),
            Error::OtherCluster { .. } => (REFUSED, "CLUSTER_MISMATCH".to_owned()),
            Error::Disorder { .. } => (OTHER, "DATA_LOSS".to_owned()),
            _ => (OTHER, Code::Internal.to_string()),
        };
        CommandError::new(exit, code, error.to_string())
    }
}

fn exit_of(code: Code) -> u8 {
    use Code::*;
    match code {
        NotFound => NOT_FOUND,
        InvalidArgument | OutOfRange | AlreadyExists | FailedPrecondition => REFUSED,
        Unavailable | ResourceExhausted => UNAVAILABLE,
        DeadlineExceeded => DEADLINE,
        Unauthenticated | PermissionDenied => NOT_ALLOWED,
        _ => OTHER,
    }
}

impl From<StartError> for CommandError {
    fn from(error: StartError) -> Self {
        use StartError::*;
        let (exit, code) = match &error {
            Config(_) => (CONFIG, "CONFIGURATION"),
            Listen { .. } => (LISTEN, "LISTEN"),
            Store(error) if error.is_of_set_up() => (CONFIG, "DATA_DIRECTORY"),
            Store(_) => (STORE, "DATA_DIRECTORY"),
            Stopped(Fault::Panic { .. }) => (PANIC, "PANIC"),
            Stopped(Fault::NeedsRestart(_)) => (RESTART, "NEEDS_RESTART"),
            Stopped(Fault::CannotGoOn(_)) => (STORE, "STOPPED"),
            Internal(_) => (OTHER, "FAILED"),
        };
        CommandError::new(exit, code, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::StoreError;

    #[test]
    fn each_kind_of_error_has_its_exit_code() {
        assert_eq!(exit_of(Code::NotFound), 3);
        assert_eq!(exit_of(Code::InvalidArgument), 4);
        assert_eq!(exit_of(Code::Unavailable), 5);
        assert_eq!(exit_of(Code::ResourceExhausted), 5);
        assert_eq!(exit_of(Code::DeadlineExceeded), 6);
        assert_eq!(exit_of(Code::Unauthenticated), 8);
        assert_eq!(exit_of(Code::PermissionDenied), 8);
        assert_eq!(exit_of(Code::Internal), 1);
        let stopped = |reason| CommandError::from(StartError::Stopped(reason)).exit;
        assert_eq!(stopped(Fault::CannotGoOn("x".into())), 74);
        assert_eq!(stopped(Fault::NeedsRestart("x".into())), 75);
        let not_opened = |error| CommandError::from(StartError::from(error)).exit;
        assert_eq!(not_opened(StoreError::Inaccessible("x".into())), 78);
        assert_eq!(not_opened(StoreError::WrongSetUp("x".into())), 78);
        assert_eq!(not_opened(StoreError::OtherRelease("x".into())), 78);
        assert_eq!(not_opened(StoreError::Refused("x".into())), 74);
        assert_eq!(not_opened(StoreError::Failed("x".into())), 74);
    }

    /// The codes in the first cells of the rows of the table below `heading`, which may hold several each.
    fn codes_of_table(page: &str, heading: &str) -> Vec<u8> {
        let (_, below) = page.split_once(heading).expect("the heading");
        let lines = below.lines().skip_while(|line| !line.starts_with("| --- |")).skip(1);
        let rows = lines.map_while(|line| line.strip_prefix("| "));
        let cells = rows.map(|row| row.split(" |").next().unwrap_or_default());
        let codes = cells.flat_map(|cell| cell.split(", "));
        codes.map(|code| code.parse().expect("a code")).collect()
    }

    /// The settings whose sections in the page say that a node ends with this code.
    fn settings_that_end_with(code: u8) -> Vec<&'static str> {
        let page = include_str!("../../docs/settings.md");
        let sections = page.split("\n### `").skip(1);
        let named = sections.filter_map(|section| section.split_once('`'));
        let code = code.to_string();
        let words =
            |text: &str| text.split(|c: char| !c.is_alphanumeric()).any(|word| word == code);
        named.filter(|(_, text)| words(text)).map(|(setting, _)| setting).collect()
    }

    #[test]
    fn the_help_and_the_page_name_each_setting_that_ends_a_node_with_78() {
        let settings = settings_that_end_with(CONFIG);
        assert!(settings.contains(&"require_volume") && settings.contains(&"refuse_root"));
        let (_, help) = HELP.split_once("\n  78  ").expect("the code");
        let page = include_str!("../../docs/deploy.md");
        let row = page.lines().find(|line| line.starts_with("| 78 |")).expect("a row");
        for setting in settings {
            assert!(help.contains(setting), "{setting} is not in the help: {help}");
            let link = format!("settings.md#{setting})");
            assert!(row.contains(&link), "{link} is not in the row of docs/deploy.md: {row}");
        }
    }

    #[test]
    fn the_pages_list_the_exit_codes_that_the_help_lists() {
        let codes = HELP.lines().filter_map(|line| line.get(..4)?.trim().parse::<u8>().ok());
        let codes: Vec<u8> = codes.collect();
        assert!(codes.is_sorted() && codes.contains(&RESTART), "{codes:?}");
        let told = codes_of_table(include_str!("../../docs/monitor.md"), "## Exit codes");
        assert_eq!(told, codes, "docs/monitor.md");
        // The codes that a supervisor sees of a node that could not start, or ended.
        let of_nodes =
            codes.iter().copied().filter(|code| [OTHER, 2].contains(code) || *code >= PANIC);
        let told = codes_of_table(include_str!("../../docs/deploy.md"), "**Exit codes.**");
        assert_eq!(told, of_nodes.collect::<Vec<u8>>(), "docs/deploy.md");
    }
}
