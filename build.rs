//! Generates the gRPC code from `proto/` with protox, so that no `protoc` binary is needed.

use std::{env, error::Error, fs, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let public = protox::compile(
        [
            "ratchet/v1/sequencer.proto",
            "ratchet/v1/admin.proto",
            "ratchet/peer/v1/peer.proto",
        ],
        ["proto"],
    )?;
    // What the reflection service shows: the public API alone.
    let reflected = protox::compile(
        ["ratchet/v1/sequencer.proto", "ratchet/v1/admin.proto"],
        ["proto"],
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
