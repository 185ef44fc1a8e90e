//! What is charged to a device: ranges of its arena, and what its memory pools hold.
//!
//! A pool's `reserved` grows in steps of 32 MiB when `used` exceeds it. It shrinks when the pool is trimmed,
//! at a synchronisation (down to the release threshold), and when the device runs out of memory.

use crate::abi::pointers::{Addr, Handle};
use crate::abi::status::*;
use crate::state::driver::Driver;
use crate::state::memory::Pool;

const STEP: u64 = 32 << 20;

impl Driver {
    /// Charges bytes to a device. Before this fails, pools give back what they do not use.
    pub fn charge(&mut self, device: i32, bytes: u64) -> Res {
        let limit = self.memory;
        let fits = |used: u64| used.checked_add(bytes).is_some_and(|sum| sum <= limit);
        if !fits(self.device(device)?.used) {
            self.trim_pools(device);
        }
        let device = self.device(device)?;
        if !fits(device.used) {
            return Err(OUT_OF_MEMORY);
        }
        device.used += bytes;
        Ok(())
    }

    pub fn uncharge(&mut self, device: i32, bytes: u64) {
        if let Ok(device) = self.device(device) {
            device.used -= bytes;
        }
    }

    /// Charges and allocates `size` bytes, a number that `rounded` gave.
    pub fn allocate_range(&mut self, device: i32, size: u64) -> Res<Addr> {
        self.charge(device, size)?;
        let at = self.device(device)?.arena.allocate(size);
        at.ok_or_else(|| {
            self.uncharge(device, size);
            OUT_OF_MEMORY
        })
    }

    pub fn free_range(&mut self, device: i32, at: Addr, size: u64) {
        if let Ok(device) = self.device(device) {
            device.used -= size;
            device.arena.free(at, size);
        }
    }

    pub fn allocate_in_pool(&mut self, handle: Handle, size: u64) -> Res<Addr> {
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
        let at = self.device(device)?.arena.allocate(size).ok_or(OUT_OF_MEMORY)?;
        if let Some(pool) = self.pools.get_mut(&handle) {
            pool.used = used;
            pool.used_high = pool.used_high.max(used);
        }
        Ok(at)
    }

    /// Charges what a pool lacks to hold `target` bytes. Charging may trim this pool too, hence the second
    /// look.
    fn charge_pool(&mut self, handle: Handle, target: u64) -> Res {
        let (device, held) = self.pools.get(&handle).map(|p| (p.device, p.reserved)).ok_or(INVALID_VALUE)?;
        if self.device(device)?.used + (target - held) > self.memory {
            self.trim_pools(device);
        }
        let held = self.pools.get(&handle).map_or(0, |p| p.reserved);
        self.charge(device, target - held)
    }

    pub fn free_in_pool(&mut self, handle: Handle, at: Addr, size: u64) {
        let Some(pool) = self.pools.get_mut(&handle) else { return };
        pool.used -= size;
        let (device, gone) = (pool.device, pool.destroyed);
        if let Ok(device) = self.device(device) {
            device.arena.free(at, size);
        }
        if gone {
            self.trim_pool(handle, 0, 1);
        }
    }

    /// Uncharges what a pool holds beyond its use, but keeps `keep`; what is used is rounded up to `step`.
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

    /// Trims every pool of a device to its release threshold, as a synchronisation does.
    pub fn trim_pools_to_threshold(&mut self, device: i32) {
        for (handle, threshold) in self.pools_of(device) {
            self.trim_pool(handle, threshold, STEP);
        }
    }

    /// Uncharges all that the pools of a device do not use, the graphs' pool too.
    pub fn trim_pools(&mut self, device: i32) {
        let _ = self.trim_graph_memory(device);
        for (handle, _) in self.pools_of(device) {
            self.trim_pool(handle, 0, 1);
        }
    }

    fn pools_of(&self, device: i32) -> Vec<(Handle, u64)> {
        let unused = |p: &Pool| p.device == device && p.reserved > p.used;
        self.pools.iter().filter(|(_, p)| unused(p)).map(|(&h, p)| (h, p.threshold)).collect()
    }

    /// Uncharges what is reserved for graphs and not in use.
    pub fn trim_graph_memory(&mut self, device: i32) -> Res {
        let pool = &mut self.device(device)?.graph_pool;
        let unused = pool.reserved - pool.used;
        pool.reserved = pool.used;
        self.uncharge(device, unused);
        Ok(())
    }
}
