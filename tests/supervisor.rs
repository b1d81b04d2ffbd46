//! The messages of a node to its supervisor, and the exit codes and units by which a supervisor does the right thing.

use std::{
    collections::BTreeMap,
    fs,
    net::{SocketAddr, TcpListener},
    os::{
        linux::net::SocketAddrExt,
        unix::fs::{MetadataExt, PermissionsExt, chown},
    },
    path::Path,
    process::{self, Command, Stdio},
    time::Duration,
};

use ratchet::node::{Config, Node};
use rustix::{
    fs::{FlockOperation, flock},
    process::{Pid, Signal, geteuid, kill_process},
};
use tempfile::TempDir;
use tokio::net::{TcpStream, UnixDatagram};

use crate::common::{
    Client, eventually, free_ports, in_time, own_ip,
    processes::{Process, ratchet},
    until,
};

/// A node of a cluster of one, and the socket of its supervisor.
struct Supervised {
    dir: TempDir,
    ports: [SocketAddr; 5],
    socket: UnixDatagram,
}

impl Supervised {
    fn new() -> Supervised {
        let dir = TempDir::new().unwrap();
        let socket = UnixDatagram::bind(dir.path().join("notify")).unwrap();
        Supervised { dir, ports: free_ports(own_ip()), socket }
    }

    /// The command that starts the node.
    fn command(&self, mut command: Command) -> Command {
        let flags = ["listen", "peer-listen", "metrics-listen", "http-listen", "resp-listen"];
        command.args(["start", "--dev", "--data-dir"]).arg(self.dir.path().join("data"));
        for (flag, port) in flags.iter().zip(self.ports) {
            command.arg(format!("--{flag}={port}"));
        }
        command.env("NOTIFY_SOCKET", self.dir.path().join("notify"));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(fs::File::create(self.dir.path().join("log")).unwrap());
        command
    }

    /// The next message to the supervisor.
    async fn told(&self) -> String {
        let mut message = vec![0; 4_096];
        let received = in_time("a message to the supervisor", self.socket.recv(&mut message)).await;
        message.truncate(received.unwrap());
        String::from_utf8(message).unwrap()
    }

    /// Starts the node with its default settings and stops it once it is ready. Returns its message when it stops.
    async fn stopped(&self) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ratchet"));
        command.env_clear();
        let node = Process(self.command(command).spawn().unwrap());
        assert_eq!(self.told().await, "READY=1\n");
        kill_process(Pid::from_child(&node.0), Signal::TERM).unwrap();
        let told = self.told().await;
        let status = node.ended().await;
        assert!(status.success(), "{status}");
        told
    }

    /// Runs a command that starts the node, which ends at once with 78. Returns the line of its log that says why.
    async fn ends_with_78(&self, mut command: Command) -> String {
        Process(command.spawn().unwrap()).ends_with_78(&self.dir.path().join("log")).await
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_says_that_it_is_ready_once_all_its_ports_listen() {
    let supervised = Supervised::new();
    let _node = Process(supervised.command(ratchet()).spawn().unwrap());
    assert_eq!(supervised.told().await, "READY=1\n");
    for port in supervised.ports {
        TcpStream::connect(port).await.expect("it listens");
    }
}

/// The node also says here all that it says before it listens.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_cannot_listen_or_open_its_data_never_says_that_it_is_ready() {
    let supervised = Supervised::new();
    let ended = async || Process(supervised.command(ratchet()).spawn().unwrap()).ended().await;
    let silent = || supervised.socket.try_recv(&mut [0; 64]).map_err(|error| error.kind());
    let taken = TcpListener::bind(supervised.ports[4]).unwrap();
    assert_eq!(ended().await.code(), Some(71), "{}", supervised.log());
    assert_eq!(silent(), Err(std::io::ErrorKind::WouldBlock));
    drop(taken);
    fs::create_dir(supervised.dir.path().join("data")).unwrap();
    fs::write(supervised.dir.path().join("data/stranger"), "").unwrap();
    assert_eq!(ended().await.code(), Some(78), "{}", supervised.log());
    assert_eq!(silent(), Err(std::io::ErrorKind::WouldBlock));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_stops_says_so_and_the_unit_gives_it_as_long_as_it_takes_with_the_defaults() {
    let told = Supervised::new().stopped().await;
    let usec = told.strip_prefix("STOPPING=1\nEXTEND_TIMEOUT_USEC=");
    let usec = usec.unwrap_or_else(|| panic!("{told}")).trim_end().parse().unwrap();
    let limit = unit("ratchet.service")["TimeoutStopSec"].parse().unwrap();
    let (takes, limit) = (Duration::from_micros(usec), Duration::from_secs(limit));
    // If the disk hangs, the process is ended 8 s later, tells why for 2 s at most, and is aborted after 2 more.
    let until_gone = Node::stop_max(&Config::default()) + Duration::from_secs(8 + 2 + 2);
    assert!(takes > until_gone, "{takes:?}, and it may take {until_gone:?}");
    assert!(limit > takes, "{takes:?} of {limit:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_supervisor_may_listen_at_a_name_without_a_file() {
    let supervised = Supervised::new();
    let name = format!("ratchet-test-{}", process::id());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
    let socket = std::os::unix::net::UnixDatagram::bind_addr(&address).unwrap();
    socket.set_nonblocking(true).unwrap();
    let socket = UnixDatagram::from_std(socket).unwrap();
    let mut command = supervised.command(ratchet());
    command.env("NOTIFY_SOCKET", format!("@{name}"));
    let _node = Process(command.spawn().unwrap());
    let mut message = [0; 64];
    let received = in_time("a message to the supervisor", socket.recv(&mut message)).await;
    assert_eq!(&message[..received.unwrap()], b"READY=1\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_supervisor_is_gone_serves_and_says_so_in_its_log() {
    let supervised = Supervised::new();
    fs::remove_file(supervised.dir.path().join("notify")).unwrap();
    let _node = Process(supervised.command(ratchet()).spawn().unwrap());
    Client::new(supervised.ports[0]).next_at_last(1).await;
    // A node writes its log beside its work.
    let why = "the supervisor could not be told \"READY=1";
    until("it says so", || supervised.log().contains(why)).await;
}

/// Starts a node without data that ends at once with 78, and returns the line of its log that says why.
async fn ends_with_78(change: impl FnOnce(&Supervised, &mut Command)) -> String {
    let supervised = Supervised::new();
    let mut command = supervised.command(ratchet());
    change(&supervised, &mut command);
    supervised.ends_with_78(command).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_no_restart_helps_ends_with_78_and_one_line_that_says_what_to_do() {
    let volume = |supervised: &Supervised| supervised.dir.path().join("data");
    let said = ends_with_78(|supervised, _| {
        fs::create_dir(volume(supervised)).unwrap();
        // Root may write anywhere, and must not here.
        match fs::metadata(volume(supervised)).unwrap().uid() {
            0 => chown(volume(supervised), Some(1_234), Some(1_234)).unwrap(),
            _ => {
                fs::set_permissions(volume(supervised), fs::Permissions::from_mode(0o500)).unwrap()
            }
        }
    })
    .await;
    assert!(said.contains("data directory /") && said.contains(" user "), "{said}");
    let said = ends_with_78(|supervised, _| fs::write(volume(supervised), "").unwrap()).await;
    assert!(said.contains("is no directory; choose a directory"), "{said}");
    let said = ends_with_78(|supervised, _| {
        fs::create_dir(volume(supervised)).unwrap();
        fs::write(volume(supervised).join("thesis.txt"), "").unwrap();
    })
    .await;
    assert!(said.contains("thesis.txt") && said.contains("choose an empty directory"), "{said}");
    let said = ends_with_78(|_, command| {
        command.args(["--tls=require", "--tls-cert=/nowhere.crt", "--tls-key=/nowhere.key"]);
    })
    .await;
    let to_do = "put the file there for the node's user";
    assert!(said.contains("tls_cert /nowhere.crt: ") && said.contains(to_do), "{said}");
}

/// The `ratchet` command, of a process whose rights are the modes of files, and no more. Root may do more.
fn ratchet_bound_by_modes() -> Command {
    let plain = ratchet();
    let mut bound = Command::new(plain.get_program());
    if geteuid().is_root() {
        let less = "-dac_override,-dac_read_search";
        bound = Command::new("setpriv");
        bound.args([format!("--bounding-set={less}"), format!("--inh-caps={less}")]);
        bound.arg(plain.get_program());
    }
    bound.env_clear().envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    bound
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_to_which_a_file_of_its_data_is_not_open_ends_with_78_and_names_the_file() {
    let supervised = Supervised::new();
    supervised.stopped().await;
    let data = supervised.dir.path().join("data");
    for name in ["LOCK", "NODE", "db", "db/CURRENT"] {
        let path = data.join(name);
        let open = fs::metadata(&path).unwrap().permissions();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
        let said = supervised.ends_with_78(supervised.command(ratchet_bound_by_modes())).await;
        let mut recover = ratchet_bound_by_modes();
        let recover = recover.args(["recover", "--dry-run", "--data-dir"]).arg(&data).output();
        fs::set_permissions(&path, open).unwrap();
        let recover = recover.unwrap();
        assert_eq!(recover.status.code(), Some(78), "{name}: {recover:?}");
        let (named, to_do) = (format!("may not use {}", path.display()), "chown -R");
        assert!(said.contains(&named) && said.contains(to_do), "{name}: {said}");
    }
    // It was these files: now it starts.
    assert!(supervised.stopped().await.starts_with("STOPPING=1"));
}

/// The library of a disk that hangs: a process that syncs a file waits while another holds the lock of the file that
/// TEST_DISK names.
const HANGING_DISK: &str = r#"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

static void until_it_answers(void) {
  int disk = open(getenv("TEST_DISK"), O_RDONLY | O_CLOEXEC);
  flock(disk, LOCK_SH);
  close(disk);
}

int fsync(int file) {
  until_it_answers();
  return (int)syscall(SYS_fsync, file);
}

int fdatasync(int file) {
  until_it_answers();
  return (int)syscall(SYS_fdatasync, file);
}
"#;

/// The planted bug gives the term up as soon as the disk hangs. The same happens whenever an only voter's term is given up.
#[tokio::test(flavor = "multi_thread")]
async fn an_only_voter_that_gave_its_term_up_ends_with_75_and_goes_on_when_started() {
    let supervised = Supervised::new();
    let path = |name: &str| supervised.dir.path().join(name);
    fs::write(path("disk.c"), HANGING_DISK).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).args([path("disk.so"), path("disk.c")]);
    let compiled = compiler.output().unwrap();
    assert!(compiled.status.success(), "{compiled:?}");
    let disk = fs::File::create(path("disk")).unwrap();

    let mut command = supervised.command(ratchet());
    command.env("LD_PRELOAD", path("disk.so")).env("TEST_DISK", path("disk"));
    command.env("RATCHET_PLANTED_BUG", "slow-disk-ends-term");
    let node = Process(command.spawn().unwrap());
    let mut client = Client::new(supervised.ports[0]);
    let last = client.next_at_last(1).await;
    flock(&disk, FlockOperation::LockExclusive).unwrap();
    // A new key needs a log entry, which does not get to the disk.
    let asking = tokio::spawn(async move { client.next(2).await });
    eventually("the term is given up", async || {
        supervised.log().contains("giving the leadership up").then_some(())
    })
    .await;
    flock(&disk, FlockOperation::Unlock).unwrap();
    let status = node.ended().await;
    let log = supervised.log();
    assert_eq!(status.code(), Some(75), "{log}");
    let said = log.lines().last().unwrap();
    assert!(said.starts_with("error: ") && said.contains("another term begins when"), "{log}");
    let _whatever_came_of_it = asking.await.expect("no panic");

    // All it needs is another start.
    let _node = Process(supervised.command(ratchet()).spawn().unwrap());
    assert!(Client::new(supervised.ports[0]).next_at_last(1).await > last);
}

fn dist(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("dist").join(name);
    fs::read_to_string(path).unwrap()
}

/// The values of a unit, by key. A key that stands there twice has its last value.
fn unit(name: &str) -> BTreeMap<String, String> {
    let text = dist(name);
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let said = lines.filter_map(|line| line.split_once('='));
    said.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

#[test]
fn no_unit_starts_a_node_again_that_no_restart_helps() {
    let said = &unit("ratchet.service")["RestartPreventExitStatus"];
    let codes: Vec<&str> = said.split(' ').collect();
    // The names are systemd's, for settings that it cannot set up for a node before it runs.
    let names = ["EXEC", "USER", "GROUP", "NAMESPACE", "STATE_DIRECTORY"];
    assert_eq!(codes, [&["2", "78", "127"][..], &names].concat());
}

/// systemd ends a unit with EXEC if the kernel refuses its program.
#[test]
fn a_program_without_a_library_ends_with_127_and_one_of_another_processor_does_not_begin() {
    let dir = TempDir::new().unwrap();
    let run = |program: &str, arguments: &[&str]| {
        let ran = Command::new(program).args(arguments).current_dir(dir.path()).output().unwrap();
        assert!(ran.status.success(), "{program}: {ran:?}");
    };
    fs::write(dir.path().join("part.c"), "int part(void) { return 0; }\n").unwrap();
    let source = "int part(void);\nint main(void) { return part(); }\n";
    fs::write(dir.path().join("program.c"), source).unwrap();
    run("cc", &["-shared", "-fPIC", "-o", "libpart.so", "part.c"]);
    run("cc", &["-o", "program", "program.c", "-L.", "-lpart"]);
    fs::remove_file(dir.path().join("libpart.so")).unwrap();
    let program = dir.path().join("program");
    let ran = Command::new(&program).output().unwrap();
    assert_eq!(ran.status.code(), Some(127), "{ran:?}");
    assert!(String::from_utf8_lossy(&ran.stderr).contains("libpart.so"), "{ran:?}");

    // The machine that its header names becomes the AVR, for which there is no Linux, and so no emulator of one.
    let patch = "printf '\\123' | dd of=program bs=1 seek=18 conv=notrunc status=none";
    run("sh", &["-c", patch]);
    let refused = Command::new(&program).output().expect_err("the kernel refuses it");
    assert!(refused.to_string().contains("Exec format error"), "{refused}");
}

#[test]
fn the_units_have_a_node_refuse_to_run_as_root() {
    for name in ["ratchet.service", "ratchet@.service"] {
        assert!(dist(name).contains("\nEnvironment=RATCHET_REFUSE_ROOT=true\n"), "{name}");
    }
}

/// Runs the script that a unit has its supervisor run after a node that ended with this status. Returns how long it sleeps.
fn slept_after(status: &str) -> String {
    let line = &unit("ratchet.service")["ExecStopPost"];
    let script = line.strip_prefix("/bin/sh -c '").and_then(|rest| rest.strip_suffix('\''));
    // To systemd, two of these are one.
    let script = script.expect("a script").replace("$$", "$");
    let dir = TempDir::new().unwrap();
    let (sleep, slept) = (dir.path().join("sleep"), dir.path().join("slept"));
    fs::write(&sleep, format!("#!/bin/sh\necho \"$1\" >{}\n", slept.display())).unwrap();
    fs::set_permissions(&sleep, fs::Permissions::from_mode(0o700)).unwrap();
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", &script]).env_clear().env("PATH", dir.path()).env("EXIT_STATUS", status);
    let ran = shell.output().unwrap();
    assert!(ran.status.success(), "{status}: {ran:?}");
    fs::read_to_string(slept).unwrap_or_default().trim_end().to_owned()
}

#[test]
fn a_node_whose_disk_failed_is_started_again_half_a_minute_later_and_any_other_one_at_once() {
    assert_eq!(slept_after("74"), "30");
    // 9 and TERM are signals. After a start that was refused there is no status.
    for status in ["0", "1", "70", "71", "75", "78", "9", "TERM", ""] {
        assert_eq!(slept_after(status), "", "{status:?}");
    }
    // The supervisor ends a script that takes longer.
    let limit: u64 = unit("ratchet.service")["TimeoutStopSec"].parse().unwrap();
    assert!(limit > 60, "{limit}");
}

#[test]
fn the_unit_for_one_of_several_nodes_differs_in_what_names_the_node() {
    let one = dist("ratchet.service")
        .replace("a replicated sequencer", "a replicated sequencer: node %i");
    let one = one.replace("ratchet/ratchet.toml", "ratchet/node-%i.toml");
    let one =
        one.replace("%S/ratchet/", "%S/ratchet-%i/").replace("/lib/ratchet:", "/lib/ratchet-N:");
    let one = one.replace("StateDirectory=ratchet\n", "StateDirectory=ratchet-%i\n");
    let of_several = dist("ratchet@.service");
    let named = "Environment=RATCHET_NODE_ID=%i RATCHET_DATA_DIR=%S/ratchet-%i\n";
    let why = " It needs Environment=RATCHET_DATA_DIR= as well, since the\n# variable that is set above wins over the file.";
    assert!(of_several.contains(named) && of_several.contains(why), "{of_several}");
    let below = |text: &str| text.split_once("[Unit]").expect("a unit").1.to_owned();
    assert_eq!(below(&of_several.replace(named, "").replace(why, "")), below(&one));
}

/// Runs systemd-analyze over copies of the units that name the tests' program.
fn analyzed(arguments: &[&str], name: &str, instance: &str) -> process::Output {
    let dir = TempDir::new().unwrap();
    let text = dist(name).replace("/usr/bin/ratchet", env!("CARGO_BIN_EXE_ratchet"));
    fs::write(dir.path().join(name), text).unwrap();
    let mut command = Command::new("systemd-analyze");
    command.args(arguments).arg(dir.path().join(instance));
    command.output().expect("systemd-analyze runs; cluster/prerequisites --tests installs it")
}

/// Checks the units with systemd's own tool.
mod systemd {
    use super::analyzed;

    const UNITS: [(&str, &str); 2] =
        [("ratchet.service", "ratchet.service"), ("ratchet@.service", "ratchet@2.service")];

    #[test]
    fn it_understands_each_line_of_the_units() {
        for (name, instance) in UNITS {
            let ran = analyzed(&["verify", "--man=no"], name, instance);
            let told = String::from_utf8_lossy(&ran.stderr);
            assert!(ran.status.success() && !told.contains("ratchet"), "{instance}: {told}");
        }
    }

    #[test]
    fn it_finds_that_the_units_keep_from_a_node_what_it_does_not_need() {
        for (name, _) in UNITS {
            let ran = analyzed(&["security", "--offline=true", "--threshold=20"], name, name);
            let told = String::from_utf8_lossy(&ran.stdout);
            assert!(ran.status.success(), "{name}: {told}");
        }
    }
}
