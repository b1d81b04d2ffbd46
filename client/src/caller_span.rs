//! Which span a call is a part of, as the application says it (W3C Trace Context).

use std::{fmt, sync::Arc};

use tonic::metadata::{Ascii, MetadataMap, MetadataValue};

/// The header that names a span.
const TRACEPARENT: &str = "traceparent";

/// Asks the application for the span of a call: see [`Builder::traceparent`](crate::Builder::traceparent).
#[derive(Clone)]
pub struct CallerSpan(Arc<dyn Fn() -> Option<String> + Send + Sync>);

impl fmt::Debug for CallerSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallerSpan").finish_non_exhaustive()
    }
}

impl CallerSpan {
    /// Asks this function.
    pub fn new(ask: impl Fn() -> Option<String> + Send + Sync + 'static) -> CallerSpan {
        CallerSpan(Arc::new(ask))
    }

    /// The span of this task now. `None` if it has none, or its text fits no header.
    fn header(&self) -> Option<MetadataValue<Ascii>> {
        MetadataValue::try_from((self.0)()?).ok()
    }

    /// The span as a text.
    pub fn text(&self) -> Option<Box<str>> {
        let header = self.header()?;
        header.to_str().ok().map(Box::from)
    }

    /// Says it in the headers of a call.
    pub fn tell(&self, headers: &mut MetadataMap) {
        if let Some(header) = self.header() {
            headers.insert(TRACEPARENT, header);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_header_can_hold_is_as_nothing() {
        let span = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        for (said, told) in [(Some(span), Some(span)), (Some("a\nb"), None), (None, None)] {
            let asked = CallerSpan::new(move || said.map(str::to_owned));
            assert_eq!(asked.text().as_deref(), told, "{said:?}");
            let mut headers = MetadataMap::new();
            asked.tell(&mut headers);
            let header = headers.get(TRACEPARENT).map(|header| header.to_str().expect("a text"));
            assert_eq!(header, told, "{said:?}");
        }
    }
}
