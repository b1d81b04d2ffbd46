//! The protocol of Redis clients (RESP2), over one connection.

use std::io;

use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufStream},
    time::timeout,
};

use super::{failure::Failure, tcp::connect};
use crate::{
    access::Protocol,
    address::{Address, Socket},
    client::{DEADLINE, FirstAndLast},
    history::Action,
    target::{INCREMENT, Target},
};

#[cfg(test)]
mod tests;

/// How many bytes a number as a text has at most.
const NUMBER_BYTES_MAX: usize = 20;

/// A caller's connection to the port for Redis clients of a node.
pub struct RespConnection {
    address: Address,
    connection: Option<BufStream<Socket>>,
}

/// One reply, of the kinds that the commands here get.
#[derive(Debug, PartialEq, Eq)]
enum Reply {
    Number(u64),
    Nothing,
    Ok,
    Error(String),
}

impl RespConnection {
    /// Connects at the first command.
    pub fn new(address: impl Into<Address>) -> RespConnection {
        RespConnection { address: address.into(), connection: None }
    }

    /// Asks once for each key, in one pipeline. Returns the answer to each of them. A request that was not
    /// answered before the connection failed has an unknown outcome.
    pub async fn ask(
        &mut self, targets: &[Target], action: Action,
    ) -> Vec<Result<FirstAndLast, Failure>> {
        let mut answers = Vec::with_capacity(targets.len());
        if let Err(failure) = self.pipeline(targets, action, &mut answers).await {
            // A late answer on the connection would be taken for the answer to another request.
            self.connection = None;
            answers.resize(targets.len(), Err(failure));
        }
        answers
    }

    /// Increments a key by 1.
    ///
    /// # Errors
    /// The node's, or the connection's. The key may have been incremented.
    pub async fn incr(&mut self, key: &str) -> Result<u64, Failure> {
        let mut command = Vec::new();
        write_words(&mut command, &["INCR", key]);
        let mut replied = Err(Failure::unknown("no reply"));
        let exchanged = self.exchange(&command, 1, |reply| {
            replied = match reply {
                Reply::Number(number) => Ok(number),
                Reply::Error(text) => Err(Failure::unknown(text)),
                Reply::Nothing | Reply::Ok => Err(Failure::unknown("the reply to another command")),
            };
        });
        if let Err(failure) = exchanged.await {
            // A late reply on the connection would be taken for the reply to another command.
            self.connection = None;
            return Err(failure);
        }
        replied
    }

    /// Adds the answers that are read to `answers`.
    async fn pipeline(
        &mut self, targets: &[Target], action: Action,
        answers: &mut Vec<Result<FirstAndLast, Failure>>,
    ) -> Result<(), Failure> {
        let mut commands = Vec::new();
        for target in targets {
            write_command(&mut commands, target, action);
        }
        self.exchange(&commands, targets.len(), |reply| answers.push(judge(action, reply))).await
    }

    /// Sends commands, and hands over each reply that is read.
    async fn exchange(
        &mut self, commands: &[u8], replies: usize, mut each: impl FnMut(Reply),
    ) -> Result<(), Failure> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(open(&self.address).await?),
        };
        let exchange = async {
            connection.write_all(commands).await?;
            connection.flush().await?;
            for _ in 0..replies {
                each(read_reply(connection).await?);
            }
            Ok(())
        };
        let in_time = timeout(DEADLINE, exchange).await;
        let exchanged = in_time.map_err(|_| Failure::unknown("no answer in time"))?;
        exchanged.map_err(|error: io::Error| Failure::unknown(format!("the connection: {error}")))
    }
}

/// Connects, and shows the token if there is one.
///
/// # Errors
/// There is no connection, or the node does not take the token. So nothing was asked.
async fn open(address: &Address) -> Result<BufStream<Socket>, Failure> {
    let mut connection = BufStream::new(connect(address, Protocol::Resp).await?);
    let Some(token) = address.access().and_then(|access| access.token()) else {
        return Ok(connection);
    };
    let mut command = Vec::new();
    write_words(&mut command, &["AUTH", token]);
    let showing = async {
        connection.write_all(&command).await?;
        connection.flush().await?;
        read_reply(&mut connection).await
    };
    let refused = |why: String| Failure::refused(format!("AUTH at {}: {why}", address.at));
    match timeout(DEADLINE / 2, showing).await {
        Ok(Ok(Reply::Ok)) => Ok(connection),
        Ok(Ok(reply)) => Err(refused(format!("{reply:?}"))),
        Ok(Err(error)) => Err(refused(error.to_string())),
        Err(_) => Err(refused("no answer in time".to_owned())),
    }
}

/// Adds a command to a pipeline.
fn write_command(pipeline: &mut Vec<u8>, target: &Target, action: Action) {
    let key = format!("{}:{}", target.namespace, target.key_text());
    let words = match action {
        Action::Next { count } => vec!["INCRBY".to_owned(), key, count.to_string()],
        Action::Current => vec!["GET".to_owned(), key],
        Action::Raise { floor } => vec!["SET".to_owned(), key, floor.to_string()],
    };
    write_words(pipeline, &words);
}

fn write_words(pipeline: &mut Vec<u8>, words: &[impl AsRef<str>]) {
    pipeline.extend(format!("*{}\r\n", words.len()).into_bytes());
    for word in words.iter().map(AsRef::as_ref) {
        pipeline.extend(format!("${}\r\n{word}\r\n", word.len()).into_bytes());
    }
}

/// Reads a reply to an action.
fn judge(action: Action, reply: Reply) -> Result<FirstAndLast, Failure> {
    match (action, reply) {
        // The reply is the last number. A range that would begin below 1 is one that the checker refuses.
        (Action::Next { count }, Reply::Number(last)) => {
            let distance = count.saturating_sub(1).saturating_mul(INCREMENT);
            Ok((last.saturating_sub(distance), last))
        }
        (Action::Current, Reply::Number(last)) => Ok((last, last)),
        (Action::Current, Reply::Nothing) => Ok((0, 0)),
        (Action::Raise { floor }, Reply::Ok) => Ok((floor, floor)),
        (_, Reply::Number(_) | Reply::Nothing | Reply::Ok) => {
            Err(Failure::unknown("the reply to another command"))
        }
        // The first word tells whether to try again, not whether numbers were taken.
        (_, Reply::Error(text)) => Err(Failure::unknown(text)),
    }
}

async fn read_reply(from: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Reply> {
    let line = read_line(from).await?;
    let unexpected = || io::Error::new(io::ErrorKind::InvalidData, format!("the reply {line:?}"));
    let number = |text: &str| text.parse::<u64>().map_err(|_| unexpected());
    match line.split_at_checked(1) {
        Some((":", text)) => number(text).map(Reply::Number),
        Some(("-", text)) => Ok(Reply::Error(text.to_owned())),
        Some(("+", "OK")) => Ok(Reply::Ok),
        Some(("$", "-1")) => Ok(Reply::Nothing),
        Some(("$", length)) => {
            let length = length.parse::<usize>().map_err(|_| unexpected())?;
            if length > NUMBER_BYTES_MAX {
                return Err(unexpected());
            }
            let mut bytes = vec![0; length + "\r\n".len()];
            from.read_exact(&mut bytes).await?;
            let text = bytes.strip_suffix(b"\r\n").ok_or_else(unexpected)?;
            number(&String::from_utf8_lossy(text)).map(Reply::Number)
        }
        _ => Err(unexpected()),
    }
}

/// Reads a line, without its end.
async fn read_line(from: &mut (impl AsyncBufRead + Unpin)) -> io::Result<String> {
    let mut line = String::new();
    from.read_line(&mut line).await?;
    match line.strip_suffix("\r\n") {
        Some(line) => Ok(line.to_owned()),
        None => {
            Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ended before the end of a reply"))
        }
    }
}
