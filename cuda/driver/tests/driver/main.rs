//! The simulated driver as a program meets it: the built library, opened by `dlopen`, in a process of its own
//! per test.

mod devices;
mod families;
mod faults;
mod graphs;
mod memory;
mod modules;
mod sharing;
mod support;
mod truth;
