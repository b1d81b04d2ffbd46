//! The needs of each method from its caller, as `proto` has them: tried over each interface, on the leader and on a follower,
//! with a token for each verb, on all namespaces, on the one of the request and on others, and with none.

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use bytes::Bytes;
use futures::stream;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MethodDescriptor, Value};
use ratchet::{
    proto::{
        PUBLIC_DESCRIPTORS,
        v1::{CreateNamespaceRequest, admin_client::AdminClient},
    },
    server::Raw,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};
use tonic::{Code, Request, Status, client::Grpc};

use crate::common::{
    Page, channel,
    closed::{ADMIN, Closed, VERBS},
    http, in_time, other_than,
};

/// A method, with its request, and the verb that its caller needs. `None`: any known caller may call it.
pub(super) struct Case {
    pub name: String,
    pub asked: DynamicMessage,
    pub verb: Option<String>,
    /// Whether it is needed on a namespace that the request names.
    pub is_on_one: bool,
    /// Whether it is needed on some namespace, of any name.
    pub is_on_some: bool,
    /// The server that carries it out, by the name in `proto`. `None`: code of its own.
    pub served_by: Option<String>,
    answer: prost_reflect::MessageDescriptor,
    /// The method and the path of HTTP.
    http: Option<(String, String)>,
    http_has_body: bool,
}

/// The needs of a method from its caller, as its option says them.
pub(super) struct Needs {
    pub verb: Option<String>,
    /// The field that names the namespace; empty without one.
    pub of: String,
    pub on_some: bool,
    /// The field that has `then` needed in the place of `verb`; empty without one.
    pub if_true: String,
    pub then: Option<String>,
}

/// All methods of the public API.
pub(super) fn methods() -> Vec<MethodDescriptor> {
    let pool = DescriptorPool::decode(PUBLIC_DESCRIPTORS).expect("descriptors");
    let of_package =
        |service: &prost_reflect::ServiceDescriptor| service.package_name() == "ratchet.v1";
    let services = pool.services().filter(of_package);
    services.flat_map(|service| service.methods().collect::<Vec<_>>()).collect()
}

fn option(method: &MethodDescriptor, name: &str) -> Option<Value> {
    let extension = method.parent_pool().get_extension_by_name(name).expect(name);
    let options = method.options();
    options.has_extension(&extension).then(|| options.get_extension(&extension).into_owned())
}

fn served_by(method: &MethodDescriptor) -> Option<String> {
    let number = option(method, "ratchet.v1.served_by")?.as_enum_number().expect("a value");
    let values = method.parent_pool().get_enum_by_name("ratchet.v1.ServedBy").expect("values");
    Some(values.get_value(number).expect("a name").name().to_owned())
}

impl Needs {
    pub fn of_method(method: &MethodDescriptor) -> Needs {
        let needs = option(method, "ratchet.v1.needs").expect("every method says what it needs");
        let needs = needs.as_message().expect("a message");
        let field = |name| needs.get_field_by_name(name).expect(name).into_owned();
        let text = |name| field(name).as_str().expect("a text").to_owned();
        let verb = |name| {
            let number = field(name).as_enum_number().expect("a verb");
            (number > 0).then(|| VERBS[number as usize - 1].to_owned())
        };
        Needs {
            verb: verb("verb"),
            of: text("of"),
            on_some: field("on_some").as_bool().expect("a flag"),
            if_true: text("if_true"),
            then: verb("then"),
        }
    }
}

/// The method and the path by which HTTP has it; `None` if it has not.
pub(super) fn over_http(method: &MethodDescriptor) -> Option<(String, String)> {
    let rule = option(method, "google.api.http")?;
    let rule = rule.as_message().expect("a rule");
    let (verb, path) = rule.fields().find(|(field, _)| field.name() != "body").expect("a path");
    Some((verb.name().to_uppercase(), path.as_str().expect("a path").to_owned()))
}

/// All methods. One whose needs depend on a field is there twice.
pub(super) fn cases() -> Vec<Case> {
    methods().iter().flat_map(of_method).collect()
}

fn of_method(method: &MethodDescriptor) -> Vec<Case> {
    let needs = Needs::of_method(method);
    let mut asked = DynamicMessage::new(method.input());
    if !needs.of.is_empty() {
        asked.set_field_by_name(&needs.of, Value::String("book".to_owned()));
    }
    // No other node is to lead than the leader.
    if method.input().get_field_by_name("to").is_some() {
        asked.set_field_by_name("to", Value::U64(99));
    }
    // The fields of a well-formed request, as far as the message has them.
    let pool = method.parent_pool();
    let id = pool.get_message_by_name("ratchet.v1.Key").map(DynamicMessage::new);
    let key = id.map(|mut key| {
        key.set_field_by_name("id", Value::U64(1));
        Value::Message(key)
    });
    let one = Value::List(vec![Value::U64(1)]);
    let five = Value::U64(5);
    for (field, value) in
        [("key", key.expect("keys")), ("ids", one.clone()), ("at_least", one), ("at_least", five)]
    {
        let known = method.input().get_field_by_name(field);
        if known.is_some_and(|known| known.is_list() == value.as_list().is_some()) {
            asked.set_field_by_name(field, value);
        }
    }
    let mut http_has_body = false;
    if let Some(rule) = option(method, "google.api.http") {
        let rule = rule.as_message().expect("a rule");
        http_has_body = rule.fields().any(|(field, _)| field.name() == "body");
    }
    let http = over_http(method);
    let name = format!("/{}/{}", method.parent_service().full_name(), method.name());
    let case = |asked: &DynamicMessage, verb| Case {
        name: name.clone(),
        asked: asked.clone(),
        verb,
        is_on_one: !needs.of.is_empty(),
        is_on_some: needs.on_some,
        served_by: served_by(method),
        answer: method.output(),
        http: http.clone(),
        http_has_body,
    };
    let mut cases = vec![case(&asked, needs.verb)];
    if !needs.if_true.is_empty() {
        asked.set_field_by_name(&needs.if_true, Value::Bool(true));
        cases.push(case(&asked, needs.then));
    }
    cases
}

impl Case {
    /// The code of the answer over gRPC: of the call, or of its first message.
    pub async fn over_grpc(&self, address: SocketAddr, token: Option<&str>) -> Code {
        self.try_over_grpc(address, token).await.err().map_or(Code::Ok, |refused| refused.code())
    }

    /// Tries it over gRPC.
    ///
    /// # Errors
    /// The refusal of the call, or of the request in its first message.
    pub async fn try_over_grpc(
        &self, address: SocketAddr, token: Option<&str>,
    ) -> Result<(), Status> {
        let message = Bytes::from(self.asked.encode_to_vec());
        let mut request = Request::new(stream::iter([message]));
        request.set_timeout(Duration::from_secs(60));
        if let Some(token) = token {
            let value = format!("Bearer {token}").parse().expect("a header");
            request.metadata_mut().insert("authorization", value);
        }
        let mut grpc = Grpc::new(channel(address));
        grpc.ready().await.expect("a connection");
        let path = self.name.parse().expect("a path");
        let first = async {
            let answers = grpc.streaming(request, path, Raw).await?;
            answers.into_inner().message().await
        };
        let answer = in_time(&self.name, first).await?.expect("a message");
        let answer = DynamicMessage::decode(self.answer.clone(), answer).expect("an answer");
        let failure = ["failure", "error"].iter().find_map(|name| answer.get_field_by_name(name));
        let failure = failure.as_ref().and_then(|failure| failure.as_message());
        failure.map_or(Ok(()), |failure| {
            let field = |name| failure.get_field_by_name(name).expect(name).into_owned();
            let code = Code::from_i32(field("code").as_i32().expect("a code"));
            match code {
                Code::Ok => Ok(()),
                _ => Err(Status::new(code, field("message").as_str().expect("a text"))),
            }
        })
    }

    /// The status of the answer over HTTP; `None` if the method has no path.
    pub async fn over_http(&self, address: SocketAddr, token: Option<&str>) -> Option<u16> {
        self.page_over_http(address, token).await.map(|page| page.status)
    }

    /// The answer over HTTP; `None` if the method has no path.
    pub async fn page_over_http(&self, address: SocketAddr, token: Option<&str>) -> Option<Page> {
        let (verb, path) = self.http.as_ref()?;
        let path = path
            .replace("{namespace}", "book")
            .replace("{key}", "1")
            .replace("{format}", "snowflake")
            .replace("{id}", "99")
            .replace("{name}", "nobody");
        let parts = [("name", r#""book""#), ("ids", r#"["1"]"#), ("at_least", r#"["1"]"#)];
        let parts = parts.iter().filter(|(name, _)| self.asked.has_field_by_name(name));
        let parts: Vec<String> = parts.map(|(name, value)| format!("\"{name}\":{value}")).collect();
        let body = match self.http_has_body {
            true => format!("{{{}}}", parts.join(",")),
            false => String::new(),
        };
        let is_flag = |name: &&&str| {
            let value = self.asked.get_field_by_name(name);
            self.asked.has_field_by_name(name)
                && value.is_some_and(|value| value.as_list().is_none())
        };
        let flags = ["forget", "to", "at_least"].iter().filter(is_flag);
        let flags: Vec<String> = flags
            .map(|name| format!("{name}={}", self.asked.get_field_by_name(name).unwrap()))
            .collect();
        let query = if flags.is_empty() { String::new() } else { format!("?{}", flags.join("&")) };
        let header = token.map(|token| format!("authorization: Bearer {token}\r\n"));
        let what = format!("{verb} {path}{query}");
        Some(http(address, &what, &header.unwrap_or_default(), &body).await)
    }
}

/// Every command, as a client sends it, and the verb that it needs. `None`: any that is known.
pub(super) const COMMANDS: &[(&str, Option<&str>)] = &[
    ("INCR book:1", Some("next")),
    ("INCRBY book:1 2", Some("next")),
    ("INCRBY book:1 0", Some("read")),
    ("GET book:1", Some("read")),
    ("MGET book:1", Some("read")),
    ("SET book:1 5", Some("raise")),
    ("SETNX book:1 5", Some("raise")),
    ("EXISTS book:1", Some("read")),
    ("TYPE book:1", Some("read")),
    ("MULTI", None),
    ("EXEC", None),
    ("DISCARD", None),
    ("WATCH book:1", None),
    ("UNWATCH", None),
    ("PING", None),
    ("ECHO a", None),
    ("SELECT 0", None),
    ("CLIENT ID", None),
    ("READONLY", None),
    ("READWRITE", None),
    ("COMMAND COUNT", None),
    ("INFO", None),
    ("CLUSTER MYID", None),
    ("ACL WHOAMI", None),
];

/// The commands that anybody may send.
pub(super) const FOR_ANYBODY: &[&str] = &["AUTH x", "HELLO 2", "QUIT", "RESET"];

/// The first line of the reply to a command over a connection of its own, after AUTH.
pub async fn over_redis(address: SocketAddr, token: Option<&str>, command: &str) -> String {
    let asking = async {
        let mut stream = BufReader::new(TcpStream::connect(address).await?);
        let mut line = String::new();
        if let Some(token) = token {
            stream.write_all(format!("AUTH {token}\r\n").as_bytes()).await?;
            stream.read_line(&mut line).await?;
            assert_eq!(line, "+OK\r\n");
            line.clear();
        }
        stream.write_all(format!("{command}\r\n").as_bytes()).await?;
        stream.read_line(&mut line).await?;
        Ok::<_, std::io::Error>(line)
    };
    in_time(command, asking).await.expect("a reply")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_method_of_every_interface_is_for_those_alone_who_are_granted_its_verb() {
    let closed = Closed::start().await;
    let cases = cases();
    assert!(cases.len() > 30, "{} methods", cases.len());
    let leader = closed.cluster.leader().await;
    for node in [leader, 1 + leader % 3] {
        let addresses = closed.cluster.nodes[&node].addresses();
        let (grpc, http) = (closed.cluster.address(node), addresses.http.expect("a port"));
        for case in &cases {
            let nobody = case.over_grpc(grpc, None).await;
            assert_eq!(nobody, Code::Unauthenticated, "{} at node {node}", case.name);
            let nobody = case.over_http(http, None).await;
            assert!(nobody.is_none_or(|status| status == 401), "{}: {nobody:?}", case.name);
            for verb in VERBS {
                let token = Some(closed.token(verb));
                let is_granted = case.verb.as_deref().is_none_or(|wanted| wanted == verb);
                let told = case.over_grpc(grpc, token).await;
                let is_refused = [Code::Unauthenticated, Code::PermissionDenied].contains(&told);
                assert_eq!(is_refused, !is_granted, "{} with {verb}: {told:?}", case.name);
                assert!(is_granted || told == Code::PermissionDenied, "{}: {told:?}", case.name);
                if let Some(status) = case.over_http(http, token).await {
                    let is_refused = [401, 403].contains(&status);
                    assert_eq!(is_refused, !is_granted, "{} with {verb}: {status}", case.name);
                }
            }
        }
    }
}

#[test]
fn every_method_whose_request_names_a_namespace_needs_something_on_it() {
    for method in methods() {
        let names_one = method.input().get_field_by_name("namespace").is_some();
        let Needs { verb, of, .. } = Needs::of_method(&method);
        let is_on_it = verb.is_some() && of == "namespace";
        assert!(!names_one || is_on_it, "{}: {verb:?} of {of:?}", method.full_name());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_method_is_for_those_alone_who_are_granted_its_verb_on_the_namespace_of_the_request()
{
    let closed = Closed::start().await;
    let on_it = closed.tokens_on("book").await;
    let elsewhere = closed.tokens_on("elsewhere*").await;
    let cases = cases();
    let on_one = cases.iter().filter(|case| case.is_on_one).count();
    assert!(on_one > 20, "{on_one} methods name a namespace");
    let leader = closed.cluster.leader().await;
    for node in [leader, other_than(leader)] {
        let addresses = closed.cluster.nodes[&node].addresses();
        let (grpc, http) = (addresses.client, addresses.http.expect("a port"));
        for case in &cases {
            let Some(verb) = case.verb.as_deref() else {
                continue;
            };
            for (token, is_granted) in [
                (&elsewhere[verb], case.is_on_some),
                (&on_it[verb], case.is_on_one || case.is_on_some),
            ] {
                let what = format!("{} with {token} at node {node}", case.name);
                let token = Some(token.as_str());
                let told = case.over_grpc(grpc, token).await;
                assert_eq!(told == Code::PermissionDenied, !is_granted, "{what}: {told:?}");
                assert_ne!(told, Code::Unauthenticated, "{what}");
                if let Some(status) = case.over_http(http, token).await {
                    assert_eq!(status == 403, !is_granted, "{what}: {status}");
                    assert_ne!(status, 401, "{what}");
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_of_redis_is_for_those_alone_who_are_granted_its_verb() {
    let closed = Closed::start().await;
    let leader = closed.cluster.leader().await;
    for node in [leader, 1 + leader % 3] {
        let address = closed.cluster.nodes[&node].addresses().resp.expect("a port");
        let count = over_redis(address, Some(closed.token("next")), "COMMAND COUNT").await;
        let known = COMMANDS.iter().map(|(command, _)| command).chain(FOR_ANYBODY);
        let known: BTreeSet<_> = known.map(|command| command.split(' ').next()).collect();
        assert_eq!(count, format!(":{}\r\n", known.len()), "a command without a row");
        for (command, wanted) in COMMANDS {
            let nobody = over_redis(address, None, command).await;
            assert!(nobody.starts_with("-NOAUTH "), "{command} at node {node}: {nobody}");
            for verb in VERBS {
                let told = over_redis(address, Some(closed.token(verb)), command).await;
                let is_granted = wanted.is_none_or(|wanted| wanted == verb);
                let is_refused = told.starts_with("-NOPERM ");
                assert_eq!(is_refused, !is_granted, "{command} with {verb}: {told}");
                assert!(!told.starts_with("-NOAUTH"), "{command} with {verb}: {told}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_with_a_key_is_for_those_alone_who_are_granted_its_verb_on_its_namespace() {
    let closed = Closed::start().await;
    let on_it = closed.tokens_on("book").await;
    let elsewhere = closed.tokens_on("elsewhere*").await;
    let leader = closed.cluster.leader().await;
    let create = CreateNamespaceRequest {
        name: "elsewhere".to_owned(),
        ..CreateNamespaceRequest::default()
    };
    let mut admin = AdminClient::new(closed.at(leader, ADMIN));
    admin.create_namespace(create).await.expect("a namespace");
    for node in [leader, other_than(leader)] {
        let address = closed.cluster.nodes[&node].addresses().resp.expect("a port");
        let assert_granted = async |token: &str, command: &str, is_granted: bool| {
            let told = over_redis(address, Some(token), command).await;
            let what = format!("{command} with {token} at node {node}: {told}");
            assert_eq!(told.starts_with("-NOPERM "), !is_granted, "{what}");
            assert!(!told.starts_with("-NOAUTH"), "{what}");
        };
        for (command, verb) in COMMANDS {
            let has_key = command.contains("book:");
            let Some(verb) = *verb else {
                assert!(!has_key || command.starts_with("WATCH "), "{command} is for everybody");
                continue;
            };
            assert!(has_key, "{command}: its verb is needed on what its key names");
            let of_others = command.replace("book:", "elsewhere:");
            assert_granted(&elsewhere[verb], command, false).await;
            assert_granted(&elsewhere[verb], &of_others, true).await;
            assert_granted(&on_it[verb], command, true).await;
            assert_granted(&on_it[verb], &of_others, false).await;
        }
        // One key that is granted lets no other in.
        for name in ["MGET", "EXISTS"] {
            for keys in ["book:1 elsewhere:1", "elsewhere:1 book:1"] {
                let command = format!("{name} {keys}");
                assert_granted(&on_it["read"], &command, false).await;
                assert_granted(&elsewhere["read"], &command, false).await;
                assert_granted(closed.token("read"), &command, true).await;
            }
        }
    }
}
