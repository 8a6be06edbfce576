//! Attaching to a process that runs: `gputrace attach PID`.
//!
//! | step | file | in what state the process is |
//! |---|---|---|
//! | what forbids it | [`check`] | it runs; nothing of it is touched |
//! | a thread that may make calls of ours | `safe`, by the unwinder of the collector | it runs, but for one thread at a time, for a moment |
//! | the shim is loaded and started, code is made | `load`, `calls` | one thread works for us, all others run |
//! | the driver's functions lead to the shim's | `patches` | all threads are stopped, for as long as it takes to write some hundred jumps |
//! | the way back | `patches` | the same |
//!
//! All of it happens in a process of its own ([`keeper`]), which is there before anything is touched and outlives gputrace by the way back, whatever
//! gputrace dies of. `ptrace` is the kernel's interface, `threads` stops and lets go, `registers` has what differs between processors, `memory`,
//! `maps`, `image` and `found` read the process.
//!
//! What is left in the process is the shim, mapped and called by nobody, its segment, and a page or two of code that nothing leads to: a thread that is in a
//! hook finds its way back through them whenever it goes on, and whoever attaches later finds them.

mod calls;
pub(crate) mod check;
mod found;
mod image;
pub(crate) mod keeper;
mod load;
mod maps;
mod memory;
mod patches;
mod ptrace;
mod registers;
mod safe;
mod threads;
mod work;
