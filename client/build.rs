//! Generates the types and the client of the public API from `proto/`. It uses protox, so no `protoc`
//! binary is needed.

/// The messages that are written as JSON, and read: those of the operations on namespaces.
#[cfg(feature = "json")]
const JSON: [&str; 9] = [
    ".ratchet.v1.KeyKind",
    ".ratchet.v1.Namespace",
    ".ratchet.v1.CreateNamespaceRequest",
    ".ratchet.v1.GetNamespaceRequest",
    ".ratchet.v1.ListNamespacesRequest",
    ".ratchet.v1.ListNamespacesResponse",
    ".ratchet.v1.UpdateNamespaceRequest",
    ".ratchet.v1.DeleteNamespaceRequest",
    ".ratchet.v1.DeleteNamespaceResponse",
];

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
        json.preserve_proto_field_names().emit_fields().build(&JSON)?;
    }
    tonic_prost_build::configure().bytes(".").build_server(false).compile_fds(api)?;
    Ok(())
}
