//! How an exported driver function is written: its C signature, what it needs, and a body that yields a
//! `Res`.
//!
//! ```text
//! fn cuName(driver, owner; stream: Stream, bytes: usize) = cuSecondName [cuName_ptsz] { … }
//! ```
//!
//! The names before the semicolon are bound for the body: the locked state, and the current context with its
//! device. A function that needs neither binds none and may lock the state itself. `= cuSecondName` exports
//! it once more with the same ABI; the names in brackets are the variants for programs built with
//! `--default-stream per-thread`, whose null stream is the thread's own.

macro_rules! driver_api {
    ($($(#[$doc:meta])* fn $name:ident $head:tt $(= $alias:ident)? $([$($variant:ident)*])? $body:block)*) => {$(
        driver_api!(@export $(#[$doc])* $name $head $body);
        $(driver_api!(@alias $alias $name $head);)?
        $($(driver_api!(@per_thread $variant $name $head);)*)?
    )*};
    (@export $(#[$doc:meta])* $name:ident (; $($arg:ident: $type:ty),* $(,)?) $body:block) => {
        driver_api!(@function $(#[$doc])* $name ($($arg: $type),*) $crate::abi::status::status_of(|| $body));
    };
    (@export $(#[$doc:meta])* $name:ident ($driver:ident; $($arg:ident: $type:ty),* $(,)?) $body:block) => {
        driver_api!(@function $(#[$doc])* $name ($($arg: $type),*) $crate::state::driver::with(|$driver| $body));
    };
    (@export $(#[$doc:meta])* $name:ident ($driver:ident, $owner:ident; $($arg:ident: $type:ty),* $(,)?)
        $body:block) => {
        driver_api!(@function $(#[$doc])* $name ($($arg: $type),*)
            $crate::state::driver::with_current(|$driver, $owner| $body));
    };
    (@alias $alias:ident $name:ident ($($bound:ident),*; $($arg:ident: $type:ty),* $(,)?)) => {
        driver_api!(@function $alias ($($arg: $type),*) $name($($arg),*));
    };
    (@per_thread $variant:ident $name:ident ($($bound:ident),*; $($arg:ident: $type:ty),* $(,)?)) => {
        driver_api!(@function $variant ($($arg: $type),*)
            $name($($crate::abi::pointers::PerThread::per_thread($arg)),*));
    };
    (@function $(#[$doc:meta])* $name:ident ($($arg:ident: $type:ty),*) $result:expr) => {
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($arg: $type),*) -> $crate::abi::status::Status {
            // Callers tell the driver's functions apart by address, but the optimiser merges functions with
            // the same body. The comment is all that reaches the assembler. SAFETY: no instruction.
            unsafe {
                std::arch::asm!(
                    concat!("/* ", stringify!($name), " */"),
                    options(nomem, nostack, preserves_flags)
                )
            }
            match $crate::abi::faults::call(stringify!($name)) {
                Ok(_call) => $result,
                Err(status) => status,
            }
        }
    };
}
