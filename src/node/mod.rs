//! One node: it starts, serves, hands over and stops; and it takes a request to the leader.
//!
//! Uses the allocator and the rooms below it. The doors (`server`) use it. Invariant: the allocator in use
//! belongs to the term that Raft last said this node leads, or there is none.
//!
//! A request for numbers comes in through `serve`, and every other one through `call` or `ask` (`operations`). `serve` answers it
//! from the term's allocator if this node leads, and otherwise hands it to `leader_search`, the loop that forwards it (`forward`)
//! until a leader answers. `services` says what the parts of a node own.

mod activity;
mod asked;
mod awaited_answer;
mod believed_time;
mod bequest;
mod callers;
pub mod config;
mod current_handover;
mod dates;
mod drop_in_row;
mod drop_in_tables;
mod error;
mod export;
mod floors;
mod formation;
mod formats;
mod forward;
mod founding_claim;
mod free_space;
mod free_workers;
mod gaps;
mod give_back;
mod greeting;
mod handover;
mod held_inheritance;
mod hello;
mod id_formats;
mod id_list;
mod id_numbers;
mod id_request;
mod id_sources;
mod ids;
mod ids_time;
mod introductions;
mod key_ids;
mod key_queues;
mod key_times;
mod late_keys;
mod leader_search;
mod leadership;
mod lifecycle;
mod listing;
mod lost_directory;
mod measure;
mod member_changes;
mod members;
mod memory_receiver;
mod memory_stream;
mod message_parts;
mod namespaces;
mod operations;
mod reach;
mod readiness;
mod recent_activity;
mod recent_records;
mod refusals;
mod refused_keys;
mod refused_requests;
mod rejoin;
mod request_memory;
mod seams;
mod sequence_request;
mod serve;
mod services;
pub mod settings;
mod status;
mod take_back;
mod takeover;
pub mod text_table;
mod waiting_keys;
mod worker_desk;
mod workers;

pub use asked::Asked;
pub use callers::{Caller, Callers, Counted, Guest, Kind};
pub use config::Config;
pub use drop_in_row::{RowPart, asked_by, row_fields};
pub use error::StartError;
pub use export::{Export, Exported};
pub use formats::id_format;
pub use forward::{Forwarder, MERGED_BYTES_MAX, NoReply};
pub use id_list::IdList;
pub use ids::MadeIds;
pub use introductions::Introduction;
pub use leader_search::{Attempt, Failure, ForLeader, NoAnswer, NotLed, Origin, leader_of};
pub use lifecycle::{Node, recover};
pub use members::{ROUTE_UNWANTED, RespNode};
pub use message_parts::{REQUEST_KEYS_MAX, invalid_key, to_key};
pub use operations::{OPERATIONS, Served};
pub use readiness::NotReady;
pub use recent_activity::{SECONDS_KEPT, Second};
pub use refused_keys::refused_at;
pub use request_memory::{COUNTED_BYTES_MIN, RequestMemory, Reservation};
pub use seams::{Addresses, Seams};
pub use sequence_request::SequenceRequest;
pub use services::NodeContext;
