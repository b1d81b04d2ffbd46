//! Generates the server of the public API, which the echo is.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=../client/proto");
    let api = protox::compile(["ratchet/v1/sequencer.proto"], ["../client/proto"])?;
    tonic_prost_build::configure()
        .bytes(".")
        .build_client(false)
        .compile_fds(api)?;
    Ok(())
}
