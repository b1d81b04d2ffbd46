//! One node: it starts, serves, hands over and stops; and it takes a request to the leader.
//!
//! Uses the allocator and the modules below it. The interfaces (`server`) use it. Invariant: the allocator in use belongs
//! to the term that Raft last said this node leads, or there is none.
//!
//! A request for numbers comes in through `Leader::serve` (`numbers`), one for ids through `Ids::next` (`ids`), and every
//! other one but an export through `call` or `ask` (`operations`). `serve` answers it from the term's allocator if this node
//! leads, and otherwise hands it to `numbers/leader_search`, the loop that forwards it (`numbers/forward`) until a leader answers.
//!
//! `services` says what each service of a node owns. What it does stands in the folder of its name: `numbers`, `ids` (made
//! here, or by the leader), `workers` (worker ids, and the time of ids), `namespaces`, `members`, `handover`, `status`.

mod access;
mod admission;
mod callers;
pub mod config;
mod handover;
mod ids;
mod lifecycle;
mod members;
mod namespaces;
mod numbers;
mod operations;
mod request_memory;
mod seams;
mod services;
pub mod settings;
mod status;
pub mod text_table;
mod workers;

pub use access::{AUDIT, Access, Entrance, Guarded, LetIn, Principal, SeveralTokens, hash_of};
pub use callers::{Caller, Callers, Counted, Guest, GuestCall, KNOWN_WITHIN, Kind, Port, Silence};
pub use config::Config;
pub use ids::{
    MadeIds,
    formats::id_format,
    request::{IdList, check as check_ids},
};
pub use lifecycle::{Node, recover};
pub use members::{ROUTE_UNWANTED, RespNode, introductions::Introduction, without_addresses};
pub use namespaces::{
    KeysOf,
    listing::{Export, Exported},
};
pub use numbers::{
    Asked,
    forward::{Forwarder, MERGED_BYTES_MAX, NoReply},
    keys::{REQUEST_KEYS_MAX, invalid_key, to_key},
    leader_search::{Attempt, ForLeader, Origin, Unanswered, leader_of},
    refused::refused_at,
    sequence_request::SequenceRequest,
};
pub use operations::{OPERATIONS, Served};
pub use request_memory::{COUNTED_BYTES_MIN, RequestMemory, Reservation};
pub use seams::{Addresses, FileRead, Reload, Seams, StartError};
pub use services::NodeContext;
pub use settings::mapped_names::{MappedNames, RowPart, asked_by, row_fields, row_of};
pub use status::{
    NotReady,
    recent_activity::{SECONDS_KEPT, Second},
};
