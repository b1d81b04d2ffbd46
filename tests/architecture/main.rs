//! The rules of the house that the source text can be checked for, the scripts, and cargo's plans of builds.
//!
//! Each check has a test beside it that shows that it finds a violation.

mod alerts;
mod blanks;
mod circles;
mod comments;
mod dashboards;
mod files;
mod headings;
mod layers;
mod limits;
mod lists;
mod package;
mod pages;
mod purity;
mod queries;
mod rocksdb;
mod rooms;
mod rust;
mod scripts;
mod selects;
mod units;
mod uses;
