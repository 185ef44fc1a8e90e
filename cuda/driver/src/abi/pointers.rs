//! The C caller's arguments: out and in pointers, opaque handles, streams.
//!
//! The CUDA contract, argued once: every pointer a caller passes is either null or valid for what the
//! function's documentation says it reads or writes. `Out` and `In` are built nowhere but in a caller's
//! argument list.

use std::ffi::{CStr, c_char, c_void};

use crate::abi::status::{INVALID_VALUE, Res};

/// A device address (or a host one: all addresses are unified).
pub type Addr = u64;
/// An opaque handle: a number that is looked up in a table, never followed.
pub type Handle = usize;

/// An out-parameter: a pointer that a result is written through.
#[repr(transparent)]
pub struct Out<T>(*mut T);

/// An in-parameter: a pointer that an argument is read through.
#[repr(transparent)]
pub struct In<T>(*const T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Out<T> {}
impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for In<T> {}

impl<T> Out<T> {
    /// A result that nobody asked for.
    pub const NONE: Out<T> = Out(std::ptr::null_mut());

    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Writes the result; null is an error.
    pub fn put(self, value: T) -> Res {
        if self.0.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: not null, and the caller's by the CUDA contract (module head).
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// Writes the result unless the caller does not want it.
    pub fn put_opt(self, value: T) {
        let _ = self.put(value);
    }

    /// Reads the value that the caller left in an in-out parameter.
    pub fn get(self) -> Res<T> {
        if self.0.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: not null, and the caller's by the CUDA contract (module head).
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// Reads item `index` of the caller's array.
    pub fn at(self, index: usize) -> Res<T> {
        Out(self.0.wrapping_add(index)).get()
    }

    /// Writes item `index` of the caller's array.
    pub fn put_at(self, index: usize, value: T) -> Res {
        Out(self.0.wrapping_add(index)).put(value)
    }

    pub fn cast<U>(self) -> Out<U> {
        Out(self.0.cast())
    }

    pub fn plus(self, items: usize) -> Out<T> {
        Out(self.0.wrapping_add(items))
    }
}

impl<T> In<T> {
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    pub fn get(self) -> Res<T> {
        if self.0.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: not null, and the caller's by the CUDA contract (module head).
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// Reads the caller's array; none at all is an empty one.
    pub fn list(self, count: usize) -> Res<Vec<T>> {
        (0..count).map(|i| In(self.0.wrapping_add(i)).get()).collect()
    }

    pub fn address(self) -> Addr {
        self.0 as Addr
    }
}

impl In<c_char> {
    pub fn text(self) -> Res<String> {
        if self.0.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: not null, and a C string by the CUDA contract (module head).
        Ok(unsafe { CStr::from_ptr(self.0) }.to_string_lossy().into_owned())
    }
}

/// Writes `text` into the caller's buffer of `room` bytes, cut to fit, with its NUL.
pub fn put_text(out: Out<c_char>, room: i32, text: &str) -> Res {
    let keep =
        usize::try_from(room).ok().and_then(|r| r.checked_sub(1)).ok_or(INVALID_VALUE)?.min(text.len());
    for (i, byte) in text.bytes().take(keep).enumerate() {
        out.put_at(i, byte as c_char)?;
    }
    out.put_at(keep, 0)
}

/// A stream handle. Null is the legacy default stream, or the thread's own in the per-thread variants.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Stream(pub Handle);

pub const LEGACY: Stream = Stream(1);
pub const PER_THREAD: Stream = Stream(2);

/// An argument as a `_ptsz` or `_ptds` variant passes it on: the null stream becomes the thread's own.
pub trait PerThread {
    fn per_thread(self) -> Self;
}

impl PerThread for Stream {
    fn per_thread(self) -> Self {
        if self.0 == 0 { PER_THREAD } else { self }
    }
}

macro_rules! unchanged {
    ($($type:ty),*) => { $(impl PerThread for $type { fn per_thread(self) -> Self { self } })* };
}
unchanged!(u8, u16, u32, u64, usize, i32, *mut c_void, *mut *mut c_void, Option<HostFn>, Option<StreamFn>);

impl<T> PerThread for Out<T> {
    fn per_thread(self) -> Self {
        self
    }
}

impl<T> PerThread for In<T> {
    fn per_thread(self) -> Self {
        self
    }
}

pub type HostFn = unsafe extern "C" fn(*mut c_void);
pub type StreamFn = unsafe extern "C" fn(Stream, i32, *mut c_void);
