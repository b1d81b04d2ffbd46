//! Generates the types and the client of the public API from `proto/`. It uses protox, so no `protoc`
//! binary is needed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let api = protox::compile(
        [
            "ratchet/v1/error.proto",
            "ratchet/v1/sequencer.proto",
            "ratchet/v1/admin.proto",
            "ratchet/v1/ids.proto",
        ],
        ["proto"],
    )?;
    #[cfg(feature = "json")]
    {
        let mut json = pbjson_build::Builder::new();
        for file in api.file.clone() {
            json.register_file_descriptor(file);
        }
        // A key has JSON of its own, in src/json.rs.
        json.preserve_proto_field_names().emit_fields().exclude([".ratchet.v1.Key"]);
        json.build(&[".ratchet.v1"])?;
    }
    tonic_prost_build::configure().bytes(".").build_server(false).compile_fds(api)?;
    Ok(())
}
