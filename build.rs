//! Generates the gRPC code and the operations over HTTP from `proto` with protox, so that no `protoc` binary is needed, and
//! finds out the commit.

#[path = "build/commit.rs"]
mod commit;

use std::{env, error::Error, fs, path::PathBuf};

use prost_reflect::DescriptorPool;

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
    let out = PathBuf::from(env::var("OUT_DIR")?);
    // What the reflection service shows, and what the door for HTTP is made from: the public API alone.
    let mut public = protox::Compiler::new(["proto"])?;
    public.include_imports(true).include_source_info(true).open_files(PUBLIC)?;
    fs::write(out.join("ratchet.v1.bin"), public.encode_file_descriptor_set())?;
    fs::write(out.join("operations.rs"), operations(&public.descriptor_pool())?)?;
    let all = PUBLIC.into_iter().chain(["ratchet/peer/v1/peer.proto"]);
    let all = protox::compile(all, ["proto"])?;
    let large = "#[allow(clippy::large_enum_variant)]";
    tonic_prost_build::configure()
        .bytes(".")
        .btree_map(".ratchet.peer.v1")
        // The client's package has the messages of the public API.
        .extern_path(".ratchet.v1", "::ratchet_client::api")
        // Replies stand in a list until they are sent, and most of them are the large ones.
        .type_attribute("ratchet.peer.v1.ForwardReply.reply", large)
        .compile_fds(all)?;
    Ok(())
}

/// The methods that can be asked for over HTTP, as their options say: a call of the macro `operations`, with a row each.
fn operations(api: &DescriptorPool) -> Result<String, Box<dyn Error>> {
    let http = api.get_extension_by_name("google.api.http").ok_or("no google.api.http")?;
    let mut rows = String::new();
    for service in api.services() {
        for method in service.methods() {
            let options = method.options();
            let rule = options.get_extension(&http);
            let rule = rule.as_message().ok_or("google.api.http is no message")?;
            let (body, pattern): (Vec<_>, Vec<_>) =
                rule.fields().partition(|(field, _)| field.name() == "body");
            for (verb, path) in pattern {
                let (verb, has_body) = (verb.name(), !body.is_empty());
                let (rpc, asked, answer) = (method.name(), method.input(), method.output());
                let (asked, answer) = (asked.name(), answer.name());
                rows += &format!("    {verb} {path} {has_body} {rpc} {asked} {answer};\n");
            }
        }
    }
    Ok(format!("operations! {{\n{rows}}}\n"))
}
