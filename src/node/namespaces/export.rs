//! An export: every key of a namespace, or every section that ids share, and a number at or above all that were handed
//! out of it, as of one moment.
//!
//! Invariant: the fence is checked after the moment. If a successor had handed out numbers before it, nothing is
//! exported.

use std::sync::Arc;

use tokio::{sync::watch, time::Instant};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    consensus::Group,
    node::{
        Access, Asker, RequestMemory, Reservation,
        admission::Admission,
        callers::{Callers, CountedKind},
        common::Common,
        requests::checks::{namespace_named, no_namespace},
        stopping::Stopping,
        terms::LedTerms,
    },
    proto::{Refusal, refusal, refuse},
    sequence::{KEY_NAME_BYTES_MAX, KeyKind, Namespace, SectionKey, Verb, Wanted},
    storage::{CEILINGS_HELD, Ceilings, CeilingsPart},
};

/// The key or the section that a number of an export belongs to.
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

/// Looks, for as long as it lives, whether who reads an export still may: also while a part is read for long, or its reader
/// takes none.
struct Revoked {
    /// Why it may not, once it is so.
    why: watch::Receiver<Option<Refusal>>,
    /// Cancelled then.
    end: CancellationToken,
    _looking: AbortOnDropHandle<()>,
}

impl Revoked {
    fn look(access: Arc<Access>, by: Asker, namespace: String) -> Revoked {
        let (tell, why) = watch::channel(None);
        let end = CancellationToken::new();
        let told = end.clone();
        let looking = tokio::spawn(async move {
            let refusal = access.until_refused(&by, Wanted::On(Verb::Read, &namespace)).await;
            tell.send_replace(Some(refusal));
            told.cancel();
        });
        Revoked { why, end, _looking: AbortOnDropHandle::new(looking) }
    }

    /// Returns why who reads may not any more, once that is so.
    async fn until(&mut self) -> Refusal {
        match self.why.wait_for(Option::is_some).await.map(|why| why.clone()) {
            Ok(Some(refusal)) => refusal,
            // Nobody looks any more: the runtime ends.
            Ok(None) | Err(_) => refusal!(NodeStopping, "the node stops"),
        }
    }
}

/// The keys of a namespace, or its sections, and their ceilings.
pub struct Export {
    namespace: Namespace,
    /// Its reader.
    by: Asker,
    access: Arc<Access>,
    ceilings: Ceilings,
    revoked: Revoked,
    leaving: CancellationToken,
    /// For what is read ahead: nobody knows when its reader takes it.
    _memory: Reservation,
}

impl Export {
    /// True if ids share sections: then these are what is exported.
    pub fn has_sections(&self) -> bool {
        self.namespace.config.shares_sections()
    }

    /// Cancelled when its reader may not read it any more: what of it is not sent then is not to be sent.
    pub fn end(&self) -> CancellationToken {
        self.revoked.end.clone()
    }

    /// The next keys or sections, and their ceilings; `None` after the last ones.
    ///
    /// # Errors
    /// If the export breaks off, also because its reader may not read it any more. The rows that came before are then a part of
    /// it.
    pub async fn next(&mut self) -> Result<Option<Vec<(Exported, u64)>>, Refusal> {
        self.access.check(&self.by, Wanted::On(Verb::Read, &self.namespace.config.name))?;
        let part = tokio::select! {
            biased;
            refusal = self.revoked.until() => return Err(refusal),
            () = self.leaving.cancelled() => {
                let why = "the node stops, and breaks the export off; export again from the next leader";
                refuse!(NodeStopping, "{why}");
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

/// Begins the exports of a Raft group's namespaces.
pub struct Exports {
    group: Arc<Group>,
    callers: Arc<Callers>,
    request_memory: Arc<RequestMemory>,
    admission: Arc<Admission>,
    access: Arc<Access>,
    stopping: Stopping,
    led: Arc<LedTerms>,
}

impl Exports {
    /// Those of the node's group.
    pub(in crate::node) fn new(
        common: &Common, admission: Arc<Admission>, access: Arc<Access>, led: Arc<LedTerms>,
    ) -> Self {
        Exports {
            group: common.group.clone(),
            callers: common.callers.clone(),
            request_memory: common.request_memory.clone(),
            admission,
            access,
            stopping: common.stopping.clone(),
            led,
        }
    }

    /// Begins to export the namespace of this name, if this node leads.
    ///
    /// # Errors
    /// Those of [`Admission::admit`]; UNAVAILABLE if it does not lead, RESOURCE_EXHAUSTED if others export or hold the memory,
    /// or the caller has no calls left, NOT_FOUND if there is no such namespace.
    pub async fn begin(
        &self, name: &str, by: &Asker, deadline: Instant,
    ) -> Result<Export, Refusal> {
        let wanted = Wanted::On(Verb::Read, name);
        self.admission.admit(by, wanted, deadline).await?;
        self.access.count_call(by, wanted)?;
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
        let allocator = self.led.current();
        let term = allocator.as_deref().ok_or_else(not_leading)?;
        let namespace = &namespace_named(&self.group, name)?;
        let counted = self.callers.begin(CountedKind::Export, "exports under way")?;
        let memory = self.request_memory.reserve(bytes_held(namespace))?;
        // The table's reader counts as the export. The caller may hold what is read ahead for as long as it likes.
        let ceilings = self.group.view.ceilings(namespace, counted).await;
        // Not earlier: what this node has applied by then covers every number that was handed out before.
        if !term.still_leads(deadline).await {
            return Err(not_leading());
        }
        // The records that are read may have gone before they were looked at. Namespaces go before their records do.
        if self.group.view.namespaces().by_id(namespace.id).is_none() {
            return Err(no_namespace(name));
        }
        let access = self.access.clone();
        Ok(Export {
            namespace: namespace.clone(),
            by: by.clone(),
            access: access.clone(),
            ceilings,
            revoked: Revoked::look(access, by.clone(), name.to_owned()),
            leaving: self.stopping.leaving().clone(),
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
