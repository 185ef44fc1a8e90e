//! Memory of our own in a process that may have none left (`ulimit -v`, strict overcommit): Rust ends a process whose
//! allocator has nothing to give, and it is not our process to end.
//!
//! Large work asks first ([`enough_for`]) and is left undone otherwise. What is asked for in spite of that comes from a
//! small reserve, once; then tracing is switched off.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

/// Untouched, it costs address space only.
const RESERVE: usize = 1 << 20;

#[repr(align(4096))]
struct Reserve {
    bytes: UnsafeCell<[u8; RESERVE]>,
    used: AtomicUsize,
}

// SAFETY: every byte is handed out once.
unsafe impl Sync for Reserve {}

static LAST: Reserve = Reserve { bytes: UnsafeCell::new([0; RESERVE]), used: AtomicUsize::new(0) };
static SHORT: AtomicBool = AtomicBool::new(false);

struct Ours;

#[global_allocator]
static OURS: Ours = Ours;

impl Reserve {
    #[cold]
    fn take(&self, layout: Layout) -> *mut u8 {
        SHORT.store(true, Release);
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

// SAFETY: the system's allocator, and behind it a reserve that hands out every byte once and takes none back.
unsafe impl GlobalAlloc for Ours {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        let p = unsafe { System.alloc(layout) };
        if p.is_null() { LAST.take(layout) } else { p }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise. The reserve was never written to.
        let p = unsafe { System.alloc_zeroed(layout) };
        if p.is_null() { LAST.take(layout) } else { p }
    }

    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        if !LAST.holds(p) {
            // SAFETY: the caller's promise; it came from there.
            unsafe { System.dealloc(p, layout) };
        }
    }

    unsafe fn realloc(&self, p: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !LAST.holds(p) {
            // SAFETY: the caller's promise; it came from there.
            let new = unsafe { System.realloc(p, layout, size) };
            if !new.is_null() {
                return new;
            }
        }
        // SAFETY: the caller's promise: that size is fit for a layout, and both places are as long as is copied.
        unsafe {
            let new = LAST.take(Layout::from_size_align_unchecked(size, layout.align()));
            if !new.is_null() {
                std::ptr::copy_nonoverlapping(p, new, layout.size().min(size));
                self.dealloc(p, layout);
            }
            new
        }
    }
}

/// True once the reserve was touched.
#[inline(always)]
pub fn is_short() -> bool {
    SHORT.load(Relaxed)
}

/// Whether there is room for so many bytes, and something to spare for the program.
pub fn enough_for(bytes: usize) -> bool {
    let bytes = bytes.saturating_add(4 << 20);
    // SAFETY: a mapping of our own, given back untouched.
    unsafe {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let room = libc::mmap(std::ptr::null_mut(), bytes, access, kind, -1, 0);
        room != libc::MAP_FAILED && libc::munmap(room, bytes) == 0
    }
}
