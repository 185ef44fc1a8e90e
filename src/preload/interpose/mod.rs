//! How a call of the program's comes to a hook: exported symbols, `dlsym`, `cuGetProcAddress`, patched import
//! tables. Beside these, the few functions of the C library by which a program leaves itself: `exec`, `_exit`,
//! `longjmp`, what cancels a thread, and what installs a seccomp filter.
//!
//! It knows the loader and the table of hooks. What a call means is for `hooks` to know.

pub mod attach;
mod cancel;
mod dispatch;
mod exec;
mod exit;
mod exports;
pub mod got_patch;
mod hook_table;
mod jumps;
mod proc_address;
mod sandbox;
pub mod slots;
pub mod symbol_lookup;
mod trampolines;
