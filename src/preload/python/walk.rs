//! The walk over the calling thread's Python frames: for a hash, for the frames one by one, for the changes
//! since the last walk.
//!
//! Reads frames and nothing else of Python's; why that is sound stands in [`current`].

use crate::hash::FrameHash;
use crate::python::current::{self, Top};
use crate::python::interpreter::{self, Cpython};
use crate::python::layout::{Kind, Links, SHIM_OWNER};
use crate::python::memory::read;
use crate::python::tlbc;
use leaktrace_core::steps::loops::Seen;

/// The most frames a walk visits.
pub const LIMIT: usize = 1024;

/// One frame: its code object, the offset in it in bytes, and whether it was entered from C.
pub struct Found {
    pub code: *const u8,
    pub offset: u32,
    pub entry: bool,
    pub cpython: &'static Cpython,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walked {
    All,
    /// There are more frames than are visited.
    Limit,
    Stopped,
}

/// The calling thread's frames at one moment: the innermost, and the hash of all.
#[derive(Clone, Copy)]
pub struct Walk {
    pub top: Top,
    hash: FrameHash,
}

impl Walk {
    /// Walks the calling thread's frames, if it has any. In a read section only.
    #[inline(always)]
    pub fn now() -> Option<Walk> {
        let top = current::top()?;
        Some(Walk { top, hash: hash(top) })
    }

    /// Returns the walk, which was made at this very moment, unless the interpreter has ended meanwhile.
    #[inline(always)]
    pub fn if_alive(self) -> Option<Walk> {
        interpreter::cpython().map(|_| self)
    }

    /// The hash of the frames, to be mixed into a [`Hash`](crate::hash::Hash).
    #[inline(always)]
    pub fn word(&self) -> u64 {
        self.hash.word()
    }
}

/// Hashes the frames of a stack.
#[inline(always)]
fn hash(top: Top) -> FrameHash {
    match top.cpython.links.kind {
        // SAFETY: `top` begins this thread's own chain of frames.
        Kind::Flagged => unsafe { hash_all::<FLAGGED>(top) },
        _ => hash_others(top),
    }
}

/// Hashes the frames of other versions than 3.11; out of line, so that the code for that one stays small.
#[inline(never)]
fn hash_others(top: Top) -> FrameHash {
    if top.cpython.links.kind != Kind::Shimmed {
        return hash_rare(top);
    }
    // SAFETY: as in `hash`.
    unsafe { hash_all::<SHIMMED>(top) }
}

/// Hashes the frames of old versions and of free-threaded ones; out of line, so that the others pay nothing for it.
#[inline(never)]
fn hash_rare(top: Top) -> FrameHash {
    // SAFETY: as in `hash`.
    unsafe {
        match top.cpython.links.kind {
            Kind::Object => hash_all::<OBJECT>(top),
            _ => hash_all::<COPIED>(top),
        }
    }
}

/// Hashes the frames of one kind.
///
/// # Safety
/// As for [`each`].
#[inline(always)]
unsafe fn hash_all<const KIND: u8>(top: Top) -> FrameHash {
    let mut hash = FrameHash::START;
    // SAFETY: the caller's word.
    unsafe {
        each::<KIND>(&top.cpython.links, top.frame, |_, code, instr, entry| {
            hash.add_frame::<KIND>(code, instr, entry);
            true
        });
    }
    hash
}

impl FrameHash {
    #[inline(always)]
    fn add_frame<const KIND: u8>(&mut self, code: *const u8, instr: u64, entry: u64) {
        if names_code::<KIND>() {
            self.add(code as u64);
            self.add(if KIND == OBJECT { instr } else { instr | entry });
        } else {
            // The address of the instruction says which code it is in.
            self.add(instr | entry);
        }
    }
}

/// Visits the frames of a stack, innermost first, until `visit` returns false.
pub fn walk(top: Top, mut visit: impl FnMut(Found) -> bool) -> Walked {
    let cpython = top.cpython;
    walk_frames(top, |_, code, offset, entry, _| visit(Found { code, offset, entry, cpython }))
}

/// Returns a word that tells where the innermost frame stands: [`place_of`] it.
pub fn place(top: Top) -> u64 {
    let mut place = 0;
    walk_frames(top, |frame, _, _, _, key| {
        place = place_of(frame.addr(), key);
        false
    });
    place
}

/// Returns a word that tells where a frame stands.
#[inline(always)]
pub fn place_of(frame: usize, key: u64) -> u64 {
    (frame as u64).rotate_left(32) ^ key
}

/// Visits frame, code, offset, whether it was entered from C, and the word it is hashed by.
#[inline(always)]
fn walk_frames(top: Top, mut visit: impl FnMut(*const u8, *const u8, u32, bool, u64) -> bool) -> Walked {
    let Top { frame, cpython } = top;
    let links = &cpython.links;
    // SAFETY: `top` begins this thread's own chain of frames: since it was taken this thread has not gone
    // back to Python.
    unsafe {
        match links.kind {
            Kind::Object => each::<OBJECT>(links, frame, |frame, code, instr, entry| {
                visit(
                    frame,
                    code,
                    offset_in::<OBJECT>(cpython, frame, code, instr),
                    entry != 0,
                    instr | entry,
                )
            }),
            Kind::Flagged => each::<FLAGGED>(links, frame, |frame, code, instr, entry| {
                visit(
                    frame,
                    code,
                    offset_in::<FLAGGED>(cpython, frame, code, instr),
                    entry != 0,
                    instr | entry,
                )
            }),
            Kind::Shimmed => each::<SHIMMED>(links, frame, |frame, code, instr, entry| {
                visit(
                    frame,
                    code,
                    offset_in::<SHIMMED>(cpython, frame, code, instr),
                    entry != 0,
                    instr | entry,
                )
            }),
            Kind::Copied => each::<COPIED>(links, frame, |frame, code, instr, entry| {
                visit(
                    frame,
                    code,
                    offset_in::<COPIED>(cpython, frame, code, instr),
                    entry != 0,
                    instr | entry,
                )
            }),
        }
    }
}

/// How many of the innermost frames of two moments are searched for one that is in both.
const NEAR: usize = 4;

/// Brings `list`, outermost first, up to the frames that there are now, as far as its capacity goes. Returns
/// how many of the outermost are certainly unchanged, and the walk, if it is `wanted` and one was enough.
/// Mostly all but the innermost are unchanged: then nothing is moved.
#[inline(always)]
pub fn follow(top: Top, list: &mut Vec<Seen>, wanted: bool) -> (usize, Option<Walk>) {
    // SAFETY: `top` begins this thread's own chain of frames.
    let followed = unsafe {
        match (top.cpython.links.kind, wanted) {
            (Kind::Object, _) => follow_on::<OBJECT, true>(top, list),
            (Kind::Flagged, false) => follow_on::<FLAGGED, false>(top, list),
            (Kind::Flagged, true) => follow_on::<FLAGGED, true>(top, list),
            (Kind::Shimmed, _) => follow_on::<SHIMMED, true>(top, list),
            (Kind::Copied, _) => follow_on_copied(top, list),
        }
    };
    match followed {
        Some((same, hash)) => (same, wanted.then_some(Walk { top, hash })),
        None => {
            refill(top, list);
            (0, None)
        }
    }
}

/// Out of line, as [`hash_rare`].
///
/// # Safety
/// As for [`each`].
#[cold]
#[inline(never)]
unsafe fn follow_on_copied(top: Top, list: &mut Vec<Seen>) -> Option<(usize, FrameHash)> {
    // SAFETY: the caller's word.
    unsafe { follow_on::<COPIED, true>(top, list) }
}

/// Whether the frames are those of `list`, outermost first, and stand at the same instructions. `false` also where that
/// would take more than a few words of each.
#[inline(always)]
pub fn is_same(top: Top, list: &[Seen]) -> bool {
    // SAFETY: `top` begins this thread's own chain of frames.
    unsafe {
        match top.cpython.links.kind {
            Kind::Flagged => compare::<FLAGGED>(top, list),
            Kind::Shimmed => compare_shimmed(top, list),
            Kind::Object | Kind::Copied => false,
        }
    }
}

/// Out of line, as [`hash_others`].
///
/// # Safety
/// As for [`each`].
#[inline(never)]
unsafe fn compare_shimmed(top: Top, list: &[Seen]) -> bool {
    // SAFETY: the caller's word.
    unsafe { compare::<SHIMMED>(top, list) }
}

/// # Safety
/// As for [`each`].
#[inline(always)]
unsafe fn compare<const KIND: u8>(top: Top, list: &[Seen]) -> bool {
    let mut known = list.iter().rev();
    let is_next = |frame: *const u8, _, instr: u64, entry: u64| {
        known.next().is_some_and(|seen| seen.frame == frame.addr() && seen.key == instr | entry)
    };
    // SAFETY: the caller's word.
    let walked = unsafe { each::<KIND>(&top.cpython.links, top.frame, is_next) };
    walked == Walked::All && known.next().is_none()
}

/// Compares the frames with `list`; `None` if there are more or fewer than were expected.
///
/// # Safety
/// As for [`each`].
#[inline(always)]
unsafe fn follow_on<const KIND: u8, const HASH: bool>(
    top: Top,
    list: &mut Vec<Seen>,
) -> Option<(usize, FrameHash)> {
    let cpython = top.cpython;
    if list.last().is_none_or(|innermost| innermost.frame != top.frame.addr()) {
        let depth = depth_by(top, list).filter(|&depth| depth <= list.capacity())?;
        list.resize(depth, Seen::default());
    }
    let (mut left, mut hash) = (list.len(), FrameHash::START);
    let (mut same, mut fits) = (left, true);
    // SAFETY: the caller's word; `at` is less than the length that `left` began with.
    unsafe {
        each::<KIND>(&cpython.links, top.frame, |frame, code, instr, entry| {
            let Some(at) = left.checked_sub(1) else {
                fits = false;
                return false;
            };
            left = at;
            if HASH {
                hash.add_frame::<KIND>(code, instr, entry);
            }
            let (known, key) = (list.get_unchecked_mut(at), instr | entry);
            let is_same = known.frame == frame.addr()
                && known.key == key
                && (!names_code::<KIND>() || known.code == code.expose_provenance());
            if !is_same {
                *known = self::seen::<KIND>(cpython, frame, code, instr, entry);
                same = at;
            }
            true
        });
    }
    (fits && left == 0).then_some((same, hash))
}

/// Describes a frame for a comparison with later ones.
#[inline(always)]
fn seen<const KIND: u8>(
    cpython: &Cpython,
    frame: *const u8,
    code: *const u8,
    instr: u64,
    entry: u64,
) -> Seen {
    let offset = offset_in::<KIND>(cpython, frame, code, instr);
    let key = instr | entry;
    Seen { frame: frame.addr(), code: code.expose_provenance(), offset, entry: entry != 0, key }
}

#[inline(always)]
fn offset_in<const KIND: u8>(cpython: &Cpython, frame: *const u8, code: *const u8, instr: u64) -> u32 {
    let layout = &cpython.layout;
    if KIND == OBJECT {
        return (instr as i32).max(0) as u32 * layout.unit;
    }
    if KIND == COPIED {
        // SAFETY: a frame of the calling thread, and its code.
        return unsafe { tlbc::offset(cpython, frame, code, instr) };
    }
    // Before the first instruction the pointer may lie in front of it.
    u32::try_from(instr.wrapping_sub(code as u64 + layout.code_size as u64)).unwrap_or(0)
}

/// Returns how many frames there are, by the first that is in the list.
#[inline(never)]
fn depth_by(top: Top, list: &[Seen]) -> Option<usize> {
    let (mut i, mut depth) = (0, None);
    walk_frames(top, |frame, _, _, _, _| {
        let near = list.iter().rev().take(NEAR).position(|seen| seen.frame == frame.addr());
        depth = near.map(|j| list.len() - j + i);
        i += 1;
        depth.is_none() && i < NEAR
    });
    depth
}

/// Fills the list anew.
#[cold]
#[inline(never)]
fn refill(top: Top, list: &mut Vec<Seen>) {
    list.clear();
    walk_frames(top, |frame, code, offset, entry, key| {
        let room = list.len() < list.capacity();
        if room {
            list.push(Seen { frame: frame.addr(), code: code.expose_provenance(), offset, entry, key });
        }
        room
    });
    list.reverse();
}

/// Visits (frame, code) of every frame that is the program's.
///
/// # Safety
/// `frame` begins a chain of frames that does not change meanwhile, `links` is its version's.
pub unsafe fn each_frame(links: &Links, mut frame: *const u8, mut visit: impl FnMut(*const u8, *const u8)) {
    for _ in 0..LIMIT {
        if frame.is_null() {
            return;
        }
        // SAFETY: the caller's word: a frame, and `back` is null or another.
        unsafe {
            let shim = links.kind.has_shims() && read::<u8>(frame, usize::from(links.flag)) >= SHIM_OWNER;
            if !shim {
                visit(frame, read::<*const u8>(frame, usize::from(links.code)).map_addr(|code| code & !7));
            }
            frame = read(frame, usize::from(links.back));
        }
    }
}

const OBJECT: u8 = 0;
const FLAGGED: u8 = 1;
const SHIMMED: u8 = 2;
const COPIED: u8 = 3;

/// True if the address of an instruction does not say which code it is in: up to 3.10 it is none, and copies of code go
/// away without notice once their thread has ended.
const fn names_code<const KIND: u8>() -> bool {
    KIND == OBJECT || KIND == COPIED
}

/// Visits (frame, code, instruction, 1 if entered from C) of every frame that is the program's.
///
/// # Safety
/// `frame` begins the calling thread's chain of frames, `links` is its version's.
#[inline(always)]
unsafe fn each<const KIND: u8>(
    links: &Links,
    mut frame: *const u8,
    mut visit: impl FnMut(*const u8, *const u8, u64, u64) -> bool,
) -> Walked {
    let [frame_code, frame_back, frame_instr, frame_flag] =
        [links.code, links.back, links.instr, links.flag].map(usize::from);
    // 3.14 marks references in the low bits.
    // SAFETY: called with live frames of this thread only.
    let code_of = |frame| unsafe { read::<*const u8>(frame, frame_code) }.map_addr(|code| code & !7);
    if KIND == OBJECT || KIND == FLAGGED {
        // The inner loop is unrolled: the limit is checked once in so many frames.
        const TOGETHER: usize = 2;
        for _ in 0..LIMIT / TOGETHER {
            for _ in 0..TOGETHER {
                if frame.is_null() {
                    return Walked::All;
                }
                // SAFETY: a live frame of this thread; every field read is within it, and `back` is null or
                // another such frame. From 3.11 on the flag is a C `bool`: 0 or 1.
                let (back, instr, entry) = unsafe {
                    let (instr, entry) = match KIND {
                        OBJECT => (read::<i32>(frame, frame_instr) as u32 as u64, 1),
                        _ => (read(frame, frame_instr), read::<u8>(frame, frame_flag) as u64),
                    };
                    (read::<*const u8>(frame, frame_back), instr, entry)
                };
                if !visit(frame, code_of(frame), instr, entry) {
                    return Walked::Stopped;
                }
                frame = back;
            }
        }
        return if frame.is_null() { Walked::All } else { Walked::Limit };
    }
    let mut left = LIMIT;
    while !frame.is_null() {
        // SAFETY: a live frame of this thread, and so is every frame that it leads to.
        let (back, shim) =
            unsafe { (read::<*const u8>(frame, frame_back), read::<u8>(frame, frame_flag) >= SHIM_OWNER) };
        if shim {
            frame = back;
            continue;
        }
        let Some(fewer) = left.checked_sub(1) else { return Walked::Limit };
        left = fewer;
        // SAFETY: as for `back`.
        let (instr, from_c) = unsafe {
            (read(frame, frame_instr), back.is_null() || read::<u8>(back, frame_flag) >= SHIM_OWNER)
        };
        if !visit(frame, code_of(frame), instr, from_c as u64) {
            return Walked::Stopped;
        }
        frame = back;
    }
    Walked::All
}
