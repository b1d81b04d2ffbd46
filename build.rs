//! Generates the gRPC code from `client/proto` and `proto` with protox, so that no `protoc` binary is needed, and finds
//! out the commit.

#[path = "build/commit.rs"]
mod commit;

use std::{env, error::Error, fs, path::PathBuf};

/// How much of a commit's hash is shown.
const COMMIT_DIGITS: usize = 12;
/// Where the public API is described: the client's package holds it.
const API: &str = "client/proto";

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
    println!("cargo:rerun-if-changed={API}");
    let public = protox::compile(
        [
            "ratchet/v1/sequencer.proto",
            "ratchet/v1/admin.proto",
            "ratchet/v1/ids.proto",
            "ratchet/peer/v1/peer.proto",
        ],
        ["proto", API],
    )?;
    // What the reflection service shows: the public API alone.
    let reflected = protox::compile(
        [
            "ratchet/v1/sequencer.proto",
            "ratchet/v1/admin.proto",
            "ratchet/v1/ids.proto",
        ],
        [API],
    )?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(
        out.join("ratchet.v1.bin"),
        prost::Message::encode_to_vec(&reflected),
    )?;
    tonic_prost_build::configure()
        .bytes(".")
        .compile_fds(public)?;
    Ok(())
}
