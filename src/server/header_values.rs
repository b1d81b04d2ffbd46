//! The values of one header of a request.

use hyper::{
    HeaderMap,
    header::{HeaderName, HeaderValue},
};

/// The values of the header `name`, in their order. A request has few headers: to look at all of them costs less than the hash
/// by which the map finds one, and most of those that are looked for are not there.
pub fn values(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &HeaderValue> {
    headers.iter().filter(move |(own, _)| **own == name).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use hyper::header::{ACCEPT, HOST};

    use super::*;

    #[test]
    fn they_are_those_of_this_name_in_their_order() {
        const OWN: HeaderName = HeaderName::from_static("ratchet-x");
        let mut headers = HeaderMap::new();
        for (name, value) in [(OWN, "1"), (HOST, "a"), (OWN, "2"), (HOST, "b"), (OWN, "1")] {
            headers.append(name, HeaderValue::from_static(value));
        }
        for (name, expected) in [(OWN, "1 2 1"), (HOST, "a b"), (ACCEPT, "")] {
            let of_name: Vec<_> = values(&headers, name).flat_map(HeaderValue::to_str).collect();
            assert_eq!(of_name.join(" "), expected);
        }
    }
}
