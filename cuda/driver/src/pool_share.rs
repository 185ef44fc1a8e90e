//! Pools of one process opened by another.
//!
//! A pool's blocks lie in its device's file: the descriptor is of that file, and a pointer's export data says where in
//! it the block is.

use crate::abi::{Addr, Handle, In, Out};
use crate::arena::close;
use crate::blocks::Kind;
use crate::error::*;
use crate::pool::Pool;
use crate::poolapi::live;
use crate::state::{here, with};
use crate::vmm_share::{POSIX, duplicate, identity};

/// The file that holds another process's pool.
pub struct Imported {
    file: i32,
    inode: u64,
}

impl Drop for Imported {
    fn drop(&mut self) {
        close(self.file);
    }
}

/// Our 64 bytes of `CUmemPoolPtrExportData`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ShareData {
    magic: u64,
    inode: u64,
    offset: u64,
    asked: u64,
    rest: [u64; 4],
}
const _: () = assert!(size_of::<ShareData>() == 64);

const MAGIC: u64 = 0x706f_6f6c_2121_2121;

#[unsafe(no_mangle)]
pub extern "C" fn cuMemPoolExportToShareableHandle(
    out: Out<i32>,
    pool: Handle,
    kind: i32,
    flags: u64,
) -> Status {
    distinct!(cuMemPoolExportToShareableHandle);
    with(|core| {
        let pool = live(core, pool)?.own()?;
        if out.is_null() || flags != 0 || kind != POSIX || pool.handle_types & POSIX == 0 {
            return Err(INVALID_VALUE);
        }
        let device = pool.device;
        out.put(duplicate(core.device(device)?.arena.file)?)
    })
}

/// The descriptor itself is passed where the documentation says pointer.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemPoolImportFromShareableHandle(
    out: Out<Handle>,
    descriptor: In<u8>,
    kind: i32,
    flags: u64,
) -> Status {
    distinct!(cuMemPoolImportFromShareableHandle);
    with(|core| {
        let given = descriptor.address() as i32;
        let inode = identity(given).ok_or(INVALID_VALUE)?.0;
        if out.is_null() || flags != 0 || kind != POSIX {
            return Err(INVALID_VALUE);
        }
        let mine = core.devices.iter().position(|d| identity(d.arena.file).is_some_and(|i| i.0 == inode));
        let imported = Some(Imported { file: duplicate(given)?, inode });
        let handle = core.handle();
        core.pools.insert(handle, Pool { imported, ..Pool::new(mine.unwrap_or(0) as i32) });
        out.put(handle)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemPoolExportPointer(out: Out<ShareData>, address: Addr) -> Status {
    distinct!(cuMemPoolExportPointer);
    with(|core| {
        let block = core.blocks.get(&address).ok_or(INVALID_VALUE)?;
        let (Kind::Pool(pool), asked) = (block.kind, block.asked) else { return Err(INVALID_VALUE) };
        let pool = core.pools.get(&pool).filter(|p| p.handle_types & POSIX != 0).ok_or(INVALID_VALUE)?;
        let device = pool.device;
        let arena = &core.device(device)?.arena;
        let inode = identity(arena.file).ok_or(NOT_SUPPORTED)?.0;
        let offset = arena.offset(address) as u64;
        out.put(ShareData { magic: MAGIC, inode, offset, asked, rest: [0; 4] })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemPoolImportPointer(out: Out<Addr>, pool: Handle, data: In<ShareData>) -> Status {
    distinct!(cuMemPoolImportPointer);
    here(|core, at| {
        let data = data.get()?;
        let pool = live(core, pool)?;
        let imported = pool.imported.as_ref().filter(|i| data.magic == MAGIC && i.inode == data.inode);
        let (file, device) = (imported.ok_or(INVALID_VALUE)?.file, pool.device);
        if out.is_null() {
            return Err(INVALID_VALUE);
        }
        let at = crate::state::Here { device, ..at };
        out.put(core.begin_foreign("cuMemPoolImportPointer", file, data.offset, data.asked, true, at)?)
    })
}
