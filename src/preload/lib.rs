//! `libleaktrace.so`, the library that `LD_PRELOAD` puts into a program that was not built for it.
//!
//! # The way of an event
//!
//! ```text
//! program ─▶ interpose ─▶ hooks, frameworks ─▶ stacks ─▶ writer ═▶ recording
//!                                              python, unwind      └─▶ analysis, at the end of each step
//! ```
//!
//! # Code map
//!
//! * `interpose`: how a call of the program's reaches a hook. Naked tail-jumps stand under the names of
//!   `dlsym`, `dlopen` and their kin, of the driver's and the runtime's allocators. The hook is chosen by the
//!   address that the real look-up returned; the real function is the one in the caller's own scope. Also
//!   `exec`, `_exit`, `longjmp`, what cancels a thread, and what installs a seccomp filter: after them the recording would
//!   be wrong, or the program aborted.
//!   `interpose::attach` leads here what a running process calls, and back.
//! * `loader`: what is loaded in the process, and what the loader would find: the list of objects, their
//!   symbols, the rules of scope.
//! * `hooks`: one small function per shape of entry point: call the real function, read its out-parameters,
//!   record one event.
//! * `frameworks`: where a framework's blocks, steps and failures are seen: the symbols by which PyTorch reports
//!   them, the table of functions that XLA's plugins give (JAX), the allocator that TensorFlow exports.
//! * `stacks`: the call stack as one number. `python` reads Python frames raw on their own thread, `unwind`
//!   native frames from the unwind tables, checked word by word against the thread's previous stack; what a
//!   backward node allocates is tied to the forward line by the sequence number that the operation took.
//! * `python`: everything that knows CPython: frames, the garbage collector, the end of the interpreter, the
//!   heap.
//! * `writer`: appends 32-byte events to a mapped file, one segment per thread, with one dense sequence
//!   number. `recording_path` finds it a name.
//! * `analysis`: replays the events at each step boundary (`leaktrace_core::ledger`), and writes steps,
//!   checkpoints, dumps.
//! * `state`: whether anything is recorded at all; `lifecycle` leads from one state to the next, `fork` has the
//!   list of all locks. `settings`: the environment. `coverage_gaps`: what could not be seen.
//!
//! Nothing here decides what a leak is: that is `leaktrace_core::ledger::verdict`.
//!
//! # Invariants
//!
//! **Architecture invariant:** the traced program's results, return codes, `errno`, exit status and signals
//! never change. No `malloc` is hooked, CUPTI is left alone, no object of the program is kept alive. The one
//! signal handler is for faults of our own stores, where somebody cuts the recording off (`writer::fault`); any
//! other SIGBUS comes to the program as it would have.
//!
//! **Architecture invariant:** what exists is left as it is. Every file is one that this process made, under a
//! name that nothing had; nothing else is opened for writing, replaced or mapped.
//!
//! **Architecture invariant:** no file, no thread and no allocation before the program's first CUDA call, so
//! that children like `sh`, `git` and `ninja` stay as they were.
//!
//! **Architecture invariant:** no lock is held while the real function runs, while a stack is taken, or
//! across `fork` except those that the fork handlers take in one fixed order.
//!
//! **Architecture invariant:** no signal handler runs on a thread that holds a lock of ours or allocates, and
//! nothing cancels it there (`writer::signals`); an exception or a cancellation passes through a hook, a jump
//! past it. The locks of the loop detector and of JAX's buffers, which every event may take, are the exception: they are never waited for long.
//!
//! **Architecture invariant:** a hook never takes the GIL, never asks the loader (`dlopen`, `dlsym`), and calls
//! no `malloc` on its usual path. What it has to look up once, it reads from the list of loaded objects, under
//! a lock that glibc holds for bookkeeping only (`loader::link_map`).
//!
//! **Architecture invariant:** every committed event survives the process, whatever ends it: SIGKILL,
//! `_exit`, `abort`, the out-of-memory killer, a full disk.
//!
//! **Architecture invariant:** a failure here switches the tracing off and the program goes on. There is no
//! `panic!`, `unwrap` or `println!` outside tests, and what panics all the same is caught (`shield`).
//!
//! **Architecture invariant:** what is not seen is reported by name (`coverage_gaps`, dropped events), never
//! guessed.
//!
//! # How to add
//!
//! **A CUDA entry point** is one row of `leaktrace_core::entry_points`; exports, look-ups by name and
//! `cuGetProcAddress`, and the tests of failing calls and of look-ups are made from it. Where no function of
//! `hooks` has the same signature, write one there. A function that needs no hook gets a line with its reason
//! in `PASSED_OVER`. `tests/coverage.rs` fails for any function of cudarc's bindings that has neither: update
//! cudarc, run the test, and it lists what a new CUDA version brought. `cuda/driver` has to answer the call,
//! by its public documentation alone, and `cuda/programs/families.c` to make it, so that the random
//! operations compare it with the simulated device's own log.
//!
//! **A CPython version** needs its offsets in `python`, its opcodes in `leaktrace_core::steps::loops`, and an
//! interpreter that `tests/common/programs.rs` finds.
//!
//! **A framework** is a row of `leaktrace_core::frameworks` (whose files, which words), a module of `frameworks` that
//! calls `hooks::record::block_alloc` and `block_free` for its blocks and `out_of_memory` where one was refused, and a
//! module of `python::heap::natives` for how its objects reach memory. Blocks that are known by handles tell by a `Segment` event
//! which driver memory is their pool. Steps, verdicts and reports need nothing. Its test programs go where JAX's are.
//! TensorFlow is the example of one that is known by exported C++ symbols and whose threads have no Python: `draw` and
//! `stacks::operations` lead from such a thread to the line that called. It was run on the simulated GPU only, whose
//! stubs come from the names that its libraries look up (`cuda/stubs/src/vendor.rs`).
//!
//! **A PyTorch version**: `scripts/python-env VERSION` makes `target/pyenv-VERSION`; add it to `TORCHES` in
//! `scripts/dev/matrix` and run `scripts/dev/matrix torch-VERSION`. `frameworks` and `python` rely on PyTorch
//! by symbol only. A library that it wants and the simulated GPU lacks is generated (`cuda/stubs`).

mod allocator;
mod analysis;
#[cfg(test)]
mod bench;
mod coverage_gaps;
mod fork;
mod frameworks;
mod hash;
mod hooks;
mod interpose;
mod lifecycle;
mod loader;
mod lock;
mod machine;
mod numbering;
mod python;
mod recording_path;
mod settings;
mod shield;
mod stacks;
mod state;
mod stderr;
mod thread_state;
mod unwind;
mod writer;
