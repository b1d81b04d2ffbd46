//! The content of the package, as Debian's tools show it, and the effects of its scripts.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Stdio},
};

use tempfile::TempDir;

use crate::{
    files::{assert_none, root},
    pages,
};

/// The first value of `field` in Cargo.toml.
fn manifest(field: &str) -> String {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let begins = format!("{field} = \"");
    let said = manifest.lines().find_map(|line| line.strip_prefix(&begins));
    said.unwrap_or_else(|| panic!("no {field}")).trim_end_matches('"').to_owned()
}

/// The part of Cargo.toml that tells of the Debian package.
fn package() -> toml::Value {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let manifest: toml::Value = toml::from_str(&manifest).expect("Cargo.toml");
    manifest["package"]["metadata"]["deb"].clone()
}

#[test]
fn what_the_package_is_fits_into_the_one_line_that_debians_tools_show() {
    let said = manifest("description");
    // cargo-deb breaks a longer one, and its rest is lost in the paragraph below.
    assert!(said.len() < 80, "{said:?}");
}

#[test]
fn the_package_has_the_licence_and_the_source_that_the_manifest_tells() {
    let copyright = fs::read_to_string(root().join("dist/copyright")).unwrap();
    for line in [
        format!("License: {}\n", manifest("license")),
        format!("Source: {}\n", manifest("repository")),
    ] {
        assert!(copyright.contains(&line), "{line}");
    }
}

/// Three machines that upgrade by themselves would be an outage, and a node's settings come before its first start.
#[test]
fn the_manifest_has_the_package_start_stop_and_restart_no_node_and_needrestart_is_told_of_it() {
    let package = package();
    let units = &package["systemd-units"];
    for what in ["enable", "start", "restart-after-upgrade", "stop-on-upgrade"] {
        assert_eq!(units[what].as_bool(), Some(false), "{what}");
    }
    // needrestart starts services anew that use a library that was replaced.
    let left_alone = fs::read_to_string(root().join("dist/needrestart.conf")).unwrap();
    assert!(left_alone.contains("ratchet"), "{left_alone}");
}

/// The package and the archive have lists of their own.
#[test]
fn the_package_and_the_archive_have_the_dashboards_and_the_alerts() {
    let package = package();
    let assets = package["assets"].as_array().expect("a list");
    let script = fs::read_to_string(root().join("dist/build")).unwrap();
    for (files, folder) in
        [("observe/*.yml", "observe/"), ("observe/dashboards/*", "observe/dashboards/")]
    {
        let place = format!("usr/share/ratchet/{folder}");
        let has = |asset: &toml::Value| {
            asset[0].as_str() == Some(files) && asset[1].as_str() == Some(place.as_str())
        };
        assert!(assets.iter().any(has), "the package has no {files}");
        assert!(script.contains(files), "the archive has no {files}");
    }
}

/// The node's errors name pages, too, as docs/replace.md.
#[test]
fn the_package_and_the_archive_have_all_pages_that_the_readme_leads_to() {
    let package = package();
    let assets = package["assets"].as_array().expect("a list");
    let script = fs::read_to_string(root().join("dist/build")).unwrap();
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let (mut count, mut missing) = (0, Vec::new());
    for link in pages::links(&readme) {
        let page = link.split('#').next().unwrap_or_default();
        let (files, folder) = match page.starts_with("docs/") {
            true => ("docs/*.md", "docs/"),
            false => (page, ""),
        };
        let place = format!("usr/share/doc/ratchet/{folder}");
        let has = |asset: &toml::Value| {
            asset[0].as_str() == Some(files) && asset[1].as_str() == Some(place.as_str())
        };
        if !assets.iter().any(has) || !script.contains(&format!(" {files}")) {
            missing.push(page.to_owned());
        }
        count += 1;
    }
    assert!(count > 20, "only {count} links were found");
    assert_none("the package or the archive lacks pages", &missing);
}

/// The links of units that are enabled, below a root of their own.
fn links(of: &Path) -> Vec<String> {
    let names = fs::read_dir(of.join("etc/systemd/system/multi-user.target.wants")).unwrap();
    let mut names: Vec<String> =
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn only_a_purge_keeps_a_node_of_several_from_starting_at_the_next_boot() {
    let dir = TempDir::new().unwrap();
    let wants = dir.path().join("etc/systemd/system/multi-user.target.wants");
    fs::create_dir_all(&wants).unwrap();
    for name in ["other@1.service", "ratchet@1.service", "ratchet@22.service"] {
        // The unit is gone already.
        symlink("/lib/systemd/system/gone", wants.join(name)).unwrap();
    }
    let runs = |what: &str| {
        let mut script = Command::new(root().join("dist/postrm"));
        script.arg(what).env("DPKG_ROOT", dir.path()).stdin(Stdio::null());
        assert!(script.status().unwrap().success(), "postrm {what}");
        links(dir.path())
    };
    let data = dir.path().join("var/lib/ratchet/NODE");
    fs::create_dir_all(data.parent().unwrap()).unwrap();
    fs::write(&data, "").unwrap();
    for what in ["upgrade", "remove"] {
        assert_eq!(runs(what).len(), 3, "postrm {what}");
    }
    assert_eq!(runs("purge"), ["other@1.service"]);
    assert_eq!(runs("purge"), ["other@1.service"], "nothing is left to remove");
    assert!(data.exists(), "a purge leaves what a node has promised");
}
