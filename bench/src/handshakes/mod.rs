//! `ratchet-bench handshakes`: how fast a node makes handshakes of TLS, full and resumed, beside the echo.

mod measure;
mod options;
mod report;

pub use options::HandshakesOptions;
