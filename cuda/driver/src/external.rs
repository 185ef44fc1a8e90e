//! Memory that another API made and handed over as a file descriptor.
//!
//! An import owns the descriptor. What is mapped of it is the program's to free, also after the import was destroyed.

use crate::abi::{Addr, Handle, In, Out};
use crate::arena::close;
use crate::blocks::map_within;
use crate::error::*;
use crate::params::Array3D;
use crate::state::{Core, here, with};
use crate::vmm_share::identity;

pub struct External {
    file: i32,
    bytes: u64,
    context: Handle,
}

impl Drop for External {
    fn drop(&mut self) {
        close(self.file);
    }
}

/// `CUDA_EXTERNAL_MEMORY_HANDLE_DESC`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Import {
    kind: i32,
    padding: i32,
    /// A union: the descriptor, or two pointers.
    file: i32,
    rest: [i32; 3],
    bytes: u64,
    flags: u32,
    reserved: [u32; 16],
}

/// `CUDA_EXTERNAL_MEMORY_BUFFER_DESC`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Buffer {
    offset: u64,
    bytes: u64,
    flags: u32,
    reserved: [u32; 16],
}

/// `CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Mipmapped {
    offset: u64,
    shape: Array3D,
    levels: u32,
    reserved: [u32; 16],
}
const _: () = {
    assert!(size_of::<Import>() == 104 && std::mem::offset_of!(Import, file) == 8);
    assert!(size_of::<Buffer>() == 88);
    assert!(size_of::<Mipmapped>() == 120);
};

const OPAQUE_DESCRIPTOR: i32 = 1;
const DEDICATED: u32 = 1;

#[unsafe(no_mangle)]
pub extern "C" fn cuImportExternalMemory(out: Out<Handle>, description: In<Import>) -> Status {
    distinct!(cuImportExternalMemory);
    here(|core, at| {
        let Import { kind, file, bytes, flags, .. } = description.get()?;
        if kind != OPAQUE_DESCRIPTOR {
            return Err(NOT_SUPPORTED);
        }
        if out.is_null() || bytes == 0 || flags & !DEDICATED != 0 {
            return Err(INVALID_VALUE);
        }
        if identity(file).is_none_or(|(_, room)| room < bytes) {
            return Err(INVALID_HANDLE);
        }
        let handle = core.handle();
        core.externals.insert(handle, External { file, bytes, context: at.context });
        out.put(handle)
    })
}

/// The file of an import, if the range lies in it.
fn file(core: &Core, handle: Handle, offset: u64, bytes: u64) -> Res<i32> {
    let external = core.externals.get(&handle).ok_or(INVALID_HANDLE)?;
    let end = offset.checked_add(bytes).ok_or(INVALID_VALUE)?;
    if bytes == 0 || end > external.bytes { Err(INVALID_VALUE) } else { Ok(external.file) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuExternalMemoryGetMappedBuffer(
    out: Out<Addr>,
    handle: Handle,
    description: In<Buffer>,
) -> Status {
    distinct!(cuExternalMemoryGetMappedBuffer);
    here(|core, at| {
        let Buffer { offset, bytes, flags, .. } = description.get()?;
        let file = file(core, handle, offset, bytes)?;
        if out.is_null() || flags != 0 {
            return Err(INVALID_VALUE);
        }
        out.put(core.begin_foreign("cuExternalMemoryGetMappedBuffer", file, offset, bytes, false, at)?)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuExternalMemoryGetMappedMipmappedArray(
    out: Out<Handle>,
    handle: Handle,
    description: In<Mipmapped>,
) -> Status {
    distinct!(cuExternalMemoryGetMappedMipmappedArray);
    here(|core, at| {
        let Mipmapped { offset, shape, levels, .. } = description.get()?;
        if out.is_null() {
            return Err(INVALID_VALUE);
        }
        let plan = crate::mipmap::Plan::new(shape, levels)?;
        let file = file(core, handle, offset, plan.bytes())?;
        let (start, skip) = map_within(file, offset, plan.bytes())?;
        out.put(core.add_mipmap(plan, start + skip, Some(skip), at))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDestroyExternalMemory(handle: Handle) -> Status {
    distinct!(cuDestroyExternalMemory);
    with(|core| core.externals.remove(&handle).map(drop).ok_or(INVALID_HANDLE))
}

impl Core {
    pub fn end_externals_of(&mut self, context: Handle) {
        self.externals.retain(|_, e| e.context != context);
    }
}
