//! Replies have the shapes of the replies of the Redis release that the node names as its own: clients read them by it.
//!
//! The file beside this one holds the replies of a real Redis; its first line names the script that made it.

use std::str::FromStr;

use ratchet::proto::v1::access_client::AccessClient;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::common::{
    closed::{ADMIN, asking, create, everything, grant, granting},
    cluster::Cluster,
    in_time, with_resp,
};

const RECORDED: &str = include_str!("redis_replies.txt");
/// It made the file.
const SCRIPT: &str = include_str!("redis_replies.py");

/// Later releases of Redis have it, and clients send it unasked.
const LATER: &str = "client|setinfo";

/// A reply: its kind, the rest of its line or the bytes of a text, and the replies in it.
#[derive(Debug, PartialEq, Eq)]
struct Reply {
    kind: char,
    text: String,
    items: Vec<Reply>,
}

/// The reply at the beginning of `bytes`, and the text after it. `None` if it has not arrived in full.
fn parse(bytes: &str) -> Option<(Reply, &str)> {
    let (line, mut rest) = bytes.split_once("\r\n")?;
    let kind = line.chars().next().expect("a kind");
    let (mut text, mut items) = (&line[1..], Vec::new());
    let number = || usize::from_str(&line[1..]).expect("a length");
    match kind {
        '$' | '=' if text != "-1" => {
            text = rest.get(..number())?;
            rest = rest.get(number() + 2..)?;
        }
        '*' | '~' | '%' => {
            let count = if kind == '%' { 2 * number() } else { number() };
            for _ in 0..count {
                let item;
                (item, rest) = parse(rest)?;
                items.push(item);
            }
        }
        _ => {}
    }
    Some((Reply { kind, text: text.to_owned(), items }, rest))
}

impl Reply {
    fn field(&self, name: &str) -> Option<&Reply> {
        let place = self.items.iter().step_by(2).position(|key| key.text == name)?;
        self.items.get(2 * place + 1)
    }

    /// The items without the field that tells people why.
    fn without_notes(&self) -> Vec<&Reply> {
        let notes = self.items.iter().position(|item| item.text == "notes");
        let is_note = |place: usize| notes.is_some_and(|at| (at..at + 2).contains(&place));
        let kept = self.items.iter().enumerate().filter(|(place, _)| !is_note(*place));
        kept.map(|(_, item)| item).collect()
    }

    /// Checks that a client reads this as it reads the reply of Redis.
    fn check(&self, real: &Reply, of: &str) {
        assert_eq!(self.kind, real.kind, "{of}: {self:?} is not like {real:?}");
        match self.kind {
            '+' => assert_eq!(self.text, real.text, "{of}"),
            // A caller that is not let in reads the whole sentence of Redis, and then the cause here.
            '-' if of.starts_with("closed ") => {
                let sentence = real.text.trim_end_matches('.');
                assert!(self.text.starts_with(sentence), "{of}: {} is not {sentence}", self.text);
            }
            '-' => {
                let word = |reply: &Reply| reply.text.split(' ').next().map(str::to_owned);
                assert_eq!(word(self), word(real), "{of}");
            }
            '$' => assert_eq!(self.text == "-1", real.text == "-1", "{of}"),
            '%' => {
                for pair in self.items.chunks(2).filter(|pair| pair[0].text != LATER) {
                    let name = &pair[0].text;
                    let real = real.field(name).unwrap_or_else(|| panic!("{of}: {name} is new"));
                    pair[1].check(real, of);
                }
            }
            _ => {
                assert_eq!(self.items.len(), real.items.len(), "{of}: {self:?} for {real:?}");
                self.items.iter().zip(&real.items).for_each(|(one, other)| one.check(other, of));
            }
        }
    }

    /// Checks that a client learns the same of a command as from Redis.
    fn check_command(&self, real: &Reply) {
        let of = &self.items[0].text;
        assert_eq!((self.kind, self.items.len()), (real.kind, real.items.len()), "{of}");
        // The first items are the name, the number of arguments, the flags, and the places of the keys.
        assert_eq!(self.items[..6], real.items[..6], "{of}");
        let kinds = |reply: &Reply| -> Vec<char> { reply.items.iter().map(|it| it.kind).collect() };
        assert_eq!(kinds(self), kinds(real), "{of}");
        let (places, real_places) = (&self.items[8].items, &real.items[8].items);
        assert_eq!(places.len(), real_places.len(), "{of}");
        for (place, real) in places.iter().zip(real_places) {
            assert_eq!(place.without_notes(), real.without_notes(), "{of}");
        }
        for subcommand in &self.items[9].items {
            let name = &subcommand.items[0].text;
            let real = real.items[9].items.iter().find(|real| real.items[0].text == *name);
            match real {
                Some(real) => subcommand.check_command(real),
                None => assert_eq!(name, LATER),
            }
        }
    }
}

struct Client {
    stream: TcpStream,
    read: String,
}

impl Client {
    async fn ask(&mut self, command: &str) -> Reply {
        let asking = async {
            self.stream.write_all(format!("{command}\r\n").as_bytes()).await.expect("sent");
            loop {
                if let Some((reply, rest)) = parse(&self.read) {
                    self.read = rest.to_owned();
                    return reply;
                }
                let mut bytes = vec![0; 1 << 16];
                let count = self.stream.read(&mut bytes).await.expect("bytes");
                assert_ne!(count, 0, "{command}: the connection ended");
                self.read += std::str::from_utf8(&bytes[..count]).expect("a text");
            }
        };
        in_time("a reply", asking).await
    }
}

/// Lets in callers with a token alone. The token of alice may read books.
async fn close(cluster: &Cluster) {
    let access = |token| AccessClient::new(asking(cluster.address(1), token));
    let mut nobody = access(None);
    create(&mut nobody, ADMIN, "admin", everything()).await.expect("a token");
    let grants = vec![grant("read:book")];
    create(&mut nobody, "token-of-alice", "alice", grants).await.expect("a token");
    let nothing = granting("anonymous", None, &[]);
    access(Some(ADMIN)).set_grants(nothing).await.expect("tokens are needed");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_command_is_answered_in_the_shape_in_which_redis_answers_it() {
    let mut cluster = None;
    let (mut client, mut compared) = (None, 0);
    let mut of_cluster = "";
    for line in RECORDED.lines().skip(1) {
        let Some((asked, real)) = line.split_once('\t') else {
            client = None;
            continue;
        };
        let mut words = asked.splitn(3, ' ');
        let mut word = || words.next().expect("three parts");
        let (mode, version, command) = (word(), word(), word());
        if client.is_none() {
            // Each part of the file begins with keys that have no numbers.
            if cluster.is_none() || of_cluster != &asked[..mode.len() + 2] {
                let started = Cluster::start(1, with_resp).await;
                if mode == "closed" {
                    close(&started).await;
                }
                cluster = Some(started);
                of_cluster = &asked[..mode.len() + 2];
            }
            let node = &cluster.as_ref().expect("a cluster").nodes[&1];
            let address = node.addresses().resp.expect("a port");
            let stream = TcpStream::connect(address).await.expect("a connection");
            client = Some(Client { stream, read: String::new() });
        }
        let client = client.as_mut().expect("a connection");
        let real = real.replace("\\r", "\r").replace("\\n", "\n");
        let (real, rest) = parse(&real).expect("a reply");
        assert_eq!(rest, "", "{asked}");
        let reply = client.ask(command).await;
        compared += 1;
        match command.split_once("COMMAND INFO ") {
            Some((_, name)) if name != "nosuch" => reply.items[0].check_command(&real.items[0]),
            // In RESP2 maps are arrays, and entries that may be missing in them cannot be told from the rest.
            _ if command.starts_with("COMMAND DOCS") && version == "2" => {
                assert_eq!(reply.kind, real.kind);
            }
            _ => reply.check(&real, asked),
        }
    }
    assert!(compared > 200, "{compared} replies were compared");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_command_is_among_those_that_are_compared() {
    let cluster = Cluster::start(1, with_resp).await;
    let address = cluster.nodes[&1].addresses().resp.expect("a port");
    let stream = TcpStream::connect(address).await.expect("a connection");
    let mut client = Client { stream, read: String::new() };
    let listed = client.ask("COMMAND LIST").await;
    let (_, asked) = SCRIPT.split_once("COMMANDS = \"\"\"\n").expect("a list of commands");
    let (asked, _) = asked.split_once("\"\"\"").expect("its end");
    let asked: Vec<&str> = asked.split_whitespace().collect();
    // Subcommands come with their commands.
    let names = listed.items.iter().map(|item| item.text.as_str()).filter(|it| !it.contains('|'));
    let mut compared = 0;
    for name in names {
        assert!(asked.contains(&name), "{name} is not among the COMMANDS of redis_replies.py");
        for version in [2, 3] {
            let line = format!("\nalone {version} COMMAND INFO {name}\t");
            assert!(RECORDED.contains(&line), "make redis_replies.txt anew: it lacks {name}");
        }
        compared += 1;
    }
    assert_eq!(compared, asked.len(), "all that the script asks for are commands");
}
