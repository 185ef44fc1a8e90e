//! The Python frames of the calling thread as they stand, for whoever compares them from one moment to the next.

use std::ptr;

use crate::python::codes;
use crate::python::codes::Numbered;
use crate::python::cpython;
use crate::python::cpython::Cpython;
use crate::python::cpython::read;
use crate::python::layout::VAR_SIZE;
use crate::python::lifetime;
use crate::python::strings;
use crate::python::walk;
use crate::python::walk::Found;
use crate::stacks::EPOCH;
use crate::stacks::PYTHON_LIMIT;
use crate::stacks::Thread;
use leaktrace_core::steps::loops::{CodeText, Seen};
use leaktrace_core::symbols::is_own_file;
use std::sync::atomic::Ordering;

/// Longer code is not read.
const LONGEST_CODE: usize = 1 << 17;

/// The frames of this moment, and what more can be read of them while it lasts.
pub struct Frames<'a> {
    /// Outermost first.
    pub list: &'a [Seen],
    /// So many of them, at least, are as they were.
    pub same: usize,
    /// Moves on when an address may mean another code object.
    pub epoch: u64,
    pub code: Reader,
}

/// A walk over the frames of this moment: as long as it lasts, no other has to be made to know the stack.
#[derive(Clone, Copy)]
pub struct Walk(pub(crate) walk::Walk);

/// Reads code objects of the frames at hand.
pub struct Reader {
    cpython: &'static Cpython,
}

/// Hands the calling thread's frames to `look`; `list` holds those of the moment before. `None`: it has none, or they cannot
/// be read. Also returns the walk, if it is `wanted` and there is one.
#[inline]
pub fn frames<R>(
    thread: &mut Thread,
    list: &mut Vec<Seen>,
    wanted: bool,
    look: impl FnOnce(Frames<'_>) -> R,
) -> Option<(R, Option<Walk>)> {
    if !thread.begin_reading() {
        return None;
    }
    let result = cpython::top().map(|top| {
        // Not of a thread without Python: nothing is allocated for it.
        if list.capacity() < PYTHON_LIMIT {
            list.reserve_exact(PYTHON_LIMIT - list.len());
        }
        // Acquire: as in `take`.
        let epoch = EPOCH.load(Ordering::Acquire);
        let (same, walk) = walk::follow(top, list, wanted);
        (look(Frames { list, same, epoch, code: Reader { cpython: top.cpython } }), walk.map(Walk))
    });
    thread.end_reading();
    result
}

/// Whether the innermost Python function of the calling thread is one that `is` says yes to, by its file and its name.
#[cold]
pub fn runs(thread: &mut Thread, is: impl FnOnce(&str, &str) -> bool) -> bool {
    if !thread.begin_reading() {
        return false;
    }
    let (mut is, mut yes) = (Some(is), false);
    if let Some(top) = cpython::top() {
        walk::walk(top, |found| {
            let layout = &found.cpython.layout;
            // SAFETY: the code object of a frame of the calling thread, which is between `begin_reading` and `end_reading`.
            let [file, name] = [layout.code_file, layout.code_name]
                .map(|at| unsafe { strings::text(found.cpython, read(found.code, at)) });
            yes = is.take().is_some_and(|is| is(&file, &name));
            false
        });
    }
    thread.end_reading();
    yes
}

/// Whether frames say if they were entered from C: from CPython 3.11 on.
pub fn knows_entries() -> bool {
    cpython::minor().is_some_and(|minor| minor >= 11)
}

/// The sequence number from which on the interpreter was ending, if it has ended.
pub fn interpreter_ended_at() -> Option<u64> {
    lifetime::ended_at()
}

impl Reader {
    fn code(&self, seen: &Seen) -> *const u8 {
        ptr::with_exposed_provenance(seen.code)
    }

    /// The number of a frame's code object; 0 if it has none.
    pub fn id(&self, seen: &Seen) -> u32 {
        let found =
            Found { code: self.code(seen), offset: seen.offset, entry: seen.entry, cpython: self.cpython };
        match codes::number(&found) {
            Numbered::Id(id) => id,
            _ => 0,
        }
    }

    /// What a frame's code object says of itself. Only of one that has a number.
    pub fn text(&self, seen: &Seen) -> CodeText {
        let (cpython, layout, code) = (self.cpython, &self.cpython.layout, self.code(seen));
        // SAFETY: a code object (it has a number), held by a frame of the calling thread, which is between `begin_reading`
        // and `end_reading`. Its strings and tables are immutable and live as long as it does. The instructions of 3.11 and
        // later, `VAR_SIZE` units behind its fixed part, are rewritten while they run: each is read whole, by itself.
        unsafe {
            let exceptions = layout.code_exceptions.map_or(ptr::null(), |at| read::<*const u8>(code, at));
            let bytes = match layout.code_bytes {
                Some(at) => strings::bytes(read(code, at), LONGEST_CODE).to_vec(),
                None => {
                    let units = read::<usize>(code, VAR_SIZE).min(LONGEST_CODE / 2);
                    let first = code.add(layout.code_size).cast::<u16>();
                    (0..units).flat_map(|unit| first.add(unit).read_volatile().to_ne_bytes()).collect()
                }
            };
            let file = strings::text(cpython, read(code, layout.code_file));
            CodeText {
                minor: cpython.minor,
                library: !is_own_file(&file, None),
                file,
                name: strings::text(cpython, read(code, layout.code_name)),
                flags: read(code, layout.code_flags),
                bytes,
                exceptions: strings::bytes(exceptions, LONGEST_CODE).to_vec(),
                id: 0,
            }
        }
    }
}
