//! Memory of our own in a process that may have none left (`ulimit -v`, strict overcommit): Rust ends a
//! process whose allocator has nothing to give, and it is not our process to end.
//!
//! Large work asks first ([`can_allocate`]) and is left undone otherwise. What is asked for in spite of that
//! comes from a small emergency reserve, once; then tracing is switched off.
//!
//! The C library's allocator may have been interrupted by nobody of ours: while it works for us no signal handler
//! runs that could come here again, or jump out of it.
//!
//! What is large is mapped for itself and unmapped when it is freed: the C library's allocator would keep it,
//! in one arena after the other, since any thread may be the one that drains the events.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

use crate::writer::signals::Undisturbed;

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
    let p = unsafe { libc::mmap(std::ptr::null_mut(), size, access, kind, -1, 0) };
    if p == libc::MAP_FAILED { std::ptr::null_mut() } else { p.cast() }
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
        if taken.is_ok() { unsafe { self.bytes.get().cast::<u8>().add(at) } } else { std::ptr::null_mut() }
    }

    fn holds(&self, p: *mut u8) -> bool {
        (self.bytes.get() as usize..self.bytes.get() as usize + RESERVE).contains(&(p as usize))
    }
}

fn undisturbed<R>(allocate: impl FnOnce() -> R) -> R {
    let _undisturbed = Undisturbed::begin();
    allocate()
}

// SAFETY: the system's allocator, mappings for what is large, and behind both a reserve that hands out every
// byte once and takes none back. Where a piece came from shows in its address (the reserve) and its layout.
unsafe impl GlobalAlloc for PreloadAlloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        #[cfg(test)]
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise.
        let small = || undisturbed(|| unsafe { System.alloc(layout) });
        let p = if is_large(&layout) { map(layout.size()) } else { small() };
        if p.is_null() { EMERGENCY.take(layout) } else { p }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise. Neither a fresh mapping nor the reserve was ever written to.
        let small = || undisturbed(|| unsafe { System.alloc_zeroed(layout) });
        let p = if is_large(&layout) { map(layout.size()) } else { small() };
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
            } else {
                undisturbed(|| System.dealloc(p, layout));
            }
        }
    }

    unsafe fn realloc(&self, p: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise: that size is fit for a layout.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        let large = (is_large(&layout), is_large(&wanted));
        if !EMERGENCY.holds(p) && large.0 == large.1 {
            // SAFETY: the caller's promise; it came from there, by its layout.
            let new = unsafe {
                match large.0 {
                    true => match libc::mremap(p.cast(), layout.size(), size, libc::MREMAP_MAYMOVE) {
                        libc::MAP_FAILED => std::ptr::null_mut(),
                        new => new.cast(),
                    },
                    false => undisturbed(|| System.realloc(p, layout, size)),
                }
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
        let room = libc::mmap(std::ptr::null_mut(), bytes, access, kind, -1, 0);
        room != libc::MAP_FAILED && libc::munmap(room, bytes) == 0
    }
}

#[cfg(test)]
thread_local! {
    /// Counts the allocations of the calling thread.
    pub static ALLOCATIONS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}
