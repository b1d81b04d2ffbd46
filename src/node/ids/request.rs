//! Requests for ids: their check, and their limits.

use ratchet_ids::NAME_BYTES_MAX;

use crate::{
    node::{
        formats::IDS_MAX,
        requests::{
            checks::check_namespace,
            keys::{heap_bytes, key_of},
        },
    },
    proto::{
        Refusal, refusal, refuse,
        v1::{NextIdsRequest, Reason},
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

/// The values that the caller chooses for the format's parameters.
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

#[cfg(test)]
mod tests {
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
}
