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
            "ratchet/v1/access.proto",
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
        let out = std::path::PathBuf::from(std::env::var("OUT_DIR")?);
        for (package, made) in json.generate(&[".ratchet.v1"], |_| Ok(Vec::new()))? {
            let made = with_own_json(String::from_utf8(made)?)?;
            std::fs::write(out.join(format!("{package}.serde.rs")), made)?;
        }
    }
    let mut api_code = tonic_prost_build::configure().bytes(".").build_server(false);
    // Few answers have one of these, and every number's answer is moved a dozen times on its way.
    for seldom in ["route", "failure", "NextManyResponse.exhausted"] {
        api_code = api_code.boxed(seldom);
    }
    api_code.compile_fds(api)?;
    Ok(())
}

/// Has bytes and numbers written and read as src/json.rs says, and values of enumerations written as unspecified that a later
/// release has.
///
/// # Errors
/// If the code that pbjson makes is another than this was written for.
#[cfg(feature = "json")]
fn with_own_json(made: String) -> Result<String, &'static str> {
    let made = made.replace("::pbjson::private::BytesDeserialize", "crate::json::Text");
    let made = made.replace("::pbjson::private::NumberDeserialize", "crate::json::Number");
    let of_map = "<std::collections::HashMap<_, crate::json::Number<u64>>>()?";
    let made = made.replace(of_map, "<crate::json::NumbersByName>()?.0");
    let made = replaced_to_end(&made, "pbjson::private::base64::encode(&", ").as_str()", |bytes| {
        format!("&crate::json::Text(&{bytes})")
    });
    let made = made.replace("pbjson::private::base64::encode", "crate::json::Text");
    let made = replaced_to_end(&made, "ToString::to_string(&", ").as_str()", |number| {
        format!("&crate::json::Digits(&{number})")
    });
    let unknown = ".map_err(|_| serde::ser::Error::custom(format!(\"Invalid variant {}\", ";
    let made = replaced_to_end(&made, unknown, ")))?", |_| ".unwrap_or_default()".to_owned());
    match made.contains("base64")
        || made.contains("::pbjson")
        || made.contains("ser::Error")
        || !made.contains("json::Text(")
        || !made.contains("json::Digits(")
    {
        true => Err("pbjson makes other code than client/build.rs knows; look at with_own_json"),
        false => Ok(made),
    }
}

/// The text with each part from `from` to the next `to` replaced: `with` makes the new part of the text between the two.
#[cfg(feature = "json")]
fn replaced_to_end(text: &str, from: &str, to: &str, with: impl Fn(&str) -> String) -> String {
    let mut parts = text.split(from);
    let mut replaced = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(to) {
            Some((between, rest)) => replaced += &(with(between) + rest),
            None => replaced += &(from.to_owned() + part),
        }
    }
    replaced
}
