//! What is noted about a moment: the call stack of the calling thread, as a number.
//!
//! Python frames are read raw on their own thread, without the GIL and without calling into Python; native frames come
//! from the unwind tables. The hot path hashes the frames and looks the hash up in a table of its own thread; only a
//! stack never seen before is spelled out and written to the recording. Names are not resolved here.
//!
//! ```text
//!  frames ─▶ hash ─▶ thread's cache ─▶ shards (address hash ─▶ id) ─▶ codes, modules ─▶ stacks (content ─▶ id)
//!            hot      hot, no lock      every thread's, locked         first sight only
//! ```
//!
//! This room knows neither CUDA nor the layout of the recording. No lock is held while frames are walked; the locks here
//! are held only around a table insert and the entry that belongs to it, and what writes entries never calls back.

pub mod autograd;
pub mod hash;
pub mod native_samples;
pub mod stack_interner;
pub mod thread_state;

use crate::python::{codes, cpython, interpreters, walk};
use crate::unwind::{self, modules};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use crate::python::codes::Numbered;
pub use crate::python::frames::Reader;
pub use crate::python::frames::Walk;
pub use crate::python::frames::frames;
pub use crate::python::frames::interpreter_ended_at;
pub use crate::python::frames::knows_entries;
pub use crate::python::frames::runs;
use crate::python::walk::Top;
use crate::python::walk::Walked;
use crate::stacks::autograd::Under;
use crate::stacks::hash::Hash;
use crate::stacks::native_samples::Wanted;
pub use crate::stacks::thread_state::Thread;
use crate::writer::recording::append_entry;
use leaktrace_core::format::entry::{Frame, TableEntry};

/// Which frames a stack is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stacks {
    /// Python's if the thread has any, else native; beside them [`examples`] of native ones.
    Auto,
    Python,
    Native,
    /// Both, always.
    Mixed,
    Off,
}

/// The most Python frames a stack holds; what lies further out is one [`Frame::Truncated`].
pub const PYTHON_LIMIT: usize = 1024;

const PYTHON: u8 = 1;
const NATIVE: u8 = 2;
const BOTH: u8 = 4;
const EXAMPLES: u8 = 8;

/// Mixed into hashes of stacks that nothing was allocated at, so that one that something is comes up as never seen.
const ELSEWHERE: u64 = 1 << 63;

#[unsafe(link_section = ".data.leaktrace")]
static WANTED: AtomicU8 = AtomicU8::new(0);
static ARMING: AtomicBool = AtomicBool::new(false);

/// Mixed into every hash: moving it on makes each thread's cache forget, whatever it holds.
#[unsafe(link_section = ".data.leaktrace")]
pub static EPOCH: AtomicU64 = AtomicU64::new(1);

/// Makes ready to take stacks: finds CPython and warms up the unwinder. Outside hooks only (it allocates and asks the
/// loader); may be called again when Python was not there yet.
pub fn arm(stacks: Stacks) {
    if ARMING.swap(true, Ordering::Acquire) {
        return;
    }
    let wanted = match stacks {
        Stacks::Off => 0,
        Stacks::Python => PYTHON,
        Stacks::Native => NATIVE,
        Stacks::Auto => PYTHON | NATIVE | EXAMPLES,
        Stacks::Mixed => PYTHON | NATIVE | BOTH,
    };
    // Also without stacks: a thread's place in the recording is given back when it ends.
    thread_state::arm();
    if wanted & NATIVE != 0 {
        unwind::arm();
    }
    if wanted & PYTHON != 0 && cpython::arm() {
        codes::watch_deallocation(cpython::code_type());
    }
    if wanted & EXAMPLES != 0 {
        native_samples::arm();
    }
    WANTED.store(wanted, Ordering::Release);
    ARMING.store(false, Ordering::Release);
}

/// What Python stacks are taken of ("CPython 3.11"), or why none are; empty while no Python was found.
pub fn python() -> &'static str {
    cpython::description()
}

/// The id of the calling thread's stack; 0 where there is none.
#[inline(always)]
pub fn stack(thread: &mut Thread) -> u32 {
    known(thread).unwrap_or_else(|| stack_by(thread, None))
}

/// The same, of one that this thread had before and that has nothing about it, or where none are wanted.
#[inline(always)]
pub fn known(thread: &mut Thread) -> Option<u32> {
    match known_by(thread, 0) {
        0 => (WANTED.load(Ordering::Relaxed) == 0).then_some(0),
        id => Some(id),
    }
}

/// The id of a stack that this thread had before and that is known by Python's frames, or by the forward line of the node under
/// way, alone; else 0. Nearly all captures are this: a small and straight piece of code for them, since the program leaves
/// none of ours in the processor's caches. It does what [`take`] does.
#[inline(never)]
#[unsafe(link_section = ".text.leaktrace")]
fn known_by(thread: &mut Thread, seed: u64) -> u32 {
    if WANTED.load(Ordering::Relaxed) & (PYTHON | BOTH) != PYTHON || !thread.begin_reading() {
        return 0;
    }
    let mut hash = Hash::new(EPOCH.load(Ordering::Acquire) ^ seed);
    let top = cpython::top();
    if let Some(top) = top {
        hash.add(walk::sum(top).sum());
    }
    let mut told = top.is_some();
    if let Some(under) = autograd::current(thread) {
        hash.add2(under.name as u64, u64::from(under.forward));
        told |= under.forward != 0;
    }
    let id = if told { thread.cached(hash.finish()) } else { 0 };
    thread.end_reading();
    id
}

/// The same, by a walk that was made at this very moment.
#[inline(never)]
pub fn stack_by(thread: &mut Thread, walk: Option<Walk>) -> u32 {
    let wanted = WANTED.load(Ordering::Relaxed);
    if wanted == 0 {
        return 0;
    }
    let python = wanted & PYTHON != 0 && thread.begin_reading();
    let id = take(thread, wanted, python, walk, 0);
    if python {
        thread.end_reading();
    }
    id
}

/// [`python_stack`], of one that this thread had before; else 0.
#[inline(always)]
pub fn known_python(thread: &mut Thread) -> u32 {
    known_by(thread, ELSEWHERE)
}

/// The id of the calling thread's Python stack; 0 where there is none.
#[inline]
pub fn python_stack(thread: &mut Thread) -> u32 {
    if WANTED.load(Ordering::Relaxed) & PYTHON == 0 || !thread.begin_reading() {
        return 0;
    }
    let id = take(thread, PYTHON, true, None, ELSEWHERE);
    thread.end_reading();
    id
}

#[inline(always)]
fn take(thread: &mut Thread, wanted: u8, python: bool, walk: Option<Walk>, seed: u64) -> u32 {
    // Acquire: whoever sees a code object at a reused address also sees the epoch moved on before it was freed.
    let epoch = EPOCH.load(Ordering::Acquire);
    let mut hash = Hash::new(epoch ^ seed);
    let python = if python { walk::hash(&mut hash, walk.map(|w| w.0)) } else { None };
    let under = autograd::current(thread);
    if let Some(under) = under {
        hash.add2(under.name as u64, u64::from(under.forward));
    }
    // A line of Python is known: this thread's own, or the one that made the node.
    let told = python.is_some() || under.is_some_and(|u| u.forward != 0);
    if wanted & NATIVE != 0 && (!told || wanted & BOTH != 0) {
        return with_native(thread, epoch, hash, python, under);
    }
    if python.is_none() && under.is_none() {
        return 0;
    }
    let hash = hash.finish();
    match thread.cached(hash) {
        0 if wanted & EXAMPLES != 0 => miss_with_examples(thread, epoch, hash, python, under),
        0 => miss(thread, epoch, hash, python, &[], under),
        id => id,
    }
}

#[inline(never)]
fn with_native(
    thread: &mut Thread,
    epoch: u64,
    mut hash: Hash,
    python: Option<Top>,
    under: Option<Under>,
) -> u32 {
    let mut trace = unwind::Trace::new();
    trace.take(thread.native(), &mut hash);
    let hash = hash.finish();
    match thread.cached(hash) {
        0 => miss(thread, epoch, hash, python, trace.frames(), under),
        id => id,
    }
}

#[cold]
#[inline(never)]
fn miss(
    thread: &mut Thread,
    epoch: u64,
    hash: u64,
    python: Option<Top>,
    native: &[u64],
    under: Option<Under>,
) -> u32 {
    let id = shared(epoch, hash, python, native, under);
    if id != 0 {
        thread.remember(hash, id);
    }
    id
}

/// The same for a stack that is known by its Python frames alone, of which native ones may be wanted as an example.
#[cold]
#[inline(never)]
fn miss_with_examples(
    thread: &mut Thread,
    epoch: u64,
    hash: u64,
    python: Option<Top>,
    under: Option<Under>,
) -> u32 {
    let id = shared(epoch, hash, python, &[], under);
    if id == 0 {
        return 0;
    }
    let wanted = native_samples::wanted(id);
    if wanted != Wanted::Always {
        thread.remember(hash, id);
    }
    if wanted == Wanted::No {
        return id;
    }
    let mut whole = Hash::new(hash);
    let mut trace = unwind::Trace::new();
    trace.take(thread.native(), &mut whole);
    let whole = whole.finish();
    // Under the hash with the native frames the thread remembers that they were told.
    if thread.cached(whole) != id {
        let example = spell_out(python, trace.frames(), under);
        if example != 0 && example != id {
            native_samples::tell(id, example);
        }
        thread.remember(whole, id);
    }
    id
}

/// The id by what all threads know.
fn shared(epoch: u64, hash: u64, python: Option<Top>, native: &[u64], under: Option<Under>) -> u32 {
    let known = stack_interner::by_hash(epoch, hash);
    if known != 0 {
        return known;
    }
    let id = spell_out(python, native, under);
    if id != 0 {
        stack_interner::remember(epoch, hash, id);
    }
    id
}

/// Has native frames taken, beside Python's, at every allocation of these stacks from now on, until a few different ones
/// were told of each. Outside hooks.
pub fn suspect(stacks: &[u32]) {
    if native_samples::are_taken() && native_samples::watch(stacks) {
        forget();
    }
}

/// Makes every thread's cache forget: what comes next is looked up by what it is made of.
pub fn forget() {
    EPOCH.fetch_add(1, Ordering::AcqRel);
}

/// True if stacks hold Python's frames where there are any.
pub fn takes_python() -> bool {
    WANTED.load(Ordering::Relaxed) & PYTHON != 0
}

/// True if [`suspect`] is of use.
pub fn takes_suspicions() -> bool {
    native_samples::are_taken()
}

/// Turns the frames into numbers of codes and modules, and those into the id of the stack.
fn spell_out(python: Option<Top>, native: &[u64], under: Option<Under>) -> u32 {
    let mut frames = Vec::with_capacity(64 * 8);
    if let Some(top) = python {
        interpreters::look();
        let mut failed = None;
        let walked = walk::walk(top, |found| {
            match codes::number(&found) {
                Numbered::Id(code) => {
                    push(&mut frames, Frame::Python { code, offset: found.offset, entry: found.entry });
                }
                Numbered::None => {}
                other => failed = Some(other),
            }
            failed.is_none()
        });
        match (failed, walked) {
            (Some(Numbered::NoRoom), _) => return stack_interner::no_room(),
            (Some(_), _) => return 0,
            (None, Walked::Limit) => push(&mut frames, Frame::Truncated),
            (None, _) => {}
        }
    }
    let count = frames.len() / 8;
    for &pc in native {
        push(&mut frames, if pc == unwind::TRUNCATED { Frame::Truncated } else { modules::frame(pc) });
    }
    if let Some(under) = under {
        match autograd::number(under) {
            0 => {}
            id => push(&mut frames, Frame::Backward(id)),
        }
    }
    stack_interner::intern(count as u32, &frames)
}

fn push(frames: &mut Vec<u8>, frame: Frame) {
    frames.extend_from_slice(&frame.pack().to_le_bytes());
}

/// To be called after a `dlclose`: an address may now belong to another module. Most of them unload nothing.
pub fn modules_changed() {
    static SEEN: AtomicU64 = AtomicU64::new(0);
    let unloads = modules::unloads();
    // Whoever comes second while the first is at it does it too: when a `dlclose` returns, all is forgotten.
    if unloads == SEEN.load(Ordering::Acquire) {
        return;
    }
    modules::changed();
    unwind::modules_changed();
    forget();
    SEEN.store(unloads, Ordering::Release);
}

pub fn note(text: &str) {
    append_entry(&TableEntry::Note { text });
}

/// Before `fork`: takes every lock of this room, so that the child finds whole tables. The recording's own locks come
/// after these, since entries are written under these.
pub fn before_fork() {
    stack_interner::before_fork();
}

/// After `fork`, in the parent.
pub fn after_fork_parent() {
    stack_interner::after_fork(false);
}

/// After `fork`, in the child: its recording is a new one, so nothing is interned there yet.
pub fn after_fork_child() {
    forget();
    ARMING.store(false, Ordering::Release);
    unwind::after_fork_child();
    interpreters::after_fork_child();
    stack_interner::after_fork(true);
}
