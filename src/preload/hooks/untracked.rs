//! Calls that take or move memory without saying how much: counted by name, so that a report can say what may lie behind
//! bytes that nobody was seen to ask for. They are passed on without a look at what they mean.

use crate::hooks::Status;
use crate::hooks::driver_queries;
use crate::hooks::real;
use crate::hooks::record;
use crate::hooks::stored;
use leaktrace_core::format::event::{Event, EventKind};

/// Any function of at most eight words. Fewer are passed on with what else lay in the registers and on the stack: the
/// real function does not look there.
pub unsafe extern "C" fn marked<const ROW: usize, const SLOT: usize>(
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
    g: usize,
    h: usize,
) -> Status {
    let real = real!(ROW, SLOT, fn(usize, usize, usize, usize, usize, usize, usize, usize));
    // SAFETY: the caller's own arguments, see above.
    record::ending(|| unsafe { real(a, b, c, d, e, f, g, h) }, || Some(marker(ROW, 0)))
}

/// `cuModuleGetGlobal(CUdeviceptr *p, size_t *bytes, CUmodule module, const char *name)` and the like: the one part of a
/// module whose size is told.
pub unsafe extern "C" fn global<const ROW: usize, const SLOT: usize>(
    p: *mut u64,
    bytes: *mut usize,
    module: usize,
    name: usize,
) -> Status {
    let real = real!(ROW, SLOT, fn(*mut u64, *mut usize, usize, usize));
    record::ending(
        // SAFETY: the caller's own arguments.
        || unsafe { real(p, bytes, module, name) },
        // SAFETY: on success they were written, where there is a place.
        || Some(marker(ROW, unsafe { stored(bytes) } as u64)),
    )
}

fn marker(row: usize, size: u64) -> Event {
    let (device, _) = record::deeper(driver_queries::current);
    Event { size, device, entry_point: row as u16, ..Event::new(EventKind::UntrackedCall) }
}
