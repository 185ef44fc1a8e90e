//! Where the calling thread's stack lies, so that nothing beyond it is read. Knows the C library's word for it.

use std::sync::atomic::{Ordering, compiler_fence};

/// From the lowest address to the end; all zero before it was asked for.
#[repr(C)]
pub struct Extent {
    start: u64,
    end: u64,
}

/// An end that no stack has: it is being asked for, or could not be had.
const UNKNOWN: u64 = 1;

impl Extent {
    #[inline(always)]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// True if a stack pointer lies in it. Another stack (of a signal handler, of a coroutine) has other bounds.
    #[inline(always)]
    pub fn holds(&mut self, sp: u64) -> bool {
        if self.end == 0 {
            self.ask();
        }
        self.start <= sp && sp < self.end
    }

    /// Once per thread: the C library allocates to answer, and for the main thread reads a file. What that allocation
    /// itself brings about finds the stack unknown.
    #[cold]
    #[inline(never)]
    fn ask(&mut self) {
        self.end = UNKNOWN;
        compiler_fence(Ordering::SeqCst);
        // SAFETY: all zero is a value of this plain structure.
        let mut attributes: libc::pthread_attr_t = unsafe { std::mem::zeroed() };
        let (mut start, mut size) = (std::ptr::null_mut(), 0);
        // SAFETY: the calling thread is there; the structure is initialised by the first call, read by the second and
        // given back by the third.
        let known = unsafe {
            libc::pthread_getattr_np(libc::pthread_self(), &mut attributes) == 0 && {
                let known = libc::pthread_attr_getstack(&attributes, &mut start, &mut size) == 0;
                libc::pthread_attr_destroy(&mut attributes);
                known
            }
        };
        if known {
            self.start = start.addr() as u64;
            compiler_fence(Ordering::SeqCst);
            self.end = self.start.saturating_add(size as u64);
        }
    }
}
