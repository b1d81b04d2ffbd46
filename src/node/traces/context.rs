//! The trace that a call belongs to, as its caller says it in headers (W3C Trace Context). Pure.

/// The id of a trace, which no other trace has.
pub type TraceId = [u8; 16];
/// The id of a span, which no other span of the trace has.
pub type SpanId = [u8; 8];

/// The version of the header that is known here, and how long it is.
const VERSION: u8 = 0;
const HEADER_CHARS: usize = 55;
/// The flag of a trace that is recorded.
const SAMPLED: u8 = 1;
/// How long the other header may be. A longer one is left out.
const STATE_BYTES_MAX: usize = 512;

/// A span, and the trace that it is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace.
    pub trace: TraceId,
    /// The span.
    pub span: SpanId,
    /// Whether the trace is recorded.
    pub is_sampled: bool,
    /// A text for other systems on the way. It is passed on as it is.
    pub state: String,
}

impl TraceContext {
    /// Reads the headers `traceparent` and `tracestate`, with all their values. `None` if they name no span: then the call
    /// begins a trace, as one without them.
    pub fn read<'a>(
        mut parents: impl Iterator<Item = &'a [u8]>, states: impl Iterator<Item = &'a [u8]>,
    ) -> Option<Self> {
        let parent = parents.next()?;
        if parents.next().is_some() {
            return None;
        }
        let (trace, span, flags) = parent_of(parent)?;
        let state = state_of(states).unwrap_or_default();
        Some(TraceContext { trace, span, is_sampled: flags & SAMPLED != 0, state })
    }

    /// That of a peer's message. `None` if it names no span.
    pub fn of_peer(trace: &[u8], span: &[u8], state: String) -> Option<Self> {
        let (trace, span) = (known(trace.try_into().ok()?)?, known(span.try_into().ok()?)?);
        Some(TraceContext { trace, span, is_sampled: true, state })
    }
}

/// Trace, span and flags of the header `traceparent`. A later version may have more behind them.
fn parent_of(header: &[u8]) -> Option<(TraceId, SpanId, u8)> {
    let [version] = hex(header.get(..2)?)?;
    let ends = match header.get(HEADER_CHARS) {
        None => header.len() == HEADER_CHARS,
        Some(next) => version > VERSION && *next == b'-',
    };
    let has_parts = ends && [2, 35, 52].iter().all(|at| header[*at] == b'-');
    if version == u8::MAX || !has_parts {
        return None;
    }
    let [flags] = hex(&header[53..55])?;
    Some((known(hex(&header[3..35])?)?, known(hex(&header[36..52])?)?, flags))
}

/// The values of the header `tracestate`, as one. `None` if it is no text, or too long.
fn state_of<'a>(values: impl Iterator<Item = &'a [u8]>) -> Option<String> {
    let mut state = String::new();
    for value in values.filter(|value| !value.is_empty()) {
        let is_text = value.iter().all(|byte| (b' '..=b'~').contains(byte));
        let text = std::str::from_utf8(value).ok().filter(|_| is_text)?;
        if !state.is_empty() {
            state.push(',');
        }
        state.push_str(text);
        if state.len() > STATE_BYTES_MAX {
            return None;
        }
    }
    Some(state)
}

/// The id of a trace or a span, unless it is all zeros.
fn known<const N: usize>(id: [u8; N]) -> Option<[u8; N]> {
    (id != [0; N]).then_some(id)
}

/// Reads lower-case hexadecimal digits, two for each byte.
fn hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = (digit(pair[0])? << 4) | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn read(parents: &[&str], states: &[&str]) -> Option<TraceContext> {
        let bytes = |texts: &[&str]| -> Vec<Vec<u8>> {
            texts.iter().map(|text| text.as_bytes().to_vec()).collect()
        };
        let (parents, states) = (bytes(parents), bytes(states));
        TraceContext::read(parents.iter().map(Vec::as_slice), states.iter().map(Vec::as_slice))
    }

    #[test]
    fn the_headers_of_a_caller_name_its_span_and_its_trace() {
        let context = read(&[PARENT], &["a=1", "", "b=2"]).expect("a span");
        assert_eq!(context.trace[..3], [0x0a, 0xf7, 0x65]);
        assert_eq!(context.span, [0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31]);
        assert_eq!((context.is_sampled, context.state.as_str()), (true, "a=1,b=2"));
        let not_sampled = PARENT.replace("-01", "-02");
        assert!(!read(&[&not_sampled], &[]).expect("a span").is_sampled);
        // A later version has the same first.
        for later in [PARENT.replace("00-", "cc-"), PARENT.replace("00-", "cc-") + "-more"] {
            assert_eq!(read(&[&later], &[]).map(|context| context.span), Some(context.span));
        }
    }

    #[test]
    fn headers_that_name_no_span_are_as_none() {
        assert_eq!(read(&[], &["a=1"]), None);
        assert_eq!(read(&[PARENT, PARENT], &[]), None);
        for wrong in [
            "",
            "0",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331.01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01.",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "é0-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(read(&[wrong], &[]), None, "{wrong}");
        }
    }

    #[test]
    fn a_state_that_is_too_long_or_no_text_is_left_out_and_the_span_stays() {
        let state = |states: &[&str]| read(&[PARENT], states).expect("a span").state;
        assert_eq!(state(&["a=\u{7}"]), "");
        assert_eq!(state(&[&"a".repeat(STATE_BYTES_MAX)]).len(), STATE_BYTES_MAX);
        assert_eq!(state(&[&"a".repeat(STATE_BYTES_MAX), "b"]), "");
    }

    #[test]
    fn what_a_peer_says_names_a_span_or_none() {
        let of = |trace: &[u8], span: &[u8]| TraceContext::of_peer(trace, span, String::new());
        assert!(of(&[1; 16], &[1; 8]).is_some_and(|context| context.is_sampled));
        assert_eq!(
            [of(&[1; 15], &[1; 8]), of(&[1; 16], &[0; 8]), of(&[], &[])],
            [None, None, None]
        );
    }
}
