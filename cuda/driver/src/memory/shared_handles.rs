//! Physical handles handed to another process as file descriptors.
//!
//! An exported handle moves from the arena to a file of its own: whoever gets the descriptor maps the same
//! bytes.

use crate::abi::pointers::{Addr, In, Out};
use crate::abi::records::AllocationProps;
use crate::abi::status::*;
use crate::memory::blocks::GRANULARITY;
use crate::state::driver::Driver;
use crate::state::mapping::{RW, close, discard, duplicate, identity, map, shared_file, unmap};
use crate::state::memory::{Kind, Physical};

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`
pub const POSIX: i32 = 1;

impl Driver {
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
            discard(at, bytes);
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
        // SAFETY: both ranges are mapped, `bytes` is a multiple of the step, and nothing else uses the new
        // one.
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

driver_api! {
    fn cuMemExportToShareableHandle(driver; out: Out<i32>, id: u64, kind: i32, flags: u64) {
        let props = driver.physical.get(&id).ok_or(INVALID_VALUE)?.props;
        if kind != POSIX {
            return Err(NOT_SUPPORTED);
        }
        if out.is_null() || flags != 0 || props.handle_types & POSIX == 0 {
            return Err(INVALID_VALUE);
        }
        let file = driver.move_to_file(id)?;
        out.put(duplicate(file)?)
    }

    /// The descriptor itself is passed where the documentation says pointer.
    fn cuMemImportFromShareableHandle(driver; out: Out<u64>, descriptor: In<u8>, kind: i32) {
        if kind != POSIX {
            return Err(NOT_SUPPORTED);
        }
        let given = descriptor.address() as i32;
        let (inode, bytes) = identity(given).ok_or(INVALID_VALUE)?;
        if out.is_null() || bytes == 0 || bytes % GRANULARITY != 0 {
            return Err(INVALID_VALUE);
        }
        let same = |p: &Physical| p.file >= 0 && identity(p.file).is_some_and(|i| i.0 == inode);
        if let Some((&id, physical)) = driver.physical.iter_mut().find(|(_, p)| same(p)) {
            physical.references += 1;
            return out.put(id);
        }
        let file = duplicate(given)?;
        let props = AllocationProps::on_device(0, POSIX);
        let id = driver.new_handle() as u64;
        driver.physical.insert(id, Physical { file, ..Physical::uncharged(bytes, props) });
        out.put(id)
    }
}
