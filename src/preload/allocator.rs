//! Memory of our own in a process that may have none left (`ulimit -v`, strict overcommit): Rust ends a
//! process whose allocator has nothing to give, and it is not our process to end.
//!
//! Large work asks first ([`can_allocate`]) and is left undone otherwise. What is asked for in spite of that
//! comes from a small emergency reserve, once; then tracing is switched off.
//!
//! It is a heap of its own, and not the program's. What a recording keeps of each step, and lets go much later, would lie
//! between the program's blocks and leave gaps there: a program of 800,000 short steps took a fifth longer for its own `malloc`
//! alone. And a program that replaces `malloc`, or counts what goes through it, shall see no call of ours.
//!
//! While the heap works no signal handler runs that could come here again, or jump out of it.
//!
//! What is large is mapped for itself and unmapped when it is freed: the heap would keep it.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

use dlmalloc::{Allocator, Dlmalloc};

use crate::lock::{Mutex, Rank};

/// The size of the reserve. Untouched, it costs address space only.
const RESERVE: usize = 1 << 20;

#[repr(align(4096))]
struct Reserve {
    bytes: UnsafeCell<[u8; RESERVE]>,
    used: AtomicUsize,
}

// SAFETY: every byte is handed out once.
unsafe impl Sync for Reserve {}

static EMERGENCY: Reserve = Reserve { bytes: UnsafeCell::new([0; RESERVE]), used: AtomicUsize::new(0) };
static RESERVE_USED: AtomicBool = AtomicBool::new(false);

/// The size from which on a piece is mapped for itself.
const LARGE: usize = 256 << 10;

/// The heap. In the middle of its own work, which only a fault can interrupt, there is none.
pub static HEAP: Mutex<Dlmalloc<Mappings>> = Mutex::new(Rank::Heap, Dlmalloc::new_with_allocator(Mappings));

/// Where the heap has its memory from: the kernel, asked for as much at a time as is a whole number of pages anywhere.
pub struct Mappings;

// SAFETY: private mappings, of which the heap gives back none but its own, whole or the end of one.
unsafe impl Allocator for Mappings {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        (map(size), size, 0)
    }

    fn remap(&self, p: *mut u8, old: usize, new: usize, can_move: bool) -> *mut u8 {
        remap(p, old, new, if can_move { libc::MREMAP_MAYMOVE } else { 0 })
    }

    fn free_part(&self, p: *mut u8, old: usize, new: usize) -> bool {
        // SAFETY: the end of what is the heap's, which it does not use any more.
        unsafe { libc::munmap(p.add(new).cast(), old - new) == 0 }
    }

    fn free(&self, p: *mut u8, size: usize) -> bool {
        // SAFETY: a mapping of the heap's, which it does not use any more.
        unsafe { libc::munmap(p.cast(), size) == 0 }
    }

    fn can_release_part(&self, _flags: u32) -> bool {
        true
    }

    fn allocates_zeros(&self) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        64 << 10
    }
}

/// The allocator of this library, and of nothing else in the process.
struct PreloadAlloc;

fn is_large(layout: &Layout) -> bool {
    layout.size() >= LARGE && layout.align() <= 4096
}

/// Returns fresh zeroed memory; null if there is no room.
fn map(size: usize) -> *mut u8 {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let p = unsafe { libc::mmap(null_mut(), size, access, kind, -1, 0) };
    if p == libc::MAP_FAILED { null_mut() } else { p.cast() }
}

/// Gives a mapping of ours another size; null: it is as it was.
fn remap(p: *mut u8, old: usize, new: usize, flags: libc::c_int) -> *mut u8 {
    // SAFETY: a mapping of ours; who asks for another size knows it by the new address from then on.
    let p = unsafe { libc::mremap(p.cast(), old, new, flags) };
    if p == libc::MAP_FAILED { null_mut() } else { p.cast() }
}

/// Asks the heap for memory; null if there is none.
fn ask(call: impl FnOnce(&mut Dlmalloc<Mappings>) -> *mut u8) -> *mut u8 {
    HEAP.lock().map_or(null_mut(), |mut heap| call(&mut heap))
}

#[global_allocator]
static GLOBAL: PreloadAlloc = PreloadAlloc;

impl Reserve {
    #[cold]
    fn take(&self, layout: Layout) -> *mut u8 {
        RESERVE_USED.store(true, Release);
        let mut at = 0;
        let taken = self.used.fetch_update(AcqRel, Acquire, |used| {
            at = used.next_multiple_of(layout.align().max(16));
            at.checked_add(layout.size()).filter(|end| *end <= RESERVE && layout.align() <= 4096)
        });
        // SAFETY: `at` lies inside.
        if taken.is_ok() { unsafe { self.bytes.get().cast::<u8>().add(at) } } else { null_mut() }
    }

    fn holds(&self, p: *mut u8) -> bool {
        (self.bytes.get() as usize..self.bytes.get() as usize + RESERVE).contains(&(p as usize))
    }
}

// SAFETY: a heap, mappings for what is large, and behind both a reserve that hands out every
// byte once and takes none back. Where a piece came from shows in its address (the reserve) and its layout.
unsafe impl GlobalAlloc for PreloadAlloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        #[cfg(test)]
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise.
        let small = |heap: &mut Dlmalloc<_>| unsafe { heap.malloc(layout.size(), layout.align()) };
        let p = if is_large(&layout) { map(layout.size()) } else { ask(small) };
        if p.is_null() { EMERGENCY.take(layout) } else { p }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise. Neither a fresh mapping nor the reserve was ever written to.
        let small = |heap: &mut Dlmalloc<_>| unsafe { heap.calloc(layout.size(), layout.align()) };
        let p = if is_large(&layout) { map(layout.size()) } else { ask(small) };
        if p.is_null() { EMERGENCY.take(layout) } else { p }
    }

    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        if EMERGENCY.holds(p) {
            return;
        }
        // SAFETY: the caller's promise; it came from there, by its layout.
        unsafe {
            if is_large(&layout) {
                libc::munmap(p.cast(), layout.size());
            } else if let Some(mut heap) = HEAP.lock() {
                heap.free(p, layout.size(), layout.align());
            }
        }
    }

    unsafe fn realloc(&self, p: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise: that size is fit for a layout.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        let large = (is_large(&layout), is_large(&wanted));
        if !EMERGENCY.holds(p) && large.0 == large.1 {
            let new = match large.0 {
                true => remap(p, layout.size(), size, libc::MREMAP_MAYMOVE),
                // SAFETY: the caller's promise; it came from there, by its layout.
                false => ask(|heap| unsafe { heap.realloc(p, layout.size(), layout.align(), size) }),
            };
            if !new.is_null() {
                return new;
            }
        }
        // SAFETY: the caller's promise: both pieces are as long as is copied.
        unsafe {
            let new = self.alloc(wanted);
            if !new.is_null() {
                std::ptr::copy_nonoverlapping(p, new, layout.size().min(size));
                self.dealloc(p, layout);
            }
            new
        }
    }
}

/// Returns whether the reserve had to be used.
#[inline(always)]
pub fn reserve_was_used() -> bool {
    RESERVE_USED.load(Relaxed)
}

/// Returns whether there is room for so many bytes, and something to spare for the program.
pub fn can_allocate(bytes: usize) -> bool {
    let bytes = bytes.saturating_add(4 << 20);
    // SAFETY: a mapping of our own, unmapped again untouched.
    unsafe {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let room = libc::mmap(null_mut(), bytes, access, kind, -1, 0);
        room != libc::MAP_FAILED && libc::munmap(room, bytes) == 0
    }
}

#[cfg(test)]
thread_local! {
    /// Counts the allocations of the calling thread.
    pub static ALLOCATIONS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}
