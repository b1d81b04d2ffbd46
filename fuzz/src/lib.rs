//! The helpers of several fuzz targets. Each target is a file in `targets/`.

#[cfg(feature = "targets")]
pub mod commands;
#[cfg(feature = "targets")]
pub mod node;
pub mod parts;
pub mod replies;
