//! HTTP/2 connections that nobody uses.

use hyper::Response;
use tokio::io::{AsyncWriteExt, DuplexStream, duplex};
use tonic::body::Body;

use super::{places::WhenFull, *};
use crate::node::Config;

mod kept_bytes;

/// The types of two frames, and the flag of their acknowledgements.
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const ACK: u8 = 1;

/// Speaks HTTP/2 and makes no call. Acknowledges what is sent, until the other end ends the connection.
async fn acknowledge(mut stream: DuplexStream) -> io::Result<()> {
    stream.write_all(PREFACE).await?;
    stream.write_all(&[0, 0, 0, SETTINGS, 0, 0, 0, 0, 0]).await?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await?;
        let [high, middle, low, kind, flags, ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, high, middle, low]) as usize];
        stream.read_exact(&mut payload).await?;
        match (kind, flags) {
            (SETTINGS, 0) => stream.write_all(&[0, 0, 0, SETTINGS, ACK, 0, 0, 0, 0]).await?,
            (PING, 0) => {
                head[4] = ACK;
                stream.write_all(&head).await?;
                stream.write_all(&payload).await?;
            }
            _ => {}
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_a_call_is_kept_for_as_long_as_it_may_be_idle() {
    let idle = Duration::from_millis(Config::default().connection_idle_ms);
    // Many balancers keep connections for 600 s, and send a call over one just before: it must not end then.
    assert!(idle >= Duration::from_secs(630), "{idle:?}");
    let place = ConnectionPlace::new(WhenFull::RefuseNew, None);
    let nobody_calls = tower::service_fn(|_: Request<Incoming>| async {
        Ok::<_, Infallible>(Response::new(Body::empty()))
    });
    let http2 = http2((CLIENT_CALLS, CLIENT_WINDOWS), idle, &place);
    let ends = Ends { idle, too_old_at: None, stop: CancellationToken::new() };
    let (stream, client) = duplex(1 << 16);
    let began = Instant::now();
    let serving = serve_http2(stream, http2, nobody_calls, place, ends);
    let (served, _) = tokio::join!(serving, acknowledge(client));
    served.expect("an end as usual");
    let lasted = began.elapsed();
    assert!((idle..=idle + SHUTDOWN_TIME_MAX).contains(&lasted), "{lasted:?}");
}
