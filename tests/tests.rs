//! What gputrace promises, tried on whole programs: one binary, one module per promise.
//!
//! | module | what it proves |
//! |---|---|
//! | `transparency` | a traced program cannot tell that it is traced |
//! | `turns` | collectors that take turns with other options: the trace says of each time what was kept of it |
//! | `inherited` | what a process hands to its children is what they would have got without us |
//! | `environments` | on macOS children keep the loader's variables, and what their program gives them |
//! | `limits` | resource limits, sandboxes and small file systems harm nobody |
//! | `library` | the shim itself: what it links, needs and contains |
//! | `hooks` | no function of the driver is without a hook, and each hook has its function's signature |
//! | `selectors` | the messages that the shim hooks on macOS are Metal's, with Metal's signatures |
//! | `on_a_mac` | what only a Mac can prove is listed by a script that runs to its end everywhere |
//! | `rollups` | sums of all events are those of the single ones, and stay when these go |
//! | `routes` | each way by which programs reach the driver is seen, once |
//! | `inline` | calls that symbols do not reach are seen by inline hooks, and named where there are none |
//! | `drivers` | drivers older and newer than the lists, closed, opened again, replaced |
//! | `exactness` | the trace's counts and values are the driver's own |
//! | `graphs` | a replayed graph is one launch and all its kernels, and no capture is disturbed |
//! | `hangs` | a call that stands still is reported once, with its line and with who did not come; what goes on is not |
//! | `collectives` | calls of NCCL are seen in every copy of it, with their values |
//! | `processes` | who each process is, how it came to be and how it ended |
//! | `host_memory` | the same for malloc and free |
//! | `allocations` | what reports say of malloc by stack is what the program did |
//! | `os_waits` | waits for the operating system: long ones recorded, short ones counted, none disturbed |
//! | `ranges` | ranges named with NVTX are the program's own, and other tools keep theirs |
//! | `profilers` | a program that profiles itself with CUPTI gets what it gets alone |
//! | `analyses` | reports say what the driver counted, and the same every time |
//! | `bottlenecks` | each example of a bottleneck has exactly its finding, and its fixed variant none |
//! | `waits` | waits that calls do not speak of are the driver's own |
//! | `gpu_activity` | what CUPTI tells beside the GPU's work is what the stand-in for CUPTI did, and harms no kernel |
//! | `gpu_events` | how busy the GPU was, estimated from launches that events time, is what the simulated device was; nothing else notices |
//! | `gpu_time` | what the GPU did, by CUPTI's records, is what the simulated device did; whoever else uses CUPTI goes first |
//! | `counters` | what is read from outside of devices and processes is what the stand-in for NVML and the kernel say |
//! | `gpu_peers` | once kernels may wait for other processes CUPTI is neither put on a process nor taken off it |
//! | `gpu_windows` | windows hold all the work of their time, cost what the budget allows, and open together in all ranks |
//! | `gpu_without` | where CUPTI cannot be used launches are timed; where it cannot go, or loses records, that is said |
//! | `flight_recorder` | single events that are kept around moments worth it, or in windows, are all of their time, and the account has the rest |
//! | `shedding` | the hooks keep to the budget: the dearest detail goes first, and what is left out is counted |
//! | `failing_calls` | system calls of gputrace fail: nobody is harmed, and it is said |
//! | `faults` | what a trace holds after a kill, on a full disk, in a folder that is in use |
//! | `commands` | wrong commands and broken traces get one clear line and the right exit code |
//! | `book` | the book's pages of commands, analyses, findings and tables are what the command says today |
//! | `manual` | completions and pages of the manual are understood, and say what `--help` does |
//! | `gates` | a trace is held against limits and other traces, and what was not measured does not pass; what differs is named |
//! | `format` | the files are what `gputrace schema` says |
//! | `broken_imports` | what a profiler wrote wrongly, or not to its end, is read as far as it goes, and said |
//! | `imported_graphs` | launches of graphs in traces of other profilers are told apart by graph |
//! | `imports` | traces of other profilers become ours, row by row |
//! | `memory_snapshots` | snapshots of PyTorch's memory say what PyTorch's own statistics said |
//! | `export_memory` | an export takes no more than it may, whatever differs in a trace |
//! | `exported_tables` | databases and tables for other programs hold what the trace holds |
//! | `metrics` | what is served for Prometheus is what the trace counts, and the dashboard asks for nothing else |
//! | `outputs` | what `-o` names is whole or what it was before, and a FIFO stays one |
//! | `exports` | what is exported, and read back, is what the trace holds |
//! | `round_trips` | a profile that was imported and exported again says what it said, to us and to Holistic Trace Analysis |
//! | `judges` | Holistic Trace Analysis and DuckDB find our report's numbers in the same trace |
//! | `aarch64` | the shim on another processor, under an emulator |
//! | `apple` | the shim for macOS, its machine code executed under a Mach-O loader of our own |
//! | `metal` | Metal's trace is what the simulated Metal did, and the program cannot tell |
//! | `clients` | CUDA's own runtime and Python bindings, where they are installed |
//! | `terminal` | bars come and go at a terminal only, --quiet leaves errors alone, and styles change no word |
//! | `switching` | recording that is switched on and off, by the program and from outside, and of which time the report is |
//! | `capturing` | recording that is on in ranges, in steps, by the clock or at a signal, and never else |
//! | `stacks` | each costly wait names the line of Python that caused it, as each version of Python itself says |
//! | `interpreters` | Python embedded, in several interpreters, and while it ends: harmless, and no stack that was not so |
//! | `unreached` | children that the shim cannot reach run as they do alone and are named when they use CUDA |
//! | `attach` | a process that runs is traced from now on, is as it was afterwards, and is left alone where it must be |
//! | `standing` | a session outlives its collectors: what is traced meanwhile is in the trace, and nothing twice |
//! | `upgrades` | a process whose collector is of another version, in another namespace, or killed with it has the end and the account that are its own |
//! | `brake` | a command that faults again and again soon after its start is not traced until somebody says so |
//! | `signals` | signals, process 1, off switches: gputrace between a program and those who start it |
//! | `sanitizers` | programs built with sanitizers run and report as they do alone |
//! | `heirs` | whoever is killed of gputrace has a successor, which is heard and counts deaths |
//! | `recovering` | gputrace is killed: the command, its heir, and what recover makes of the trace |
//! | `orders` | who has a session's token switches it by HTTP, and nobody else does |
//! | `top` | what a terminal shows of a run while it runs, and that it is as it was afterwards |
//! | `real_programs` | programs that people use run as they do without us |
//! | `widths` | no line of a report is longer than was asked for |
//! | `tidy` | the repository keeps its own rules |
//! | `pages` | a page of a report shows its trace in a real browser, and nothing in it is taken for a program |
//! | `profiles` | sums by stack are those of the tables' rows, as other tools read them |
//! | `timelines` | what other viewers show is what the trace holds |
//!
//! `util` builds and runs; `programs/` holds the traced programs; `fakes/` the simulated driver, CUPTI, NVML and NCCL, Metal, and
//! the loader of macOS.

mod util;

mod aarch64;
mod allocations;
mod analyses;
mod apple;
mod attach;
mod book;
mod bottlenecks;
mod brake;
mod broken_imports;
mod capturing;
mod clients;
mod collectives;
mod commands;
mod counters;
mod drivers;
mod environments;
mod exactness;
mod export_memory;
mod exported_tables;
mod exports;
mod failing_calls;
mod faults;
mod flight_recorder;
mod format;
mod gates;
mod gpu_activity;
mod gpu_events;
mod gpu_peers;
mod gpu_time;
mod gpu_windows;
mod gpu_without;
mod graphs;
mod hangs;
mod heirs;
mod hooks;
mod host_memory;
mod imported_graphs;
mod imports;
mod inherited;
mod inline;
mod interpreters;
mod judges;
mod library;
mod limits;
mod manual;
mod memory_snapshots;
mod metal;
mod metrics;
mod on_a_mac;
mod orders;
mod os_waits;
mod outputs;
mod pages;
mod processes;
mod profilers;
mod profiles;
mod ranges;
mod real_programs;
mod recovering;
mod rollups;
mod round_trips;
mod routes;
mod sanitizers;
mod selectors;
mod shedding;
mod signals;
mod stacks;
mod standing;
mod switching;
mod terminal;
mod tidy;
mod timelines;
mod top;
mod transparency;
mod turns;
mod unreached;
mod upgrades;
mod waits;
mod widths;
