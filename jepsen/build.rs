//! Generates the client of the public API from the product's own description.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=../proto");
    let api = protox::compile(
        ["ratchet/v1/sequencer.proto", "ratchet/v1/admin.proto", "ratchet/v1/ids.proto"],
        ["../proto"],
    )?;
    tonic_prost_build::configure().bytes(".").compile_fds(api)?;
    Ok(())
}
