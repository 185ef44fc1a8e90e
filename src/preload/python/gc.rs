//! Whether the cyclic garbage collector is running, read raw: a block that is freed meanwhile was garbage that nothing
//! but the collector would have freed. Knows where that flag lies, and changes nothing.
//!
//! CPython 3.8 to 3.13 keep the collector's state in one structure without a name to look up. It is found by its shape:
//! a pointer to the array of generations stands right behind that array, so it points 72 bytes before itself.
//!
//! ```text
//!   generations: 3 × { next, prev, threshold | count }     9 words
//!   generation0 = &generations[0]                          1 word  ← found by this
//!   permanent: { next, prev, threshold | count }           3 words
//!   stats: 3 × { collections, collected, uncollectable }   9 words
//!   collecting                                             1 int
//! ```

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering::*};

use crate::interpose::trampolines;

const GENERATIONS: usize = 9;
const STATS: usize = 4;
const COLLECTING: usize = 13;
/// Far more than the part of the interpreter's state that comes before the collector's.
const SEARCHED: usize = 64 << 10;
/// More collections than any process lives to see: what is larger is no count.
const MANY: u64 = 1 << 40;

/// The interpreter's own flag; null: not found, and nothing is said to be garbage.
#[unsafe(link_section = ".data.leaktrace")]
static FLAG: AtomicPtr<AtomicI32> = AtomicPtr::new(std::ptr::null_mut());
static SEARCHED_FOR: AtomicBool = AtomicBool::new(false);

/// True while the collector runs. On the thread that frees, which holds the GIL if the collector does.
#[inline(always)]
pub fn collecting() -> bool {
    let flag = FLAG.load(Relaxed);
    // SAFETY: null, or an aligned `int` of the interpreter's own state, which is never given back.
    !flag.is_null() && unsafe { (*flag).load(Relaxed) } == 1
}

/// Looks for the flag, once. With the GIL held, so that no collection is under way.
pub fn arm() {
    if SEARCHED_FOR.swap(true, AcqRel) {
        return;
    }
    let Some(dlsym) = trampolines::real_dlsym() else { return };
    // SAFETY: asks for a name.
    let symbol = |name: &CStr| unsafe { dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    let main = symbol(c"PyInterpreterState_Main");
    let interpreter = if main.is_null() {
        std::ptr::null_mut()
    } else {
        // SAFETY: the documented signature; returns the main interpreter's state, which lives as long as the process.
        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> *mut c_void>(main)() }
    };
    // 3.8 keeps it in the runtime's state, later ones in the interpreter's.
    for state in [interpreter, symbol(c"_PyRuntime")] {
        if let Some(flag) = search(state as usize) {
            return FLAG.store(flag as *mut AtomicI32, Release);
        }
    }
}

fn search(start: usize) -> Option<usize> {
    let mut words = vec![0_u64; SEARCHED / 8];
    let into = libc::iovec { iov_base: words.as_mut_ptr().cast(), iov_len: SEARCHED };
    let from = libc::iovec { iov_base: start as *mut c_void, iov_len: SEARCHED };
    // The kernel copies: what is not mapped is an answer and no fault. Where the call is forbidden nothing is found.
    // SAFETY: both describe memory of this process; `words` is as long as it says.
    let copied = unsafe { libc::process_vm_readv(libc::getpid(), &into, 1, &from, 1, 0) };
    let copied = usize::try_from(copied).ok().filter(|_| start != 0)?;
    find(&words[..copied / 8], start).map(|at| start + at * 8)
}

/// The index of the word that holds the flag, in a copy of what lies at `start`.
fn find(words: &[u64], start: usize) -> Option<usize> {
    let generation0 = |&i: &usize| words[i] == (start + (i - GENERATIONS) * 8) as u64;
    let plausible = |&i: &usize| {
        let lists = [i - 9, i - 8, i - 6, i - 5, i - 3, i - 2, i + 1, i + 2];
        let stats = words[i + STATS..i + COLLECTING].iter();
        lists.iter().all(|&at| words[at] != 0 && words[at].is_multiple_of(8))
            && stats.copied().all(|n| n < MANY)
            && words[i + COLLECTING] as c_int == 0
    };
    let mut places = (GENERATIONS..words.len().saturating_sub(COLLECTING)).filter(generation0);
    places.find(plausible).map(|i| i + COLLECTING)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn found_by_its_shape() {
        let start = 0x7000_0000;
        let mut words = vec![0x1_u64; 500];
        let at = |i: usize| (start + i * 8) as u64;
        assert_eq!(find(&words, start), None);
        let g = 100;
        for list in 0..4 {
            let i = g + list * 3 + usize::from(list == 3);
            (words[i], words[i + 1], words[i + 2]) = (at(i), at(i), 700);
        }
        words[g + 9] = at(g);
        words[g + 22] = 0;
        assert_eq!(find(&words, start), Some(g + 22));
        words[g + 13] = u64::MAX;
        assert_eq!(find(&words, start), None);
        assert_eq!(find(&words[..g + 15], start), None);
    }
}
