//! A view of keys for people: their stored records, and their state in the leader's memory.
//!
//! Invariant: the fence is checked after the table and the memory were read, so that what is answered held at a moment
//! after the call began.

use tokio::time::{Instant, timeout_at};

use super::{outcome::Why, section::holding::Holding, term::Term};
use crate::{
    clock::whole_ms,
    sequence::{DayAccounts, Key, Namespace, SectionKey, SectionRecord, day_of},
    storage::{PageAsked, read_days, read_page},
};

/// A section of a list.
#[derive(Debug)]
pub struct ListedSection {
    /// Its key.
    pub key: SectionKey,
    /// Its record.
    pub record: SectionRecord,
    /// The term's holding of it, as its first key sees it. `None` before the first chunk.
    pub held: Option<Holding>,
}

/// Some sections of a namespace, in the order of their keys.
#[derive(Debug)]
pub struct ListedSections {
    /// The sections.
    pub sections: Vec<ListedSection>,
    /// True if more follow.
    pub more: bool,
    /// The number of the term's epoch.
    pub epoch: u64,
}

/// Lists sections of `namespace`.
///
/// # Errors
/// [`Why::AskLeader`] if the term is over, or the fence fails; [`Why::DeadlineExceeded`] if reading the table took too long;
/// [`Why::Unreadable`] if it cannot be read.
pub async fn list_sections(
    term: &Term, namespace: &Namespace, asked: PageAsked, deadline: Instant,
) -> Result<ListedSections, Why> {
    let memory = term.memory();
    let page = timeout_at(deadline, read_page(memory.view(), asked)).await;
    let page = page.map_err(|_| Why::DeadlineExceeded)??;
    let sections = page.sections.into_iter().map(|(key, record)| {
        let held = match &key {
            SectionKey::Name(name) => memory.holding(namespace, Key::Name(name)),
            SectionKey::Id(number) => {
                let (first, _) = namespace.ids_of_section(*number);
                memory.holding(namespace, Key::Id(first))
            }
        };
        ListedSection { key, record, held }
    });
    let listed =
        ListedSections { sections: sections.collect(), more: page.more, epoch: memory.epoch() };
    pass(term, deadline).await.map(|()| listed)
}

/// The facts about a key.
#[derive(Debug)]
pub struct Explained {
    /// The record of its section; the default one if it has none.
    pub record: SectionRecord,
    /// The term's holding of its section. `None` before the first chunk.
    pub held: Option<Holding>,
    /// How long ago its last chunk came, in milliseconds. `None` if that is not known: another leader got it, or a
    /// floor was raised since.
    pub granted_ms_ago: Option<u64>,
    /// The number of the term's epoch.
    pub epoch: u64,
}

/// Tells what is known of a key.
///
/// # Errors
/// [`Why::AskLeader`] if the term is over, or the fence fails; [`Why::DeadlineExceeded`] if reading the table took too long;
/// [`Why::Unreadable`] if it cannot be read.
pub async fn explain(
    term: &Term, namespace: &Namespace, key: Key<'_>, deadline: Instant,
) -> Result<Explained, Why> {
    let memory = term.memory();
    // If the section is evicted meanwhile, the record may be older than that.
    let earlier = memory.holding(namespace, key);
    let read = memory.view().read_sections(vec![namespace.section_of(key)]);
    let records = timeout_at(deadline, read).await;
    let mut records = records.map_err(|_| Why::DeadlineExceeded)??;
    let held = memory.holding(namespace, key);
    let held = held.or_else(|| earlier.map(|earlier| Holding::gone(earlier.last)));
    let lasted = held.and_then(|held| held.came_at.lasted_at(memory.now()));
    let explained = Explained {
        record: records.pop().unwrap_or_default(),
        held,
        granted_ms_ago: lasted.map(whole_ms),
        epoch: memory.epoch(),
    };
    pass(term, deadline).await.map(|()| explained)
}

/// Reads the accounts of a namespace: those of the last `days` days by this node's clock, and of days ahead of it. With
/// 0 days, all that are kept.
///
/// # Errors
/// [`Why::AskLeader`] if the term is over, or the fence fails; [`Why::DeadlineExceeded`] if reading the table took too long;
/// [`Why::Unreadable`] if it cannot be read.
pub async fn read_accounts(
    term: &Term, namespace: &Namespace, days: u32, deadline: Instant,
) -> Result<Vec<(u32, DayAccounts)>, Why> {
    let memory = term.memory();
    let first = match days {
        0 => 0,
        _ => day_of(memory.wall_ms()).saturating_sub(days - 1),
    };
    let read = timeout_at(deadline, read_days(memory.view(), namespace.id, first)).await;
    let accounts = read.map_err(|_| Why::DeadlineExceeded)??;
    pass(term, deadline).await.map(|()| accounts)
}

/// Checks that the term still led after its memory was read.
async fn pass(term: &Term, deadline: Instant) -> Result<(), Why> {
    // A term closes its gate before it forgets: what was read of its memory may be nothing if the gate is closed now.
    if term.memory().gate().is_closed() || !term.still_leads(deadline).await {
        return Err(Why::AskLeader);
    }
    Ok(())
}
