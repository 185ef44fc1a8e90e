//! One small function per shape of entry point: call the real one, read its out-parameters, note the event.
//!
//! An allocation is noted after the real call, a free before it (another thread may get the address at once) and undone
//! if it fails. The real call stands outside every lock and every fence of ours.

pub mod array;
pub mod context;
pub mod device;
pub mod driver_queries;
pub mod external;
pub mod graph;
pub mod lookup;
pub mod pinned_host;
pub mod pool;
pub mod record;
pub mod runtime;
pub mod untracked;
pub mod virtual_memory;

/// `CUresult` and `cudaError_t`. Plain numbers: a newer driver may return one that no enum of today names.
pub type Status = i32;

/// The real function behind a hook, as the type of that hook.
macro_rules! real {
    ($row:ident, $slot:ident, fn($($arg:ty),*)) => {
        // SAFETY: the slot is bound (the hook is handed out by `bind` alone), to the address of a function that the
        // list says has this signature.
        unsafe {
            std::mem::transmute::<*mut std::ffi::c_void, unsafe extern "C" fn($($arg),*) -> $crate::hooks::Status>(
                $crate::interpose::hook_table::real($row, $slot),
            )
        }
    };
}
pub(crate) use real;

/// What a successful call stored for the caller; 0 if it passed no place to store it.
///
/// # Safety
/// `out` is null or points to a value the real function has just written.
pub unsafe fn stored<T: Copy + Default>(out: *const T) -> T {
    // SAFETY: the caller's promise.
    if out.is_null() { T::default() } else { unsafe { out.read_unaligned() } }
}
