//! What the parts of one event cost: `cargo bench --bench capture`. Best of many repeats, for comparison within one run.
//!
//! Python frames are measured where `LIBPYTHON` names a libpython3.x.so. Declares the rooms it measures by `mod`, as the
//! program does, and never links the library.

#![allow(dead_code, unused_imports, reason = "the rooms' other halves and their tests are not measured")]

#[path = "../../src/capture/mod.rs"]
mod capture;
#[path = "../../src/ledger/mod.rs"]
mod ledger;
#[path = "../../src/steps/mod.rs"]
mod steps;
#[path = "../../src/symbol/mod.rs"]
mod symbol;
#[path = "../../src/trace/mod.rs"]
mod trace;

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::hint::black_box;
use std::process::Command;
use std::time::Instant;

use capture::Stacks;
use trace::record::{Event, Kind};
use trace::recording::{self, Cursor};

const REPEATS: usize = 30;

fn report(what: &str, ns: f64) {
    println!("{what:58}{ns:10.1} ns");
}

/// Nanoseconds per call.
fn time(calls: usize, mut call: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..REPEATS {
        let start = Instant::now();
        for _ in 0..calls {
            call();
        }
        best = best.min(start.elapsed().as_nanos() as f64 / calls as f64);
    }
    best
}

fn take() {
    // SAFETY: this thread's own block, referred to nowhere else.
    black_box(capture::stack(unsafe { &mut *capture::thread::thread() }));
}

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

fn native(folder: &str) {
    let library = format!("{folder}/libchain.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/bench/chain.c");
    let built = Command::new("cc").args(["-O2", "-shared", "-fPIC", source, "-o", &library]).status();
    assert!(built.expect("a C compiler").success());
    let library = open(&CString::new(library).unwrap());
    // SAFETY: as `chain.c` declares them.
    let [outer, left, right] =
        [c"outer", c"left", c"right"].map(|name| unsafe { function::<Chain>(library, name) });
    capture::arm(Stacks::Native);
    for depth in [30, 60] {
        let mut same = 0.0;
        below(outer, depth, &mut || same = time(10_000, take));
        report(&format!("native, {depth} frames, the same again"), same);
        let mut turns = (0.0, 0.0);
        below(outer, depth - 13, &mut || {
            let both = |f: fn()| {
                time(5_000, || {
                    below(left, 13, &mut || f());
                    below(right, 13, &mut || f());
                }) / 2.0
            };
            turns = (both(take), both(|| {}));
        });
        report(&format!("native, {depth} frames, the inner 13 others each time"), turns.0 - turns.1);
        below(outer, depth, &mut || same = time(500, platforms));
        report(&format!("native, {depth} frames, by the platform's unwinder"), same);
    }
}

extern "C" fn measure_python(depth: c_int) {
    let what = if depth == 1 { "Python, 1 frame (little but the look-up)" } else { "Python, frames:" };
    let what = if depth == 1 { what.to_owned() } else { format!("{what} {depth}") };
    report(&what, time(10_000, take));
}

fn python() {
    let Some(path) = std::env::var_os("LIBPYTHON") else {
        return println!("(LIBPYTHON is not set: no Python frames)");
    };
    let library = open(&CString::new(path.as_encoded_bytes()).unwrap());
    // SAFETY: the documented signatures.
    unsafe {
        function::<unsafe extern "C" fn(c_int)>(library, c"Py_InitializeEx")(0);
        let run: unsafe extern "C" fn(*const c_char) -> c_int = function(library, c"PyRun_SimpleString");
        capture::arm(Stacks::Python);
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
}

fn events() {
    const EVENTS: u64 = 20_000;
    let mut cursor = Cursor::NONE;
    let pair = |cursor: &mut Cursor, n: u64| {
        let event = Event { address: n << 9, size: 512, device: 0, stack: 1, ..Event::new(Kind::BlockAlloc) };
        recording::append(cursor, &event);
        recording::append(cursor, &Event { kind: Kind::BlockFree as u8, ..event });
    };
    let (mut ledger, mut drain) = (ledger::Ledger::default(), trace::drain::Drain::default());
    let (mut append, mut apply) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..REPEATS {
        let start = Instant::now();
        (0..EVENTS / 2).for_each(|n| pair(&mut cursor, n));
        append = append.min(start.elapsed().as_nanos() as f64 / EVENTS as f64);
        let start = Instant::now();
        drain.run(ledger.next_seq(), |event| ledger.apply(event));
        apply = apply.min(start.elapsed().as_nanos() as f64 / EVENTS as f64);
    }
    report("append, per event", append);
    report("drained into the ledger, per event", apply);
}

fn main() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().to_str().unwrap();
    let path = CString::new(format!("{folder}/bench.ltrace")).unwrap();
    recording::open(&path, std::process::id(), 0, 0).expect("a recording");
    events();
    native(folder);
    python();
}
