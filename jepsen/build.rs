//! Generates the client of the public API from the product's own `proto/`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=../proto/ratchet/v1");
    let api = protox::compile(
        ["ratchet/v1/sequencer.proto", "ratchet/v1/admin.proto"],
        ["../proto"],
    )?;
    tonic_prost_build::configure().bytes(".").compile_fds(api)?;
    Ok(())
}
