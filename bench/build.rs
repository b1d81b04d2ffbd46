//! Generates the server side of the public API, for the echo.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=../proto");
    let api =
        protox::compile(["ratchet/v1/sequencer.proto", "ratchet/v1/ids.proto"], ["../proto"])?;
    tonic_prost_build::configure().bytes(".").build_client(false).compile_fds(api)?;
    Ok(())
}
