//! The reason of a failed call, which its gRPC status carries as `google.rpc.ErrorInfo` among its details. The failures in
//! messages become such statuses.

use bytes::Bytes;
use prost::Message;
use tonic::Status;

use crate::api::{Failure, Reason};

/// Tells, in the metadata of a status, after how many milliseconds to ask again.
const RETRY_AFTER: &str = "grpc-retry-pushback-ms";
/// The type of the detail that has the reason.
const ERROR_INFO: &str = "type.googleapis.com/google.rpc.ErrorInfo";
/// The beginning of each reason's name in the API's description. A status has the names without it.
const PREFIX: &str = "REASON_";

/// The part of `google.rpc.Status` that is used here.
#[derive(Clone, PartialEq, Message)]
struct Details {
    #[prost(message, repeated, tag = "3")]
    details: Vec<Detail>,
}

/// A `google.protobuf.Any`.
#[derive(Clone, PartialEq, Message)]
struct Detail {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// The part of `google.rpc.ErrorInfo` that is used here.
#[derive(Clone, PartialEq, Message)]
struct ErrorInfo {
    #[prost(string, tag = "1")]
    reason: String,
}

/// The reason of a status; unspecified if it carries none, or one that this release does not know.
pub fn reason_of(status: &Status) -> Reason {
    told(status).unwrap_or(Reason::Unspecified)
}

fn told(status: &Status) -> Option<Reason> {
    let Details { details } = Details::decode(status.details()).ok()?;
    let info = details.iter().find(|detail| detail.type_url == ERROR_INFO)?;
    let info = ErrorInfo::decode(info.value.as_slice()).ok()?;
    Reason::from_str_name(&format!("{PREFIX}{}", info.reason))
}

/// The details of a status with this reason.
fn details_with(reason: Reason) -> Bytes {
    let info = ErrorInfo { reason: reason.as_str_name().trim_start_matches(PREFIX).to_owned() };
    let info = Detail { type_url: ERROR_INFO.to_owned(), value: info.encode_to_vec() };
    Details { details: vec![info] }.encode_to_vec().into()
}

impl Failure {
    /// The failure as a gRPC status.
    pub(crate) fn into_status(self) -> Status {
        let details = details_with(self.reason());
        let mut status = Status::with_details(self.code.into(), self.message, details);
        if let Some(millis) = self.retry_after_ms {
            status.metadata_mut().insert(RETRY_AFTER, millis.into());
        }
        status
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    #[test]
    fn the_reason_of_a_status_is_read_from_its_details() {
        let failure = Failure { reason: Reason::LeaseLost.into(), ..Failure::default() };
        assert_eq!(reason_of(&failure.into_status()), Reason::LeaseLost);
        let of = |details| reason_of(&Status::with_details(Code::Unknown, "x", details));
        assert_eq!(of(Bytes::new()), Reason::Unspecified);
        assert_eq!(of(Bytes::from_static(&[0xff; 9])), Reason::Unspecified);
    }

    #[test]
    fn a_reason_of_a_later_release_and_other_details_are_passed_over() {
        let other = Detail { type_url: "type.googleapis.com/x".to_owned(), value: vec![1] };
        let info = ErrorInfo { reason: "OF_A_LATER_RELEASE".to_owned() };
        let info = Detail { type_url: ERROR_INFO.to_owned(), value: info.encode_to_vec() };
        let details = Details { details: vec![other, info] }.encode_to_vec();
        let status = Status::with_details(Code::Unknown, "x", details.into());
        assert_eq!(reason_of(&status), Reason::Unspecified);
    }
}
