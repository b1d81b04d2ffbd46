//! A node on a disk without any room starts again, and goes on. The disk is a file system that a user mounts.

use std::{
    fs::File,
    io::{BufRead, BufReader, Write},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::common::{
    Client, free_ports, own_ip,
    processes::{Process, ratchet},
    until,
};
use tempfile::TempDir;
use tonic::Code;

/// A file system in memory, of so many megabytes. It is gone once this is dropped.
struct SmallDisk {
    /// The file system is mounted where this process and its child processes alone see it.
    _holder: Process,
    root: PathBuf,
    _dir: TempDir,
}

impl SmallDisk {
    fn of_mb(megabytes: u64) -> SmallDisk {
        let dir = TempDir::new().unwrap();
        let at = dir.path().display();
        let mount =
            format!("mount -t tmpfs -o size={megabytes}m tmpfs {at} && echo mounted && exec cat");
        let mut holder = Command::new("unshare");
        holder.args(["--map-root-user", "--mount", "sh", "-c", &mount]);
        holder.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = holder.spawn().expect("unshare, of util-linux");
        let mut told = BufReader::new(holder.stdout.take().expect("a pipe"));
        let mut line = String::new();
        told.read_line(&mut line).unwrap();
        assert_eq!(line, "mounted\n", "a user may mount a file system in a name space of its own");
        let root = Path::new("/proc").join(holder.id().to_string()).join("root");
        let root = root.join(dir.path().strip_prefix("/").unwrap());
        SmallDisk { _holder: Process(holder), root, _dir: dir }
    }

    /// Fills it to the last byte.
    fn fill(&self) -> PathBuf {
        let path = self.root.join("filler");
        let mut file = File::create(&path).unwrap();
        for block in [1 << 20, 1 << 12] {
            let zeros = vec![0; block];
            while file.write(&zeros).is_ok_and(|written| written > 0) {}
        }
        path
    }
}

/// A node of a cluster of one on a small disk.
struct OnSmallDisk {
    listen: SocketAddr,
    command: Command,
}

impl OnSmallDisk {
    fn new(disk: &SmallDisk) -> OnSmallDisk {
        let [listen, peer_listen] = free_ports(own_ip());
        let mut command = ratchet();
        command.args(["start", "--dev", "--listen", &listen.to_string()]);
        command.args(["--peer-listen", &peer_listen.to_string(), "--metrics-listen", "off"]);
        command.args(["--http-listen", "off", "--resp-listen", "off", "--data-dir"]);
        command.arg(disk.root.join("data")).stderr(File::create(disk.root.join("log")).unwrap());
        OnSmallDisk { listen, command }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_on_a_disk_without_any_room_starts_again_and_keys_in_use_go_on() {
    let disk = SmallDisk::of_mb(200);
    let mut node = OnSmallDisk::new(&disk);
    let mut running = Process(node.command.spawn().unwrap());
    let mut client = Client::new(node.listen);
    client.next_at_last(1).await;
    let spare = disk.root.join("data/SPARE");
    until("the spare is there", || spare.exists()).await;
    // These entries are replayed at the next start, which takes as much space again.
    for first in (0..150_000).step_by(10_000) {
        client.next_of_each((first..first + 10_000).collect()).await.unwrap();
    }
    let filler = disk.fill();
    drop(running);
    running = Process(node.command.spawn().unwrap());
    client.next_at_last(1).await;
    assert!(!spare.exists());
    assert_eq!(client.next(999_999).await.unwrap_err().code(), Code::ResourceExhausted);
    client.next(1).await.unwrap();

    std::fs::remove_file(filler).unwrap();
    client.next_at_last(999_999).await;
    until("the spare is there again", || spare.exists()).await;
    drop(running);
}
