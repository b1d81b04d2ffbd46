//! A request for ids with a shape, and its limits.

use ratchet_ids::NAME_BYTES_MAX;

use super::refusals::check_namespace;
use crate::{
    proto::{Refusal, refusal},
    sequence::OwnedKey,
};

/// The most ids in one request.
pub const IDS_MAX: u32 = 10_000;
/// The longest text of an id, in bytes, and some room around it.
const ID_BYTES: usize = 80;
/// The most parameters in one request. An id has no more bits, and each of its fields has one at least.
const PARAMETERS_MAX: usize = 128;

/// A request for ids of a namespace.
#[derive(Debug, Clone)]
pub struct NextIds {
    /// The namespace's name.
    pub namespace: String,
    /// How many, from 1 to 10 000.
    pub count: u32,
    /// The key whose sequence they come from, if the format has no worker.
    pub key: Option<OwnedKey>,
    /// What the caller chooses: values of the format's parameters.
    pub parameters: Vec<(String, u64)>,
}

impl NextIds {
    /// The parameters, borrowed.
    pub(super) fn parameters(&self) -> Vec<(&str, u64)> {
        let parameters = self.parameters.iter();
        parameters.map(|(name, value)| (&name[..], *value)).collect()
    }

    /// Checks what is outside of its limits whatever the namespace is, so that what waits is small. A key that exists is.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for the namespace's name, the count, the number of parameters or a parameter's name.
    pub(super) fn check(&self) -> Result<(), Refusal> {
        check_namespace(&self.namespace)?;
        self.check_count(IDS_MAX)?;
        let parameters = self.parameters.len();
        if parameters > PARAMETERS_MAX {
            return Err(refusal!(
                InvalidRequest,
                "{parameters} parameters are given; no format has more than {PARAMETERS_MAX}"
            ));
        }
        let longest = self.parameters.iter().map(|(name, _)| name.len()).max();
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
    pub(super) fn check_count(&self, max: u32) -> Result<(), Refusal> {
        if (1..=max).contains(&self.count) {
            return Ok(());
        }
        Err(refusal!(
            InvalidRequest,
            "count is {}; namespace {:?} gives 1 to {max} ids at a time",
            self.count,
            self.namespace
        ))
    }

    /// How many bytes it holds while it waits, with the copy that is forwarded, and its answer until that is sent.
    pub(super) fn bytes(&self) -> usize {
        let key = self.key.as_ref().map_or(0, OwnedKey::heap_bytes);
        let parameters = self.parameters.iter();
        let parameters: usize =
            parameters.map(|(name, _)| size_of::<(String, u64)>() + name.len()).sum();
        let own = size_of::<Self>() + self.namespace.len() + key + parameters;
        2 * own + self.count as usize * ID_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::Code;

    fn request() -> NextIds {
        NextIds { namespace: "orders".into(), count: 1, key: None, parameters: Vec::new() }
    }

    fn named(names: impl IntoIterator<Item = String>) -> NextIds {
        NextIds { parameters: names.into_iter().map(|name| (name, 1)).collect(), ..request() }
    }

    #[test]
    fn what_fits_no_namespace_is_refused_with_its_limit() {
        let many = |n: usize| named((0..n).map(|i| format!("p{i}")));
        for request in [request(), many(128), named(["x".repeat(32)])] {
            request.check().unwrap();
        }
        let of =
            |namespace: &str, count| NextIds { namespace: namespace.into(), count, ..request() };
        for (request, why) in [
            (of("", 1), "the namespace is empty"),
            (of("a b:42", 1), "' '"),
            (of(&"x".repeat(1 << 20), 1), "has 1048576 characters"),
            (of("orders", 0), "count is 0"),
            (of("orders", 10_001), "gives 1 to 10000 ids"),
            (many(129), "129 parameters"),
            (named(["x".repeat(33)]), "has 33 bytes"),
        ] {
            let refused = request.check().unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument);
            assert!(refused.message().contains(why), "{refused}");
            assert!(refused.message().len() < 300);
        }
    }

    #[test]
    fn a_request_counts_its_own_bytes_twice_and_those_of_its_ids() {
        let plain = request().bytes();
        assert!(plain >= ID_BYTES + 2 * "orders".len());
        let more = NextIds { count: 3, ..request() };
        assert_eq!(more.bytes() - plain, 2 * ID_BYTES);
        let long = NextIds {
            key: Some(OwnedKey::name(vec![b'x'; 200].into()).unwrap()),
            ..named(["x".repeat(30)])
        };
        assert!(long.bytes() - plain >= 2 * (200 + 30 + 8));
    }
}
