//! One small function per shape of entry point: call the real one, read its out-parameters, record the event.
//!
//! An allocation is recorded after the real call, a free before it (another thread may get the address at
//! once) and undone if it fails. The real call stands outside every lock and every guard of ours. It may not
//! return: a thread that is cancelled in it, or an exception, unwinds through the hook.
//!
//! From the bottom: `entry_points` (the table, without code), `events` (appends), `driver_queries` and
//! `devices` (what we ask the driver), `record` (the frame around a call), then the families of hooks. How a
//! call comes to a hook is not known here.

use std::ffi::c_void;

pub mod array;
pub mod context;
pub mod device;
pub mod devices;
pub mod driver_queries;
pub mod entry_points;
pub mod events;
pub mod external;
pub mod graph;
pub mod pinned_host;
pub mod pool;
pub mod record;
pub mod runtime;
pub mod untracked;
pub mod virtual_memory;
pub mod work;

/// `CUresult` and `cudaError_t`. Plain numbers: a newer driver may return one that no enum of today names.
pub type Status = i32;

/// A pointer that the caller of a hook passes for the real function to read or to write; may be null. Only
/// callers make one, as an argument of a hook, and a hook looks through it only after the real function
/// succeeded, which used it too.
#[repr(transparent)]
pub struct Arg<T>(*mut T);

// Derived, these would ask the same of `T`.
impl<T> Copy for Arg<T> {}
impl<T> Clone for Arg<T> {
    fn clone(&self) -> Arg<T> {
        *self
    }
}

impl<T> Arg<T> {
    /// The value it points to; zero for a null pointer.
    #[inline(always)]
    pub fn get(self) -> T
    where
        T: Copy + Default,
    {
        self.field(0)
    }

    /// The part of the value that lies `offset` bytes from its beginning (`offset_of!`); zero for a null
    /// pointer. A struct is read by its fields, and an enum in it as a number, where a newer driver may know
    /// more values than its Rust type.
    #[inline(always)]
    pub fn field<F: Copy + Default>(self, offset: usize) -> F {
        debug_assert!(offset + size_of::<F>() <= size_of::<T>());
        if self.is_null() {
            return F::default();
        }
        // SAFETY: not null, so valid: see the type.
        unsafe { self.0.byte_add(offset).cast::<F>().read_unaligned() }
    }

    /// The pointer or the handle that it points to, as a number.
    #[inline(always)]
    pub fn handle(self) -> u64 {
        const { assert!(size_of::<T>() == size_of::<u64>()) };
        self.field(0)
    }

    pub fn is_null(self) -> bool {
        self.0.is_null()
    }
}

/// A call of an entry point, inside its hook.
pub struct Call<R> {
    pub id: usize,
    pub provider: usize,
    /// Calls the real function with the caller's arguments.
    pub real: R,
}

impl<R: FnOnce() -> Status> Call<R> {
    /// Calls the real function, and nothing else.
    #[inline(always)]
    pub fn pass(self) -> Status {
        (self.real)()
    }
}

/// Defines hooks: functions of the C interface, each of which exists once per entry point and provider, as
/// the table of entry points names them. `|call|`: the real function with the arguments as they came, and
/// what becomes of it.
macro_rules! hooks {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) => |$call:ident| $body:expr;)+) => {$(
        $(#[$doc])*
        pub unsafe extern "C-unwind" fn $name<const ID: usize, const PROVIDER: usize>(
            $($arg: $type),*
        ) -> $crate::hooks::Status {
            type Real = unsafe extern "C-unwind" fn($($type),*) -> $crate::hooks::Status;
            let real = $crate::hooks::entry_points::real(ID, PROVIDER);
            // SAFETY: a hook is handed out once its provider is bound, to the address of a function that the
            // table says has this signature; it gets the caller's own arguments.
            let real = || unsafe { std::mem::transmute::<*mut std::ffi::c_void, Real>(real)($($arg),*) };
            let $call = $crate::hooks::Call { id: ID, provider: PROVIDER, real };
            $body
        }
    )+};
}
pub(crate) use hooks;

/// A handle that the hooks only pass on.
pub type Handle = *mut c_void;
