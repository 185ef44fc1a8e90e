//! The tables every thread shares: stack ids by hash, and by what the stacks are made of. Knows numbers and packed frames,
//! not what they stand for.
//!
//! The locks are `std`'s: on Linux a futex word and nothing else. (`parking_lot` parks in one table for the whole process,
//! whose own locks another thread may hold at the moment of a fork; the child would wait for it forever.)

use std::array;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::python::codes;
use crate::stacks::autograd;
use crate::stacks::hash::Map;
use crate::stacks::hash::content;
use crate::stacks::hash::map;
use crate::stacks::native_samples;
use crate::stacks::note;
use crate::stacks::thread_state;
use crate::unwind::modules;
use crate::writer::recording::append_entry;
use leaktrace_core::format::entry::{Frame, TableEntry};

const SHARDS: usize = 16;
/// Hashes a shard remembers; beyond, it forgets them all and they are found again by content.
const SHARD_LIMIT: usize = 28_000;
const MAX_STACKS: u32 = 1_000_000;
const MAX_BYTES: usize = 128 << 20;

struct Shard {
    epoch: u64,
    ids: Map<u64, u32>,
}

struct Stacks {
    ids: Map<u128, u32>,
    last: u32,
    /// The one stack that stands for all that found no room; 0 while there is room.
    no_room: u32,
}

static BY_HASH: [Mutex<Shard>; SHARDS] = [const { Mutex::new(Shard { epoch: 0, ids: map() }) }; SHARDS];
static STACKS: Mutex<Stacks> = Mutex::new(Stacks { ids: map(), last: 0, no_room: 0 });
static BYTES: AtomicUsize = AtomicUsize::new(0);

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds to the bytes written; false once they are too many.
pub(crate) fn count(bytes: usize) -> bool {
    let bytes = bytes + 16;
    if BYTES.fetch_add(bytes, Ordering::Relaxed) + bytes <= MAX_BYTES {
        return true;
    }
    BYTES.fetch_sub(bytes, Ordering::Relaxed);
    false
}

fn shard(hash: u64) -> &'static Mutex<Shard> {
    &BY_HASH[(hash >> 60) as usize % SHARDS]
}

/// True while less than half of what there is room for is taken.
pub(crate) fn has_much_room() -> bool {
    BYTES.load(Ordering::Relaxed) < MAX_BYTES / 2 && lock(&STACKS).last < MAX_STACKS / 2
}

/// The id some thread found for this hash; 0 if none did.
pub(crate) fn by_hash(epoch: u64, hash: u64) -> u32 {
    let shard = lock(shard(hash));
    if shard.epoch != epoch {
        return 0;
    }
    shard.ids.get(&hash).copied().unwrap_or(0)
}

pub(crate) fn remember(epoch: u64, hash: u64, id: u32) {
    let mut shard = lock(shard(hash));
    if shard.epoch < epoch || shard.ids.len() >= SHARD_LIMIT {
        shard.epoch = shard.epoch.max(epoch);
        shard.ids.clear();
    }
    if shard.epoch == epoch {
        shard.ids.insert(hash, id);
    }
}

/// The id of a stack of packed frames; written on first sight. 0 if it could not be written.
pub(crate) fn intern(python: u32, frames: &[u8]) -> u32 {
    if frames.is_empty() {
        return 0;
    }
    let key = content(&[&python.to_le_bytes(), frames]);
    let mut stacks = lock(&STACKS);
    if let Some(&id) = stacks.ids.get(&key) {
        return id;
    }
    if stacks.no_room != 0 || stacks.last >= MAX_STACKS || !count(frames.len()) {
        return say_no_room(&mut stacks);
    }
    let id = stacks.last + 1;
    if !append_entry(&TableEntry::Stack { id, python, frames }) {
        return 0;
    }
    stacks.last = id;
    stacks.ids.insert(key, id);
    id
}

/// The id of the stack that stands for all that found no room.
pub(crate) fn no_room() -> u32 {
    say_no_room(&mut lock(&STACKS))
}

fn say_no_room(stacks: &mut Stacks) -> u32 {
    if stacks.no_room == 0 {
        let id = stacks.last + 1;
        let frames = Frame::Truncated.pack().to_le_bytes();
        if !append_entry(&TableEntry::Stack { id, python: 0, frames: &frames }) {
            return 0;
        }
        (stacks.last, stacks.no_room) = (id, id);
        note("too many different call stacks: new ones are shown as one");
    }
    stacks.no_room
}

/// Every lock of this room, held from before a fork until after it.
struct Held {
    shards: [MutexGuard<'static, Shard>; SHARDS],
    codes: codes::Guard,
    modules: modules::Guard,
    backward: autograd::Guard,
    examples: native_samples::Guard,
    stacks: MutexGuard<'static, Stacks>,
    caches: thread_state::Guard,
}

struct Across(UnsafeCell<Option<Held>>);

// SAFETY: read and written only by the thread that forks, while it holds every lock in it.
unsafe impl Sync for Across {}

static ACROSS: Across = Across(UnsafeCell::new(None));

pub(crate) fn before_fork() {
    let held = Held {
        shards: array::from_fn(|i| lock(&BY_HASH[i])),
        codes: codes::lock_all(),
        modules: modules::lock_all(),
        backward: autograd::lock_all(),
        // Under these it is asked whether there is room for more stacks.
        examples: native_samples::lock_all(),
        stacks: lock(&STACKS),
        caches: thread_state::lock_all(),
    };
    // SAFETY: with every lock held, this thread is the only one here; a second fork waits for the first shard above.
    unsafe { *ACROSS.0.get() = Some(held) };
}

pub(crate) fn after_fork(child: bool) {
    // SAFETY: the thread that forked, or its image in the child, still holds the locks.
    let held = unsafe { (*ACROSS.0.get()).take() };
    let Some(mut held) = held else { return };
    if child {
        for shard in &mut held.shards {
            shard.ids.clear();
        }
        codes::forget(&mut held.codes);
        modules::forget(&mut held.modules);
        autograd::forget(&mut held.backward);
        native_samples::forget(&mut held.examples);
        thread_state::forget(&mut held.caches);
        held.stacks.ids.clear();
        (held.stacks.last, held.stacks.no_room) = (0, 0);
        BYTES.store(0, Ordering::Relaxed);
    }
}
