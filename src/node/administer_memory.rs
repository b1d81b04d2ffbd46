//! The memory that administrative requests and their answers hold, while callers wait and until they have read.

use std::sync::Arc;

use tokio::time::Instant;

use super::{
    NodeContext,
    leader_search::{Failure, Origin},
    listing::{PAGE_KEYS, PAGE_KEYS_MAX},
    request_memory::Reservation,
};
use crate::{
    proto::{
        peer::{administer_reply::Reply, administer_request::Request},
        v1,
    },
    sequence::{DAYS_KEPT, KEY_NAME_BYTES_MAX, WORKERS_MAX},
};

/// About how many bytes a day's books, or what is known of a worker id, have as a message and encoded.
const ROW_BYTES: usize = 512;
/// How many bytes the numbers of a namespace or a key have at most, encoded.
const NUMBERS_BYTES: usize = 96;
/// About how many bytes the status has for each member.
const MEMBER_BYTES: usize = 1_024;

impl NodeContext {
    /// Has the leader carry out a request before `deadline`. The memory that the answer holds comes with it, if it is much:
    /// it is to be dropped when the answer is sent. It is reserved before anything is carried out.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if other requests and answers hold the memory, and those of [`NodeContext::administer`].
    pub async fn administer_for_caller(
        self: &Arc<Self>, request: Request, origin: Origin, deadline: Instant,
    ) -> Result<(Reply, Option<Reservation>), Failure> {
        // With the copy for the leader.
        let asked = 2 * (size_of::<Request>() + request.encoded_len());
        let expected = asked + self.answer_bytes(&request);
        let mut reserved = self.request_memory.reserve_if_many(expected)?;
        let reply = self.administer(request, origin, deadline).await?;
        if let Some(reserved) = &mut reserved {
            reserved.resize(bytes_held(&reply));
        }
        Ok((reply, reserved))
    }

    /// About how many bytes the answer to `request` holds at most, as a message and encoded.
    fn answer_bytes(&self, request: &Request) -> usize {
        match request {
            Request::ListNamespaces(_) => {
                // What is not applied here yet is little.
                let namespaces = self.group.view().namespaces();
                let configs = namespaces.iter().map(|namespace| &namespace.config);
                configs
                    .map(|config| {
                        let texts = config.name.len() + config.description.len();
                        size_of::<v1::Namespace>() + 2 * (NUMBERS_BYTES + texts)
                    })
                    .sum()
            }
            Request::ListKeys(list) => {
                let keys = match list.limit {
                    0 => PAGE_KEYS,
                    // A greater one is refused.
                    limit => limit.min(PAGE_KEYS_MAX),
                };
                keys as usize
                    * (size_of::<v1::ListedKey>() + 2 * (NUMBERS_BYTES + KEY_NAME_BYTES_MAX))
            }
            Request::Gaps(_) => DAYS_KEPT as usize * ROW_BYTES,
            Request::ListWorkers(_) => WORKERS_MAX as usize * ROW_BYTES,
            Request::Status(_) => self.group.members().len() * MEMBER_BYTES,
            _ => 0,
        }
    }
}

/// How many bytes a reply holds, as a message and encoded.
fn bytes_held(reply: &Reply) -> usize {
    let rows = match reply {
        Reply::Namespaces(list) => size_of_val(&list.namespaces[..]),
        Reply::Keys(page) => size_of_val(&page.keys[..]),
        Reply::Gaps(gaps) => size_of_val(&gaps.days[..]),
        Reply::Workers(list) => size_of_val(&list.workers[..]),
        _ => 0,
    };
    rows + 2 * reply.encoded_len()
}
