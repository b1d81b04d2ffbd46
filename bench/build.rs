//! Generates the server side of the public API, for the echo.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=../proto");
    let mut api =
        protox::compile(["ratchet/v1/sequencer.proto", "ratchet/v1/ids.proto"], ["../proto"])?;
    let services = api.file.iter_mut().flat_map(|file| &mut file.service);
    for ids in services.filter(|service| service.name() == "Ids") {
        // Of ids, nothing else is measured.
        ids.method.retain(|method| method.name().starts_with("Next"));
    }
    tonic_prost_build::configure().bytes(".").build_client(false).compile_fds(api)?;
    Ok(())
}
