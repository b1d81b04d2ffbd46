//! The scenarios are one program: as a target each, they would link the whole node fifty times.
//!
//! Three targets stand beside it. `builds` reads all that its process logs. `sim` changes how its process panics.
//! `architecture` starts no node: it reads the sources and the scripts, and asks cargo for its plans.

mod common;

mod bumps;
mod client;
mod client_faults;
mod cluster;
mod cluster_id;
mod command;
mod connections;
mod damaged_data;
mod disk;
mod drop_in;
mod export;
mod failover;
mod floors;
mod founding;
mod full_disk;
mod gapless;
mod handover;
mod health;
mod http;
mod idle_keys;
mod ids;
mod import;
mod key_id_refusals;
mod key_ids;
mod keys;
mod membership;
mod metrics;
mod namespace_life;
mod openapi;
mod order;
mod panics;
mod peers;
mod power_cut;
mod quotas;
mod raft_store;
mod readers;
mod recover;
mod redis_clients;
mod refusals;
mod request_ids;
mod request_memory;
mod resp;
mod returning_nodes;
mod route;
mod shares;
mod skips;
mod slow_reads;
mod snapshot;
mod snapshot_scale;
mod snapshot_transfer;
mod stalled_log;
mod status;
mod status_page;
mod stream;
mod version;
mod votes;
mod warm_handover;
mod warm_terms;
mod worker_growth;
mod workers;
