//! Symbols by `dlsym`, for what is looked up outside hooks: CPython's functions and the C library's variables.

use std::ffi::{CStr, CString, c_int, c_void};
use std::ops::Range;
use std::ptr;

use crate::loader::address::path_of;

/// Where symbols are looked up: a handle of the loader's.
#[derive(Clone, Copy)]
pub struct Handle(*mut c_void);

// SAFETY: a handle is a name for what the loader keeps, good on every thread; it is never closed.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Handle {
    pub const PROGRAM: Handle = Handle(libc::RTLD_DEFAULT);

    /// Returns the program's own scope if `name` is there, else the object whose file's name begins with
    /// `file` (a library that was loaded `RTLD_LOCAL`).
    pub fn with(name: &CStr, file: &str) -> Option<Handle> {
        if Handle::PROGRAM.symbol(name).is_some() {
            return Some(Handle::PROGRAM);
        }
        let path = path_of(|path| path.rsplit('/').next().is_some_and(|base| base.starts_with(file)))?;
        let path = CString::new(path).ok()?;
        // SAFETY: loads nothing: the object is there already.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        let scope = Handle(handle);
        (!handle.is_null() && scope.symbol(name).is_some()).then_some(scope)
    }

    /// Returns the function of a name.
    ///
    /// # Safety
    /// `F` is the type of a pointer to the function of that name.
    pub unsafe fn function<F: Copy>(self, name: &CStr) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        // SAFETY: same size, and the caller's word for the type.
        self.symbol(name).map(|address| unsafe { std::mem::transmute_copy(&address) })
    }

    /// Returns the address of a name.
    pub fn symbol(self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: a valid handle and a C string.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        (!address.is_null()).then_some(address)
    }

    /// Returns the bytes of an exported variable.
    pub fn variable(self, name: &CStr) -> Option<Range<usize>> {
        /// `RTLD_DL_SYMENT`
        const SYMBOL: c_int = 1;
        unsafe extern "C" {
            fn dladdr1(
                address: *const c_void,
                info: *mut libc::Dl_info,
                extra: *mut *mut c_void,
                flags: c_int,
            ) -> c_int;
        }
        let address = self.symbol(name)?;
        // SAFETY: plain words, for which zero is a value.
        let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
        let mut symbol = ptr::null_mut();
        // SAFETY: both answers have room; the symbol is an entry of its object's table.
        let size = unsafe {
            if dladdr1(address, &mut info, &mut symbol, SYMBOL) == 0 || symbol.is_null() {
                return None;
            }
            (*symbol.cast::<libc::Elf64_Sym>()).st_size as usize
        };
        let start = address.addr();
        (info.dli_saddr == address).then(|| start..start + size)
    }
}
