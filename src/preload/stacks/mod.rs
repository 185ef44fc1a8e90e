//! The call stack of the calling thread, as an id.
//!
//! Python frames are read raw on their own thread, without the GIL and without calling into Python; native
//! frames come from the unwind tables. The hot path hashes the frames and looks the hash up in a cache of its
//! own thread; only a stack never seen before is encoded and written to the recording. Names are not resolved
//! here.
//!
//! ```text
//!  frames ─▶ hash ─▶ thread's cache ─▶ shards (address hash ─▶ id) ─▶ codes, modules ─▶ stacks (content ─▶ id)
//!            hot      hot, no lock      every thread's, locked         first sight only
//! ```
//!
//! This room knows neither CUDA nor the layout of the recording. No lock is held while frames are walked; the
//! locks here are held only around a table insert and the entry that belongs to it, and the writer of entries
//! never calls back.

pub mod backward;
pub mod native_samples;
pub mod operations;
mod recursion;
pub mod stack_interner;

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::hash::Hash;
use crate::lock::Section;
use crate::numbering::{self, Refused};
use crate::python::codes::{self, Numbered};
use crate::python::current::Top;
use crate::python::walk::{self, Walk, Walked};
use crate::python::{self, interpreter, subinterpreters};
use crate::stacks::native_samples::Wanted;
use crate::thread_state::{self, BackwardContext, ThreadState};
use crate::unwind::{self, modules};
use leaktrace_core::format::entry::Frame;

/// Which frames a stack is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stacks {
    /// Python's if the thread has any, else native; beside them [`native_samples`].
    Auto,
    Python,
    Native,
    /// Both, always.
    Mixed,
    Off,
}

const PYTHON: u8 = 1;
const NATIVE: u8 = 2;
const BOTH: u8 = 4;
const SAMPLES: u8 = 8;

#[unsafe(link_section = ".data.leaktrace")]
static WANTED: AtomicU8 = AtomicU8::new(0);
static ARMING: AtomicBool = AtomicBool::new(false);

/// Mixed into the hashes of stacks that nothing was allocated at: the first allocation at such a stack finds
/// it in no cache.
const NO_ALLOCATION: u64 = 1 << 63;

/// Gets ready to take stacks: finds CPython and warms up the unwinder. Outside hooks only (it allocates and
/// asks the loader); may be called again when Python was not there yet.
pub fn arm(stacks: Stacks) {
    if ARMING.swap(true, Ordering::Acquire) {
        return;
    }
    let wanted = match stacks {
        Stacks::Off => 0,
        Stacks::Python => PYTHON,
        Stacks::Native => NATIVE,
        Stacks::Auto => PYTHON | NATIVE | SAMPLES,
        Stacks::Mixed => PYTHON | NATIVE | BOTH,
    };
    // Also without stacks: a thread's segment of the recording is released when it ends.
    thread_state::arm();
    if wanted & NATIVE != 0 {
        unwind::arm();
    }
    if wanted & PYTHON != 0 {
        python::find();
    }
    if wanted & SAMPLES != 0 {
        native_samples::arm();
    }
    WANTED.store(wanted, Ordering::Release);
    ARMING.store(false, Ordering::Release);
}

/// Says what Python stacks are taken of ("CPython 3.11"), or why none are; empty where none are wanted or no
/// Python was found.
pub fn python() -> &'static str {
    if takes_python() { interpreter::description() } else { "" }
}

/// What a stack is known by: its hash so far, and what the hash was made of.
struct Key {
    epoch: u64,
    hash: Hash,
    python: Option<Top>,
    backward: Option<BackwardContext>,
}

impl Key {
    /// Takes the key of the calling thread's stack at this moment, by `walk` if that was made at this very
    /// moment. All of the stack is in it but the native frames. In a read section if Python's frames are
    /// `wanted`.
    #[inline(always)]
    fn take(thread: &ThreadState, wanted: u8, seed: u64, walk: Option<Walk>) -> Key {
        // Before the walk: a code object that goes away later makes this epoch a past one.
        let epoch = thread_state::epoch();
        let mut hash = Hash::new(epoch ^ seed);
        let walk = match walk {
            _ if wanted & PYTHON == 0 => None,
            Some(walk) => walk.if_alive(),
            None => Walk::now(),
        };
        if let Some(walk) = walk {
            hash.add(walk.word());
        }
        let backward = backward::current(thread);
        if let Some(context) = backward {
            hash.add2(context.name as u64, u64::from(context.forward));
        }
        Key { epoch, hash, python: walk.map(|walk| walk.top), backward }
    }

    /// True if the stack has a line of Python: this thread's own, or the one that made the node it evaluates.
    #[inline(always)]
    fn has_line(&self) -> bool {
        self.python.is_some() || self.backward.is_some_and(|context| context.forward != 0)
    }

    #[inline(always)]
    fn is_empty(&self) -> bool {
        self.python.is_none() && self.backward.is_none()
    }

    /// True if native frames belong to the stack.
    #[inline(always)]
    fn needs_native(&self, wanted: u8) -> bool {
        wanted & NATIVE != 0 && (!self.has_line() || wanted & BOTH != 0)
    }
}

/// Returns the id of the calling thread's stack; 0 where there is none.
#[inline(always)]
pub fn stack(thread: &ThreadState) -> u32 {
    cached_stack(thread).unwrap_or_else(|| stack_after(thread, None))
}

/// Returns the id of the calling thread's stack if that takes nothing but a look into the thread's cache;
/// `None`: it takes [`stack_after`].
#[inline(always)]
pub fn cached_stack(thread: &ThreadState) -> Option<u32> {
    match cached(thread, 0) {
        0 => (WANTED.load(Ordering::Relaxed) == 0).then_some(0),
        id => Some(id),
    }
}

/// Returns the id of the calling thread's Python stack if that is in the thread's cache; else 0.
#[inline(always)]
pub fn cached_python_stack(thread: &ThreadState) -> u32 {
    cached(thread, NO_ALLOCATION)
}

/// Returns the id of a stack that is in the thread's cache and needs no native frames; else 0. Nearly all
/// captures are such: a small and straight piece of code for them, since the program leaves none of ours in
/// the processor's caches.
#[inline(never)]
#[unsafe(link_section = ".text.leaktrace")]
fn cached(thread: &ThreadState, seed: u64) -> u32 {
    if WANTED.load(Ordering::Relaxed) & (PYTHON | BOTH) != PYTHON {
        return 0;
    }
    let look = || {
        let key = Key::take(thread, PYTHON, seed, None);
        if key.has_line() { thread.cached_stack(key.hash.finish()) } else { 0 }
    };
    thread.read_section(look).unwrap_or(0)
}

/// Returns the id of the calling thread's stack, by a walk if one was made at this very moment.
#[inline]
pub fn stack_after(thread: &ThreadState, walk: Option<Walk>) -> u32 {
    stack_for_repeats(thread, walk).0
}

/// [`stack_after`], and whether it is the stack of every moment of this epoch at which Python's frames are the same, as
/// long as [`takes_backward`] is false.
#[inline(never)]
pub fn stack_for_repeats(thread: &ThreadState, walk: Option<Walk>) -> (u32, bool) {
    match WANTED.load(Ordering::Relaxed) {
        0 => (0, false),
        wanted => take(thread, wanted, 0, walk),
    }
}

/// Whether what the calling thread evaluates in a backward pass is part of its stack.
#[inline(always)]
pub fn takes_backward(thread: &ThreadState) -> bool {
    backward::current(thread).is_some()
}

/// Returns the id of the calling thread's Python stack; 0 where there is none.
#[inline]
pub fn python_stack(thread: &ThreadState) -> u32 {
    match WANTED.load(Ordering::Relaxed) & PYTHON {
        0 => 0,
        wanted => take(thread, wanted, NO_ALLOCATION, None).0,
    }
}

#[inline(always)]
fn take(thread: &ThreadState, wanted: u8, seed: u64, walk: Option<Walk>) -> (u32, bool) {
    let take = |wanted| {
        let key = Key::take(thread, wanted, seed, walk);
        if key.needs_native(wanted) {
            return (with_native(thread, key), false);
        }
        if key.is_empty() {
            return (0, false);
        }
        match thread.cached_stack(key.hash.finish()) {
            0 if wanted & SAMPLES != 0 => (first_seen_with_samples(thread, &key), false),
            0 => (first_seen(thread, &key, key.hash.finish(), &[]), false),
            id => (id, key.backward.is_none()),
        }
    };
    let with_python = if wanted & PYTHON != 0 { thread.read_section(|| take(wanted)) } else { None };
    // A thread whose reads nobody would see has no Python frames.
    with_python.unwrap_or_else(|| if wanted == PYTHON { (0, false) } else { take(wanted & !PYTHON) })
}

#[inline(never)]
fn with_native(thread: &ThreadState, mut key: Key) -> u32 {
    let mut trace = unwind::Trace::new();
    trace.capture(thread.last_walk(), &mut key.hash);
    let hash = key.hash.finish();
    match thread.cached_stack(hash) {
        0 => first_seen(thread, &key, hash, trace.frames()),
        id => id,
    }
}

/// Returns the id of a stack that is not in the thread's cache.
#[cold]
#[inline(never)]
fn first_seen(thread: &ThreadState, key: &Key, hash: u64, native: &[u64]) -> u32 {
    let Some(_section) = Section::enter() else { return 0 };
    let id = shared(key, hash, native);
    if id != 0 {
        thread.remember_stack(hash, id);
    }
    id
}

/// Returns the id of a stack that is not in the thread's cache and has no native frames, which may be wanted
/// as a sample.
#[cold]
#[inline(never)]
fn first_seen_with_samples(thread: &ThreadState, key: &Key) -> u32 {
    let Some(_section) = Section::enter() else { return 0 };
    let hash = key.hash.finish();
    let id = shared(key, hash, &[]);
    if id == 0 {
        return 0;
    }
    let wanted = native_samples::wanted(id);
    if wanted != Wanted::Always {
        thread.remember_stack(hash, id);
    }
    if wanted == Wanted::No {
        return id;
    }
    let mut whole = Hash::new(hash);
    let mut trace = unwind::Trace::new();
    trace.capture(thread.last_walk(), &mut whole);
    let whole = whole.finish();
    // Under the hash with the native frames the thread remembers that they were written.
    if thread.cached_stack(whole) != id {
        let sample = encode(key, trace.frames());
        if sample != 0 && sample != id {
            native_samples::write(id, sample);
        }
        thread.remember_stack(whole, id);
    }
    id
}

/// Returns the id of a stack by the tables that all threads share.
fn shared(key: &Key, hash: u64, native: &[u64]) -> u32 {
    let known = stack_interner::by_hash(key.epoch, hash);
    if known != 0 {
        return known;
    }
    let id = encode(key, native);
    if id != 0 {
        stack_interner::remember(key.epoch, hash, id);
    }
    id
}

/// Has native frames taken, beside Python's, at every allocation of these stacks from now on, until a few
/// different ones were written of each. Outside hooks.
pub fn suspect(stacks: &[u32]) {
    if takes_suspicions() && native_samples::watch(stacks) {
        thread_state::forget_stacks();
    }
}

/// True if no stacks are taken.
fn takes_nothing() -> bool {
    WANTED.load(Ordering::Relaxed) == 0
}

/// True if stacks hold Python's frames where there are any.
pub fn takes_python() -> bool {
    WANTED.load(Ordering::Relaxed) & PYTHON != 0
}

/// True if [`suspect`] is of use.
pub fn takes_suspicions() -> bool {
    native_samples::are_taken()
}

/// Turns the frames into ids of codes and modules, and those into the id of the stack. Recursion is folded, and a
/// framework's own frames at the inner end are left out, unless native frames have to be matched with Python's.
fn encode(key: &Key, native: &[u64]) -> u32 {
    let depth = stack_interner::depth();
    let mut frames: Vec<Frame> = Vec::with_capacity(64);
    if let Some(top) = key.python {
        subinterpreters::check();
        let (mut refused, mut is_cut) = (None, false);
        let mut frameworks_own = Vec::new();
        let walked = walk::walk(top, |found| {
            is_cut = frames.len() >= depth;
            if is_cut {
                return false;
            }
            match codes::id(&found) {
                Numbered::Id(code) if code.is_interpreters => {}
                Numbered::Id(code) => {
                    let offset = codes::place(&found);
                    // How it was entered counts only where native frames are to be matched.
                    let entry = found.entry && !native.is_empty();
                    let frame = Frame::Python { code: code.number, offset, entry };
                    match native.is_empty() {
                        true if code.folds && frames.is_empty() => frameworks_own.push(frame),
                        true => recursion::push(&mut frames, frame),
                        false => frames.push(frame),
                    }
                }
                Numbered::None => {}
                Numbered::Refused(why) => refused = Some(why),
            }
            refused.is_none()
        });
        if frames.is_empty() {
            is_cut = frameworks_own.len() > depth;
            frameworks_own.truncate(depth);
            frames = frameworks_own;
        }
        match (refused, walked) {
            (Some(Refused::NoRoom), _) => return stack_interner::overflow_stack(),
            (Some(Refused::NotWritten), _) => return 0,
            (None, Walked::Limit) => frames.push(Frame::Truncated),
            (None, _) if is_cut => frames.push(Frame::Truncated),
            (None, _) => {}
        }
    }
    let count = frames.len() as u32;
    let is_cut = native.len() > depth;
    let native = native.iter().take(depth).map(|&pc| match pc {
        unwind::TRUNCATED => Frame::Truncated,
        pc => modules::frame(pc),
    });
    frames.extend(native);
    if is_cut {
        frames.push(Frame::Truncated);
    }
    frames.extend(key.backward.and_then(backward::id).map(Frame::Backward));
    let packed: Vec<u8> = frames.iter().flat_map(|frame| frame.pack().to_le_bytes()).collect();
    stack_interner::intern(count, &packed)
}

/// To be called after an unload: an address may now belong to another module.
pub fn modules_changed() {
    unwind::forget_addresses();
    thread_state::forget_stacks();
}

/// In a forked child, whose recording is a new one: nothing is interned there yet.
pub fn after_fork_child() {
    thread_state::forget_stacks();
    ARMING.store(false, Ordering::Release);
    unwind::after_fork_child();
    stack_interner::after_fork_child();
    codes::after_fork_child();
    modules::after_fork_child();
    backward::after_fork_child();
    operations::after_fork_child();
    native_samples::after_fork_child();
    numbering::after_fork_child();
}
