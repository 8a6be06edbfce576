//! What every test needs: the built things, programs to trace, runs of them, and the traces that came of it.

mod apple;
mod build;
mod pty;
mod run;
mod trace;
mod turns;

pub(crate) use apple::{Processor, apple_targets, imports_of_apple};
pub(crate) use build::{
    Driver, copied, cpp_program_with, driver_folder, gputrace, hooked_functions, lacks, library, linked_with,
    linked_with_library, nccl_folder, nccl_inside, needs, nvml_folder, odd_driver_folder, program, program_by,
    program_with, repository, shim, system_library,
};
pub(crate) use pty::on_a_terminal;
pub(crate) use run::{Finished, Scratch, Started, Target, poll, test_hook};
pub(crate) use trace::{Row, Stacks, Table, Trace, count, orphans, truth};
