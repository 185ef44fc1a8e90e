//! Pools of one process opened by another.
//!
//! A pool's blocks lie in its device's file: the descriptor is of that file, and a pointer's export data says
//! where in it the block is.

use crate::abi::pointers::{Addr, Handle, In, Out};
use crate::abi::status::*;
use crate::memory::shared_handles::POSIX;
use crate::state::device::Owner;
use crate::state::mapping::{OwnedFile, duplicate, identity};
use crate::state::memory::{Kind, Pool};

/// What this driver keeps in the 64 opaque bytes of a `CUmemPoolPtrExportData`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ShareData {
    magic: u64,
    inode: u64,
    offset: u64,
    requested: u64,
    rest: [u64; 4],
}
const _: () = assert!(size_of::<ShareData>() == 64);

const MAGIC: u64 = 0x706f_6f6c_2121_2121;

driver_api! {
    fn cuMemPoolExportToShareableHandle(driver; out: Out<i32>, pool: Handle, kind: i32, flags: u64) {
        let pool = driver.pool(pool)?.local()?;
        if out.is_null() || flags != 0 || kind != POSIX || pool.handle_types & POSIX == 0 {
            return Err(INVALID_VALUE);
        }
        let device = pool.device;
        out.put(duplicate(driver.device(device)?.arena.file)?)
    }

    /// The descriptor itself is passed where the documentation says pointer.
    fn cuMemPoolImportFromShareableHandle(driver; out: Out<Handle>, descriptor: In<u8>, kind: i32, flags:
        u64) {
        let given = descriptor.address() as i32;
        let inode = identity(given).ok_or(INVALID_VALUE)?.0;
        if out.is_null() || flags != 0 || kind != POSIX {
            return Err(INVALID_VALUE);
        }
        let mine = driver.devices.iter().position(|d| identity(d.arena.file).is_some_and(|i| i.0 == inode));
        let imported = Some((OwnedFile(duplicate(given)?), inode));
        let handle = driver.new_handle();
        driver.pools.insert(handle, Pool { imported, ..Pool::new(mine.unwrap_or(0) as i32) });
        out.put(handle)
    }

    fn cuMemPoolExportPointer(driver; out: Out<ShareData>, address: Addr) {
        let block = driver.blocks.get(&address).ok_or(INVALID_VALUE)?;
        let (Kind::Pool(pool), requested) = (block.kind, block.requested) else { return Err(INVALID_VALUE) };
        let pool = driver.pools.get(&pool).filter(|p| p.handle_types & POSIX != 0).ok_or(INVALID_VALUE)?;
        let device = pool.device;
        let arena = &driver.device(device)?.arena;
        let inode = identity(arena.file).ok_or(NOT_SUPPORTED)?.0;
        let offset = arena.offset(address) as u64;
        out.put(ShareData { magic: MAGIC, inode, offset, requested, rest: [0; 4] })
    }

    fn cuMemPoolImportPointer(driver, owner; out: Out<Addr>, pool: Handle, data: In<ShareData>) {
        let data = data.get()?;
        let pool = driver.pool(pool)?;
        let imported = pool.imported.as_ref().filter(|i| data.magic == MAGIC && i.1 == data.inode);
        let (file, device) = (imported.ok_or(INVALID_VALUE)?.0.0, pool.device);
        if out.is_null() {
            return Err(INVALID_VALUE);
        }
        let owner = Owner { device, ..owner };
        out.put(driver.map_foreign("cuMemPoolImportPointer", file, data.offset, data.requested, true, owner)?)
    }
}
