//! Modules, libraries and their functions.

use std::collections::BTreeMap;
use std::ffi::CString;

use crate::abi::pointers::{Addr, Handle};

/// A module, or a library (which belongs to no context).
#[derive(Default)]
pub struct Module {
    pub context: Handle,
    /// The contexts its code is in, and their devices.
    pub loaded: BTreeMap<Handle, i32>,
    pub functions: BTreeMap<String, Handle>,
    /// Its variables, of which each context has its own.
    pub globals: BTreeMap<(Handle, String), Addr>,
}

/// A function of a module, or a kernel of a library: the same thing here.
pub struct Kernel {
    pub module: Handle,
    pub name: CString,
    /// Dynamic shared memory opted in to, and the preferred carve-out.
    pub settings: [i32; 2],
}
