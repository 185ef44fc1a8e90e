//! The simulated CUDA driver: a `libcuda.so.1` made of documented APIs only.
//!
//! Memory behaves as on a device (capacity, pools, virtual memory, pinned host), copies move bytes, everything
//! else succeeds at once, and kernels do not run. `SIMGPU_MEM`, `SIMGPU_DEVICES`, `SIMGPU_CC` shape the device;
//! `SIMGPU_LOG=FILE` writes the truth about every allocation, the tests' independent oracle; `SIMGPU_FAIL` makes calls
//! fail (`fail`).
//!
//! The entry points are plain `extern "C"`: what they take from the caller is typed in `abi`, which alone reads and
//! writes through the caller's pointers; handles are numbers that are looked up, never followed.

#![allow(non_snake_case, clippy::missing_safety_doc, clippy::too_many_arguments)]

#[macro_use]
mod abi;
mod arena;
mod array;
mod attributes;
mod blocks;
mod capture;
mod config;
mod context;
mod copy;
mod copy3d;
mod device;
mod error;
mod event;
mod exec;
mod external;
mod fail;
mod fill;
mod fresh;
mod function;
mod graph;
mod graph_memory;
mod green;
mod host;
mod ipc;
mod launch;
mod library;
mod linear;
mod linker;
mod lookup;
mod lookup_memory;
mod lookup_work;
mod mipmap;
mod module;
mod multicast;
mod node;
mod occupancy;
mod params;
mod pointer;
mod pool;
mod pool_share;
mod poolapi;
mod primary;
mod space;
mod sparse;
mod state;
mod stream;
mod stream_ops;
mod texture;
mod truth;
mod unsupported;
mod vmm;
mod vmm_share;
