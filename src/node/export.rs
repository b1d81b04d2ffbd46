//! An export: every key of a namespace, or every section that ids share, and a number at or above all that were handed out
//! of it, as of one moment.
//!
//! Invariant: the fence is checked after the moment. If a successor had handed out numbers before it, nothing is
//! exported.

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    Reservation,
    callers::Kind,
    refusals::{namespace_named, no_namespace},
    services::NodeContext,
};
use crate::{
    proto::{Refusal, refusal},
    sequence::{KEY_NAME_BYTES_MAX, KeyKind, Namespace, SectionKey},
    storage::{CEILINGS_HELD, Ceilings, CeilingsPart},
};

/// What a number of an export is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exported {
    /// A key.
    Id(u64),
    /// A key.
    Name(Box<[u8]>),
    /// All ids from the first to the last one: they share a section.
    Section {
        /// The first id.
        first: u64,
        /// The last one.
        last: u64,
    },
}

/// The keys of a namespace, or its sections, and their ceilings.
pub struct Export {
    namespace: Namespace,
    ceilings: Ceilings,
    leaving: CancellationToken,
    /// For what is read ahead: nobody knows when its reader takes it.
    _memory: Reservation,
}

impl Export {
    /// True if ids share sections: then these are what is exported.
    pub fn has_sections(&self) -> bool {
        self.namespace.config.shares_sections()
    }

    /// The next keys or sections, and their ceilings; `None` after the last ones.
    ///
    /// # Errors
    /// If the export breaks off. What came before is then a part of it.
    pub async fn next(&mut self) -> Result<Option<Vec<(Exported, u64)>>, Refusal> {
        let part = tokio::select! {
            biased;
            () = self.leaving.cancelled() => {
                let why = "the node stops, and breaks the export off; export again from the next leader";
                return Err(refusal!(NodeStopping, "{why}"));
            }
            part = self.ceilings.recv() => part,
        };
        match part {
            Some(Ok(part)) if part.is_empty() => Ok(None),
            Some(Ok(part)) => Ok(Some(self.exported(part))),
            Some(Err(error)) => Err(refusal!(Internal, "{error}")),
            None => Err(refusal!(
                DeadlineExceeded,
                "the export was not read for too long, or took too long"
            )),
        }
    }

    fn exported(&self, part: CeilingsPart) -> Vec<(Exported, u64)> {
        let exported = |key| match key {
            SectionKey::Name(name) => Exported::Name(name),
            SectionKey::Id(number) if self.has_sections() => {
                let (first, last) = self.namespace.ids_of_section(number);
                Exported::Section { first, last }
            }
            SectionKey::Id(id) => Exported::Id(id),
        };
        let part = part.into_iter();
        part.map(|(key, ceiling)| (exported(key), ceiling)).collect()
    }
}

impl NodeContext {
    /// Begins to export the namespace of this name, if this node leads.
    ///
    /// # Errors
    /// UNAVAILABLE if it does not lead, RESOURCE_EXHAUSTED if others export or hold the memory, NOT_FOUND if there is no
    /// such namespace.
    pub async fn export(&self, name: &str, deadline: Instant) -> Result<Export, Refusal> {
        let not_leading = || {
            let leader = self.group.leadership().borrow().leader.clone();
            refusal!(
                NoLeader,
                "{}",
                match leader {
                    Some((id, member)) => {
                        format!(
                            "the leader alone exports: ask node {id} at {}",
                            member.client_address
                        )
                    }
                    None => "the leader alone exports, and none is known; ask again".to_owned(),
                }
            )
        };
        let allocator = self.led.term.load_full();
        let term = allocator.as_deref().ok_or_else(not_leading)?;
        let namespace = &namespace_named(&self.group, name)?;
        let counted = self.callers.begin(Kind::Export, "exports under way")?;
        let memory = self.request_memory.reserve(bytes_held(namespace))?;
        // The table's reader counts as the export. The caller may hold what is read ahead for as long as it likes.
        let ceilings = self.group.view().ceilings(namespace, counted).await;
        // Not earlier: what this node has applied by then covers every number that was handed out before.
        if !term.still_leads(deadline).await {
            return Err(not_leading());
        }
        // What is read of it may have gone before it was looked at. Namespaces go before their records do.
        if self.group.view().namespaces().by_id(namespace.id).is_none() {
            return Err(no_namespace(name));
        }
        Ok(Export {
            namespace: namespace.clone(),
            ceilings,
            leaving: self.led.leaving.clone(),
            _memory: memory,
        })
    }
}

/// How many bytes are read ahead at most.
fn bytes_held(namespace: &Namespace) -> usize {
    let name = match namespace.config.key_kind {
        KeyKind::Id => 0,
        KeyKind::Name => KEY_NAME_BYTES_MAX,
    };
    CEILINGS_HELD * (size_of::<(SectionKey, u64)>() + name)
}
