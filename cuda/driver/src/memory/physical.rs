//! Physical handles: how they are mapped, and how their bytes end: when references and mappings are both 0.

use crate::abi::pointers::Addr;
use crate::abi::status::*;
use crate::state::driver::Driver;
use crate::state::mapping::{RW, close, map};
use crate::state::memory::Physical;

impl Driver {
    /// Returns the file and offset of a handle's bytes.
    fn backing(&self, physical: &Physical) -> (i32, i64) {
        match self.devices.get(physical.device().max(0) as usize) {
            Some(device) if physical.charged && physical.file < 0 && device.arena.file >= 0 => {
                (device.arena.file, device.arena.offset(physical.at))
            }
            _ => (physical.file, 0),
        }
    }

    pub fn map_physical(&self, at: Addr, bytes: u64, id: u64) -> Res {
        let (file, offset) = self.backing(self.physical.get(&id).ok_or(INVALID_VALUE)?);
        map(at, bytes, RW, file, offset).map(drop).ok_or(OUT_OF_MEMORY)
    }

    pub fn end_mapping(&mut self, api: &str, at: Addr, bytes: u64, id: u64) {
        let _ = map(at, bytes, libc::PROT_NONE, -1, 0);
        self.release_physical(api, id);
    }

    /// Ends a mapping or a binding of a handle.
    pub fn release_physical(&mut self, api: &str, id: u64) {
        if let Some(physical) = self.physical.get_mut(&id) {
            physical.maps -= 1;
        }
        self.drop_physical(api, id);
    }

    /// Drops a handle that neither the program nor a mapping holds any more.
    pub fn drop_physical(&mut self, api: &str, id: u64) {
        let Some(physical) = self.physical.get(&id) else { return };
        if physical.references > 0 || physical.maps > 0 {
            return;
        }
        let Some(physical) = self.physical.remove(&id) else { return };
        let device = physical.device();
        for held in physical.multicast.iter().flat_map(|m| m.bindings.iter().filter_map(|b| b.physical)) {
            self.release_physical(api, held);
        }
        if physical.charged {
            self.truth_log.write('-', api, id, physical.bytes, device);
            if device >= 0 {
                self.free_range(device, physical.at, physical.bytes);
            }
        }
        if physical.file >= 0 {
            close(physical.file);
        }
    }
}
