//! The simulated CUDA runtime: the body of `libcudart.so.11.0`, `libcudart.so.12` and `libcudart.so.13`, and of a
//! "static cudart" in test programs.
//!
//! It owns no memory and no device. Whatever a program asks for goes to the driver, found the way the real
//! runtime finds it (`lookup`), so that everything that stands between a runtime and a driver sees what it
//! would see with the real pair. Only documented behaviour is written here; the declarations are our own.
//!
//! All majors come from this one source. Where they differ, `version::major()` says which one this is; the
//! step that links the library defines the C symbol `simgpu_cudart_major`.

// The names are CUDA's.
#![allow(non_snake_case, non_upper_case_globals)]
// Every function here is the body of a C function: its pointers are good on the caller's word, as CUDA
// documents them, and there is nothing more to say about it at each line.
#![allow(unsafe_op_in_unsafe_fn)]

#[macro_use]
mod export;
mod abi;
mod arrays;
mod capture;
mod copy;
mod copy_shaped;
mod device;
mod driver;
mod driver_entry_point;
mod error;
mod error_text;
mod event;
mod function;
mod graph;
mod host;
mod ipc;
mod launch;
mod libraries;
mod lookup;
mod memory;
mod memset;
mod modules;
mod occupancy;
mod peer;
mod pool;
mod properties;
mod register;
mod state;
mod stream;
mod unified;
mod version;

/// Opens the driver while the program loads, because some callers look for an already open `libcuda.so.1`.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = driver::open;
