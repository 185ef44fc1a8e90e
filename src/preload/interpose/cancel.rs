//! The interposers of `pthread_setcanceltype` and `pthread_cancel`, for threads that may be cancelled at any moment
//! (`PTHREAD_CANCEL_ASYNCHRONOUS`). The C library unwinds such a thread from whatever instruction it is at, and no
//! unwinding may begin at one of ours: the process would be aborted. So whoever cancels such a thread has it look
//! first, in a handler of the C library's own signal for this, whether it is inside of a hook, and asks again
//! until it is not; then the thread cancels itself. Every other thread is cancelled as ever.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use std::time::{Duration, Instant};

use crate::loader::functions::LoaderFunction;
use crate::loader::link_map;
use crate::machine;
use crate::writer::signals::Undisturbed;

unsafe extern "C" {
    fn _Unwind_Backtrace(step: extern "C" fn(*mut c_void, *mut c_void) -> c_int, to: *mut c_void) -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
}

const CANCEL_NAME: &CStr = c"pthread_cancel";
const TYPE_NAME: &CStr = c"pthread_setcanceltype";
static CANCEL: LoaderFunction = LoaderFunction::new();
static SET_TYPE: LoaderFunction = LoaderFunction::new();

/// glibc's own signal for it, which no program can block or set a handler for.
const SIGNAL: usize = 32;
const ASYNCHRONOUS: c_int = 1;

/// How long a thread is waited for: to answer, and to leave a hook.
const PATIENCE: Duration = Duration::from_secs(2);

/// A thread that may be cancelled at any moment: as the C library and as the kernel knows it.
struct Thread {
    id: AtomicU64,
    number: AtomicU32,
}

/// More of them at one time are cancelled as they would be without us.
static THREADS: [Thread; 256] =
    [const { Thread { id: AtomicU64::new(FREE), number: AtomicU32::new(0) } }; 256];
const FREE: u64 = 0;
const TAKEN: u64 = 1;

/// Looks the functions up: a signal handler may not ask the loader.
pub fn look_up() {
    CANCEL.next(CANCEL_NAME);
    SET_TYPE.next(TYPE_NAME);
}

/// # Safety
/// That of the C library's function.
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, unsafe(export_name = "unhooked_pthread_setcanceltype"))]
unsafe extern "C" fn pthread_setcanceltype() {
    machine::tail_jump!(before_type)
}

/// # Safety
/// That of the C library's function.
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, unsafe(export_name = "unhooked_pthread_cancel"))]
unsafe extern "C" fn pthread_cancel() {
    machine::tail_jump!(before_cancel)
}

fn process() -> u32 {
    std::process::id()
}

/// Sends the signal, or (0) none, to a thread of this process. `false`: there is no such thread.
fn send(number: u32, signal: usize) -> bool {
    // SAFETY: numbers only.
    unsafe { libc::syscall(libc::SYS_tgkill, process(), number, signal) == 0 }
}

/// Notes the type that the calling thread is about to have; returns where it goes on.
extern "C" fn before_type(kind: c_int) -> *const c_void {
    // SAFETY: asks for the calling thread.
    let (own, number) = unsafe { (libc::pthread_self() as u64, libc::gettid() as u32) };
    let known = THREADS.iter().find(|thread| thread.id.load(Acquire) == own);
    match known {
        Some(thread) if kind == ASYNCHRONOUS => thread.number.store(number, Release),
        Some(thread) => thread.id.store(FREE, Release),
        None if kind == ASYNCHRONOUS => {
            let taken = THREADS.iter().find(|thread| {
                let id = thread.id.load(Acquire);
                let is_over = || id > TAKEN && !send(thread.number.load(Acquire), 0);
                (id == FREE || is_over()) && thread.id.compare_exchange(id, TAKEN, AcqRel, Relaxed).is_ok()
            });
            if let Some(thread) = taken {
                thread.number.store(number, Release);
                thread.id.store(own, SeqCst);
                await_calls();
            }
        }
        None => {}
    }
    SET_TYPE.next(TYPE_NAME)
}

/// How many calls of `pthread_cancel` are under way whose thread may not have been in the list; in the upper half
/// the process that makes them, as a parent's are none here.
static CALLS: AtomicU64 = AtomicU64::new(0);

/// Returns the calls of this process, by what [`CALLS`] has.
fn calls_here(all: u64) -> u64 {
    let here = u64::from(process()) << 32;
    if all & !u64::from(u32::MAX) == here { all } else { here }
}

/// Waits for the calls that looked before this thread was in the list. To them it is one that is cancelled where it
/// says so; if it were in a hook by then, with cancellation disabled, it would be cancelled there when that ends.
fn await_calls() {
    let until = Instant::now() + PATIENCE;
    while calls_here(CALLS.load(SeqCst)) as u32 > 0 && Instant::now() < until {
        std::thread::yield_now();
    }
}

/// Cancels a thread; returns where the call goes on.
extern "C" fn before_cancel(id: u64) -> *const c_void {
    extern "C" fn done(_: u64) -> c_int {
        0
    }
    let real = CANCEL.next(CANCEL_NAME);
    // SAFETY: asks for the calling thread.
    if id == unsafe { libc::pthread_self() as u64 } {
        return real;
    }
    let _ = CALLS.fetch_update(SeqCst, SeqCst, |all| Some(calls_here(all) + 1));
    let known = THREADS.iter().find(|thread| thread.id.load(SeqCst) == id);
    let is_done = known.is_none() && {
        // SAFETY: the C library's function, called with what the program gave it.
        unsafe {
            let real: extern "C" fn(u64) -> c_int = std::mem::transmute(real);
            real(id) == 0
        }
    };
    let _ = CALLS.fetch_update(SeqCst, SeqCst, |all| {
        let calls = calls_here(all);
        Some(if calls as u32 > 0 { calls - 1 } else { calls })
    });
    match known {
        Some(thread) if ask(thread.number.load(Acquire)) => {
            thread.id.store(FREE, Release);
            done as *const c_void
        }
        None if is_done => done as *const c_void,
        // It has an error to return, or is to cancel a thread that does not answer.
        _ => real,
    }
}

/// The thread that is asked, and what it answers.
static ANSWER: AtomicU64 = AtomicU64::new(0);
const WAITING: u64 = 1;
const INSIDE: u64 = 2;
const LEAVING: u64 = 3;
/// The process in which a thread asks another, one at a time.
static ASKING: AtomicU32 = AtomicU32::new(0);

/// Has a thread cancel itself once it is outside of every hook. `false`: it does not answer, or stays inside.
fn ask(number: u32) -> bool {
    const PAUSE: Duration = Duration::from_micros(50);
    let _undisturbed = Undisturbed::begin();
    let until = Instant::now() + PATIENCE;
    let is_over = || Instant::now() > until;
    // A parent's claim is none here.
    while ASKING.fetch_update(AcqRel, Acquire, |by| (by != process()).then(process)).is_err() {
        if is_over() {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
    let question = u64::from(number) << 2;
    let mut answer = INSIDE;
    while answer == INSIDE && !is_over() {
        ANSWER.store(question | WAITING, Release);
        if !install() || !send(number, SIGNAL) {
            break;
        }
        answer = WAITING;
        while answer == WAITING && !is_over() {
            std::thread::sleep(PAUSE);
            answer = ANSWER.load(Acquire) - question;
        }
    }
    ANSWER.store(0, Release);
    ASKING.store(0, Release);
    answer == LEAVING
}

/// The kernel's `struct sigaction`.
#[repr(C)]
#[derive(Default)]
struct Action {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

/// The C library's handler, which ours stands before; 0: none yet.
static BEFORE: AtomicUsize = AtomicUsize::new(0);

/// Puts our handler before the C library's, which it puts in when the first thread is cancelled. `false`: that
/// cannot be done.
fn install() -> bool {
    const SA_RESTORER: u64 = 0x0400_0000;
    let change = |new: *const Action, old: *mut Action| {
        // SAFETY: structures as the kernel has them, or null. The C library's own function refuses this signal.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, SIGNAL, new, old, size_of::<u64>()) == 0 }
    };
    let ours: extern "C-unwind" fn(c_int, *mut c_void, *mut c_void) = on_cancel;
    let mut before = Action::default();
    if !change(std::ptr::null(), &mut before) {
        return false;
    }
    if before.handler == ours as usize {
        return true;
    }
    BEFORE.store(before.handler, Release);
    let flags = libc::SA_SIGINFO as u64 | libc::SA_RESTART as u64 | SA_RESTORER;
    let action = Action { handler: ours as usize, flags, restorer: machine::way_back_address(), mask: 0 };
    change(&action, std::ptr::null_mut())
}

/// Answers whether this thread is inside of a hook, and if not, cancels it. Nothing here is left to be done when
/// the unwinding passes.
extern "C-unwind" fn on_cancel(signal: c_int, info: *mut c_void, context: *mut c_void) {
    // SAFETY: asks for the calling thread.
    let question = u64::from(unsafe { libc::gettid() } as u32) << 2;
    let answer = if is_inside() { INSIDE } else { LEAVING };
    if ANSWER.compare_exchange(question | WAITING, question | answer, AcqRel, Acquire).is_err() {
        let before = BEFORE.load(Acquire);
        if before > 1 {
            // SAFETY: the C library's handler for this signal, called as the kernel would have.
            unsafe {
                let before: extern "C-unwind" fn(c_int, *mut c_void, *mut c_void) =
                    std::mem::transmute(before);
                before(signal, info, context);
            }
        }
    } else if answer == LEAVING {
        // SAFETY: the C library's function, of the calling thread, looked up when the library was loaded.
        unsafe {
            let cancel: extern "C-unwind" fn(libc::pthread_t) -> c_int =
                std::mem::transmute(CANCEL.next(CANCEL_NAME));
            cancel(libc::pthread_self());
        }
    }
}

/// Whether what the calling handler has interrupted is code of ours, or called by it.
fn is_inside() -> bool {
    /// Frames of this handler, then the way back from it, then what was interrupted.
    #[derive(Default)]
    struct Look {
        outside: bool,
        inside: bool,
    }
    extern "C" fn look(context: *mut c_void, found: *mut c_void) -> c_int {
        // SAFETY: the unwinder's context; `found` is the look under way, which nobody else refers to.
        let (pc, found) = unsafe { (_Unwind_GetIP(context), &mut *found.cast::<Look>()) };
        let is_own = link_map::is_own_address(std::ptr::without_provenance(pc));
        found.inside |= is_own && found.outside;
        found.outside |= pc == machine::way_back_address();
        // 4: any code but "go on" ends the walk.
        if found.inside { 4 } else { 0 }
    }
    let mut found = Look::default();
    // SAFETY: the step function has the documented signature; `found` outlives the walk.
    unsafe { _Unwind_Backtrace(look, (&raw mut found).cast()) };
    found.inside
}
