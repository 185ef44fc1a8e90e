//! What is loaded in this process, and what the loader would find: the list of objects, their symbols, the
//! rules of scope.
//!
//! It knows glibc and ELF. It must not know CUDA, hooks, or what is recorded.

pub mod address;
pub mod dlsym;
pub mod functions;
pub mod link_map;
pub mod nesting;
pub mod object;
pub mod scope;

use crate::lock::{Mutex, Rank};

/// Held while this library walks the loader's list. The walk holds `dl_load_write_lock`, which glibc does not
/// renew in a forked child: a fork in another thread in the middle of a walk would leave the child a lock that
/// nobody ever releases. So forks wait for the end of the walk, as for any lock of this library.
pub static WALK: Mutex<()> = Mutex::new(Rank::LoaderWalk, ());

/// Runs a `dl_iterate_phdr`. A walk inside of a walk, or of a signal handler on top of one, needs no more: the
/// loader's lock is recursive.
pub fn walk<R>(iterate: impl FnOnce() -> R) -> R {
    WALK.raw().bracket(iterate)
}
