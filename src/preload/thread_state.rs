//! What every thread has of its own: one block of plain data, reached without a function call, and the pages
//! behind it.
//!
//! Nothing in it has a destructor: a hook may run after the thread's destructors have. The pages hang on the
//! block by a pointer and are unmapped when the thread ends; events after that do without. Every field is a
//! cell: a hook may run inside another one of its thread, so that there is never more than a shared reference
//! to the block. Knows nothing of what the words mean to others.

use std::cell::{Cell, UnsafeCell};
use std::ffi::c_char;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence};

use once_cell::race::OnceBox;

use crate::coverage_gaps;
use crate::lock::{Mutex, Rank};
use crate::machine;
use crate::state;
use crate::unwind::LastWalk;
use crate::writer::recording;
use crate::writer::recording::Cursor;
use leaktrace_core::format::event::Event;

/// A node of a graph that a thread evaluates, in a backward pass.
#[derive(Clone, Copy)]
pub struct BackwardContext {
    /// The mangled name of the node's type; may be null.
    pub name: *const c_char,
    /// The stack of the forward operation that made the node; 0: not known.
    pub forward: u32,
}

/// The block of a thread; all zero at first.
#[repr(C)]
pub struct ThreadState {
    /// How deep in hooks this thread is: what our own work does is not an event.
    pub depth: Cell<u32>,
    /// Count of the driver's events, which begins anew now and then, and what it was when CuPy's pool was asked for a block.
    pub driver_events: Cell<u16>,
    pub driver_events_at_request: Cell<u16>,
    pub runtime_entry_point: Cell<u16>,
    /// An optimizer's post hook ran since its step began.
    pub optimizer_hooked: Cell<bool>,
    /// It was tried to add a hook to CuPy's of this thread.
    pub cupy_hooked: Cell<bool>,
    /// The framework's number of this thread; 0: not asked yet.
    pub framework_id: Cell<u32>,
    /// The address that the runtime call under way was recorded to free.
    pub freeing: Cell<u64>,
    /// The node that this thread evaluates in a backward pass, in the frame that does; null: none.
    pub backward: Cell<*const BackwardContext>,
    cursor: UnsafeCell<Cursor>,
    /// Null before the first stack, [`UNMAPPED`] once the thread is ending.
    pages: Cell<*mut Pages>,
}

/// Stands for the pages of a thread that is ending.
const UNMAPPED: *mut Pages = ptr::without_provenance_mut(1);

/// Slots of a thread's stack cache. A power of two.
const SLOTS: usize = 4096;

/// What a thread needs to take stacks; all zero at first.
struct Pages {
    /// Odd inside a read section (see [`ThreadState::read_section`]). Written by its thread only.
    reading: AtomicU32,
    /// Stack ids by hash, direct-mapped.
    stacks: [Cell<Slot>; SLOTS],
    last_walk: UnsafeCell<LastWalk>,
    /// See [`ThreadState::note_allocation`] and [`ThreadState::note_work`].
    allocated_at: Cell<u64>,
    worked_at: Cell<u64>,
    /// Words that were looked up for an address, direct-mapped.
    words: [Cell<Word>; WORDS],
}

/// Slots of a thread's looked up words. A power of two.
const WORDS: usize = 256;

/// A word that was found for an address other than zero, in an epoch.
#[derive(Clone, Copy)]
struct Word {
    address: u64,
    epoch: u64,
    word: u64,
}

impl Pages {
    /// Whether their thread reads Python's memory, or walks its stack.
    fn is_in_use(&self) -> bool {
        // SAFETY: asked by the thread that walks, about one word.
        self.reading.load(Ordering::Relaxed) % 2 == 1 || unsafe { LastWalk::is_busy(self.last_walk.get()) }
    }

    /// Ends what was under way.
    fn recover(&self) {
        let reading = self.reading.load(Ordering::Relaxed);
        self.reading.store(reading.wrapping_add(reading % 2), Ordering::Release);
        // SAFETY: the frames that walked are gone.
        unsafe { LastWalk::abandon(self.last_walk.get()) };
    }
}

#[derive(Clone, Copy)]
struct Slot {
    hash: u64,
    id: u32,
}

/// Mixed into every hash, so that moving it on makes each thread's stack cache forget all it holds.
#[unsafe(link_section = ".data.leaktrace")]
static EPOCH: AtomicU64 = AtomicU64::new(1);

/// The epoch of the stack caches. Whoever sees a code object or a module at a reused address also sees an
/// epoch later than the one in which another was there.
#[inline(always)]
pub fn epoch() -> u64 {
    EPOCH.load(Ordering::Acquire)
}

/// Makes every thread's stack cache forget: the next stacks are looked up by what they are made of.
pub fn forget_stacks() {
    EPOCH.fetch_add(1, Ordering::AcqRel);
}

impl ThreadState {
    /// A number that no other living thread has.
    #[inline(always)]
    pub fn address(&self) -> usize {
        ptr::from_ref(self).addr()
    }

    /// Hands the thread's cursor in the recording to the writer.
    #[inline(always)]
    pub fn with_cursor<R>(&self, write: impl FnOnce(&mut Cursor) -> R) -> R {
        // SAFETY: nobody but the calling thread reaches its block, and only the writer is handed the cursor. It
        // calls itself in a signal handler only, where it leaves a cursor in use alone.
        write(unsafe { &mut *self.cursor.get() })
    }

    /// Appends an event where that takes neither a lock nor a call. Without a closure, which the compiler may leave a call of
    /// its own. `false`: it was not appended.
    #[inline(always)]
    pub fn append_in_segment(&self, event: &Event) -> bool {
        // SAFETY: as in [`ThreadState::with_cursor`].
        recording::append_in_segment(unsafe { &mut *self.cursor.get() }, event)
    }

    /// Leaves the call of the runtime under way, which will not return.
    pub fn leave_call(&self) {
        self.freeing.set(0);
        self.runtime_entry_point.set(0);
    }

    /// Whether this thread is in the middle of a hook's work, below a signal handler, or in what a hook has
    /// called.
    pub fn is_inside(&self) -> bool {
        self.depth.get() != 0
            || self.runtime_entry_point.get() != 0
            || self.is_appending()
            || self.pages().is_some_and(|pages| pages.is_in_use())
    }

    /// Puts back what frames of hooks had changed that a jump has left. `others_stay`: hooks further out go on.
    pub fn leave_frames(&self, others_stay: bool) {
        self.with_cursor(recording::recover);
        if let Some(pages) = self.pages() {
            pages.recover();
        }
        // Those further out restore it when they end.
        if !others_stay {
            self.depth.set(0);
            self.backward.set(ptr::null());
            self.leave_call();
        }
    }

    /// Whether this thread is in the middle of appending an event, below a signal handler.
    pub fn is_appending(&self) -> bool {
        self.with_cursor(|cursor| cursor.is_in_use())
    }

    /// Returns the stack id remembered for a hash; 0 if there is none.
    #[inline(always)]
    pub fn cached_stack(&self, hash: u64) -> u32 {
        let Some(pages) = self.pages() else { return 0 };
        let slot = pages.stacks[hash as usize % SLOTS].get();
        if slot.hash == hash { slot.id } else { 0 }
    }

    /// Remembers the stack id of a hash.
    pub fn remember_stack(&self, hash: u64, id: u32) {
        self.map_pages();
        if let Some(pages) = self.pages() {
            pages.stacks[hash as usize % SLOTS].set(Slot { hash, id });
        }
    }

    /// Returns the word that was found for an object's address in an epoch, if it is remembered.
    pub fn remembered(&self, address: u64, epoch: u64) -> Option<u64> {
        let known = self.pages()?.words[word_slot(address)].get();
        (known.address == address && known.epoch == epoch).then_some(known.word)
    }

    /// Remembers the word that was found for an object's address in an epoch.
    pub fn remember(&self, address: u64, epoch: u64, word: u64) {
        if let Some(pages) = self.pages() {
            pages.words[word_slot(address)].set(Word { address, epoch, word });
        }
    }

    /// Notes where this thread's Python stood when it allocated: what it computes there next is for that.
    #[inline(always)]
    pub fn note_allocation(&self, place: u64) {
        if let Some(pages) = self.pages() {
            pages.allocated_at.set(place);
        }
    }

    /// Notes that this thread gives the device work.
    pub fn note_work(&self) {
        if let Some(pages) = self.pages() {
            pages.worked_at.set(self.position());
        }
    }

    /// Returns whether that is the first work since it allocated something at the place where it stands.
    pub fn has_allocated_here(&self, place: impl FnOnce() -> u64) -> bool {
        self.pages().is_some_and(|pages| {
            pages.worked_at.get() != self.position() && pages.allocated_at.get() == place()
        })
    }

    /// Returns what tells whether the thread has appended an event since.
    fn position(&self) -> u64 {
        self.with_cursor(|cursor| cursor.position())
    }

    /// Returns what native unwinding keeps of this thread; null if there is no memory for it.
    #[inline(always)]
    pub fn last_walk(&self) -> *mut LastWalk {
        self.map_pages();
        self.pages().map_or(ptr::null_mut(), |pages| pages.last_walk.get())
    }

    /// Reads Python's memory: until `read` is done the interpreter does not go away, as in an RCU read-side
    /// critical section. `None`: the thread must not read, because nobody would see that it does.
    #[inline(always)]
    pub fn read_section<R>(&self, read: impl FnOnce() -> R) -> Option<R> {
        self.map_pages();
        let reading = &self.pages()?.reading;
        let toggle = || {
            compiler_fence(Ordering::SeqCst);
            reading.store(reading.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
            compiler_fence(Ordering::SeqCst);
        };
        toggle();
        let result = read();
        toggle();
        Some(result)
    }

    #[inline(always)]
    fn map_pages(&self) {
        if self.pages.get().is_null() {
            self.pages.set(map_pages());
        }
    }

    #[inline(always)]
    fn pages(&self) -> Option<&Pages> {
        let pages = self.pages.get();
        // SAFETY: any other pointer is what `map_pages` mapped. Only this very thread unmaps it, at its end,
        // and others look at `reading` alone, which is atomic.
        (pages.addr() > UNMAPPED.addr()).then(|| unsafe { &*pages })
    }
}

fn word_slot(address: u64) -> usize {
    ((address >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % WORDS
}

/// 1 + the key whose destructor unmaps the pages; 0 before [`arm`].
static KEY: AtomicU64 = AtomicU64::new(0);

/// Has the memory of threads given back when they end. Once; outside hooks.
pub fn arm() {
    if KEY.load(Ordering::Acquire) != 0 {
        return;
    }
    let mut key = 0;
    // SAFETY: `key` is ours to write; the destructor stands for as long as this library, which is never
    // unloaded.
    if unsafe { libc::pthread_key_create(&mut key, Some(thread_ends)) } == 0 {
        KEY.store(key as u64 + 1, Ordering::Release);
    }
}

/// Has [`thread_ends`] called when the calling thread ends. Returns false if that is impossible.
pub fn watch() -> bool {
    let key = KEY.load(Ordering::Acquire);
    // SAFETY: the key exists; its value only has to differ from null.
    key != 0
        && unsafe {
            libc::pthread_setspecific((key - 1) as libc::pthread_key_t, ptr::dangling::<u64>().cast()) == 0
        }
}

#[cold]
fn map_pages() -> *mut Pages {
    if !watch() {
        return UNMAPPED;
    }
    // SAFETY: fresh private memory, zeroed by the kernel: all-zero `Pages` are empty ones.
    let map = unsafe {
        libc::mmap(
            ptr::null_mut(),
            size_of::<Pages>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if map == libc::MAP_FAILED {
        return ptr::null_mut();
    }
    let Some(mut all) = MAPPED.lock() else {
        // SAFETY: just mapped; nobody knows of it.
        unsafe { libc::munmap(map, size_of::<Pages>()) };
        return ptr::null_mut();
    };
    if all.len() >= MAX_MAPPED {
        drop(all);
        // SAFETY: as above.
        unsafe { libc::munmap(map, size_of::<Pages>()) };
        coverage_gaps::many_threads();
        return UNMAPPED;
    }
    all.push(map.expose_provenance());
    map.cast()
}

/// The threads that have pages at one time: some 20 KiB each.
const MAX_MAPPED: usize = 1024;

/// The pages of all living threads.
pub static MAPPED: Mutex<Vec<usize>> = Mutex::new(Rank::ThreadPages, Vec::new());

/// The threads that were in a read section at some moment.
pub struct Readers(Vec<(usize, u32)>);

impl Readers {
    pub fn now() -> Readers {
        let all = MAPPED.lock();
        let all = all.iter().flat_map(|all| all.iter());
        Readers(all.map(|&pages| (pages, reading(pages))).filter(|(_, n)| n % 2 == 1).collect())
    }

    /// True once each of them has left its section, if only to enter another.
    pub fn are_done(&mut self) -> bool {
        let Some(all) = MAPPED.lock() else { return true };
        self.0.retain(|&(pages, n)| all.contains(&pages) && reading(pages) == n);
        self.0.is_empty()
    }
}

/// Returns the count of pages that are in the list, whose lock is held.
fn reading(pages: usize) -> u32 {
    // SAFETY: mapped for as long as they are in the list.
    unsafe { (*ptr::with_exposed_provenance::<Pages>(pages)).reading.load(Ordering::Acquire) }
}

/// In a forked child: only the calling thread is left.
pub fn after_fork_child() {
    let Some(mut all) = MAPPED.lock() else { return };
    let own = current().pages.get().addr();
    all.retain(|&pages| pages == own);
}

/// Calls back when a thread ends that took stacks, with its address.
static ENDS: OnceBox<fn(usize)> = OnceBox::new();

/// Has this called then. Once.
pub fn set_end_callback(callback: fn(usize)) {
    // The first one stays.
    let _ = ENDS.set(Box::new(callback));
}

unsafe extern "C" fn thread_ends(_: *mut libc::c_void) {
    if state::is_foreign_child() {
        return;
    }
    let thread = current();
    ENDS.get().into_iter().for_each(|ended| ended(thread.address()));
    let pages = thread.pages.replace(UNMAPPED);
    if pages.addr() > UNMAPPED.addr() {
        MAPPED.lock().into_iter().for_each(|mut all| all.retain(|&other| other != pages.addr()));
        // SAFETY: this thread's own pages, which nobody finds any more.
        unsafe { libc::munmap(pages.cast(), size_of::<Pages>()) };
    }
    thread.with_cursor(recording::release);
}

/// Appends an event that the calling thread has from outside a hook: boundaries and the like.
pub fn append(event: &Event) -> bool {
    current().with_cursor(|cursor| recording::append(cursor, event))
}

/// Runs what calls the driver for our own purposes: nothing in it is an event.
#[inline]
pub fn without_events<R>(ours: impl FnOnce() -> R) -> R {
    /// Restores the depth, also where an unwinding passes: a cancelled thread runs destructors that allocate.
    struct Deeper(u32);
    impl Drop for Deeper {
        #[inline]
        fn drop(&mut self) {
            current().depth.set(self.0);
        }
    }
    let depth = &current().depth;
    let _deeper = Deeper(depth.replace(depth.get() + 1));
    ours()
}

// Initial-exec TLS: a preloaded library is part of the static block, so the address is one load and one add,
// and the first use on a thread allocates nothing (the dynamic model may call malloc there).
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

const _: () = assert!(size_of::<ThreadState>() <= 64);

/// Returns the calling thread's block.
#[inline(always)]
pub fn current() -> &'static ThreadState {
    // SAFETY: the block is zeroed, which is a value of every field, and is never freed before its thread is gone;
    // since it is not `Sync`, the reference does not leave the thread.
    unsafe { &*machine::thread_block().cast() }
}
