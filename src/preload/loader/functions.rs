//! The loader's own functions, as they are without us: the next in line behind our exports, and the C
//! library's own.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicPtr, Ordering::*};

use crate::loader::link_map;
use crate::loader::object::{LinkMap, Version};
use crate::machine;

pub type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
pub type Dlvsym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;
pub type Dlopen = unsafe extern "C-unwind" fn(*const c_char, i32) -> *mut c_void;
pub type Dlclose = unsafe extern "C-unwind" fn(*mut c_void) -> i32;
pub type Dlerror = unsafe extern "C" fn() -> *mut c_char;

/// The address of a function of the loader's, looked up by the constructor, or by the first call, should one
/// come earlier.
#[repr(transparent)]
pub struct LoaderFunction(AtomicPtr<c_void>);

impl LoaderFunction {
    pub const fn new() -> LoaderFunction {
        LoaderFunction(AtomicPtr::new(std::ptr::null_mut()))
    }

    fn get(&self, find: impl FnOnce() -> Option<*mut c_void>) -> *mut c_void {
        let known = self.0.load(Acquire);
        if !known.is_null() {
            return known;
        }
        link_map::init();
        let found = find().unwrap_or(std::ptr::null_mut());
        self.0.store(found, Release);
        found
    }

    /// The next in line behind us, as every call is handed on: the C library's, or that of a preload after
    /// us.
    pub fn next(&self, name: &CStr) -> *mut c_void {
        self.get(|| {
            link_map::with_objects(|objects| {
                let find = |o: &LinkMap| o.definition(name, Version::Any);
                if link_map::is_late() {
                    return objects.startup_objects().find_map(find);
                }
                objects.startup_objects().skip_while(|o| !o.is_own()).skip(1).find_map(find)
            })
            .flatten()
        })
    }

    /// The C library's own: what we ask ourselves no other preload is to see. Versions begin with the
    /// processor's first glibc.
    fn of_libc(&self, name: &CStr) -> *mut c_void {
        self.get(|| {
            link_map::with_objects(|objects| {
                objects.all().find_map(|o| o.definition_exactly(name, machine::FIRST_GLIBC))
            })
            .flatten()
        })
    }
}

pub static DLSYM: LoaderFunction = LoaderFunction::new();
pub static DLVSYM: LoaderFunction = LoaderFunction::new();
pub static DLCLOSE: LoaderFunction = LoaderFunction::new();
pub static DLERROR: LoaderFunction = LoaderFunction::new();
pub static DLOPEN: LoaderFunction = LoaderFunction::new();
pub static DLMOPEN: LoaderFunction = LoaderFunction::new();
static LIBC_DLSYM: LoaderFunction = LoaderFunction::new();
static LIBC_DLVSYM: LoaderFunction = LoaderFunction::new();

/// The address of the C library's own `dlsym`.
pub fn libc_dlsym() -> *mut c_void {
    LIBC_DLSYM.of_libc(c"dlsym")
}

/// The address of the C library's own `dlvsym`.
pub fn libc_dlvsym() -> *mut c_void {
    LIBC_DLVSYM.of_libc(c"dlvsym")
}

/// The C library's own `dlsym`, for our own look-ups.
pub fn real_dlsym() -> Option<Dlsym> {
    let real = libc_dlsym();
    // SAFETY: not null, and the address of `dlsym`.
    (!real.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, Dlsym>(real) })
}

/// What lies behind us in the global scope under that name, promoted objects among it. Asking from here with
/// RTLD_NEXT pins nothing: only RTLD_DEFAULT makes the asking object depend on what it found. Not in
/// [`link_map::with_objects`].
pub fn behind_us(symbol: &CStr, version: Version) -> Option<*mut c_void> {
    // In a process that was running nothing stands behind us, and we stand behind the global scope ourselves.
    let scope = if link_map::is_late() { libc::RTLD_DEFAULT } else { libc::RTLD_NEXT };
    let found = match version {
        Version::Any => {
            let dlsym = real_dlsym()?;
            // SAFETY: a C string; called from this library, so it is ours that RTLD_NEXT skips.
            unsafe { dlsym(scope, symbol.as_ptr()) }
        }
        Version::Linked(version) | Version::Asked(version) => {
            let dlvsym = libc_dlvsym();
            if dlvsym.is_null() {
                return None;
            }
            // SAFETY: the address of `dlvsym`, two C strings; from this library, see above.
            unsafe {
                let dlvsym: Dlvsym = std::mem::transmute(dlvsym);
                dlvsym(scope, symbol.as_ptr(), version.as_ptr())
            }
        }
    };
    // Also keeps the call from being the last thing here: the return address must be one of ours.
    std::hint::black_box(found);
    (!found.is_null() && !link_map::is_own_address(found)).then_some(found)
}
