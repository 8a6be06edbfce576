//! The subcommands, one file each. They return what to exit with, or an error in the user's words; `main` does the rest.

#[cfg_attr(target_os = "macos", path = "attach/macos.rs")]
pub(crate) mod attach;
pub(crate) mod check;
pub(crate) mod collect;
pub(crate) mod demo;
pub(crate) mod demo_loop;
pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod dump;
pub(crate) mod export;
pub(crate) mod import;
pub(crate) mod manual;
pub(crate) mod record;
pub(crate) mod recover;
pub(crate) mod report;
pub(crate) mod schema;
pub(crate) mod select;
mod select_device;
pub(crate) mod switch;
pub(crate) mod top;
mod unfinished;
