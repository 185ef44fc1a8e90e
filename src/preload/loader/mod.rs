//! What is loaded in this process, and what the loader would find: the list of objects, their symbols, the
//! rules of scope.
//!
//! It knows glibc and ELF. It must not know CUDA, hooks, or what is recorded.

pub mod functions;
pub mod link_map;
pub mod object;
pub mod scope;
