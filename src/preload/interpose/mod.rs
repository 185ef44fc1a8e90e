//! How a call of the program's comes to us: exported symbols, `dlsym`, `cuGetProcAddress`, patched import tables.
//!
//! It knows the loader and the list of entry points. What a call means is for `hooks` to know.

pub mod dispatch;
pub mod elf_format;
pub mod got_patch;
pub mod hook_table;
pub mod link_map;
pub mod scope;
pub mod symbol_lookup;
pub mod trampolines;
