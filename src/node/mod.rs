//! One node: it starts, serves, hands over and stops; and it takes a request to the leader.
//!
//! Uses the allocator and the modules below it. The interfaces (`server`) use it. Invariant: the allocator in use belongs
//! to the term that Raft last said this node leads, or there is none.
//!
//! A request for numbers comes in through `Numbers::serve` (`numbers`), one for ids through `Ids::next` (`ids`), and every other
//! one but an export through `call` or `ask` (`operations`). Each is answered here if this node leads, and otherwise goes the
//! `way` to the leader.
//!
//! A folder uses those below it, and each service has its fields and its methods in its folder. From the top down: the node's life
//! and what it is made of (`lifecycle`); `ids`; `known_namespaces`; `operations`, and who carries them out: `status`,
//! `namespaces`, `numbers`, `handover`, `leases` of worker ids, `members`, `grants`; who is let in (`admission`); what requests
//! have in common (`requests`); the `way`; the `terms` that this node leads; and what all of them are made of. Why a
//! node did not start, or had to stop, is a `StartError` (`start_error`).

mod access;
mod admission;
mod callers;
mod common;
pub mod config;
mod formats;
mod grants;
mod handover;
mod ids;
mod known_namespaces;
mod leases;
mod lifecycle;
mod line_rate;
mod members;
mod namespaces;
mod numbers;
mod operations;
mod request_memory;
mod requests;
mod seams;
pub mod settings;
mod slow_calls;
mod start_error;
mod status;
mod stopping;
mod terms;
pub mod text_table;
mod told_call;
mod traces;
mod way;

pub use access::{
    AUDIT, Access, Entrance, Guarded, LetIn, Principal, SeveralTokens, hash_of, written_quotas,
};
pub use callers::{Caller, Callers, Counted, Guest, GuestCall, KNOWN_WITHIN, Kind, Port, Silence};
pub use config::Config;
pub use formats::id_format;
pub use ids::{MadeIds, NEXT_IDS, id_list::IdList, request::check as check_ids};
pub use known_namespaces::KeysOf;
pub use lifecycle::{Node, context::NodeContext, recover};
pub use members::{
    ROUTE_UNWANTED, RespNode, greeting::greeting, introductions::Introduction, without_addresses,
};
pub use namespaces::export::{Export, Exported};
pub use numbers::{checked_request::CheckedRequest, sequence_request::SequenceRequest};
pub use operations::{OPERATIONS, ServedOperation};
pub use request_memory::{COUNTED_BYTES_MIN, RequestMemory, Reservation};
pub use requests::{
    keys::{REQUEST_KEYS_MAX, invalid_key, to_key},
    refused_keys::refused_at,
};
pub use seams::{Addresses, FileRead, Reload, Seams};
pub use settings::mapped_names::{MappedNames, RowPart, asked_by, row_fields, row_of};
pub use start_error::StartError;
pub use status::{
    readiness::NotReady,
    recent_activity::{SECONDS_KEPT, Second},
};
pub use told_call::CallEnd;
pub use traces::{EndedSpan, Kind as SpanKind, TraceContext, Traces};
pub use way::{
    attempt::{Attempt, Origin, Unanswered},
    for_leader::ForLeader,
    forward::{Forwarder, MERGED_BYTES_MAX, NoReply},
    patience::{deadline_in, time_to_answer},
    search::leader_of,
};
