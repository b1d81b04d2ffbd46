//! The parser of replies reads the replies of servers of RESP, and nothing else.

// With the targets the library is compiled for libFuzzer, and refers to it.
#[cfg(feature = "targets")]
use libfuzzer_sys as _;
use ratchet_fuzz::replies::{DEPTH_MAX, Reply, Version, reply};

#[test]
fn replies_are_read_and_what_follows_them_is_left() {
    let bytes = b"*3\r\n$2\r\n\r\n\r\n:-5\r\n%1\r\n+OK\r\n_\r\n-ERR x\r\n";
    let (read, rest) = reply(bytes, Version::Resp3).expect("a reply");
    let map = Reply::Map(vec![(Reply::Simple("OK"), Reply::Null)]);
    let expected = vec![Reply::Bulk(b"\r\n"), Reply::Integer(-5), map];
    assert_eq!((read, rest), (Reply::Array(expected), &b"-ERR x\r\n"[..]));
}

#[test]
fn what_is_not_written_as_it_must_be_is_no_reply() {
    use Version::{Resp2, Resp3};
    for (bytes, version) in [
        (&b""[..], Resp2),
        (b"\r\n", Resp2),
        (b"+OK\n", Resp2),
        (b"-a\rb\r\n", Resp2),
        (b":05\r\n", Resp2),
        (b":\r\n", Resp2),
        (b"$+1\r\na\r\n", Resp2),
        (b"$3\r\nab\r\n", Resp2),
        (b"$1\r\nab\r\n", Resp2),
        (b"$-1\r\n", Resp3),
        (b"_\r\n", Resp2),
        (b"%0\r\n", Resp2),
        (b"%1\r\n:1\r\n", Resp3),
        (b"*2\r\n:1\r\n", Resp2),
        (b"?\r\n", Resp3),
    ] {
        assert!(reply(bytes, version).is_err(), "{}", bytes.escape_ascii());
    }
    let deep = [b"*1\r\n".repeat(DEPTH_MAX), b":1\r\n".to_vec()].concat();
    assert!(reply(&deep, Resp2).is_err());
}
