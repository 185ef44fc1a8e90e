//! Calls that take or move memory without saying how much: counted by name, so that a report can say what may
//! lie behind bytes that nobody was seen to ask for. They are passed on without a look at what they mean.

use leaktrace_core::format::event::{Event, EventKind};

use crate::analysis::annotations;
use crate::hooks::{Arg, driver_queries, events, hooks};

hooks! {
    /// Any function of at most eight words. Fewer are passed on with what else lay in the registers and on
    /// the stack: the real function does not look there.
    fn count(
        a: usize, b: usize, c: usize, d: usize, e: usize, f: usize, g: usize, h: usize,
    ) => |call| {
        let id = call.id;
        call.record_release(|| Some(untracked_call(id, 0)))
    };

    /// `cuModuleGetGlobal(CUdeviceptr *p, size_t *bytes, CUmodule module, const char *name)` and the like:
    /// the one part of a module whose size the driver tells.
    fn global(p: Arg<u64>, bytes: Arg<usize>, module: usize, name: usize) => |call| {
        let id = call.id;
        call.record_release(|| Some(untracked_call(id, bytes.get() as u64)))
    };
}

hooks! {
    /// `cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)`: it frees no allocation. PyTorch empties its
    /// cache so, where that is the driver's pool.
    fn trim_pool(pool: usize, keep: usize) => |call| {
        let id = call.id;
        call.record_release(|| {
            annotations::pool_trimmed();
            Some(untracked_call(id, 0))
        })
    };
}

fn untracked_call(id: usize, size: u64) -> Event {
    let (device, _) = events::reentrant(driver_queries::current);
    Event { size, device, entry_point: id as u16, ..Event::new(EventKind::UntrackedCall) }
}
