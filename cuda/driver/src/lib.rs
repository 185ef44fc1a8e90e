//! The simulated CUDA driver: a `libcuda.so.1` made of documented APIs only. `cuda/README.md` says what it
//! does and what it does not do.
//!
//! The rooms, from the bottom up; each names only rooms above it in this list:
//!
//! - `abi`: what crosses the C border. It alone reads and writes through the caller's pointers.
//! - `state`: the driver's one state, as data, and its lock. Handles are numbers, looked up and never followed.
//! - `entry_point`: the macro that exported functions are written with.
//! - `memory`, `graph`, `module`, `stream`, `device`: the functions by family.
//! - `answers`: the functions that only check their handles, or only refuse.
//! - `proc_address`: `cuGetProcAddress`, which hands all of them out.

#![allow(non_snake_case, clippy::missing_safety_doc, clippy::too_many_arguments)]

#[macro_use]
mod abi;
mod state;
#[macro_use]
mod entry_point;
mod answers;
mod device;
mod graph;
mod memory;
mod module;
mod proc_address;
mod stream;
