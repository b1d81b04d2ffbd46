//! Namespaces, as the leader makes, changes, deletes and tells them. `gaps.rs` tells what was handed out and skipped on each
//! day, `listing.rs` which keys they have, and `export.rs` all ceilings at one moment. `checked_fields.rs` refuses
//! values that a call must not set, and `set_fields.rs` tells the audit what it sets.

mod checked_fields;
pub(super) mod export;
mod gaps;
mod listing;
mod set_fields;

use std::sync::Arc;

use prost::{Message, length_delimiter_len};
use tokio::time::Instant;

use self::checked_fields::{check_created, check_updated};
use super::{
    access::{Access, Asker, Guarded, Subject},
    common::Common,
    formats::{SequenceWish, check_sequence, for_new_namespace, id_format},
    requests::{
        checks::{check_namespace, namespace_named},
        ongoing::{OngoingChange, through_in_time},
        operation::ByLeader,
        refused::{low_disk, proposal_failed},
    },
    wall_clock::ids_time::IdsTime,
    way::attempt::Attempt,
};
use crate::{
    allocator::Term,
    consensus::Group,
    proto::{Refusal, refusal, refuse, v1},
    sequence::{
        Command, EntryOutcome, InvalidNamespace, KeyKind, Namespace, NamespaceChange,
        NamespaceConfig, NamespaceRefused, Verb, Wanted, is_as_created,
    },
};

/// The namespaces of a Raft group.
pub struct Namespaces {
    group: Arc<Group>,
    access: Arc<Access>,
    /// The time in which the formats of new namespaces begin.
    time: IdsTime,
}

impl Namespaces {
    /// Those of the node's group. `time` is that of ids.
    pub(super) fn new(common: &Common, access: Arc<Access>, time: IdsTime) -> Self {
        Namespaces { group: common.group.clone(), access, time }
    }

    /// Refuses a change that does not fit the format of a namespace's ids.
    fn check_wish(&self, name: &str, wish: SequenceWish) -> Result<(), Refusal> {
        let namespaces = self.group.view.namespaces();
        let with_format = namespaces.by_name(name).filter(|n| n.config.format.is_some());
        with_format.map_or(Ok(()), |namespace| check_sequence(&id_format(namespace)?, wish))
    }

    /// The first `limit` namespaces in the order of their creation, as far as this node has applied it, and how many
    /// there are in all.
    pub fn first(&self, limit: usize) -> (Vec<v1::Namespace>, usize) {
        let namespaces = self.group.view.namespaces();
        let first = namespaces.iter().take(limit).map(to_wire);
        (first.collect(), namespaces.count())
    }

    /// Proposes a change, which goes on when the deadline passes.
    async fn propose(
        &self, term: &Term, command: Command, deadline: Instant,
    ) -> Attempt<EntryOutcome> {
        let proposing = self.group.propose(term.term(), command);
        let change = OngoingChange {
            name: "the change of the namespace",
            voters: "the voters",
            shown_by: "ratchet namespace list",
        };
        through_in_time(proposing, deadline, change).await?.map_err(proposal_failed)
    }

    async fn change(
        &self, term: &Term, command: Command, deadline: Instant,
    ) -> Attempt<v1::Namespace> {
        match self.propose(term, command, deadline).await? {
            EntryOutcome::Namespace(Ok(namespace)) => Ok(to_wire(&namespace)),
            EntryOutcome::Namespace(Err(refused)) => Err(refusal(&refused).into()),
            other => Err(refusal!(Internal, "unexpected outcome: {other:?}").into()),
        }
    }
}

impl ByLeader for v1::CreateNamespaceRequest {
    type Service = Namespaces;

    fn subject(&self, _: Option<&v1::Namespace>) -> Subject {
        Subject::of(self.wanted()).setting(set_fields::of_created(self))
    }

    async fn carry_out(
        self, namespaces: &Namespaces, (term, _): (&Term, &Asker), deadline: Instant,
    ) -> Attempt<v1::Namespace> {
        check_created(&self).map_err(invalid)?;
        // The epoch from which its format counts time must not lie in the future.
        let now_ms = match self.format {
            Some(_) => namespaces.time.now_ms(term.term())?,
            None => 0,
        };
        let config = namespace_config(self, now_ms)?;
        if let Some(low) = namespaces.group.limiting_disk() {
            return Err(low_disk(low).into());
        }
        namespaces.change(term, Command::create_namespace(config), deadline).await
    }

    fn done_before(
        &self, namespaces: &Namespaces, term: &Term, refused: &Refusal,
    ) -> Option<v1::Namespace> {
        if refused.reason() != v1::Reason::NamespaceExists {
            return None;
        }
        let known = namespaces.group.view.namespaces().by_name(&self.name).cloned()?;
        let now_ms = match self.format {
            Some(_) => namespaces.time.now_ms(term.term()).ok()?,
            None => 0,
        };
        let asked = namespace_config(self.clone(), now_ms).ok()?;
        is_as_created(&known, &asked).then(|| to_wire(&known))
    }
}

impl ByLeader for v1::GetNamespaceRequest {
    type Service = Namespaces;

    async fn carry_out(
        self, namespaces: &Namespaces, _: (&Term, &Asker), _: Instant,
    ) -> Attempt<v1::Namespace> {
        Ok(to_wire(&namespace_named(&namespaces.group, &self.namespace)?))
    }
}

impl ByLeader for v1::ListNamespacesRequest {
    type Service = Namespaces;

    async fn carry_out(
        self, namespaces: &Namespaces, (_, by): (&Term, &Asker), _: Instant,
    ) -> Attempt<v1::ListNamespacesResponse> {
        let (known, access) = (namespaces.group.view.namespaces(), &namespaces.access);
        let may_be_seen = |namespace: &&Namespace| {
            access.check(by, Wanted::On(Verb::Read, &namespace.config.name)).is_ok()
        };
        let seen = known.iter().filter(may_be_seen).map(to_wire);
        Ok(v1::ListNamespacesResponse { namespaces: seen.collect() })
    }

    fn answer_bytes(&self, namespaces: &Namespaces) -> usize {
        // The leader may have applied namespaces that this node has not: they are few, so the estimate holds.
        let known = namespaces.group.view.namespaces();
        let bytes = |namespace: &Namespace| {
            let encoded = to_wire(namespace).encoded_len();
            // A list that grows has room for up to twice as many. A message holds its texts besides.
            let as_message = 2 * size_of::<v1::Namespace>() + encoded;
            as_message + 1 + length_delimiter_len(encoded) + encoded
        };
        known.iter().map(bytes).sum()
    }
}

impl ByLeader for v1::UpdateNamespaceRequest {
    type Service = Namespaces;

    fn subject(&self, _: Option<&v1::Namespace>) -> Subject {
        Subject::of(self.wanted()).setting(set_fields::of_updated(self))
    }

    async fn carry_out(
        self, namespaces: &Namespaces, (term, _): (&Term, &Asker), deadline: Instant,
    ) -> Attempt<v1::Namespace> {
        check_namespace(&self.namespace)?;
        check_updated(&self).map_err(invalid)?;
        let wish =
            SequenceWish { start: self.start, max: self.max, step: self.step_max.max(self.step) };
        namespaces.check_wish(&self.namespace, wish)?;
        let change = NamespaceChange {
            request_id_optional: self.request_id_optional,
            redis_strings: self.redis_strings,
            key_kind: kind(self.key_kind()),
            step: self.step,
            step_min: self.step_min,
            step_max: self.step_max,
            max: self.max,
            description: self.description,
            count_max: self.count_max,
            keys_max: self.keys_max,
            increment: self.increment,
            start: self.start,
            section_size: self.section_size,
        };
        let name = self.namespace;
        namespaces.change(term, Command::UpdateNamespace { name, change }, deadline).await
    }
}

impl ByLeader for v1::DeleteNamespaceRequest {
    type Service = Namespaces;

    /// A deletion that is carried out twice may delete a namespace that was created again meanwhile.
    const IS_ASKED_ONCE: bool = true;

    fn subject(&self, _: Option<&v1::DeleteNamespaceResponse>) -> Subject {
        Subject::of(self.wanted()).setting(set_fields::of_deleted(self))
    }

    async fn carry_out(
        self, namespaces: &Namespaces, (term, _): (&Term, &Asker), deadline: Instant,
    ) -> Attempt<v1::DeleteNamespaceResponse> {
        let v1::DeleteNamespaceRequest { namespace: name, confirm, forget } = self;
        check_namespace(&name)?;
        if confirm != name {
            refuse!(
                InvalidRequest,
                "to delete namespace {name:?} and all its keys, give its name again; confirm is {confirm:?}"
            );
        }
        let delete = Command::DeleteNamespace { name, forget };
        match namespaces.propose(term, delete, deadline).await? {
            EntryOutcome::NamespaceDeleted(Ok(left)) => {
                let floor = left.map(|tombstone| tombstone.floor);
                let leased = left.map(|tombstone| tombstone.leased);
                let leased = leased.filter(|leased| !leased.is_none());
                Ok(v1::DeleteNamespaceResponse {
                    floor: floor.filter(|floor| *floor > 0),
                    ids_after_ms: leased.map(|leased| leased.ceiling_ms),
                })
            }
            EntryOutcome::NamespaceDeleted(Err(refused)) => Err(refusal(&refused).into()),
            other => Err(refusal!(Internal, "unexpected outcome: {other:?}").into()),
        }
    }
}

/// The kind of keys that a message names, if it names one.
pub(super) fn kind(named: v1::KeyKind) -> Option<KeyKind> {
    match named {
        v1::KeyKind::Unspecified => None,
        v1::KeyKind::Id => Some(KeyKind::Id),
        v1::KeyKind::Name => Some(KeyKind::Name),
    }
}

fn refusal(refused: &NamespaceRefused) -> Refusal {
    use NamespaceRefused::*;
    match refused {
        Exists(_) => refusal!(NamespaceExists, "{refused}"),
        NotFound(_) | DeletedBefore { .. } => {
            refusal!(NamespaceNotFound, "{refused}")
        }
        Fixed { .. } | BelowFloor { .. } | IdsUsedUp | TooMany(_) => {
            refusal!(WrongState, "{refused}")
        }
        Invalid(_) => refusal!(InvalidRequest, "{refused}"),
    }
}

fn namespace_config(
    create: v1::CreateNamespaceRequest, now_ms: u64,
) -> Result<NamespaceConfig, Refusal> {
    let defaults = NamespaceConfig::new(create.name.clone());
    let key_kind = kind(create.key_kind()).unwrap_or(KeyKind::Id);
    let format = create.format.as_deref();
    let wish = SequenceWish {
        start: create.start,
        max: create.max,
        step: create.step_max.max(create.step),
    };
    let format = format.map(|format| for_new_namespace(format, key_kind, now_ms, wish));
    let format = format.transpose()?;
    let (step, max) = (format.as_ref()).map_or((None, None), |format| (format.step, format.max));
    let config = NamespaceConfig {
        key_kind,
        step: create.step.or(step).unwrap_or(defaults.step),
        step_min: create.step_min,
        step_max: create.step_max,
        increment: create.increment.unwrap_or(defaults.increment),
        start: create.start.unwrap_or(defaults.start),
        max: create.max.or(max).unwrap_or(defaults.max),
        section_size: create.section_size.unwrap_or(defaults.section_size),
        gapless: create.gapless,
        request_id_optional: create.request_id_optional,
        description: create.description.unwrap_or_default(),
        count_max: create.count_max,
        keys_max: create.keys_max,
        format: format.map(|format| format.text),
        redis_strings: create.redis_strings,
        name: create.name,
    };
    config.check().map_err(invalid)?;
    Ok(config)
}

fn invalid(invalid: InvalidNamespace) -> Refusal {
    refusal!(InvalidRequest, "{invalid}")
}

fn to_wire(namespace: &Namespace) -> v1::Namespace {
    let config = &namespace.config;
    let (step_min, step_max) = config.step_bounds();
    v1::Namespace {
        name: config.name.clone(),
        key_kind: match config.key_kind {
            KeyKind::Id => v1::KeyKind::Id.into(),
            KeyKind::Name => v1::KeyKind::Name.into(),
        },
        step: config.step,
        increment: config.increment,
        start: config.start,
        max: config.max,
        section_size: config.section_size,
        description: config.description.clone(),
        count_max: config.count_max,
        keys_max: config.keys_max,
        step_min,
        step_max,
        gapless: config.gapless,
        request_id_optional: config.request_id_optional,
        format: config.format.clone(),
        redis_strings: config.redis_strings,
    }
}
