//! malloc and free: every call in full mode, an honest estimate in sampled mode, and whose line it was.

mod arenas;
mod calls;
mod estimates;
mod odd;
mod operators;
mod peers;
mod pending;
mod stacks;
#[cfg(target_arch = "x86_64")]
mod straight;
mod stress;
mod trees;
