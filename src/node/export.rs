//! An export: every key of a namespace, and a number at or above all that were handed out of it, as of one moment.
//!
//! Invariant: the fence is checked after the moment. If a successor had handed out numbers before it, nothing is
//! exported.

use std::sync::Arc;

use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::Instant,
};
use tonic::Status;

use super::NodeContext;
use crate::{sequence::NamespaceRefused, storage::Ceilings};

/// How many exports a process serves at a time. Each holds a thread, and a view of the table.
static EXPORTS: Semaphore = Semaphore::const_new(2);

/// The keys of a namespace and their ceilings.
pub struct Export {
    /// The ceilings, part by part; the last part is empty.
    pub ceilings: Ceilings,
    _permit: SemaphorePermit<'static>,
}

impl NodeContext {
    /// Begins to export the namespace of this name, if this node leads.
    ///
    /// # Errors
    /// UNAVAILABLE if it does not lead, RESOURCE_EXHAUSTED if others export, NOT_FOUND if there is no such namespace,
    /// FAILED_PRECONDITION if its keys share sections.
    pub async fn export(self: &Arc<Self>, name: &str, deadline: Instant) -> Result<Export, Status> {
        let not_leading = || {
            let leader = self.group.leadership().borrow().leader.clone();
            Status::unavailable(match leader {
                Some((id, member)) => format!(
                    "the leader alone exports: ask node {id} at {}",
                    member.client_address
                ),
                None => "the leader alone exports, and none is known; ask again".to_owned(),
            })
        };
        let allocator = self.allocator.load_full();
        let term = allocator.as_deref().ok_or_else(not_leading)?;
        let namespaces = self.group.view().namespaces();
        let namespace = namespaces.by_name(name).ok_or_else(|| not_found(name))?;
        let shared = namespace.config.section_size;
        if shared > 1 {
            return Err(Status::failed_precondition(format!(
                "the keys of namespace {name:?} share sections of {shared} ids, whose ceilings are no numbers of single \
                 keys: such a namespace cannot be exported; read the keys that you know with CurrentMany"
            )));
        }
        let permit = EXPORTS.try_acquire().map_err(|_| {
            Status::resource_exhausted("two exports are under way; try again when one has ended")
        })?;
        let ceilings = self.group.view().ceilings(namespace).await;
        // Not earlier: what this node has applied by then covers every number that was handed out before.
        if !term.still_leads(deadline).await {
            return Err(not_leading());
        }
        // Its records may have gone before they were looked at. Namespaces go before their records do.
        if self.group.view().namespaces().by_id(namespace.id).is_none() {
            return Err(not_found(name));
        }
        Ok(Export {
            ceilings,
            _permit: permit,
        })
    }
}

fn not_found(name: &str) -> Status {
    Status::not_found(NamespaceRefused::NotFound(name.to_owned()).to_string())
}
