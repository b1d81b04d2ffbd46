//! HTTP/2 by hand: frames that no library sends.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
};

/// The kinds of frames that tests look for.
const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const WINDOW_UPDATE: u8 = 8;
/// The flag of settings, and of pings, that acknowledge the other end's.
pub const ACK: u8 = 1;
/// The flag of the last frame of a call, or of its answer.
pub const END: u8 = 1;

/// A frame that has arrived.
#[derive(Debug)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

/// The next frame.
pub async fn read(stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Frame> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).await?;
    let [a, b, c, kind, flags, of @ ..] = head;
    let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
    stream.read_exact(&mut payload).await?;
    Ok(Frame { kind, flags, stream: u32::from_be_bytes(of), payload })
}

/// Reads until the answer to a call has ended.
///
/// # Panics
/// If the connection ends before.
pub async fn end_of_answer(stream: &mut TcpStream) {
    loop {
        let frame = read(stream).await.expect("a frame");
        if frame.kind == HEADERS && frame.flags & END != 0 {
            return;
        }
    }
}

const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// A connection from another address than the tests' clients have.
pub async fn connect_from_elsewhere(to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind((ELSEWHERE, 0).into()).expect("an address of this machine");
    socket.connect(to).await.expect("a connection")
}

/// A connection that both ends have agreed on.
pub async fn greeted(address: SocketAddr) -> TcpStream {
    greet(TcpStream::connect(address).await.expect("a connection"), &[]).await
}

/// The connection, once both ends have agreed on it, with these settings: an identifier and a value each.
pub async fn greet(mut stream: TcpStream, settings: &[(u16, u32)]) -> TcpStream {
    let payload: Vec<u8> = (settings.iter())
        .flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat())
        .collect();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let says = [&preface[..], &frame(SETTINGS, 0, 0, &payload)].concat();
    stream.write_all(&says).await.expect("a greeting");
    loop {
        let frame = read(&mut stream).await.expect("a greeting");
        match (frame.kind, frame.flags) {
            (SETTINGS, 0) => {
                let acknowledged = self::frame(SETTINGS, ACK, 0, &[]);
                stream.write_all(&acknowledged).await.expect("an answer");
            }
            // It opens its windows before it acknowledges.
            (SETTINGS, ACK) => return stream,
            _ => {}
        }
    }
}

/// The headers of a call by gRPC.
pub fn call(stream: u32, path: &str) -> Vec<u8> {
    frame(HEADERS, 0x4, stream, &headers(path))
}

/// The headers of a call by gRPC that shows a token.
pub fn call_with_token(stream: u32, path: &str, token: &str) -> Vec<u8> {
    let mut headers = headers(path);
    // This header is `authorization`.
    add(&mut headers, &[0x0f, 0x08], &format!("Bearer {token}"));
    frame(HEADERS, 0x4, stream, &headers)
}

fn headers(path: &str) -> Vec<u8> {
    // POST, http; then the path, the authority, and the content type, none of them indexed.
    let mut headers = vec![0x83, 0x86];
    add(&mut headers, &[0x04], path);
    add(&mut headers, &[0x01], "a");
    add(&mut headers, &[0x0f, 0x10], "application/grpc");
    headers
}

fn add(headers: &mut Vec<u8>, name: &[u8], value: &str) {
    headers.extend(name);
    headers.push(value.len() as u8);
    headers.extend(value.as_bytes());
}

/// A part of the body of a call.
pub fn data(stream: u32, payload: &[u8]) -> Vec<u8> {
    frame(DATA, 0, stream, payload)
}

/// The last part of the body of a call.
pub fn last_data(stream: u32, payload: &[u8]) -> Vec<u8> {
    frame(DATA, END, stream, payload)
}

/// A ping, which the other end is to answer at once.
pub fn ping() -> Vec<u8> {
    frame(PING, 0, 0, &[7; 8])
}

/// The answer to a ping.
pub fn pong(ping: &Frame) -> Vec<u8> {
    frame(PING, ACK, 0, &ping.payload)
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}
