//! What `dlsym` and `dlvsym` find: for what we do not hook whatever the loader says, untouched; for the rest what they would
//! find without us, with a hook in front. Our exports never make a library seem present that is not.

use std::ffi::{CStr, c_char, c_void};

use crate::hooks::driver_queries;
use crate::interpose::got_patch;
use crate::interpose::hook_table;
use crate::interpose::link_map;
use crate::interpose::link_map::Version;
use crate::interpose::scope;
use crate::interpose::scope::Next;
use crate::interpose::trampolines::Answer;
use crate::interpose::trampolines::DLCLOSE;
use crate::interpose::trampolines::DLERROR;
use crate::interpose::trampolines::DLMOPEN;
use crate::interpose::trampolines::DLOPEN;
use crate::interpose::trampolines::DLSYM;
use crate::interpose::trampolines::DLVSYM;
use crate::interpose::trampolines::Dlsym;
use crate::interpose::trampolines::Dlvsym;
use crate::interpose::trampolines::OWN_DLSYM;
use crate::interpose::trampolines::OWN_DLVSYM;
use crate::interpose::trampolines::ask_behind_us;
use crate::lifecycle;

/// A symbol that a door has to do with.
enum Asked {
    /// A row of the list.
    Cuda(usize),
    /// A door: ours, and the next in line.
    Door { ours: *const c_void, next: *mut c_void },
}

fn asked(symbol: &CStr) -> Option<Asked> {
    let next = match symbol.to_bytes() {
        [b'c', b'u', ..] => return hook_table::row_of_symbol(symbol).map(Asked::Cuda),
        b"dlsym" => &DLSYM,
        b"dlvsym" => &DLVSYM,
        b"dlopen" => &DLOPEN,
        b"dlmopen" => &DLMOPEN,
        b"dlclose" => &DLCLOSE,
        b"dlerror" => &DLERROR,
        _ => return None,
    };
    // Not by its name here: that could be bound to a preload before us, which would be led to itself.
    let ours = link_map::export(symbol)?;
    Some(Asked::Door { ours, next: next.next(symbol) })
}

/// What the `dlsym` door is to do.
pub unsafe extern "C" fn filter(handle: *mut c_void, symbol: *const c_char, caller: *const c_void) -> Answer {
    let real = DLSYM.next(c"dlsym");
    // SAFETY: the next `dlsym`, the caller's own arguments.
    let look = || unsafe { std::mem::transmute::<*mut c_void, Dlsym>(real)(handle, symbol) };
    // SAFETY: the caller passes a C string or null.
    unsafe { look_up(handle, symbol, Version::Any, caller, real, look) }
}

/// What the `dlvsym` door is to do.
pub unsafe extern "C" fn versioned_filter(
    handle: *mut c_void,
    symbol: *const c_char,
    version: *const c_char,
    caller: *const c_void,
) -> Answer {
    let real = DLVSYM.next(c"dlvsym");
    if version.is_null() {
        return Answer::jump(real);
    }
    // SAFETY: the next `dlvsym`, the caller's own arguments.
    let look = || unsafe { std::mem::transmute::<*mut c_void, Dlvsym>(real)(handle, symbol, version) };
    // SAFETY: the caller passes C strings.
    unsafe { look_up(handle, symbol, Version::Asked(CStr::from_ptr(version)), caller, real, look) }
}

/// # Safety
/// `symbol` is a C string or null.
unsafe fn look_up(
    handle: *mut c_void,
    symbol: *const c_char,
    version: Version,
    caller: *const c_void,
    real: *mut c_void,
    look: impl Fn() -> *mut c_void,
) -> Answer {
    got_patch::passed();
    // SAFETY: the caller's promise.
    let Some(symbol) = (!symbol.is_null()).then(|| unsafe { CStr::from_ptr(symbol) }) else {
        return Answer::jump(real);
    };
    let Some(asked) = asked(symbol).filter(|_| !real.is_null()) else {
        let relative = handle == libc::RTLD_NEXT || handle == libc::RTLD_DEFAULT;
        if !real.is_null() && !relative && hook_table::is_newer_form(symbol) && !look().is_null() {
            hook_table::name_newer_form(symbol);
        }
        return Answer::jump(real);
    };
    // Who asks matters for these two.
    let relative = handle == libc::RTLD_NEXT || handle == libc::RTLD_DEFAULT;
    let row = match asked {
        Asked::Cuda(row) => row,
        Asked::Door { ours, next } => {
            // By name they find ours, or what stands behind the asking preload; with a version nothing finds ours, for
            // it has none. A preload before us that so takes the C library's gets the door; one after us must not.
            let found = match (relative, version) {
                (false, _) => look(),
                (true, Version::Asked(_)) => ask_behind_us(symbol, version).unwrap_or(std::ptr::null_mut()),
                (true, _) => return Answer::jump(real),
            };
            return match found {
                found if found == next && !found.is_null() => Answer::value(ours),
                found if !relative => Answer::value(found),
                _ => Answer::jump(real),
            };
        }
    };
    let object = link_map::object_of(caller);
    // Another preload that answers look-ups itself is asked once, as without us; its own functions are its answer.
    let innermost = real == OWN_DLSYM.innermost(c"dlsym") || real == OWN_DLVSYM.innermost(c"dlvsym");
    let answered = if !relative || !innermost { look() } else { std::ptr::null_mut() };
    let own_answer = !answered.is_null()
        && link_map::object_of(answered)
            .zip(link_map::object_of(real))
            .is_some_and(|(a, r)| std::ptr::eq(a, r));
    let found = if relative && !own_answer {
        match (handle == libc::RTLD_NEXT, object) {
            (false, _) => scope::default(object, symbol, version, object.is_some_and(got_patch::is_deep)),
            (true, None) => return Answer::jump(real),
            (true, Some(object)) => match scope::next(object, symbol, version) {
                Next::Found(found) => Some(found),
                Next::Nothing => None,
                Next::AskTheLoader => return Answer::jump(real),
            },
        }
    } else if hook_table::is_ours(answered) {
        // The program's own handle, whose scope is the global one.
        scope::default(None, symbol, version, false)
    } else if answered.is_null() {
        return Answer::value(answered);
    } else {
        Some(answered)
    };
    match found {
        Some(found) => {
            if handle == libc::RTLD_DEFAULT {
                scope::pin(object, found);
            }
            lifecycle::arm();
            Answer::value(provider(row, found))
        }
        None if matches!(version, Version::Asked(_)) => Answer::jump(real),
        None => Answer::jump(OWN_DLVSYM.innermost(c"dlvsym")),
    }
}

/// The hook in front of a real function just found; the function itself where all slots are taken.
pub fn provider(row: usize, real: *mut c_void) -> *const c_void {
    driver_queries::learn(row, real);
    hook_table::bind(row, real).unwrap_or_else(|| {
        lifecycle::too_many_providers(row);
        real
    })
}
