//! Generates the gRPC code from `proto` with protox, so that no `protoc` binary is needed, and finds out the commit.

#[path = "build/commit.rs"]
mod commit;

use std::{env, error::Error, fs, path::PathBuf};

/// How much of a commit's hash is shown.
const COMMIT_DIGITS: usize = 12;
/// The files of the public API, in `proto`. The client's package has a link to them.
const PUBLIC: [&str; 4] = [
    "ratchet/v1/error.proto",
    "ratchet/v1/sequencer.proto",
    "ratchet/v1/admin.proto",
    "ratchet/v1/ids.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rustc-env=RATCHET_COMMIT={}", commit()?);
    generate()
}

/// What the packager says, or else what the checkout is at.
fn commit() -> Result<String, Box<dyn Error>> {
    println!("cargo:rerun-if-env-changed=RATCHET_COMMIT");
    if let Ok(told) = env::var("RATCHET_COMMIT")
        && !told.is_empty()
    {
        return Ok(told);
    }
    let checkout = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let Some(found) = commit::of_checkout(&checkout) else {
        return Ok("unknown".to_owned());
    };
    for file in &found.watched {
        println!("cargo:rerun-if-changed={}", file.display());
    }
    Ok(found.hash[..COMMIT_DIGITS].to_owned())
}

fn generate() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let all = PUBLIC.into_iter().chain(["ratchet/peer/v1/peer.proto"]);
    let all = protox::compile(all, ["proto"])?;
    // What the reflection service shows: the public API alone.
    let reflected = protox::compile(PUBLIC, ["proto"])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("ratchet.v1.bin"), prost::Message::encode_to_vec(&reflected))?;
    let large = "#[allow(clippy::large_enum_variant)]";
    tonic_prost_build::configure()
        .bytes(".")
        .btree_map(".ratchet.peer.v1")
        // Replies stand in a list until they are sent, and most of them are the large ones.
        .type_attribute("ratchet.peer.v1.ForwardReply.reply", large)
        .compile_fds(all)?;
    Ok(())
}
