//! Starting the target and staying with it: everything that `record` does outside the trace.
//!
//! The order of a run: [`find_command`], [`inspect`], [`shim`], [`trace_folder`], [`session`], the collector,
//! [`environ`], [`spawn`], [`supervise`] with [`signals`] and [`watch`], [`exit`]. The target must not notice any of it;
//! each file says what it does towards that.

pub(crate) mod brake;
#[cfg_attr(target_os = "macos", allow(dead_code))] // programs of Linux
pub(crate) mod elf;
pub(crate) mod empty_elf;
pub(crate) mod environ;
pub(crate) mod exit;
pub(crate) mod find_command;
pub(crate) mod inherited;
pub(crate) mod inspect;
pub(crate) mod links;
pub(crate) mod mac;
pub(crate) mod macho;
pub(crate) mod names;
pub(crate) mod others;
pub(crate) mod processes;
pub(crate) mod reach;
pub(crate) mod session;
pub(crate) mod shim;
pub(crate) mod signals;
pub(crate) mod spawn;
pub(crate) mod standing;
pub(crate) mod supervise;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod trace_folder;
pub(crate) mod watch;
pub(crate) mod whose;
