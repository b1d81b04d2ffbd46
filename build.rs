//! Generates the gRPC code and the tables of operations from `proto` with protox, so that no `protoc` binary is needed, and
//! finds out the commit.

#[path = "build/commit.rs"]
mod commit;

use std::{collections::BTreeMap, env, error::Error, fs, path::PathBuf};

use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, MessageDescriptor, MethodDescriptor,
};

/// How much of a commit's hash is shown.
const COMMIT_DIGITS: usize = 12;
/// The files of the public API, in `proto`. The client's package has a link to them.
const PUBLIC: [&str; 5] = [
    "ratchet/v1/error.proto",
    "ratchet/v1/sequencer.proto",
    "ratchet/v1/admin.proto",
    "ratchet/v1/ids.proto",
    "ratchet/v1/access.proto",
];
const PEER: &str = "ratchet/peer/v1/peer.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rustc-env=RATCHET_COMMIT={}", commit()?);
    generate()
}

/// The commit that the packager names, or else the commit of the checkout.
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
    // The descriptors that the reflection service shows are of the public API alone.
    let mut public = protox::Compiler::new(["proto"])?;
    public.include_imports(true).include_source_info(true).open_files(PUBLIC)?;
    fs::write(out.join("ratchet.v1.bin"), public.encode_file_descriptor_set())?;
    let mut all = protox::Compiler::new(["proto"])?;
    all.include_imports(true).include_source_info(true).open_files(PUBLIC)?.open_file(PEER)?;
    let api = all.descriptor_pool();
    let operations = operations(&api)?;
    fs::write(out.join("http.rs"), over_http(&api, &operations)?)?;
    fs::write(out.join("operations.rs"), implementations(&operations))?;
    fs::write(out.join("needs.rs"), needs(&api)?)?;
    fs::write(out.join("streams.rs"), streams(&api))?;
    fs::write(out.join("services.rs"), services(&api))?;
    fs::write(out.join("served.rs"), table(&operations, &["by_leader", "by_asked_node"]))?;
    fs::write(out.join("sequences.rs"), table(&operations, &["sequence"]))?;
    // The others have code of their own.
    let mut files = all.file_descriptor_set();
    for file in &mut files.file {
        let package = file.package().to_owned();
        for service in &mut file.service {
            let service_name = format!("{package}.{}", service.name());
            let is_operation = |name: &str| {
                let name = format!("{service_name}.{name}");
                operations
                    .iter()
                    .any(|one| one.method.full_name() == name && one.served != "sequence")
            };
            service.method.retain(|method| !is_operation(method.name()));
        }
        file.service.retain(|service| !service.method.is_empty());
    }
    let large = "#[allow(clippy::large_enum_variant)]";
    tonic_prost_build::configure()
        .bytes(".")
        .btree_map(".ratchet.peer.v1")
        // Few calls are traced, and requests stand in a list.
        .boxed(".ratchet.peer.v1.ForwardRequest.trace_parent")
        // The client's package has the messages of the public API.
        .extern_path(".ratchet.v1", "::ratchet_client::api")
        // Replies stand in a list until they are sent, and most of them are the large ones.
        .type_attribute("ratchet.peer.v1.ForwardReply.reply", large)
        .compile_fds(files)?;
    Ok(())
}

/// A method that is carried out message by message.
struct Operation {
    method: MethodDescriptor,
    /// The function that makes a row of it.
    served: &'static str,
    is_idempotent: bool,
    only_reads: bool,
}

/// The methods whose option `served_by` says who carries them out.
fn operations(api: &DescriptorPool) -> Result<Vec<Operation>, Box<dyn Error>> {
    let served_by = api.get_extension_by_name("ratchet.v1.served_by").ok_or("no served_by")?;
    let mut found = Vec::new();
    for method in api.services().flat_map(|service| service.methods().collect::<Vec<_>>()) {
        let by = method.options().get_extension(&served_by).as_enum_number().unwrap_or_default();
        let served = ["", "by_leader", "by_asked_node", "sequence"];
        let served =
            served.get(usize::try_from(by)?).ok_or("served_by has a value without rows")?;
        if !served.is_empty() {
            let level = method.options();
            let level = level.get_field_by_name("idempotency_level");
            // 1: NO_SIDE_EFFECTS, 2: IDEMPOTENT.
            let level = level.and_then(|level| level.as_enum_number()).unwrap_or(0);
            let (is_idempotent, only_reads) = (level != 0, level == 1);
            found.push(Operation { method, served, is_idempotent, only_reads });
        }
    }
    Ok(found)
}

/// The implementations of `Operation`, for the type of each request.
fn implementations(operations: &[Operation]) -> String {
    let implementation = |operation: &Operation| {
        let Operation { method, is_idempotent, only_reads, .. } = operation;
        let (asked, answer) = (path(&method.input()), path(&method.output()));
        let (service, name) = (method.parent_service().full_name(), method.name());
        format!(
            "impl Operation for {asked} {{\n    type Answer = {answer};\n    \
             const METHOD: &'static str = \"{service}/{name}\";\n    \
             const IS_IDEMPOTENT: bool = {is_idempotent};\n    \
             const ONLY_READS: bool = {only_reads};\n}}\n"
        )
    };
    operations.iter().map(implementation).collect()
}

/// The needs of each method from its caller, for the type of its request.
///
/// # Errors
/// If a method of the public API does not say it, or says it in a way that means nothing.
fn needs(api: &DescriptorPool) -> Result<String, Box<dyn Error>> {
    let option = api.get_extension_by_name("ratchet.v1.needs").ok_or("no needs")?;
    let mut found = BTreeMap::new();
    for method in api.services().flat_map(|service| service.methods().collect::<Vec<_>>()) {
        let (asked, options) = (method.input(), method.options());
        let wanted = match options.has_extension(&option) {
            true => wanted(&asked, options.get_extension(&option).as_message().ok_or("needs")?)
                .ok_or_else(|| format!("{}: the option needs", method.full_name()))?,
            // Nodes alone make this request, and no service of the peers' own answers it.
            false if method.parent_service().package_name() == "ratchet.peer.v1" => {
                "Wanted::OfNodes".to_owned()
            }
            false => {
                return Err(format!("{} does not say what it needs", method.full_name()).into());
            }
        };
        if found.insert(path(&asked), wanted.clone()).is_some_and(|before| before != wanted) {
            return Err(format!("{} has two needs", asked.full_name()).into());
        }
    }
    let implementation = |(asked, wanted): (&String, &String)| {
        format!(
            "impl Guarded for {asked} {{\n    fn wanted(&self) -> Wanted<'_> {{\n        {wanted}\n    \
             }}\n}}\n"
        )
    };
    Ok(found.iter().map(implementation).collect())
}

/// The expression for the needs of `asked` from its caller. `None` if fields or values do not fit.
fn wanted(asked: &MessageDescriptor, needs: &DynamicMessage) -> Option<String> {
    let text =
        |name| needs.get_field_by_name(name).and_then(|value| value.as_str().map(str::to_owned));
    let verb = |name| {
        let number = needs.get_field_by_name(name)?.as_enum_number()?;
        ["", "Next", "Read", "Raise", "Namespaces", "Admin"]
            .get(usize::try_from(number).ok()?)
            .copied()
    };
    let (of, on_some) = (text("of")?, needs.get_field_by_name("on_some")?.as_bool()?);
    let has = |field: &str| asked.get_field_by_name(field).is_some();
    let on = |verb: &str| match (verb.is_empty(), of.is_empty(), on_some) {
        (true, true, false) => Some("Wanted::Anything".to_owned()),
        (false, true, true) => Some(format!("Wanted::OnSome(Verb::{verb})")),
        (false, true, false) => Some(format!("Wanted::OnAll(Verb::{verb})")),
        (false, false, false) if has(&of) => Some(format!("Wanted::On(Verb::{verb}, &self.{of})")),
        _ => None,
    };
    let (usual, if_true) = (on(verb("verb")?)?, text("if_true")?);
    match if_true.is_empty() {
        true => Some(usual),
        false if has(&if_true) => {
            let then = on(verb("then")?)?;
            Some(format!("if self.{if_true} {{ {then} }} else {{ {usual} }}"))
        }
        false => None,
    }
}

/// The operations that are `served` so, each with its server.
fn table(operations: &[Operation], served: &[&str]) -> String {
    let rows = operations.iter().filter(|operation| served.contains(&operation.served));
    let row = |Operation { method, served, .. }: &Operation| {
        format!("    {served}::<crate::proto::{}>(),\n", path(&method.input()))
    };
    format!("&[\n{}]\n", rows.map(row).collect::<String>())
}

/// The paths of the calls that callers, and peers, make as streams of messages.
fn streams(api: &DescriptorPool) -> String {
    let of = |package: &str| {
        let services = api.services().filter(|service| service.package_name() == package);
        let methods = services.flat_map(|service| service.methods().collect::<Vec<_>>());
        let paths = methods
            .filter(MethodDescriptor::is_client_streaming)
            .map(|method| format!("/{}/{}", method.parent_service().full_name(), method.name()));
        paths.collect::<Vec<_>>()
    };
    let (public, peer) = (of("ratchet.v1"), of("ratchet.peer.v1"));
    format!(
        "/// The calls of callers that are streams of messages.\n\
         pub const STREAMS: &[&str] = &{public:?};\n\
         /// Those of peers.\n\
         pub const PEER_STREAMS: &[&str] = &{peer:?};\n"
    )
}

/// The names of the services of the public API.
fn services(api: &DescriptorPool) -> String {
    let public = api.services().filter(|service| service.package_name() == "ratchet.v1");
    let names: Vec<_> = public.map(|service| service.full_name().to_owned()).collect();
    format!("/// The services of the public API.\npub const SERVICES: &[&str] = &{names:?};\n")
}

/// The type of a message, below the module of the generated code.
fn path(message: &MessageDescriptor) -> String {
    let module = if message.package_name() == "ratchet.v1" { "v1" } else { "peer" };
    format!("{module}::{}", message.name())
}

/// The methods that can be asked for over HTTP, as their options say: a call of the macro `endpoints`, with a row each.
fn over_http(api: &DescriptorPool, served: &[Operation]) -> Result<String, Box<dyn Error>> {
    let http = api.get_extension_by_name("google.api.http").ok_or("no google.api.http")?;
    let mut rows = String::new();
    for method in api.services().flat_map(|service| service.methods().collect::<Vec<_>>()) {
        let options = method.options();
        let rule = options.get_extension(&http);
        let rule = rule.as_message().ok_or("google.api.http is no message")?;
        let (body, pattern): (Vec<_>, Vec<_>) =
            rule.fields().partition(|(field, _)| field.name() == "body");
        for (verb, path) in pattern {
            let (verb, has_body) = (verb.name().to_uppercase(), !body.is_empty());
            let path = path.as_str().ok_or("a path is no text")?;
            let by = served.iter().find(|one| one.method == method).map(|one| one.served);
            // The function of `server/http/answers.rs` that answers it.
            let is_key = |field: &FieldDescriptor| {
                field.kind().as_message().is_some_and(|of| of.name() == "Key")
            };
            let (rpc, asked, answer) = (method.name(), method.input(), method.output());
            let has_key = asked.fields().any(|field| is_key(&field));
            let answered_by = match by {
                Some("sequence") if method.is_client_streaming() => "one_of_stream",
                Some("sequence") if has_key => "sequence_of_key",
                Some("sequence") => "sequence",
                Some(_) => "operation",
                None => "ids",
            };
            // The function of `server/http/message.rs` that finds out which kind its keys are of.
            let kind_by = match answered_by {
                "sequence_of_key" => "of_known_kind",
                _ => "of_kind",
            };
            let service = method.parent_service();
            let named = |name: &str| fields(&asked, |field| field.name() == name);
            let in_path = in_path(&asked, path)?;
            // `ids` checks a message before it waits for the kind of its key.
            let keys = fields(&asked, |field| answered_by != "ids" && is_key(field));
            // The router cannot tell apart the texts after the last field.
            let (route, action) =
                path.split_at(path.find("}:").map_or(path.len(), |place| place + 1));
            rows += &format!(
                "    {verb} {path:?} {route:?} {action:?} {has_body} {answered_by} {} {rpc} {} {{ \
                 in_path: {in_path}; {kind_by}: {keys}; request_id: {}; route_version: {} }} {};\n",
                service.name(),
                asked.name(),
                named("request_id"),
                named("route_version"),
                answer.name()
            );
        }
    }
    Ok(format!("endpoints! {{\n{rows}}}\n"))
}

/// The names of the fields that stand in a path, in its order.
///
/// # Errors
/// If the message has none of a name, or JSON has another name for it: nobody would see that the query says it again.
fn in_path(message: &MessageDescriptor, path: &str) -> Result<String, Box<dyn Error>> {
    let names = path.split('{').skip(1).filter_map(|rest| rest.split('}').next());
    let names: Vec<&str> = names.collect();
    let is_known = |name: &&str| {
        let field = message.get_field_by_name(name);
        field.is_some_and(|field| field.json_name() == *name)
    };
    match names.iter().all(is_known) {
        true => Ok(names.join(" ")),
        false => Err(format!("{path}: not all of this are fields with one name").into()),
    }
}

/// The names of the fields of a kind.
fn fields(message: &MessageDescriptor, is_wanted: impl Fn(&FieldDescriptor) -> bool) -> String {
    let fields = message.fields().filter(is_wanted);
    fields.map(|field| field.name().to_owned()).collect::<Vec<_>>().join(" ")
}
