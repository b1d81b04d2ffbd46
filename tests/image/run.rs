//! The image is run by its own configuration, as a runtime of containers does it: with the real program, as the user that it
//! names, from a root that is read-only. The processes of the container alone see the mounts.

use std::{
    fs::{self, File, Permissions},
    net::SocketAddr,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{Image, printed};
use crate::common::{Client, eventually, free_ports, own_ip, processes::Process};

/// Runs a program in the root `$1`, as user and group `$4`. The volume `$2` is mounted at /data, if there is one, in the mode
/// `$3`; then the root is read-only.
const RUN: &str = r#"
set -e
root=$1 volume=$2 mode=$3 user=$4
shift 4
mount --bind "$root" "$root"
mount --rbind /dev "$root/dev"
mount --rbind /proc "$root/proc"
if [ -n "$volume" ]; then
  mount --bind "$volume" "$root/data"
  mount -o "remount,bind,$mode" "$root/data"
  mount -o remount,bind,ro "$root"
fi
exec unshare --user --map-user="$user" --map-group="$user" --root="$root" --wd=/ "$@"
"#;

/// An image that is unpacked, and the volume of its containers.
struct Container {
    image: Image,
    run: Value,
    listen: SocketAddr,
    peer_listen: SocketAddr,
}

/// How a container is run.
struct How {
    volume: Option<PathBuf>,
    mode: &'static str,
    user: String,
    arguments: Vec<String>,
    variables: Vec<(&'static str, &'static str)>,
}

impl Container {
    fn new() -> Container {
        let image = Image::of(|program| {
            // Symbols for a debugger are left out: packing them takes long.
            let node = env!("CARGO_BIN_EXE_ratchet");
            printed(Command::new("strip").args(["--strip-debug", "-o"]).arg(program).arg(node));
        });
        image.unpack("root");
        fs::create_dir(image.path("volume")).unwrap();
        let run = image.config()["config"].clone();
        let [listen, peer_listen] = free_ports(own_ip());
        Container { image, run, listen, peer_listen }
    }

    fn volume(&self) -> PathBuf {
        self.image.path("volume")
    }

    fn texts(&self, field: &str) -> Vec<String> {
        let texts = self.run[field].as_array().unwrap().iter();
        texts.map(|text| text.as_str().unwrap().to_owned()).collect()
    }

    /// The configuration of the image, with a volume.
    fn usual(&self) -> How {
        let user = self.run["User"].as_str().unwrap();
        let (user, group) = user.split_once(':').unwrap();
        assert_eq!(user, group);
        How {
            volume: Some(self.volume()),
            mode: "rw",
            user: user.to_owned(),
            arguments: self.texts("Cmd"),
            variables: Vec::new(),
        }
    }

    fn start(&self, how: How) -> Process {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", RUN, "sh"]);
        command.arg(self.image.path("root"));
        command.arg(how.volume.unwrap_or_default());
        command.args([how.mode, &how.user]).args(self.texts("Entrypoint")).args(how.arguments);
        command.env_clear().envs(how.variables);
        let of_image = self.texts("Env");
        command.envs(of_image.iter().map(|variable| variable.split_once('=').unwrap()));
        command.env("RATCHET_LISTEN", self.listen.to_string());
        command.env("RATCHET_PEER_LISTEN", self.peer_listen.to_string());
        for port in ["RATCHET_METRICS_LISTEN", "RATCHET_HTTP_LISTEN", "RATCHET_RESP_LISTEN"] {
            command.env(port, "off");
        }
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(File::create(self.image.path("log")).unwrap());
        Process(command.spawn().expect("unshare, of util-linux"))
    }

    fn log(&self) -> String {
        fs::read_to_string(self.image.path("log")).unwrap()
    }

    fn is_own_directory_empty(&self) -> bool {
        fs::read_dir(self.image.path("root/data")).unwrap().next().is_none()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_hands_out_numbers_as_its_own_user_from_a_root_that_it_cannot_write() {
    let container = Container::new();
    let mut client = Client::new(container.listen);
    let mut last = 0;
    for is_founded in [false, true] {
        let node = container.start(container.usual());
        if !is_founded {
            eventually("the cluster is founded", async || client.found().await.ok()).await;
        }
        let number = client.next_at_last(42).await;
        assert!(number > last, "{number} after {last}");
        last = number;
        assert_eq!(container.run["StopSignal"], "SIGTERM");
        kill_process(Pid::from_child(&node.0), Signal::TERM).unwrap();
        let status = node.ended().await;
        assert!(status.success(), "{status}: {}", container.log());
    }
    assert!(container.volume().join("NODE").exists() && container.is_own_directory_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn it_ends_with_78_and_says_what_to_do_where_it_could_not_keep_its_data_or_be_reached() {
    let container = Container::new();
    let ends = async |change: &dyn Fn(&mut How)| {
        let mut how = container.usual();
        change(&mut how);
        container.start(how).ends_with_78(&container.image.path("log")).await
    };
    // The second one is mounted where it is anyway.
    for volume in [None, Some(container.image.path("root/data"))] {
        let said = ends(&|how| how.volume.clone_from(&volume)).await;
        assert!(said.contains("no volume is mounted at data directory /data"), "{said}");
    }
    assert!(container.is_own_directory_empty(), "it wrote where nothing is kept");
    let said = ends(&|how| how.mode = "ro").await;
    assert!(said.contains("is mounted read-only; mount a volume there for writing"), "{said}");
    assert!(said.contains("add the directory to ReadWritePaths= of the unit"), "{said}");
    let said = ends(&|how| how.user = "0".to_owned()).await;
    assert!(said.contains("runs as root") && said.contains("run it as another user"), "{said}");
    let certificate = [
        ("RATCHET_TLS", "require"),
        ("RATCHET_TLS_CERT", "/nowhere.crt"),
        ("RATCHET_TLS_KEY", "/nowhere.key"),
    ];
    let said = ends(&|how| how.variables = certificate.to_vec()).await;
    let to_do = "put the file there for the node's user";
    assert!(said.contains("tls_cert /nowhere.crt: ") && said.contains(to_do), "{said}");
    // The directory is like one of another user.
    fs::set_permissions(container.volume(), Permissions::from_mode(0o555)).unwrap();
    let said = ends(&|_| ()).await;
    assert!(said.contains("may not write in the data directory /data; make it"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn for_trying_it_needs_no_volume() {
    let container = Container::new();
    let mut how = container.usual();
    how.volume = None;
    how.arguments.push("--dev".to_owned());
    let _node = container.start(how);
    Client::new(container.listen).next_at_last(42).await;
}
