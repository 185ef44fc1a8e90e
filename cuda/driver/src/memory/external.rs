//! Memory that another API made and handed over as a file descriptor.
//!
//! An import owns the descriptor. What is mapped of it is the program's to free, also after the import was
//! destroyed.

use crate::abi::pointers::{Addr, Handle, In, Out};
use crate::abi::records::{ExternalBuffer, ExternalMemory, ExternalMipmap};
use crate::abi::status::*;
use crate::memory::mipmap::MipmapPlan;
use crate::state::driver::Driver;
use crate::state::mapping::{OwnedFile, identity, map_within};
use crate::state::memory::External;

const OPAQUE_DESCRIPTOR: i32 = 1;
const DEDICATED: u32 = 1;

/// Returns the file of an import, if the range lies in it.
fn file(driver: &Driver, handle: Handle, offset: u64, bytes: u64) -> Res<i32> {
    let external = driver.externals.get(&handle).ok_or(INVALID_HANDLE)?;
    let end = offset.checked_add(bytes).ok_or(INVALID_VALUE)?;
    if bytes == 0 || end > external.bytes { Err(INVALID_VALUE) } else { Ok(external.file.0) }
}

impl Driver {
    pub fn end_externals_of(&mut self, context: Handle) {
        self.externals.retain(|_, e| e.context != context);
    }
}

driver_api! {
    fn cuImportExternalMemory(driver, owner; out: Out<Handle>, description: In<ExternalMemory>) {
        let ExternalMemory { kind, handle: [descriptor, _], bytes, flags, .. } = description.get()?;
        let file = descriptor as i32;
        if kind != OPAQUE_DESCRIPTOR {
            return Err(NOT_SUPPORTED);
        }
        if out.is_null() || bytes == 0 || flags & !DEDICATED != 0 {
            return Err(INVALID_VALUE);
        }
        if identity(file).is_none_or(|(_, size)| size < bytes) {
            return Err(INVALID_HANDLE);
        }
        let handle = driver.new_handle();
        driver.externals.insert(handle, External { file: OwnedFile(file), bytes, context: owner.context });
        out.put(handle)
    }

    fn cuExternalMemoryGetMappedBuffer(driver, owner; out: Out<Addr>, handle: Handle, description:
        In<ExternalBuffer>) {
        let ExternalBuffer { offset, size: bytes, flags, .. } = description.get()?;
        let file = file(driver, handle, offset, bytes)?;
        if out.is_null() || flags != 0 {
            return Err(INVALID_VALUE);
        }
        out.put(driver.map_foreign("cuExternalMemoryGetMappedBuffer", file, offset, bytes, false, owner)?)
    }

    fn cuExternalMemoryGetMappedMipmappedArray(driver, owner; out: Out<Handle>, handle: Handle,
        description: In<ExternalMipmap>) {
        let ExternalMipmap { offset, shape, levels, .. } = description.get()?;
        if out.is_null() {
            return Err(INVALID_VALUE);
        }
        let plan = MipmapPlan::new(shape, levels)?;
        let file = file(driver, handle, offset, plan.bytes())?;
        let (start, skip) = map_within(file, offset, plan.bytes())?;
        out.put(driver.add_mipmap(plan, start + skip, Some(skip), owner))
    }

    fn cuDestroyExternalMemory(driver; handle: Handle) {
        driver.externals.remove(&handle).map(drop).ok_or(INVALID_HANDLE)
    }
}
