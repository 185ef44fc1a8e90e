//! Benchmarks of the parts of one event. They run as a unit test, each part once; to measure:
//! `LEAKTRACE_BENCH=1 cargo test --release -p leaktrace-preload bench -- --nocapture`.
//!
//! Python frames are measured where `LIBPYTHON` names a libpython3.x.so.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::hint::black_box;
use std::process::Command;
use std::time::{Duration, Instant};

use criterion::Criterion;
use leaktrace_core::format::event::{Event, EventKind};
use leaktrace_core::ledger::Ledger;

use crate::stacks::{self, Stacks};
use crate::thread_state;
use crate::writer::drain::Drain;
use crate::writer::recording::{self, Cursor};

fn take() {
    black_box(stacks::stack(thread_state::current()));
}

fn nothing() {}

fn platforms() {
    let mut frames = 0u32;
    // SAFETY: nothing is resolved.
    unsafe {
        backtrace::trace_unsynchronized(|frame| {
            frames += 1;
            !black_box(frame.ip()).is_null()
        })
    };
    black_box(frames);
}

type Then = unsafe extern "C" fn(*mut c_void);
type Chain = unsafe extern "C" fn(c_int, Then, *mut c_void) -> c_int;

unsafe extern "C" fn call<F: FnMut()>(data: *mut c_void) {
    // SAFETY: `below` passes a closure of this very type, which it keeps borrowed.
    unsafe { (*data.cast::<F>())() }
}

/// Calls `f` under `depth` frames of a chain.
fn below<F: FnMut()>(chain: Chain, depth: i32, f: &mut F) {
    // SAFETY: the chain calls back once, with what it is given.
    unsafe { chain(depth, call::<F>, (&raw mut *f).cast()) };
}

fn open(path: &CStr) -> *mut c_void {
    // SAFETY: a C string.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    assert!(!handle.is_null(), "{path:?} cannot be opened");
    handle
}

/// # Safety
/// `F` is the type of a pointer to that function.
unsafe fn function<F: Copy>(library: *mut c_void, name: &CStr) -> F {
    // SAFETY: an open library; the caller's word for the type.
    unsafe {
        let address = libc::dlsym(library, name.as_ptr());
        assert!(!address.is_null(), "{name:?} is missing");
        std::mem::transmute_copy(&address)
    }
}

fn native(c: &mut Criterion, folder: &str) {
    let library = format!("{folder}/libchain.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/bench/chain.c");
    let built = Command::new("cc").args(["-O2", "-shared", "-fPIC", source, "-o", &library]).status();
    assert!(built.expect("a C compiler").success());
    let library = open(&CString::new(library).unwrap());
    // SAFETY: as `chain.c` declares them.
    let [outer, left, right] =
        [c"outer", c"left", c"right"].map(|name| unsafe { function::<Chain>(library, name) });
    stacks::arm(Stacks::Native);
    let mut group = c.benchmark_group("native");
    for depth in [30, 60] {
        // All of the measuring is done below the chain: the stack is as deep as the name says, plus the
        // frames that measure.
        let mut below_chain = |name: String, f: fn()| {
            below(outer, depth, &mut || {
                group.bench_function(name.as_str(), |b| b.iter(f));
            });
        };
        below_chain(format!("{depth} frames, the same again"), take);
        below_chain(format!("{depth} frames, by the platform's unwinder"), platforms);
        // Down one way and down the other, with and without a capture: the difference is two captures.
        for (what, f) in [("two captures", take as fn()), ("the calls alone", nothing as fn())] {
            below(outer, depth - 13, &mut || {
                group.bench_function(format!("{depth} frames, the inner 13 others each time: {what}"), |b| {
                    b.iter(|| {
                        below(left, 13, &mut || f());
                        below(right, 13, &mut || f());
                    })
                });
            });
        }
    }
    group.finish();
    interning(c, outer);
}

thread_local! {
    /// Reached from a callback that Python calls without an argument of ours.
    static CRITERION: RefCell<Option<Criterion>> = const { RefCell::new(None) };
}

extern "C" fn measure_python(depth: c_int) {
    CRITERION.with_borrow_mut(|c| {
        let c = c.as_mut().expect("set before Python runs");
        c.bench_function(&format!("Python/frames: {depth}"), |b| b.iter(take));
    });
}

fn python(c: Criterion) -> Criterion {
    let Some(path) = std::env::var_os("LIBPYTHON") else {
        println!("(LIBPYTHON is not set: no Python frames)");
        return c;
    };
    let library = open(&CString::new(path.as_encoded_bytes()).unwrap());
    CRITERION.set(Some(c));
    // SAFETY: the documented signatures.
    unsafe {
        function::<unsafe extern "C" fn(c_int)>(library, c"Py_InitializeEx")(0);
        let run: unsafe extern "C" fn(*const c_char) -> c_int = function(library, c"PyRun_SimpleString");
        stacks::arm(Stacks::Python);
        let code = format!(
            "import ctypes\n\
             measure = ctypes.CFUNCTYPE(None, ctypes.c_int)({})\n\
             def down(n, depth):\n    down(n - 1, depth) if n > 1 else measure(depth)\n\
             measure(1)\n\
             for depth in (10, 30, 100): down(depth - 1, depth)\n",
            measure_python as *const () as usize
        );
        assert_eq!(run(CString::new(code).unwrap().as_ptr()), 0);
    }
    CRITERION.take().expect("set above")
}

fn events(c: &mut Criterion) {
    /// Events drained at once, as at a boundary.
    const BATCH: u64 = 20_000;
    let mut cursor = Cursor::NONE;
    let (mut ledger, mut drain) = (Ledger::default(), Drain::default());
    let mut pairs = |n: u64| {
        let start = Instant::now();
        for n in 0..n {
            let event = Event {
                address: n << 9,
                size: 512,
                device: 0,
                stack: 1,
                ..Event::new(EventKind::BlockAlloc)
            };
            recording::append(&mut cursor, &event);
            recording::append(&mut cursor, &Event { kind: EventKind::BlockFree as u8, ..event });
        }
        start.elapsed()
    };
    let mut taken_in = || {
        let start = Instant::now();
        drain.run(ledger.next_seq(), |event| ledger.apply(event));
        start.elapsed()
    };
    let mut group = c.benchmark_group("per event");
    // Whichever is measured, the other is done too: what is written must be drained, or the file grows
    // without end.
    for (name, appending) in [("append", true), ("drained into the ledger", false)] {
        group.bench_function(name, |b| {
            b.iter_custom(|events| {
                let (mut spent, mut left) = (Duration::ZERO, events.next_multiple_of(2));
                while left > 0 {
                    let now = left.min(BATCH);
                    let (append, apply) = (pairs(now / 2), taken_in());
                    spent += if appending { append } else { apply };
                    left -= now;
                }
                spent
            })
        });
    }
    group.finish();
}

/// Measures stacks that are in no thread's cache: their frames are numbered, their content is looked up.
fn interning(c: &mut Criterion, outer: Chain) {
    c.bench_function("interning/a stack of 30 native frames that the tables know, the caches do not", |b| {
        b.iter_custom(|times| {
            let mut spent = Duration::ZERO;
            below(outer, 30, &mut || {
                for _ in 0..times {
                    // As after a code object's end or an unload.
                    thread_state::forget_stacks();
                    let start = Instant::now();
                    take();
                    spent += start.elapsed();
                }
            });
            spent
        })
    });
}

#[test]
fn the_parts_of_an_event() {
    let _alone = crate::writer::ALONE.write();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().to_str().unwrap();
    let path = CString::new(format!("{folder}/bench.ltrace")).unwrap();
    recording::open(&path, std::process::id(), 0).expect("a recording");
    let measure = std::env::var_os("LEAKTRACE_BENCH").is_some();
    let (warm_up, time) = if measure { (300, 1000) } else { (1, 1) };
    let mut c = Criterion::default()
        .without_plots()
        .warm_up_time(Duration::from_millis(warm_up))
        .measurement_time(Duration::from_millis(time));
    if !measure {
        c = c.sample_size(10);
    }
    events(&mut c);
    native(&mut c, folder);
    python(c).final_summary();
}
