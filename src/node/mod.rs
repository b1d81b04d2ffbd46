//! One node: it starts, serves, hands over and stops; and it takes a request to the leader.
//!
//! Uses the allocator and the modules below it. The interfaces (`server`) use it. Invariant: the allocator in use belongs
//! to the term that Raft last said this node leads, or there is none.
//!
//! A request for numbers comes in through `Numbers::serve` (`numbers`), one for ids through `Ids::next` (`ids`), and every
//! other one but an export through `call` or `ask` (`operations`). Each is answered here if this node leads, and otherwise goes
//! the `way` to the leader.
//!
//! A folder uses those in the rows below it (`tests/architecture/rooms.rs`), and each service has its fields and its methods in
//! its folder. From the top down, a blank line between two rows:
//!
//! * `lifecycle`: the start and the stop of a node, and all that it is made of.
//!
//! * `ids`: ids with a shape, made by any node.
//!
//! * `known_namespaces`: the namespaces that this node knows, and a question to the leader about the others.
//!
//! * `operations`: the table of operations, and the services that carry them out.
//!
//! * `status`: the status of the cluster, and whether this node is ready.
//! * `namespaces`: creation, change, deletion, listing and export of namespaces.
//! * `handover`: the graceful change of the leader.
//! * `numbers`: requests for numbers and floors.
//!
//! * `grants`: changes of the principals: of their tokens, grants and quotas.
//!
//! * `leader_ids`: what only the leader does for ids: leases of worker ids, and numbers of ids that come from a key.
//! * `members`: the members of the cluster, and how a node becomes one.
//! * `admission`: the check of a caller before anything is done for it.
//!
//! * `requests`: keys, checks and refusals of all kinds of requests.
//!
//! * `way`: the way to the leader.
//!
//! * `terms`: the terms that this node leads.
//! * `access`: principals, what is granted to them, their quotas, and the audit.
//!
//! * `common`: the parts that most services share.
//! * `formats`: the formats of ids that namespaces have.
//! * `wall_clock`: the time of ids, and whether the leader's wall clock is believed.
//!
//! * `slow_calls`: the lines that the log has of slow calls.
//! * `request_memory`: the bound on the memory of waiting requests.
//! * `seams`: the clock, the transport and the storage that a node is started with.
//!
//! * `traces`: the spans of traced calls.
//! * `callers`: the bounds on what one caller holds.
//! * `start_error`: the error with which a node does not start, or has to stop.
//!
//! * `config`: the configuration.
//!
//! * `settings`: the list of settings that the configuration is made from.
//!
//! * `stopping`: the signal that this node stops.
//! * `text_table`: settings that are tables of texts.
//! * `told_call`: a call, as the log and traces tell it.
//! * `line_rate`: the bound on lines of the log that anybody can cause.

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
mod leader_ids;
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
mod wall_clock;
mod way;

pub use access::{
    AUDIT, Access, Asker, Entrance, Guarded, LetIn, RefusedCertificate, SeveralTokens,
    are_peers_nodes, hash_of, written_quotas,
};
pub use callers::{
    Caller, Callers, Counted, CountedKind, Guest, GuestCall, KNOWN_WITHIN, Port, Silence,
};
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
pub use seams::{Addresses, CertificateReader, FileRead, Seams};
pub use settings::mapped_names::{MappedNames, RowPart, asked_by, row_fields, row_of};
pub use start_error::StartError;
pub use status::{
    readiness::NotReady,
    recent_activity::{SECONDS_KEPT, Second},
};
pub use told_call::CallEnd;
pub use traces::{EndedSpan, SpanKind, TraceContext, Traces};
pub use way::{
    attempt::{Attempt, SoFar, Unanswered},
    for_leader::ForLeader,
    forward::{MERGED_BYTES_MAX, NoReply},
    origin::Origin,
    patience::{deadline_in, time_to_answer},
    search::leader_of,
};
