//! What every thread has of its own: one block of plain data, reached without a function call.
//!
//! Nothing in it has a destructor: a hook may run after the thread's destructors have. The cache hangs on it by a
//! pointer and goes with the thread; events after that do without. Knows nothing of what the words mean to others.

use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence};
use std::sync::{Mutex, MutexGuard};

use crate::stacks::stack_interner::lock;
use crate::unwind::Previous;
use crate::writer::recording;
use crate::writer::recording::Cursor;

/// The block of a thread; all zero at first.
#[repr(C)]
pub struct Thread {
    /// How deep in hooks this thread is: what our own work does is not an event.
    pub depth: u32,
    pub driver_events: u32,
    pub runtime_entry_point: u16,
    /// An optimizer's post hook ran since its step began.
    pub optimizer_hooked: bool,
    /// What PyTorch calls this thread; 0: not asked yet.
    pub torch_id: u32,
    /// The address that the runtime call under way was noted to free.
    pub freeing: u64,
    /// The node of the autograd graph that this thread evaluates; 0: none.
    pub node: usize,
    /// This thread's place in the recording.
    pub cursor: Cursor,
    /// The cache of stacks; null before the first stack, [`GONE`] once the thread is ending.
    stacks: *mut Cache,
}

/// Marks a thread whose cache was taken back.
const GONE: *mut Cache = ptr::without_provenance_mut(1);

/// Stack ids by hash, direct-mapped. A power of two.
const PLACES: usize = 4096;

struct Cache {
    /// Odd while this thread reads Python's memory: the interpreter must not go away yet. Written by its thread only.
    reading: AtomicU32,
    places: [Place; PLACES],
    /// What native unwinding keeps.
    native: Previous,
}

#[derive(Clone, Copy)]
struct Place {
    hash: u64,
    id: u32,
}

impl Thread {
    /// The id remembered for a hash; 0 if none.
    #[inline(always)]
    pub(crate) fn cached(&self, hash: u64) -> u32 {
        if self.stacks.addr() <= GONE.addr() {
            return 0;
        }
        // SAFETY: beyond `GONE` it is what `remember` mapped, unmapped only by this very thread's exit; nobody else has it.
        let place = unsafe { &(&(*self.stacks).places)[hash as usize % PLACES] };
        if place.hash == hash { place.id } else { 0 }
    }

    pub(crate) fn remember(&mut self, hash: u64, id: u32) {
        self.prepare();
        if self.stacks.addr() > GONE.addr() {
            // SAFETY: as in `cached`.
            unsafe { (&mut (*self.stacks).places)[hash as usize % PLACES] = Place { hash, id } };
        }
    }

    /// What native unwinding keeps of this thread; null if there is no place for it.
    #[inline(always)]
    pub(crate) fn native(&mut self) -> *mut Previous {
        self.prepare();
        if self.stacks.addr() <= GONE.addr() {
            return ptr::null_mut();
        }
        // SAFETY: as in `cached`.
        unsafe { &raw mut (*self.stacks).native }
    }

    #[inline(always)]
    fn prepare(&mut self) {
        if self.stacks.is_null() {
            self.stacks = map_cache();
        }
    }

    /// Says that this thread reads Python's memory from here until [`Self::end_reading`]. `false`: it must not, because
    /// nobody would see that it does.
    #[inline(always)]
    pub(crate) fn begin_reading(&mut self) -> bool {
        self.prepare();
        self.turn()
    }

    #[inline(always)]
    pub(crate) fn end_reading(&mut self) {
        self.turn();
    }

    #[inline(always)]
    fn turn(&self) -> bool {
        if self.stacks.addr() <= GONE.addr() {
            return false;
        }
        // SAFETY: as in `cached`; others only look at this word, which is atomic.
        let reading = unsafe { &(*self.stacks).reading };
        compiler_fence(Ordering::SeqCst);
        reading.store(reading.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
        compiler_fence(Ordering::SeqCst);
        true
    }
}

/// 1 + the key whose destructor takes the cache back; 0 before [`arm`].
static KEY: AtomicU64 = AtomicU64::new(0);

pub(crate) fn arm() {
    if KEY.load(Ordering::Acquire) != 0 {
        return;
    }
    let mut key = 0;
    // SAFETY: `key` is ours to write; the destructor stands for as long as this library, which is never unloaded.
    if unsafe { libc::pthread_key_create(&mut key, Some(thread_ends)) } == 0 {
        KEY.store(key as u64 + 1, Ordering::Release);
    }
}

/// Has [`thread_ends`] called when the calling thread ends. `false`: it cannot be.
pub fn watch() -> bool {
    let key = KEY.load(Ordering::Acquire);
    // SAFETY: the key exists; its value only has to differ from null.
    key != 0
        && unsafe {
            libc::pthread_setspecific((key - 1) as libc::pthread_key_t, ptr::dangling::<u64>().cast()) == 0
        }
}

#[cold]
fn map_cache() -> *mut Cache {
    if !watch() {
        return GONE;
    }
    // SAFETY: fresh private memory, zeroed by the kernel: an all-zero `Cache` is an empty one.
    let map = unsafe {
        libc::mmap(
            ptr::null_mut(),
            size_of::<Cache>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if map == libc::MAP_FAILED {
        return ptr::null_mut();
    }
    lock(&CACHES).push(map.expose_provenance());
    map.cast()
}

/// The caches of all living threads.
static CACHES: Mutex<Vec<usize>> = Mutex::new(Vec::new());

pub(crate) type Guard = MutexGuard<'static, Vec<usize>>;

/// The threads that read Python's memory at this moment.
pub(crate) struct Readers(Vec<(usize, u32)>);

impl Readers {
    pub fn now() -> Readers {
        let reading =
            lock(&CACHES).iter().map(|&cache| (cache, turns(cache))).filter(|(_, n)| n % 2 == 1).collect();
        Readers(reading)
    }

    /// Whether each of them has stopped since, if only to begin again.
    pub fn are_done(&mut self) -> bool {
        let caches = lock(&CACHES);
        self.0.retain(|&(cache, n)| caches.contains(&cache) && turns(cache) == n);
        self.0.is_empty()
    }
}

/// A cache in the list, whose lock is held.
fn turns(cache: usize) -> u32 {
    // SAFETY: mapped for as long as it is in the list.
    unsafe { (*ptr::with_exposed_provenance::<Cache>(cache)).reading.load(Ordering::Acquire) }
}

pub(crate) fn lock_all() -> Guard {
    lock(&CACHES)
}

/// In a forked child: only the calling thread is left.
pub(crate) fn forget(caches: &mut Guard) {
    // SAFETY: the calling thread's own block.
    let own = unsafe { (*thread()).stacks };
    caches.retain(|&cache| cache == own.addr());
}

unsafe extern "C" fn thread_ends(_: *mut libc::c_void) {
    // SAFETY: runs on the ending thread, whose static TLS outlives its key destructors; cache and cursor are its own.
    unsafe {
        let thread = &mut *thread();
        let cache = std::mem::replace(&mut thread.stacks, GONE);
        if cache.addr() > GONE.addr() {
            lock(&CACHES).retain(|&other| other != cache.addr());
            libc::munmap(cache.cast(), size_of::<Cache>());
        }
        recording::release(&mut thread.cursor);
    }
}

// Initial-exec TLS: a preloaded library has its place in the static block, so the address is one load and one add,
// and the first use on a thread allocates nothing (the dynamic model may call malloc there).
#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".pushsection .tbss.leaktrace,\"awT\",@nobits",
    ".globl leaktrace_thread_block",
    ".hidden leaktrace_thread_block",
    ".type leaktrace_thread_block,@object",
    ".size leaktrace_thread_block,64",
    ".p2align 6",
    "leaktrace_thread_block:",
    ".zero 64",
    ".popsection",
);

#[cfg(target_arch = "x86_64")]
const _: () = assert!(size_of::<Thread>() <= 64);

/// The calling thread's block.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn thread() -> *mut Thread {
    let block: *mut Thread;
    // SAFETY: the psABI's initial-exec sequence: the GOT holds the block's offset from the thread pointer at fs:0. Both are the
    // same for as long as the thread lives.
    unsafe {
        std::arch::asm!(
            "mov {0}, qword ptr [rip + leaktrace_thread_block@GOTTPOFF]",
            "add {0}, qword ptr fs:[0]",
            out(reg) block,
            options(pure, nomem, nostack),
        );
    }
    block
}

/// `pthread_self()`. glibc's is the thread pointer itself.
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
#[inline(always)]
pub(crate) fn own_id() -> u64 {
    let pointer: u64;
    // SAFETY: the psABI: the thread pointer stands at fs:0.
    unsafe { std::arch::asm!("mov {0}, qword ptr fs:[0]", out(reg) pointer, options(pure, nomem, nostack)) };
    pointer
}

#[cfg(not(all(target_arch = "x86_64", target_env = "gnu")))]
#[inline(always)]
pub(crate) fn own_id() -> u64 {
    // SAFETY: asks for the calling thread's id.
    unsafe { libc::pthread_self() as u64 }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub fn thread() -> *mut Thread {
    use std::cell::UnsafeCell;
    thread_local! {
        static BLOCK: UnsafeCell<Thread> = const {
            UnsafeCell::new(Thread {
                depth: 0,
                driver_events: 0,
                runtime_entry_point: 0,
                optimizer_hooked: false,
                torch_id: 0,
                freeing: 0,
                node: 0,
                cursor: Cursor::NONE,
                stacks: ptr::null_mut(),
            })
        };
    }
    BLOCK.with(|block| block.get())
}
