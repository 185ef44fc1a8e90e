//! The frames of any thread, and Python's strings, for whoever holds the GIL: while he does, no thread's frames change.

use crate::python::cpython;
use crate::python::cpython::read;
use crate::python::layout::Kind;
use crate::python::layout::Layout;
use crate::python::strings;
use crate::python::walk;

/// CPython as it was found, its frames seen to be what they must be.
#[derive(Clone, Copy)]
pub struct Interpreter(&'static cpython::Cpython);

/// A frame of a thread, innermost first.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    pub address: u64,
    pub code: u64,
}

/// The interpreter, if its memory can be read. Outside hooks: it may ask the loader.
pub fn interpreter() -> Option<Interpreter> {
    cpython::arm();
    cpython::proven().map(Interpreter)
}

impl Interpreter {
    /// The `x` of 3.x.
    pub fn minor(self) -> u32 {
        self.0.minor
    }

    /// The frames of a thread.
    ///
    /// # Safety
    /// The GIL is held, and `thread` is the state of a living thread.
    pub unsafe fn frames(self, thread: u64) -> Vec<Frame> {
        let mut frames = Vec::new();
        // SAFETY: the caller's word; the layout was found right for this thread, and is the same for all.
        unsafe {
            let top = cpython::innermost(&self.0.links, std::ptr::with_exposed_provenance(thread as usize));
            walk::each_frame(&self.0.links, top, |frame, code| {
                frames.push(Frame { address: frame.addr() as u64, code: code.addr() as u64 });
            });
        }
        frames
    }

    /// The file of a code object, and its name, qualified where the version has that.
    ///
    /// # Safety
    /// `code` is a living code object.
    pub unsafe fn names(self, code: u64) -> (String, String) {
        let Layout { code_file, code_name, .. } = self.0.layout;
        let code: *const u8 = std::ptr::with_exposed_provenance(code as usize);
        // SAFETY: the caller's word.
        unsafe {
            (strings::text(self.0, read(code, code_file)), strings::text(self.0, read(code, code_name)))
        }
    }

    /// The text of a `str`.
    ///
    /// # Safety
    /// `object` is a living `str`.
    pub unsafe fn text(self, object: u64) -> String {
        // SAFETY: the caller's word.
        unsafe { strings::text(self.0, std::ptr::with_exposed_provenance(object as usize)) }
    }

    /// The code of a frame.
    ///
    /// # Safety
    /// `frame` is a frame of a generator, a frame object or a running function, and the GIL is held.
    pub unsafe fn code_of(self, frame: u64) -> u64 {
        let frame: *const u8 = std::ptr::with_exposed_provenance(frame as usize);
        // SAFETY: the caller's word.
        unsafe { read::<u64>(frame, self.0.layout.frame_code) & !7 }
    }

    /// Up to 3.10 a frame is an object, later it is not.
    pub fn frames_are_objects(self) -> bool {
        self.0.layout.kind == Kind::Object
    }
}
