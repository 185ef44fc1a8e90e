//! The loop of the program, as far as it needs the process: which events show it, and when it is asked.
//!
//! Looked at from hooks, under the allocator's lock, on the thread whose event it is. The detector is behind a lock of its own,
//! which that thread alone takes once a loop was chosen.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::time::Duration;

use super::{boundary, life, memory};
use crate::capture::{self, thread};
use crate::steps::loops::{CodeText, Heard, Loops, Moment, Place, Seen, Settled, Surroundings};
use crate::trace::lock::{self, Mutex};
use crate::trace::recording;

/// Iterations that `auto` wants to see before it takes a loop for steps.
pub const LEAST: u64 = 8;
/// Bytes that the detector may take.
const ROOM: usize = 8 << 20;
/// Held for a microsecond. Longer: this is a signal handler in the middle of it.
const PATIENCE: Duration = Duration::from_millis(2);

struct Watch {
    loops: Loops,
    frames: Vec<Seen>,
}

static WATCH: Mutex<Option<Box<Watch>>> = Mutex::new(None);
/// True while the program's loop is looked for, or ends its steps.
static LOOKING: AtomicBool = AtomicBool::new(false);
/// The thread whose loop was chosen; 0 before.
static THREAD: AtomicUsize = AtomicUsize::new(0);

/// Begins or ends looking.
pub fn look(yes: bool) {
    LOOKING.store(yes, Release);
}

/// The same, for good: what was found is let go of.
pub fn stop() {
    if LOOKING.swap(false, AcqRel) {
        let watch = WATCH.try_lock_for(PATIENCE).and_then(|mut watch| watch.take());
        drop(watch);
    }
}

pub fn is_looking() -> bool {
    LOOKING.load(Acquire)
}

/// An event is about to be noted.
#[inline(always)]
pub fn event() {
    if LOOKING.load(Relaxed) {
        look_at_frames();
    }
}

#[inline(never)]
fn look_at_frames() {
    // SAFETY: asks for the calling thread's name.
    let me = unsafe { libc::pthread_self() } as usize;
    let chosen = THREAD.load(Relaxed);
    if chosen != 0 && chosen != me {
        return;
    }
    let Some(mut watch) = WATCH.try_lock_for(PATIENCE) else { return };
    if watch.is_none() {
        if !memory::enough_for(ROOM) {
            return;
        }
        let loops = Loops::new(!capture::knows_entries());
        *watch = Some(Box::new(Watch { loops, frames: Vec::new() }));
    }
    let Some(Watch { loops, frames }) = watch.as_deref_mut() else { return };
    // SAFETY: this thread's own block; nothing else refers to it meanwhile.
    let block = unsafe { &mut *thread::thread() };
    let heard = capture::frames(block, frames, |frames| {
        loops.event(me, frames.list, frames.epoch, &mut Here(Some(frames.code)))
    });
    drop(watch);
    match heard {
        Some(Heard::Steps(steps)) => (0..steps).for_each(|_| boundary::looped()),
        Some(Heard::Ripe) => settle(1),
        None => {}
    }
}

/// An optimizer stepped on this thread: one more thing to know a loop by.
pub fn optimizer() {
    if !is_looking() {
        return;
    }
    event();
    // SAFETY: asks for the calling thread's name.
    let me = unsafe { libc::pthread_self() } as usize;
    if let Some(mut watch) = WATCH.try_lock_for(PATIENCE)
        && let Some(watch) = watch.as_deref_mut()
    {
        watch.loops.optimizer(me);
    }
}

/// The event at hand, and the frames it has.
struct Here(Option<capture::Reader>);

impl Surroundings for Here {
    fn moment(&mut self) -> Moment {
        Moment { seq: recording::sequence(), ns: life::elapsed_coarse() }
    }
    fn id(&mut self, seen: &Seen) -> u32 {
        self.0.as_ref().map_or(0, |reader| reader.id(seen))
    }
    fn read(&mut self, seen: &Seen) -> CodeText {
        self.0.as_ref().map_or_else(CodeText::default, |reader| reader.text(seen))
    }
}

/// Chooses the loop now, from what was seen so far, if it came round so often. It cannot wait any longer.
#[cold]
pub fn settle(least: u64) {
    if !is_looking() || THREAD.load(Acquire) != 0 {
        return;
    }
    let settled = {
        let Some(mut watch) = WATCH.try_lock_for(PATIENCE) else { return };
        let Some(watch) = watch.as_deref_mut() else { return };
        let settled = watch.loops.settle(least);
        THREAD.store(watch.loops.thread().unwrap_or(0), Release);
        settled
    };
    if let Some(Settled { past, places }) = settled {
        boundary::settled(&past, &places);
    }
}

/// Functions whose loops cannot be seen, if no loop was found.
pub fn unreadable() -> usize {
    if !is_looking() || THREAD.load(Acquire) != 0 {
        return 0;
    }
    let Some(mut watch) = WATCH.try_lock_for(PATIENCE) else { return 0 };
    watch.as_deref_mut().map_or(0, |watch| watch.loops.opaque())
}

/// The program is ending, and so are the iterations under way: how many.
pub fn finish() -> u32 {
    if !is_looking() || THREAD.load(Acquire) == 0 {
        return 0;
    }
    let Some(mut watch) = WATCH.try_lock_for(PATIENCE) else { return 0 };
    watch.as_deref_mut().map_or(0, |watch| watch.loops.finish(&mut Here(None)))
}

/// What a chosen loop is called in the recording: `code header last`, in bytes.
pub fn name(place: &Place) -> String {
    format!("{} {} {}", place.code, place.header, place.last)
}

/// Before fork: nobody may hold it while the process is copied.
pub fn before_fork() {
    lock::hold(&WATCH);
}

/// After fork, in the parent.
pub fn after_fork_parent() {
    // SAFETY: `before_fork` took it on this very thread.
    unsafe { lock::release(&WATCH) };
}

/// After fork, in the child: its steps are its own.
pub fn after_fork_child() {
    // SAFETY: a child begins with one thread, and this function holds no reference into the lock.
    unsafe { lock::renew(&WATCH) };
    THREAD.store(0, Release);
    // Freeing it would copy its pages.
    std::mem::forget(WATCH.lock().take());
}
