//! The frames of any thread, for whoever holds the GIL: while it is held, no thread's frames change. In a free-threaded
//! build nobody holds one, and there are the calling thread's alone.

use std::ptr;

use crate::python::interpreter::{self, Cpython, Interpreter};
use crate::python::layout::Kind;
use crate::python::memory::read;
use crate::python::{current, strings, walk};

/// A frame of a thread, and its code object.
#[derive(Clone, Copy, Debug)]
pub struct ThreadFrame {
    pub address: u64,
    pub code: u64,
}

/// Returns the states of all threads whose frames may be read. With the GIL held, so that none of them goes away.
pub fn threads(python: &Interpreter) -> Vec<u64> {
    let mut threads = Vec::new();
    let Some(objects) = &python.api.objects else { return threads };
    let calls = &objects.functions;
    if interpreter::cpython().is_none_or(|cpython| cpython.layout.is_free_threaded()) {
        // SAFETY: only looks; the state of the calling thread, which is attached to the interpreter.
        let thread = unsafe { (calls.PyThreadState_GetUnchecked)() };
        return Vec::from_iter((!thread.is_null()).then(|| thread.expose_provenance() as u64));
    }
    // SAFETY: the GIL is held, which both need.
    unsafe {
        let mut thread = (calls.PyInterpreterState_ThreadHead)((calls.PyInterpreterState_Get)());
        while !thread.is_null() && threads.len() < 4096 {
            threads.push(thread.expose_provenance() as u64);
            thread = (calls.PyThreadState_Next)(thread);
        }
    }
    threads
}

/// Returns CPython, once a stack of any thread has confirmed its layout. With the GIL held.
pub fn verify(python: &Interpreter) -> Option<&'static Cpython> {
    interpreter::cpython().filter(|&cpython| current::verify(cpython, threads(python).into_iter()))
}

impl Cpython {
    /// Returns the frames of a thread, innermost first.
    ///
    /// # Safety
    /// The GIL is held, and `thread` is the state of a living thread.
    pub unsafe fn frames(&self, thread: u64) -> Vec<ThreadFrame> {
        let mut frames = Vec::new();
        // SAFETY: the caller's word; the layout was confirmed for one thread, and is the same for all.
        unsafe {
            let top = current::innermost(&self.links, ptr::with_exposed_provenance(thread as usize));
            walk::each_frame(&self.links, top, |frame, code| {
                frames.push(ThreadFrame { address: frame.addr() as u64, code: code.addr() as u64 });
            });
        }
        frames
    }

    /// Returns the file of a code object, and its name, qualified where the version has that.
    ///
    /// # Safety
    /// `code` is a living code object.
    pub unsafe fn names(&self, code: u64) -> (String, String) {
        let code: *const u8 = ptr::with_exposed_provenance(code as usize);
        // SAFETY: the caller's word.
        unsafe {
            (
                strings::text(&self.layout, read(code, self.layout.code_file)),
                strings::text(&self.layout, read(code, self.layout.code_name)),
            )
        }
    }

    /// Returns the text of a `str`.
    ///
    /// # Safety
    /// `object` is a living `str`.
    pub unsafe fn text(&self, object: u64) -> String {
        // SAFETY: the caller's word.
        unsafe { strings::text(&self.layout, ptr::with_exposed_provenance(object as usize)) }
    }

    /// Returns the code of a frame.
    ///
    /// # Safety
    /// `frame` is a frame of a generator, a frame object or a running function, and the GIL is held.
    pub unsafe fn code_of(&self, frame: u64) -> u64 {
        let frame: *const u8 = ptr::with_exposed_provenance(frame as usize);
        // SAFETY: the caller's word.
        unsafe { read::<u64>(frame, self.layout.frame_code) & !7 }
    }

    /// True up to 3.10, where a frame is an object.
    pub fn frames_are_objects(&self) -> bool {
        self.layout.kind == Kind::Object
    }
}
