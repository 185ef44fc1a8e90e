//! Where the calling thread's stack lies, so that nothing beyond it is read. Knows the C library's records of
//! it.
//!
//! `pthread_getattr_np` would say, but it allocates, and for the main thread reads a file: not in a hook. So
//! the words that it goes by are read here. The first thread's stack ends where the loader says. Any other's
//! ends with the thread's control block, which holds the stack's address and size: at an offset that changes
//! with the version of the C library, so the two are found by the values they must have.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, compiler_fence};

use crate::loader::dlsym::Handle;

/// A thread's stack, from its lowest address to its end; all zero before it was looked up.
#[repr(C)]
pub struct Extent {
    start: u64,
    end: u64,
}

/// An end that no stack has: the stack is being looked up, or could not be found.
const UNKNOWN: u64 = 1;

const PAGE: u64 = 4096;
/// No more than this of the first thread's stack is relied on: other mappings may lie beyond.
const FIRST: u64 = 128 << 20;
/// The most that control block, thread-local variables and their alignment take at the end of a stack.
const ABOVE: u64 = 1 << 16;

/// Size of a thread's control block; 0 if the C library does not say.
static CONTROL: AtomicUsize = AtomicUsize::new(0);
/// The stack of the first thread.
static FIRST_START: AtomicU64 = AtomicU64::new(0);
static FIRST_END: AtomicU64 = AtomicU64::new(0);

pub fn arm() {
    // The symbol that libthread_db goes by.
    if let Some(size) = Handle::PROGRAM.symbol(c"_thread_db_sizeof_pthread") {
        // SAFETY: a constant of the C library's, an int.
        let size = unsafe { size.cast::<i32>().read() };
        CONTROL.store(usize::try_from(size).unwrap_or(0).min(1 << 14), Ordering::Relaxed);
    }
    if let Some(end) = Handle::PROGRAM.symbol(c"__libc_stack_end") {
        // SAFETY: a variable of the loader's, a pointer to the word that the program began with: mapped as
        // far as its page.
        let end = unsafe { end.cast::<u64>().read() }.next_multiple_of(PAGE);
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: `limit` has room for the answer.
        if unsafe { libc::getrlimit(libc::RLIMIT_STACK, &mut limit) } == 0 {
            FIRST_START.store(end.saturating_sub(limit.rlim_cur.min(FIRST)), Ordering::Relaxed);
            FIRST_END.store(end, Ordering::Release);
        }
    }
}

impl Extent {
    #[inline(always)]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// True if a stack pointer lies in this stack. That of a signal handler or a coroutine may lie elsewhere.
    #[inline(always)]
    pub fn holds(&mut self, sp: u64) -> bool {
        if self.end == 0 {
            self.look_up();
        }
        self.start <= sp && sp < self.end
    }

    /// Finds the stack, once per thread. A signal handler that comes in between finds it unknown.
    #[cold]
    #[inline(never)]
    fn look_up(&mut self) {
        self.end = UNKNOWN;
        compiler_fence(Ordering::SeqCst);
        let found = own().or_else(|| {
            let end = FIRST_END.load(Ordering::Acquire);
            (end != 0).then(|| (FIRST_START.load(Ordering::Relaxed), end))
        });
        if let Some((start, end)) = found {
            self.start = start;
            compiler_fence(Ordering::SeqCst);
            self.end = end;
        }
    }
}

/// Returns the stack of a thread that has its control block on it: every one but the first.
fn own() -> Option<(u64, u64)> {
    // SAFETY: the calling thread's handle, which with this C library is the address of its control block.
    let block = unsafe { libc::pthread_self() } as u64;
    let size = CONTROL.load(Ordering::Relaxed);
    // SAFETY: within the calling thread's own control block, of which others write no word that is looked
    // for.
    let word = |at: usize| unsafe {
        std::ptr::with_exposed_provenance::<u64>(block as usize + 8 * at).read_volatile()
    };
    // Address, size, and the size of the guard at the lower end.
    (0..(size / 8).saturating_sub(2)).find_map(|at| {
        let (start, length, guard) = (word(at), word(at + 1), word(at + 2));
        let end = start.checked_add(length)?;
        let is = start != 0
            && start < block
            && block + size as u64 <= end
            && end - block <= size as u64 + ABOVE
            && guard < length
            && guard.is_multiple_of(PAGE);
        is.then(|| (start + guard, end))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> (u64, u64) {
        // SAFETY: as the C library documents.
        unsafe {
            let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
            let (mut start, mut size) = (std::ptr::null_mut(), 0);
            assert_eq!(libc::pthread_getattr_np(libc::pthread_self(), &mut attributes), 0);
            assert_eq!(libc::pthread_attr_getstack(&attributes, &mut start, &mut size), 0);
            libc::pthread_attr_destroy(&mut attributes);
            (start.addr() as u64, start.addr() as u64 + size as u64)
        }
    }

    #[test]
    fn the_stack_is_where_the_c_library_says() {
        arm();
        for kilobytes in [64, 256, 2048, 10_000] {
            let thread = std::thread::Builder::new().stack_size(kilobytes << 10);
            let found = thread.spawn(|| (own(), asked())).unwrap().join().unwrap();
            let (start, end) = found.0.expect("this thread's stack");
            let expected = found.1;
            assert!(start >= expected.0 && end == expected.1, "{found:x?}");
            assert!(start - expected.0 <= 16 * PAGE, "{found:x?}");
        }
    }
}
