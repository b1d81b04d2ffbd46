//! The pages about the bytes that callers over HTTP/2 can make a node keep.

use super::super::{
    CLIENT_CALLS, CLIENT_WINDOWS, FRAME_BYTES_MAX, until_known::STRANGERS_BYTES_MAX,
};
use crate::node::{COUNTED_BYTES_MIN, Config};

const SETTINGS: &str = include_str!("../../../../docs/settings.md");
const DEPLOY: &str = include_str!("../../../../docs/deploy.md");

/// In how many frames headers may arrive without an end: h2 0.4 ends a connection at the sixth CONTINUATION
/// (`calc_max_continuation_frames`). Until then it keeps what it cannot decode, such as a value of which a part is missing.
const HEADER_FRAMES: u64 = 6;

/// A number as pages have it: with a space before each three digits.
fn spaced(number: u64) -> String {
    match number / 1_000 {
        0 => number.to_string(),
        thousands => format!("{} {:03}", spaced(thousands), number % 1_000),
    }
}

fn assert_told(page: &str, told: &str) {
    let text = page.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains(told), "no page tells: {told}");
}

#[test]
fn the_pages_tell_how_many_bytes_callers_can_make_a_node_keep_at_most() {
    let config = Config::default();
    let [calls_of_one, headers] = CLIENT_CALLS.map(u64::from);
    let [unread, window] = CLIENT_WINDOWS.map(u64::from);
    let (message, frame) = (COUNTED_BYTES_MIN as u64, u64::from(FRAME_BYTES_MAX));
    let endless = HEADER_FRAMES * frame;
    let (of_call, of_connection) = (unread + headers + message, endless + frame);
    let kib = |bytes: u64| format!("{} KiB", bytes >> 10);
    let mib = |bytes: u64| format!("{} MiB", spaced(bytes >> 20));

    let parts = format!(
        "Each holds at most {} that `memory_requests_max_mb` does not count: {} that have arrived and are not read yet, {} \
         of headers, and {} of its message. A connection has at most {} of them.",
        kib(of_call),
        kib(unread),
        kib(headers),
        kib(message),
        spaced(calls_of_one)
    );
    assert_told(SETTINGS, &parts);
    let parts = format!(
        "a connection holds at most {}: {} of headers whose end is missing, and {} of a frame",
        kib(of_connection),
        kib(endless),
        kib(frame)
    );
    assert_told(SETTINGS, &parts);

    let kept = |connections: u64, calls: u64| {
        format!(
            "{} x {} + {} x {} = {}",
            spaced(calls),
            kib(of_call),
            spaced(connections),
            kib(of_connection),
            mib(calls * of_call + connections * of_connection)
        )
    };
    let all = (config.client_connections_max, config.client_calls_max);
    let of_one = |all: u64| all * config.client_share_percent / 100;
    let each = (of_one(all.0), of_one(all.1));
    for (who, (connections, calls)) in [("all callers", all), ("one address or principal", each)] {
        let row = format!(
            "| {who}: {count} connections, {} calls | {count} x {} | {} |",
            spaced(calls),
            mib(window),
            kept(connections, calls),
            count = spaced(connections)
        );
        assert_told(SETTINGS, &row);
    }
    let strangers = format!(
        "| {count} x {} | {count} x {} = {} |",
        kib(STRANGERS_BYTES_MAX as u64),
        kib(of_call),
        mib(each.0 * of_call),
        count = spaced(each.0)
    );
    assert_told(SETTINGS, &strangers);
    assert_told(DEPLOY, &kept(all.0, all.1));
}
