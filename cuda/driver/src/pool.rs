//! Memory pools: what they hold (reserved), what is in use of it, and when they give the rest back.
//!
//! A plain honest model: `reserved` grows in 32 MiB steps when `used` exceeds it, and shrinks at a trim, and at a
//! synchronisation down to the release threshold. Only what is reserved is charged to the device.

use crate::abi::{Addr, Handle};
use crate::error::*;
use crate::pool_share::Imported;
use crate::state::Core;

const STEP: u64 = 32 << 20;

pub struct Pool {
    pub device: i32,
    pub destroyed: bool,
    /// The kinds of handle it may be shared by.
    pub handle_types: i32,
    /// Another process's: nothing is allocated from it, single blocks of it are opened.
    pub imported: Option<Imported>,
    pub used: u64,
    pub used_high: u64,
    pub reserved: u64,
    pub reserved_high: u64,
    pub threshold: u64,
    /// The three reuse policies.
    pub reuse: [i32; 3],
    /// Peers that may access it.
    pub access: Vec<(i32, i32)>,
}

impl Pool {
    pub fn new(device: i32) -> Pool {
        Pool {
            device,
            destroyed: false,
            handle_types: 0,
            imported: None,
            used: 0,
            used_high: 0,
            reserved: 0,
            reserved_high: 0,
            threshold: 0,
            reuse: [1; 3],
            access: Vec::new(),
        }
    }

    /// For what an imported pool cannot do.
    pub fn own(&self) -> Res<&Pool> {
        if self.imported.is_none() { Ok(self) } else { Err(INVALID_VALUE) }
    }
}

impl Core {
    pub fn place_in_pool(&mut self, handle: Handle, size: u64) -> Res<Addr> {
        let pool = self.pools.get(&handle).ok_or(INVALID_VALUE)?;
        let (device, reserved) = (pool.device, pool.reserved);
        let used = pool.used.checked_add(size).ok_or(OUT_OF_MEMORY)?;
        if used > reserved {
            // The next whole step, or just what is needed when the device has no more.
            let step = used.next_multiple_of(STEP);
            let now = match self.charge_pool(handle, step) {
                Ok(()) => step,
                Err(_) => self.charge_pool(handle, used).map(|()| used)?,
            };
            if let Some(pool) = self.pools.get_mut(&handle) {
                pool.reserved = now;
                pool.reserved_high = pool.reserved_high.max(now);
            }
        }
        let at = self.device(device)?.arena.take(size).ok_or(OUT_OF_MEMORY)?;
        if let Some(pool) = self.pools.get_mut(&handle) {
            pool.used = used;
            pool.used_high = pool.used_high.max(used);
        }
        Ok(at)
    }

    /// Charges what a pool lacks to hold `target`. Charging may empty this pool too, hence the fresh look.
    fn charge_pool(&mut self, handle: Handle, target: u64) -> Res {
        let (device, held) = self.pools.get(&handle).map(|p| (p.device, p.reserved)).ok_or(INVALID_VALUE)?;
        if self.device(device)?.used + (target - held) > self.memory {
            self.empty_pools(device);
        }
        let held = self.pools.get(&handle).map_or(0, |p| p.reserved);
        self.charge(device, target - held)
    }

    pub fn displace_in_pool(&mut self, handle: Handle, at: Addr, size: u64) {
        let Some(pool) = self.pools.get_mut(&handle) else { return };
        pool.used -= size;
        let (device, gone) = (pool.device, pool.destroyed);
        if let Ok(device) = self.device(device) {
            device.arena.give(at, size);
        }
        if gone {
            self.trim_pool(handle, 0, 1);
        }
    }

    /// Gives back what a pool holds beyond its use, but keeps `keep`; what is used is rounded up to `step`.
    pub fn trim_pool(&mut self, handle: Handle, keep: u64, step: u64) {
        let Some(pool) = self.pools.get_mut(&handle) else { return };
        let hold = pool.used.next_multiple_of(step).max(keep).min(pool.reserved);
        let (device, surplus) = (pool.device, pool.reserved - hold);
        pool.reserved = hold;
        let over = pool.destroyed && pool.used == 0;
        self.uncharge(device, surplus);
        if over {
            self.pools.remove(&handle);
        }
    }

    pub fn trim_pool_to(&mut self, handle: Handle, keep: u64) {
        self.trim_pool(handle, keep, STEP);
    }

    /// A synchronisation: every pool of the device falls back to its release threshold.
    pub fn settle_pools(&mut self, device: i32) {
        for (handle, threshold) in self.pools_of(device) {
            self.trim_pool(handle, threshold, STEP);
        }
    }

    /// The device is out of memory: every pool gives back all that it does not use, the graphs' too.
    pub fn empty_pools(&mut self, device: i32) {
        let _ = self.trim_graph_memory(device);
        for (handle, _) in self.pools_of(device) {
            self.trim_pool(handle, 0, 1);
        }
    }

    fn pools_of(&self, device: i32) -> Vec<(Handle, u64)> {
        let unused = |p: &crate::pool::Pool| p.device == device && p.reserved > p.used;
        self.pools.iter().filter(|(_, p)| unused(p)).map(|(&h, p)| (h, p.threshold)).collect()
    }
}
