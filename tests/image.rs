//! The image that dist/image makes: each part has the content that its name says, all of it is root's but the data, and
//! nothing is missing that the program needs. A tiny program stands for the node, unless the image is run.

mod run;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use ratchet::node::Config;
use ring::digest::{SHA256, digest};
use serde_json::Value;
use tempfile::TempDir;

const VERSION: &str = "1.2.3";
const COMMIT: &str = "0123456789ab";

/// The output of `command`, which must succeed.
fn printed(command: &mut Command) -> Vec<u8> {
    let ran = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let Output { status, stdout, stderr } = ran;
    assert!(status.success(), "{command:?}: {status}: {}", String::from_utf8_lossy(&stderr));
    stdout
}

fn sha256(bytes: &[u8]) -> String {
    let hex: Vec<String> =
        digest(&SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    hex.concat()
}

/// An image, and the directory in which its archive is unpacked.
struct Image {
    dir: TempDir,
}

impl Image {
    /// An image of a program that does nothing.
    fn new() -> Image {
        Image::of_source("int main(void) { return 42; }\n")
    }

    fn of_source(source: &str) -> Image {
        Image::of(|program| {
            let written = program.with_extension("c");
            fs::write(&written, source).unwrap();
            printed(Command::new("cc").arg("-o").args([program, written.as_path()]));
        })
    }

    /// An image of the program that `make` puts at the path that it is given.
    fn of(make: impl FnOnce(&Path)) -> Image {
        let dir = TempDir::new().unwrap();
        let path = |name: &str| dir.path().join(name);
        make(&path("program"));
        for document in ["THIRD-PARTY-LICENSES.html", "ratchet.cdx.json"] {
            fs::write(path(document), document).unwrap();
        }
        let image = Image { dir };
        image.make();
        fs::create_dir(image.path("layout")).unwrap();
        let mut unpacking = Command::new("tar");
        printed(unpacking.arg("-C").arg(image.path("layout")).arg("-xf").arg(image.archive()));
        image
    }

    /// Makes the archive of the program.
    fn make(&self) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("dist/image");
        let mut command = Command::new(script);
        command.arg(self.path("program")).args([VERSION, COMMIT]).arg(self.dir.path());
        printed(command.env("SOURCE_DATE_EPOCH", "1700000000"));
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn archive(&self) -> PathBuf {
        self.path(&format!("ratchet-{VERSION}-x86_64.oci.tar"))
    }

    fn json(&self, name: &str) -> Value {
        serde_json::from_slice(&fs::read(self.path("layout").join(name)).unwrap()).unwrap()
    }

    /// Where the blob is that a descriptor names. It has the size and the sum that stand there.
    fn blob(&self, descriptor: &Value) -> String {
        let sum = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
        let name = format!("blobs/sha256/{sum}");
        let bytes = fs::read(self.path("layout").join(&name)).unwrap();
        assert_eq!(sha256(&bytes), sum);
        assert_eq!(bytes.len() as u64, descriptor["size"], "{descriptor}");
        name
    }

    /// The descriptor of its one manifest in its index.
    fn descriptor(&self) -> Value {
        let index = self.json("index.json");
        let manifests = index["manifests"].as_array().unwrap();
        assert_eq!(manifests.len(), 1, "{index}");
        manifests[0].clone()
    }

    fn manifest(&self) -> Value {
        self.json(&self.blob(&self.descriptor()))
    }

    fn config(&self) -> Value {
        self.json(&self.blob(&self.manifest()["config"]))
    }

    /// Unpacks its one layer in a new directory.
    fn unpack(&self, name: &str) -> PathBuf {
        let root = self.path(name);
        fs::create_dir(&root).unwrap();
        let mut unpacking = Command::new("tar");
        unpacking.arg("--no-same-owner").arg("-C").arg(&root).arg("-xzf").arg(self.layer());
        printed(&mut unpacking);
        root
    }

    /// Where its one layer is.
    fn layer(&self) -> PathBuf {
        let manifest = self.manifest();
        let layers = manifest["layers"].as_array().unwrap();
        assert_eq!(layers.len(), 1, "{manifest}");
        self.path("layout").join(self.blob(&layers[0]))
    }
}

#[test]
fn every_part_of_the_image_has_the_sum_by_which_it_is_named_and_none_is_left_over() {
    let image = Image::new();
    let files = fs::read_dir(image.path("layout/blobs/sha256")).unwrap();
    assert_eq!(files.count(), 3, "a manifest, a configuration, a layer");
    let layer = printed(Command::new("gzip").arg("-dc").arg(image.layer()));
    let unpacked = format!("sha256:{}", sha256(&layer));
    assert_eq!(image.config()["rootfs"]["diff_ids"], serde_json::json!([unpacked]));
    assert_eq!(image.json("oci-layout")["imageLayoutVersion"], "1.0.0");
}

#[test]
fn the_same_program_makes_the_same_image() {
    let image = Image::new();
    let first = fs::read(image.archive()).unwrap();
    fs::remove_file(image.archive()).unwrap();
    image.make();
    assert!(first == fs::read(image.archive()).unwrap(), "two runs make different bytes");
}

#[test]
fn the_image_says_how_it_is_run_and_where_it_comes_from() {
    let config = Image::new().config();
    let run = &config["config"];
    let label = |name: &str| &run["Labels"][format!("org.opencontainers.image.{name}")];
    assert_eq!(run["Entrypoint"], serde_json::json!(["/usr/bin/ratchet"]));
    assert_eq!(run["Cmd"], serde_json::json!(["start"]));
    assert_eq!(run["StopSignal"], "SIGTERM");
    let variables = run["Env"].as_array().unwrap();
    assert!(variables.contains(&"RATCHET_DATA_DIR=/data".into()), "{run}");
    // A runtime makes an empty volume for each path that is named there, and removes it with the container: a node whose
    // volume somebody forgot would run.
    assert_eq!(run["Volumes"], Value::Null);
    for (name, value) in [
        ("version", VERSION),
        ("revision", COMMIT),
        ("licenses", env!("CARGO_PKG_LICENSE")),
        ("description", env!("CARGO_PKG_DESCRIPTION")),
        ("source", env!("CARGO_PKG_REPOSITORY")),
    ] {
        assert_eq!(label(name), value, "{name}");
    }
}

#[test]
fn the_image_is_for_the_system_and_the_processor_that_its_program_is_for() {
    let image = Image::new();
    let program = fs::read(image.path("program")).unwrap();
    // A program of 64 bits, the lower byte first. x86-64 has the number 62.
    assert_eq!((&program[..6], &program[18..20]), (&b"\x7fELF\x02\x01"[..], &[62, 0][..]));
    let (config, descriptor) = (image.config(), image.descriptor());
    for told in [&config, &descriptor["platform"]] {
        assert_eq!((&told["os"], &told["architecture"]), (&"linux".into(), &"amd64".into()));
    }
}

#[test]
fn the_image_names_the_ports_on_which_a_node_listens_by_default() {
    let config = Image::new().config();
    let Config { listen, peer_listen, metrics_listen, http_listen, resp_listen, .. } =
        Config::default();
    let others = [metrics_listen, http_listen, resp_listen].into_iter().flatten();
    let mut listens: Vec<String> = [listen, peer_listen]
        .into_iter()
        .chain(others)
        .map(|at| format!("{}/tcp", at.port()))
        .collect();
    listens.sort();
    let named = config["config"]["ExposedPorts"].as_object().unwrap();
    assert_eq!(named.keys().cloned().collect::<Vec<_>>(), listens);
}

#[test]
fn only_the_data_belongs_to_the_user_that_the_image_names() {
    let image = Image::new();
    let config = image.config();
    let user = config["config"]["User"].as_str().unwrap();
    let (id, group) = user.split_once(':').unwrap();
    assert!(id.parse::<u32>().unwrap() > 0 && group.parse::<u32>().unwrap() > 0, "{user}");
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/deploy.md");
    assert!(fs::read_to_string(page).unwrap().contains(id), "docs/deploy.md names no user {id}");
    let listed = printed(Command::new("tar").args(["--numeric-owner", "-tvzf"]).arg(image.layer()));
    let listed = String::from_utf8(listed).unwrap();
    let owned = listed.lines().filter(|line| !line.contains(" 0/0 "));
    let owned: Vec<Vec<&str>> = owned.map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(owned.len(), 1, "{listed}");
    assert_eq!(owned[0][..2], ["drwx------", &format!("{id}/{group}")]);
    assert_eq!(owned[0].last(), Some(&"./data/"));
    let known = printed(Command::new("tar").arg("-xzOf").arg(image.layer()).arg("./etc/passwd"));
    let known = String::from_utf8(known).unwrap();
    assert!(known.contains(&format!("\nratchet:x:{id}:{group}:")), "{known}");
}

#[test]
fn the_program_runs_with_what_is_in_the_image_alone_and_licences_are_beside_it() {
    let image = Image::new();
    let root = image.unpack("root");
    // The loader looks nowhere else: no cache of the system's libraries, and no places of its own.
    let mut program = Command::new(root.join("usr/lib64/ld-linux-x86-64.so.2"));
    program.args(["--inhibit-cache", "--library-path"]).arg(root.join("usr/lib/x86_64-linux-gnu"));
    let libraries = printed(program.arg("--list").arg(root.join("usr/bin/ratchet")));
    let libraries = String::from_utf8(libraries).unwrap();
    // The last path of a line is the one that is used.
    let used =
        |line: &str| line.split_whitespace().rfind(|word| word.starts_with('/')).map(str::to_owned);
    let paths: Vec<String> = libraries.lines().filter_map(used).collect();
    assert!(paths.len() > 1, "{libraries}");
    for path in paths {
        assert!(Path::new(&path).starts_with(&root), "{path} is not in the image: {libraries}");
    }
    for file in [
        "usr/share/doc/ratchet/LICENSE",
        "usr/share/doc/ratchet/THIRD-PARTY-LICENSES.html",
        "usr/share/doc/ratchet/ratchet.cdx.json",
        "usr/share/doc/libc6/copyright",
        "usr/share/common-licenses/LGPL-2.1",
        "var/lib/dpkg/status.d/libc6",
    ] {
        assert!(root.join(file).is_file(), "{file} is missing");
    }
}

/// A path of this machine.
const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/main.rs");

/// Searches an artefact for such paths, as dist/build does it last: none may be in an installed file. Returns whether there is
/// none, and the output.
fn searched(artefact: &Path) -> (bool, String) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("dist/search");
    let ran = Command::new(script).arg(artefact).output().unwrap();
    (ran.status.success(), String::from_utf8(ran.stderr).unwrap())
}

#[test]
fn a_path_of_this_machine_in_the_program_is_found_in_the_image() {
    let source = format!("const char *path = \"{PATH}\"; int main(void) {{ return path[0]; }}\n");
    let (is_well, told) = searched(&Image::new().archive());
    assert!(is_well, "{told}");
    let (is_well, told) = searched(&Image::of_source(&source).archive());
    assert!(!is_well && told.contains(PATH) && told.contains("/usr/bin/ratchet"), "{told}");
}

#[test]
fn a_path_of_this_machine_on_a_compressed_page_is_found_in_the_package_and_in_the_archive() {
    const CONTROL: &str = "Package: page\nVersion: 1\nArchitecture: all\n\
                           Maintainer: Nobody <nobody@example.com>\nDescription: a page\n";
    for (page, is_clean) in [("a page", true), (PATH, false)] {
        let dir = TempDir::new().unwrap();
        let path = |name: &str| dir.path().join(name);
        for folder in ["packed/man", "packed/DEBIAN"] {
            fs::create_dir_all(path(folder)).unwrap();
        }
        fs::write(path("packed/DEBIAN/control"), CONTROL).unwrap();
        fs::write(path("packed/man/page.1"), page).unwrap();
        printed(Command::new("gzip").arg(path("packed/man/page.1")));
        let mut packing = Command::new("dpkg-deb");
        packing.args(["--root-owner-group", "--build"]);
        printed(packing.args([path("packed"), path("page.deb")]));
        let mut packing = Command::new("tar");
        packing.args(["--owner=0", "--group=0", "-czf"]).arg(path("page.tar.gz"));
        printed(packing.arg("-C").arg(path("packed")).arg("man"));
        for artefact in ["page.deb", "page.tar.gz"] {
            let (is_well, told) = searched(&path(artefact));
            assert_eq!(is_well, is_clean, "{artefact}: {told}");
            assert_eq!(told.contains("man/page.1.gz"), !is_clean, "{artefact}: {told}");
        }
    }
}
