//! An input that says where it is cut.

/// The most cuts.
const CUTS_MAX: u8 = 16;

/// Cuts `input` into the parts in which it arrives. Its first byte, modulo 16, is the number of cuts. As many bytes follow,
/// each the length of a part; the rest is the last part.
pub fn parts(input: &[u8]) -> Vec<&[u8]> {
    let Some((cuts, rest)) = input.split_first() else {
        return Vec::new();
    };
    let cuts = usize::from(cuts % CUTS_MAX).min(rest.len());
    let (lengths, mut rest) = rest.split_at(cuts);
    let mut parts = Vec::with_capacity(cuts + 1);
    for length in lengths {
        let (part, after) = rest.split_at(usize::from(*length).min(rest.len()));
        parts.push(part);
        rest = after;
    }
    parts.push(rest);
    parts
}

#[test]
fn an_input_is_cut_where_it_says() {
    assert_eq!(parts(b"\x02\x01\x03abcdefg"), [&b"a"[..], b"bcd", b"efg"]);
    assert_eq!(parts(b"\x00abc"), [b"abc"]);
    assert_eq!(parts(b"\x03\x09\x09"), [b"", b"", b""]);
    assert!(parts(b"").is_empty());
}
