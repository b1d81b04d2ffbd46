//! The parameters of a request: those in its query, and those of a form in its body. A parameter that is given twice is
//! refused, because two readers could take different ones.

use std::borrow::Cow;

use axum::{
    body::Bytes,
    extract::Request,
    http::{HeaderMap, Method, Uri, header},
};

use crate::{
    node::{NodeContext, Reservation},
    proto::{Refusal, refusal},
    server::http::{bodies, headers::Due},
};

/// The media type of a form.
const FORM: &str = "application/x-www-form-urlencoded";

/// The parameters of a request.
#[derive(Debug)]
pub struct Parameters {
    uri: Uri,
    form: Bytes,
    /// The memory of the form.
    _reserved: Option<Reservation>,
}

impl Parameters {
    /// The parameters in the query.
    pub fn of(uri: &Uri) -> Self {
        Parameters { uri: uri.clone(), form: Bytes::new(), _reserved: None }
    }

    /// The parameters in the query, and those of the form in the body of a POST.
    ///
    /// # Errors
    /// If the form is compressed, is too large, or does not arrive.
    pub async fn read(context: &NodeContext, due: &Due, request: Request) -> Result<Self, Refusal> {
        let (head, body) = request.into_parts();
        let parameters = Parameters::of(&head.uri);
        if head.method != Method::POST || !is_form(&head.headers) {
            return Ok(parameters);
        }
        bodies::check_encoding(&head.headers)?;
        let (form, reserved) = bodies::bytes(context, body, due).await?;
        Ok(Parameters { form, _reserved: reserved, ..parameters })
    }

    /// Whether a parameter is there.
    pub fn has(&self, name: &str) -> bool {
        self.values(name).next().is_some()
    }

    /// The value of a parameter, if it is there.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if it is there more than once, or is no text: bytes that are no text would all be read as U+FFFD.
    pub fn one(&self, name: &str) -> Result<Option<Cow<'_, str>>, Refusal> {
        let mut values = self.values(name);
        let value = values.next();
        match values.next() {
            Some(_) => {
                Err(refusal!(InvalidRequest, "{name} is given more than once; give it once"))
            }
            None if value.as_ref().is_some_and(|value| value.contains('\u{FFFD}')) => {
                Err(refusal!(InvalidRequest, "{name} is not all UTF-8, or has U+FFFD"))
            }
            None => Ok(value),
        }
    }

    /// The name of the first parameter that nobody reads.
    pub fn other_than(&self, is_read: impl Fn(&str) -> bool) -> Option<Cow<'_, str>> {
        let mut names = self.pairs().map(|(name, _)| name);
        names.find(|name| !is_read(name))
    }

    fn values(&self, name: &str) -> impl Iterator<Item = Cow<'_, str>> {
        self.pairs().filter_map(move |(given, value)| (given == name).then_some(value))
    }

    // The parameters are searched anew each time: a list of them would take many times the memory that was counted for the
    // body.
    fn pairs(&self) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
        let query = self.uri.query().unwrap_or_default().as_bytes();
        form_urlencoded::parse(query).chain(form_urlencoded::parse(&self.form))
    }
}

fn is_form(headers: &HeaderMap) -> bool {
    let media_type = headers.get(header::CONTENT_TYPE);
    let media_type = media_type.and_then(|value| value.to_str().ok()?.split(';').next());
    media_type.is_some_and(|media_type| media_type.trim().eq_ignore_ascii_case(FORM))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_comes_from_the_query_or_the_form_and_only_once() {
        let uri: Uri = "/?a=1&b=x%20y+z&c&d=%FF&b2=2".parse().unwrap();
        let parameters =
            Parameters { form: Bytes::from_static(b"e=%26&a=2"), ..Parameters::of(&uri) };
        let one = |name| parameters.one(name).map(|value| value.map(Cow::into_owned));
        assert_eq!(one("b").unwrap().unwrap(), "x y z");
        assert_eq!(one("c").unwrap().unwrap(), "");
        assert!(one("d").unwrap_err().message().contains("d is not all UTF-8"));
        assert_eq!(one("e").unwrap().unwrap(), "&");
        assert_eq!(one("f").unwrap(), None);
        assert!(one("a").unwrap_err().message().contains("a is given more"));
        assert!(parameters.has("a") && !parameters.has("f"));
        let other = |read: &[&str]| parameters.other_than(|name| read.contains(&name));
        assert_eq!(other(&["a", "b", "c", "d", "e"]).unwrap(), "b2");
        assert_eq!(other(&["a", "b", "b2", "c", "d"]).unwrap(), "e");
        assert_eq!(other(&["a", "b", "b2", "c", "d", "e"]), None);
    }
}
