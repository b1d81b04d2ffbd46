//! An export as a stream of messages.

use futures::{Stream, stream};

use crate::{
    node::{Export, Exported},
    proto::{Refusal, v1::ExportResponse},
};

/// The messages of an export. The last one tells how many keys or sections there were.
pub fn messages(export: Export) -> impl Stream<Item = Result<ExportResponse, Refusal>> + Send {
    stream::unfold(Some((export, 0u64)), async |state| {
        let (mut export, rows) = state?;
        Some(match export.next().await {
            Err(status) => (Err(status), None),
            Ok(None) => {
                let last = ExportResponse { rows: Some(rows), ..ExportResponse::default() };
                (Ok(last), None)
            }
            Ok(Some(part)) => {
                let rows = rows + part.len() as u64;
                let mut message = ExportResponse::default();
                for (exported, number) in part {
                    match exported {
                        Exported::Id(id) => message.ids.push(id),
                        Exported::Name(name) => message.names.push(name.into_vec().into()),
                        Exported::Section { first, last } => {
                            message.first_ids.push(first);
                            message.last_ids.push(last);
                        }
                    }
                    message.numbers.push(number);
                }
                (Ok(message), Some((export, rows)))
            }
        })
    })
}
