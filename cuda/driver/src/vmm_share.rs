//! Physical handles handed to another process as file descriptors.
//!
//! An exported handle moves from the arena to a file of its own: whoever gets the descriptor maps the same bytes.

use crate::abi::{Addr, In, Out};
use crate::arena::{RW, close, map, shared_file, unmap};
use crate::blocks::{GRANULARITY, Kind};
use crate::error::*;
use crate::params::{AllocationProps, Location};
use crate::state::{Core, with};
use crate::vmm::Physical;

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`
pub const POSIX: i32 = 1;

impl Core {
    /// Gives a handle a file of its own and moves every mapping onto it.
    fn move_to_file(&mut self, id: u64) -> Res<i32> {
        let physical = self.physical.get(&id).filter(|p| p.references > 0).ok_or(INVALID_VALUE)?;
        let (bytes, at) = (physical.bytes, physical.at);
        if physical.file >= 0 {
            return Ok(physical.file);
        }
        let in_arena = physical.charged;
        let file = shared_file(bytes).ok_or(OPERATING_SYSTEM)?;
        if in_arena {
            copy_in(file, at, bytes).inspect_err(|_| close(file))?;
            crate::arena::discard(at, bytes);
        }
        if let Some(physical) = self.physical.get_mut(&id) {
            physical.file = file;
        }
        let mine: Vec<(Addr, u64)> =
            self.blocks.iter().filter(|(_, b)| b.kind == Kind::Map(id)).map(|(&a, b)| (a, b.size)).collect();
        for (address, bytes) in mine {
            self.map_physical(address, bytes, id)?;
        }
        Ok(file)
    }
}

/// Copies a handle's bytes into its file, but not the parts that are zero: they need no pages.
fn copy_in(file: i32, at: Addr, bytes: u64) -> Res {
    const STEP: usize = 64 << 10;
    let view = map(0, bytes, RW, file, 0).ok_or(OPERATING_SYSTEM)?;
    for offset in (0..bytes).step_by(STEP) {
        // SAFETY: both ranges are mapped, `bytes` is a multiple of the step, and nothing else uses the new one.
        unsafe {
            let from = std::slice::from_raw_parts((at + offset) as *const u8, STEP);
            if from.iter().any(|&b| b != 0) {
                std::ptr::copy_nonoverlapping(from.as_ptr(), (view + offset) as *mut u8, STEP);
            }
        }
    }
    unmap(view, bytes);
    Ok(())
}

/// Which file it is, and how large.
pub fn identity(file: i32) -> Option<(u64, u64)> {
    // SAFETY: all zeroes is a valid record, and it lives through the call.
    let mut record: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: as above; a bad descriptor is an error, not a fault.
    let ok = unsafe { libc::fstat(file, &mut record) } == 0;
    ok.then_some((record.st_ino, record.st_size as u64))
}

pub fn duplicate(file: i32) -> Res<i32> {
    // SAFETY: a bad descriptor is an error, not a fault.
    let copy = unsafe { libc::fcntl(file, libc::F_DUPFD_CLOEXEC, 0) };
    if copy < 0 { Err(INVALID_VALUE) } else { Ok(copy) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemExportToShareableHandle(out: Out<i32>, id: u64, kind: i32, flags: u64) -> Status {
    distinct!(cuMemExportToShareableHandle);
    with(|core| {
        let props = core.physical.get(&id).ok_or(INVALID_VALUE)?.props;
        if kind != POSIX {
            return Err(NOT_SUPPORTED);
        }
        if out.is_null() || flags != 0 || props.handle_types & POSIX == 0 {
            return Err(INVALID_VALUE);
        }
        let file = core.move_to_file(id)?;
        out.put(duplicate(file)?)
    })
}

/// The descriptor itself is passed where the documentation says pointer.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemImportFromShareableHandle(out: Out<u64>, descriptor: In<u8>, kind: i32) -> Status {
    distinct!(cuMemImportFromShareableHandle);
    with(|core| {
        if kind != POSIX {
            return Err(NOT_SUPPORTED);
        }
        let given = descriptor.address() as i32;
        let (inode, bytes) = identity(given).ok_or(INVALID_VALUE)?;
        if out.is_null() || bytes == 0 || bytes % GRANULARITY != 0 {
            return Err(INVALID_VALUE);
        }
        let same = |p: &Physical| p.file >= 0 && identity(p.file).is_some_and(|i| i.0 == inode);
        if let Some((&id, physical)) = core.physical.iter_mut().find(|(_, p)| same(p)) {
            physical.references += 1;
            return out.put(id);
        }
        let file = duplicate(given)?;
        let props = AllocationProps {
            kind: 1,
            handle_types: POSIX,
            location: Location { kind: 1, id: 0 },
            windows: 0,
            compression: 0,
            rdma: 0,
            usage: 0,
            reserved: [0; 4],
        };
        let id = core.handle() as u64;
        core.physical.insert(id, Physical { file, ..Physical::uncharged(bytes, props) });
        out.put(id)
    })
}
