//! An export as a stream of messages.

use futures::{Stream, stream};
use tonic::Status;

use crate::{node::Export, proto::v1::ExportResponse, sequence::SectionKey};

/// The messages of an export. The last one tells how many keys there were.
pub fn messages(export: Export) -> impl Stream<Item = Result<ExportResponse, Status>> + Send {
    stream::unfold(Some((export, 0u64)), async |state| {
        let (mut export, rows) = state?;
        match export.ceilings.recv().await {
            None => {
                let late = Status::deadline_exceeded("the export was not read for too long");
                Some((Err(late), None))
            }
            Some(Err(error)) => Some((Err(Status::internal(error.to_string())), None)),
            Some(Ok(part)) if part.is_empty() => {
                let last = ExportResponse {
                    rows: Some(rows),
                    ..ExportResponse::default()
                };
                Some((Ok(last), None))
            }
            Some(Ok(part)) => {
                let rows = rows + part.len() as u64;
                let mut message = ExportResponse::default();
                for (key, number) in part {
                    match key {
                        SectionKey::Id(id) => message.ids.push(id),
                        SectionKey::Name(name) => message.names.push(name.into_vec().into()),
                    }
                    message.numbers.push(number);
                }
                Some((Ok(message), Some((export, rows))))
            }
        }
    })
}
