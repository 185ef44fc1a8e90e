//! What differs from processor to processor, one file each with the same names in it: the jumps that interposers
//! end with, the address of a thread's block, a system call, numbers of ELF and of glibc. It knows the calling
//! convention and the C library, nothing of what is interposed and why.

#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
mod processor;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("leaktrace is written for x86-64 and aarch64");

pub use processor::*;
