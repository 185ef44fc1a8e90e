//! How an exported runtime function is written: its C signature, what it needs before it runs, its body.
//!
//! `plain` needs nothing, `init` an initialised driver, `device` a current context as well. A body yields
//! `Outcome`; the error becomes the thread's last error and the C return value. A function with a second name
//! in brackets takes the default stream to be the legacy one under the first name and the thread's own under
//! the second; its body learns which from `via`. Functions that only hand their arguments to a function of
//! the driver are listed in `forward!`.

macro_rules! export {
    ($( $(#[$doc:meta])* $need:ident fn $name:ident ( $($arg:ident : $type:ty),* $(,)? ) $body:block )*) => { $(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> i32 {
            #[allow(clippy::too_many_arguments)]
            unsafe fn body($($arg: $type),*) -> $crate::error::Outcome $body
            match $crate::state::$need() {
                Ok(()) => $crate::error::report(body($($arg),*)),
                Err(code) => $crate::error::report(Err(code)),
            }
        }
    )* };
}

macro_rules! export_streams {
    ($( $(#[$doc:meta])* $need:ident fn $name:ident [ $per_thread:ident ] ( $via:ident; $($arg:ident : $type:ty),* $(,)? ) $body:block )*) => { $(
        const _: () = {
            #[allow(clippy::too_many_arguments)]
            unsafe fn body($via: $crate::driver::Via, $($arg: $type),*) -> $crate::error::Outcome $body
            $(#[$doc])*
            #[unsafe(no_mangle)]
            #[allow(clippy::too_many_arguments)]
            unsafe extern "C" fn $name($($arg: $type),*) -> i32 {
                match $crate::state::$need() {
                    Ok(()) => $crate::error::report(body($crate::driver::Via::Legacy, $($arg),*)),
                    Err(code) => $crate::error::report(Err(code)),
                }
            }
            #[unsafe(no_mangle)]
            #[allow(clippy::too_many_arguments)]
            unsafe extern "C" fn $per_thread($($arg: $type),*) -> i32 {
                match $crate::state::$need() {
                    Ok(()) => $crate::error::report(body($crate::driver::Via::PerThread, $($arg),*)),
                    Err(code) => $crate::error::report(Err(code)),
                }
            }
        };
    )* };
}

macro_rules! forward {
    ($( $(#[$doc:meta])* $need:ident fn $name:ident ( $($arg:ident : $type:ty),* ) => $method:ident; )*) => {
        export! { $( $(#[$doc])* $need fn $name($($arg: $type),*) { $crate::driver::D.$method($($arg),*) } )* }
    };
}

macro_rules! forward_streams {
    ($( $(#[$doc:meta])* $need:ident fn $name:ident [ $per_thread:ident ] ( $($arg:ident : $type:ty),* )
        => $method:ident; )*) => {
        export_streams! {
            $( $(#[$doc])* $need fn $name [$per_thread] (via; $($arg: $type),*) { via.$method($($arg),*) } )*
        }
    };
}
