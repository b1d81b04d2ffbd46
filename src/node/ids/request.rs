//! What is asked of ids and answered: requests and their limits, lists of ids, and what is in an id.

use ratchet_ids::{Format, NAME_BYTES_MAX, Run};
use tokio::time::Instant;

use crate::{
    node::{
        formats::IDS_MAX,
        requests::{
            checks::check_namespace,
            keys::{heap_bytes, key_of},
            operation::ByAskedNode,
        },
    },
    proto::{
        Refusal, refusal, refuse,
        v1::{self, NextIdsRequest, Reason},
    },
};

/// The longest text of an id, in bytes, and some room around it.
const ID_BYTES: usize = 80;
/// The most parameters in one request. An id has no more bits, and each of its fields has one at least.
const PARAMETERS_MAX: usize = 128;

/// How many ids a request asks for.
pub(in crate::node) fn count_of(request: &NextIdsRequest) -> u32 {
    request.count.unwrap_or(1)
}

/// What the caller chooses: values of the format's parameters.
pub(super) fn parameters_of(request: &NextIdsRequest) -> Vec<(&str, u64)> {
    let parameters = request.parameters.iter();
    parameters.map(|(name, value)| (&name[..], *value)).collect()
}

/// Checks what is outside of its limits whatever the namespace is, so that what waits is small.
///
/// # Errors
/// INVALID_ARGUMENT for the key, the namespace's name, the count, the number of parameters or a parameter's name.
pub fn check(request: &NextIdsRequest) -> Result<(), Refusal> {
    if request.key.is_some() {
        key_of(&request.key)?;
    }
    check_namespace(&request.namespace)?;
    check_count(request, IDS_MAX)?;
    let parameters = request.parameters.len();
    if parameters > PARAMETERS_MAX {
        refuse!(
            InvalidRequest,
            "{parameters} parameters are given; no format has more than {PARAMETERS_MAX}"
        );
    }
    let longest = request.parameters.keys().map(String::len).max();
    match longest {
        Some(bytes) if bytes > NAME_BYTES_MAX => Err(refusal!(
            InvalidRequest,
            "the name of a parameter has {bytes} bytes; no format has one of more than {NAME_BYTES_MAX}"
        )),
        _ => Ok(()),
    }
}

/// Refuses a count that is not from 1 to `max`.
///
/// # Errors
/// INVALID_ARGUMENT.
pub(in crate::node) fn check_count(request: &NextIdsRequest, max: u32) -> Result<(), Refusal> {
    let count = count_of(request);
    let reason = match count {
        0 => Reason::InvalidRequest,
        _ if count <= max => return Ok(()),
        _ => Reason::CountTooLarge,
    };
    let name = &request.namespace;
    Err(Refusal::new(
        reason,
        format!("count is {count}; namespace {name:?} gives 1 to {max} ids at a time"),
    ))
}

/// How many bytes a request holds while it waits, with the copy that is forwarded, and its answer until that is sent.
pub(in crate::node) fn bytes_of(request: &NextIdsRequest) -> usize {
    let names = request.parameters.keys();
    let parameters: usize = names.map(|name| size_of::<(String, u64)>() + name.len()).sum();
    let key = heap_bytes(&request.key);
    let own = size_of::<NextIdsRequest>() + request.namespace.len() + key + parameters;
    2 * own + count_of(request) as usize * ID_BYTES
}

// Ids that were made, in as few bytes as they need: a message may ask for thousands.

/// Ids of one format, in the order in which they were made.
#[derive(Debug, Clone)]
pub enum IdList {
    /// All ids of the format fit 64 bits.
    Short(Vec<u64>),
    /// They do not.
    Long(Vec<u128>),
}

impl IdList {
    /// No ids of `format`, and room for `count`.
    pub fn new(format: &Format, count: usize) -> IdList {
        match format.bits() > u64::BITS {
            true => IdList::Long(Vec::with_capacity(count)),
            false => IdList::Short(Vec::with_capacity(count)),
        }
    }

    /// Adds the ids of `run`, which is of the list's format.
    pub fn add(&mut self, run: Run) {
        match self {
            IdList::Short(ids) => {
                let numbers = run.numbers(rand::random);
                ids.extend(numbers.expect("an id has no more bits than its format"));
            }
            IdList::Long(ids) => ids.extend(run.ids(rand::random)),
        }
    }

    /// Adds an id of the list's format.
    pub fn push(&mut self, id: u128) {
        match self {
            IdList::Short(ids) => ids.push(id as u64),
            IdList::Long(ids) => ids.push(id),
        }
    }

    /// Adds its first `count` ids once more, or as many as it has: for a planted bug. Returns how many.
    pub fn repeat(&mut self, count: usize) -> usize {
        fn begin_again<T: Copy>(ids: &mut Vec<T>, count: usize) -> usize {
            let count = count.min(ids.len());
            ids.extend_from_within(..count);
            count
        }
        match self {
            IdList::Short(ids) => begin_again(ids, count),
            IdList::Long(ids) => begin_again(ids, count),
        }
    }

    /// The ids.
    pub fn iter(&self) -> impl Iterator<Item = u128> {
        let (short, long) = match self {
            IdList::Short(ids) => (&ids[..], &[][..]),
            IdList::Long(ids) => (&[][..], &ids[..]),
        };
        let short = short.iter().map(|id| u128::from(*id));
        short.chain(long.iter().copied())
    }
}

// Formats of ids: what they are, and what is in an id. Any node knows.

impl ByAskedNode for v1::ListFormatsRequest {
    type Service = ();

    async fn carry_out(self, _: &(), _: Instant) -> Result<v1::ListFormatsResponse, Refusal> {
        let formats = Format::built_in().map(|(name, _)| Ok(told(&parsed(name)?)));
        let formats = formats.collect::<Result<_, Refusal>>()?;
        Ok(v1::ListFormatsResponse { formats })
    }
}

impl ByAskedNode for v1::GetFormatRequest {
    type Service = ();

    async fn carry_out(self, _: &(), _: Instant) -> Result<v1::Format, Refusal> {
        Ok(told(&parsed(&self.format)?))
    }
}

impl ByAskedNode for v1::DecodeIdRequest {
    type Service = ();

    async fn carry_out(self, _: &(), _: Instant) -> Result<v1::DecodedId, Refusal> {
        let format = parsed(&self.format)?;
        let decoded = format.decode(&self.id).map_err(|error| {
            refusal!(InvalidRequest, "it is no id of this format: {error}; the id is {:?}", self.id)
        })?;
        let fields = decoded.fields();
        Ok(v1::DecodedId {
            time: decoded.date_time().to_string(),
            time_ms: decoded.parts().time_ms,
            fields: fields.map(|(field, value)| (field.name().to_owned(), value)).collect(),
        })
    }
}

fn told(format: &Format) -> v1::Format {
    v1::Format {
        name: format.name().map(str::to_owned),
        format: format.to_string(),
        first: format.date_time(format.first_ms()).to_string(),
        last: format.date_time(format.last_ms()).to_string(),
    }
}

fn parsed(text: &str) -> Result<Format, Refusal> {
    Format::parse(text).map_err(|invalid| refusal!(InvalidRequest, "{invalid}"))
}

#[cfg(test)]
mod tests {
    use ratchet_ids::Generator;

    use super::*;
    use crate::{node::to_key, proto::Code, sequence::OwnedKey};

    fn request() -> NextIdsRequest {
        NextIdsRequest { namespace: "orders".into(), ..NextIdsRequest::default() }
    }

    fn named(names: impl IntoIterator<Item = String>) -> NextIdsRequest {
        let parameters = names.into_iter().map(|name| (name, 1)).collect();
        NextIdsRequest { parameters, ..request() }
    }

    #[test]
    fn what_fits_no_namespace_is_refused_with_its_limit() {
        let many = |n: usize| named((0..n).map(|i| format!("p{i}")));
        for request in [request(), many(128), named(["x".repeat(32)])] {
            check(&request).unwrap();
        }
        let of = |namespace: &str, count| NextIdsRequest {
            namespace: namespace.into(),
            count: Some(count),
            ..request()
        };
        let key = Some(Default::default());
        for (request, why) in [
            (of("", 1), "the namespace is empty"),
            (of("a b:42", 1), "' '"),
            (of(&"x".repeat(1 << 20), 1), "has 1048576 characters"),
            (of("orders", 0), "count is 0"),
            (of("orders", 10_001), "gives 1 to 10000 ids"),
            (many(129), "129 parameters"),
            (named(["x".repeat(33)]), "has 33 bytes"),
            (NextIdsRequest { key, ..request() }, "the key is missing"),
        ] {
            let refused = check(&request).unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument);
            assert!(refused.message().contains(why), "{refused}");
            assert!(refused.message().len() < 300);
        }
    }

    #[test]
    fn a_request_counts_its_own_bytes_twice_and_those_of_its_ids() {
        let plain = bytes_of(&request());
        assert!(plain >= ID_BYTES + 2 * "orders".len());
        let more = NextIdsRequest { count: Some(3), ..request() };
        assert_eq!(bytes_of(&more) - plain, 2 * ID_BYTES);
        let long = NextIdsRequest {
            key: to_key(&OwnedKey::Name(vec![b'x'; 200].into())),
            ..named(["x".repeat(30)])
        };
        assert!(bytes_of(&long) - plain >= 2 * (200 + 30 + 8));
    }

    #[test]
    fn ids_are_the_same_in_a_short_and_in_a_long_list() {
        let ms = 1_700_000_000_000;
        for (text, is_short) in [
            ("snowflake", true),
            ("yuewen-published", true),
            ("bits zero:2=0 time-ms:42 worker:8 sequence:12", true),
            ("bits text=base32 zero:4=0 time-ms:44 worker:12 sequence:20", false),
        ] {
            let format = Format::parse(text).expect("a format");
            let parameters: Vec<_> = format.parameters().map(|name| (name, 1)).collect();
            let fixed = format.fixed(&parameters, None).expect("parameters");
            let mut generator = Generator::new(&format, 5, ms - 1, ms + 2_000).expect("a worker");
            let (mut ours, mut list) = (Vec::new(), IdList::new(&format, 20));
            for now_ms in [ms, ms + 1_000] {
                let run = generator.take(now_ms, fixed, 10).expect("ids");
                ours.extend(run.clone().ids(|| 0));
                list.add(run);
            }
            assert_eq!(matches!(list, IdList::Short(_)), is_short, "{text}");
            assert_eq!(list.iter().collect::<Vec<_>>(), ours, "{text}");
        }
    }
}
