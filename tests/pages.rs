//! The commands of pages, taken out of them and run in their order against real nodes: a command that does not work, or that is
//! changed in the page or in the program alone, fails.

mod access;
mod certificates;
mod other_clients;
mod page;
mod shell;
