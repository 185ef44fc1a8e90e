//! The exported CUDA symbols: programs and libraries that are linked to the driver or the runtime are bound
//! to these.

/// Defines one exported symbol per entry point, which asks [`super::dispatch::dispatch`] for this caller's
/// hook and jumps there.
macro_rules! export {
    ($($id:ident = $library:ident $name:literal $symbol:literal $since:literal $thread:literal
        $room:ident::$hook:ident [$($end:literal)*];)+) => {$(
        #[unsafe(naked)]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[cfg_attr(test, unsafe(export_name = concat!("unhooked_", stringify!($id))))]
        unsafe extern "C" fn $id() {
            crate::machine::tail_jump!(
                crate::interpose::dispatch::dispatch,
                (caller, crate::hooks::entry_points::EntryPointId::$id.number())
            )
        }
    )+};
}

leaktrace_core::entry_points!(export);
