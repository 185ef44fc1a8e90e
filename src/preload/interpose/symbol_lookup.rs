//! What `dlsym` and `dlvsym` find: for what is not interposed whatever the loader says, untouched; for the
//! rest what they would find without us, with a hook in front. Our exports never make a library seem present
//! that is not.

use std::ffi::{CStr, c_char, c_void};

use crate::frameworks;
use crate::hooks::entry_points;
use crate::interpose::trampolines::TailCall;
use crate::interpose::{got_patch, hook_table};
use crate::lifecycle;
use crate::loader::functions::{
    DLCLOSE, DLERROR, DLMOPEN, DLOPEN, DLSYM, DLVSYM, Dlsym, Dlvsym, behind_us, libc_dlsym, libc_dlvsym,
};
use crate::loader::link_map::{is_own_address, object_id, own_export};
use crate::loader::nesting::Nesting;
use crate::loader::object::Version;
use crate::loader::scope::{self, Next};

/// A symbol that is interposed.
enum Interposed {
    /// An entry point of the table.
    EntryPoint(usize),
    /// A function of the loader's: our interposer, and the next in line.
    LoaderFunction { ours: *const c_void, next: *mut c_void },
    /// What gives a framework's table of functions.
    Table(frameworks::InFrontOf),
}

fn interposed(symbol: &CStr) -> Option<Interposed> {
    let function = match symbol.to_bytes() {
        [b'c', b'u', ..] => return entry_points::id_of_symbol(symbol).map(Interposed::EntryPoint),
        b"dlsym" => &DLSYM,
        b"dlvsym" => &DLVSYM,
        b"dlopen" => &DLOPEN,
        b"dlmopen" => &DLMOPEN,
        b"dlclose" => &DLCLOSE,
        b"dlerror" => &DLERROR,
        _ => return frameworks::in_front_of(symbol).map(Interposed::Table),
    };
    // Not by its name here: that could be bound to a preload before us, which would be led to itself.
    let ours = own_export(symbol)?;
    Some(Interposed::LoaderFunction { ours, next: function.next(symbol) })
}

/// Decides what the interposer of `dlsym` does.
pub unsafe extern "C" fn resolve_dlsym(
    handle: *mut c_void,
    symbol: *const c_char,
    caller: *const c_void,
) -> TailCall {
    let real = DLSYM.next(c"dlsym");
    // SAFETY: the next `dlsym`, the caller's own arguments.
    let ask = || unsafe { std::mem::transmute::<*mut c_void, Dlsym>(real)(handle, symbol) };
    // SAFETY: the caller passes a C string or null.
    unsafe { resolve(handle, symbol, Version::Any, caller, real, ask) }
}

/// Decides what the interposer of `dlvsym` does.
pub unsafe extern "C" fn resolve_dlvsym(
    handle: *mut c_void,
    symbol: *const c_char,
    version: *const c_char,
    caller: *const c_void,
) -> TailCall {
    let real = DLVSYM.next(c"dlvsym");
    if version.is_null() {
        return TailCall::jump(real);
    }
    // SAFETY: the next `dlvsym`, the caller's own arguments.
    let ask = || unsafe { std::mem::transmute::<*mut c_void, Dlvsym>(real)(handle, symbol, version) };
    // SAFETY: the caller passes C strings.
    unsafe { resolve(handle, symbol, Version::Asked(CStr::from_ptr(version)), caller, real, ask) }
}

/// The threads that decide what a look-up does.
pub static DECIDING: Nesting = Nesting::new();

/// Decides what a look-up does. `real`: the next function in line, which `ask` calls with the caller's
/// arguments.
///
/// # Safety
/// `symbol` is a C string or null.
unsafe fn resolve(
    handle: *mut c_void,
    symbol: *const c_char,
    version: Version,
    caller: *const c_void,
    real: *mut c_void,
    ask: impl Fn() -> *mut c_void,
) -> TailCall {
    // What is called here may be the program's own, which looks up the C library's at its first call: by the next in line.
    let Some(deciding) = DECIDING.enter().filter(|_| !symbol.is_null() && !real.is_null()) else {
        return TailCall::jump(real);
    };
    got_patch::poll_pending();
    // SAFETY: the caller's promise.
    let symbol = unsafe { CStr::from_ptr(symbol) };
    // Who asks matters for these two.
    let relative = handle == libc::RTLD_NEXT || handle == libc::RTLD_DEFAULT;
    let id = match interposed(symbol) {
        Some(Interposed::EntryPoint(id)) => id,
        // Who gives it is asked by its own handle.
        Some(Interposed::Table(_)) if relative => return TailCall::jump(real),
        Some(Interposed::Table(in_front_of)) => return TailCall::value(in_front_of(ask())),
        Some(Interposed::LoaderFunction { ours, next }) => {
            // By name they find ours, or what stands behind the asking preload; with a version nothing finds
            // ours, which has none. A preload before us that so takes the C library's gets our interposer;
            // one after us must not.
            let found = match (relative, version) {
                (false, _) => ask(),
                (true, Version::Asked(_)) => behind_us(symbol, version).unwrap_or(std::ptr::null_mut()),
                (true, _) => return TailCall::jump(real),
            };
            return match found {
                found if found == next && !found.is_null() => TailCall::value(ours),
                found if !relative => TailCall::value(found),
                _ => TailCall::jump(real),
            };
        }
        None => {
            if !relative && entry_points::is_newer_form(symbol) && !ask().is_null() {
                entry_points::report_newer_form(symbol);
            }
            return TailCall::jump(real);
        }
    };
    let object = object_id(caller);
    // Another preload that answers look-ups itself is asked once, as without us; its own functions are its
    // answer.
    let is_libc = real == libc_dlsym() || real == libc_dlvsym();
    let answer = if relative && is_libc { std::ptr::null_mut() } else { ask() };
    let is_own_answer = object_id(answer).is_some_and(|object| object_id(real) == Some(object));
    let found = if relative && !is_own_answer {
        match (handle == libc::RTLD_NEXT, object) {
            (false, _) => {
                let deepbind = object.is_some_and(got_patch::is_deepbind);
                scope::rtld_default(object, symbol, version, deepbind)
            }
            (true, None) => return TailCall::jump(real),
            (true, Some(object)) => match scope::rtld_next(object, symbol, version) {
                Next::Found(found) => Some(found),
                Next::Nothing => None,
                Next::AskLoader => return TailCall::jump(real),
            },
        }
    } else if is_own_address(answer) {
        // The program's own handle, whose scope is the global one.
        scope::rtld_default(None, symbol, version, false)
    } else if answer.is_null() {
        return TailCall::value(answer);
    } else {
        Some(answer)
    };
    match found {
        Some(found) => {
            if handle == libc::RTLD_DEFAULT {
                scope::pin(object, found);
            }
            // Arming looks up for itself.
            drop(deciding);
            lifecycle::arm();
            TailCall::value(hook_table::in_front_of(id, found))
        }
        None if matches!(version, Version::Asked(_)) => TailCall::jump(real),
        None => TailCall::jump(libc_dlvsym()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_interposed() {
        crate::loader::link_map::init();
        let is_entry_point = |s: &CStr| matches!(interposed(s), Some(Interposed::EntryPoint(_)));
        assert!(is_entry_point(c"cuMemAlloc_v2") && is_entry_point(c"cudaMalloc"));
        for name in [c"cuMemAlloc", c"cublasCreate_v2", c"cudnnCreate", c"cu", c"", c"malloc", c"dlsyms"] {
            assert!(interposed(name).is_none(), "{name:?}");
        }
        // This program exports the interposers under other names.
        assert!(interposed(c"dlsym").is_none());
    }

    #[test]
    fn a_look_up_is_led_by_the_loader_where_nothing_is_interposed() {
        let caller = what_is_interposed as *const c_void;
        // SAFETY: a C string; what is to be jumped to is not.
        let call = unsafe { resolve_dlsym(libc::RTLD_DEFAULT, c"malloc".as_ptr(), caller) };
        assert_eq!(call.jump_target(), DLSYM.next(c"dlsym").cast_const());
        // SAFETY: as above. Nobody has a driver here: the look-up fails by the loader's own words.
        let call = unsafe { resolve_dlsym(libc::RTLD_DEFAULT, c"cuMemAlloc_v2".as_ptr(), caller) };
        assert_eq!(call.jump_target(), libc_dlvsym().cast_const());
    }
}
