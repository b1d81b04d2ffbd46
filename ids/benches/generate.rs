//! Measures how fast one thread makes ids, with all that an id needs.
//!
//! `cargo bench -p ratchet-ids --bench generate`

fn main() {}
