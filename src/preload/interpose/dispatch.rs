//! Where a call of an exported symbol goes: the hook in front of the function that the caller's own scope
//! holds.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering::*};

use crate::hooks::entry_points::{self, ENTRY_POINTS, PROVIDERS};
use crate::interpose::{got_patch, hook_table};
use crate::lifecycle;
use crate::loader::link_map::{self, ObjectId};
use crate::loader::scope;
use crate::machine;

/// Returns the hook of the entry point `id` for the caller that `return_address` lies in.
pub unsafe extern "C" fn dispatch(return_address: *const c_void, id: usize) -> *const c_void {
    link_map::init();
    got_patch::poll_pending();
    let caller = link_map::object_id(return_address);
    let generation = link_map::generation();
    if let Some(provider) = CACHE.get(caller, id, generation) {
        lifecycle::arm();
        lifecycle::wait_until_armed();
        return hook_table::hook(id, provider);
    }
    let deepbind = caller.is_some_and(got_patch::is_deepbind);
    let Some(real) = scope::definition(caller, entry_points::entry_point(id).symbol, deepbind) else {
        // A weak reference without a runtime: nothing is armed for it.
        return not_initialized as *const c_void;
    };
    lifecycle::arm();
    lifecycle::wait_until_armed();
    let Some(provider) = hook_table::provider(id, real) else { return real };
    CACHE.insert(caller, id, generation, provider);
    hook_table::hook(id, provider)
}

/// What a weakly bound call gets when no runtime or driver answers it: "not initialised", in both APIs.
extern "C" fn not_initialized() -> i32 {
    3
}

/// Drops what was found before libraries were unloaded: others may come to lie where they lay.
pub fn forget_unloaded() {
    CACHE.clear();
}

static CACHE: Cache = Cache::new();

/// The providers already found, by calling object and entry point. Its size is fixed, and whoever comes later
/// takes the entry of whoever came before.
///
/// An entry is one word, so a reader finds it whole, or another: (bit 63) object 44 | entry point 8 |
/// provider 2 | generation 10 (bit 0). The generation keeps out what another thread began to look up before
/// objects were unloaded, and inserts after the cache was cleared for that.
struct Cache([AtomicU64; Cache::SIZE]);

impl Cache {
    const SIZE: usize = 1024;
    const GENERATION: u64 = (1 << 10) - 1;
    const PROVIDER_SHIFT: u32 = 10;
    const ENTRY_POINT_SHIFT: u32 = 12;
    const OBJECT_SHIFT: u32 = 20;
    const PROVIDER: u64 = (PROVIDERS as u64 - 1) << Cache::PROVIDER_SHIFT;

    const fn new() -> Cache {
        assert!(PROVIDERS == 4 && ENTRY_POINTS.len() < 256 && machine::ADDRESS_END <= 1 << 48);
        Cache([const { AtomicU64::new(0) }; Cache::SIZE])
    }

    /// An entry of provider 0. Never 0 itself: entry points count from 1. Link maps are aligned to 16 bytes,
    /// and addresses of programs have 48 bits at most.
    fn key(caller: Option<ObjectId>, id: usize, generation: u64) -> u64 {
        let object = caller.map_or(0, |c| c.address() as u64 >> 4);
        object << Cache::OBJECT_SHIFT
            | (id as u64) << Cache::ENTRY_POINT_SHIFT
            | generation & Cache::GENERATION
    }

    fn entry(&self, key: u64) -> &AtomicU64 {
        let hash = (key & !Cache::GENERATION).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.0[(hash >> (64 - Cache::SIZE.ilog2())) as usize]
    }

    fn get(&self, caller: Option<ObjectId>, id: usize, generation: u64) -> Option<usize> {
        let key = Cache::key(caller, id, generation);
        let entry = self.entry(key).load(Acquire);
        (entry & !Cache::PROVIDER == key)
            .then_some(((entry & Cache::PROVIDER) >> Cache::PROVIDER_SHIFT) as usize)
    }

    fn insert(&self, caller: Option<ObjectId>, id: usize, generation: u64, provider: usize) {
        let key = Cache::key(caller, id, generation);
        self.entry(key).store(key | (provider as u64) << Cache::PROVIDER_SHIFT, Release);
    }

    fn clear(&self) {
        self.0.iter().for_each(|entry| entry.store(0, Release));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(address: usize) -> Option<ObjectId> {
        ObjectId::of_handle(std::ptr::without_provenance_mut(address))
    }

    #[test]
    fn an_entry_is_found_by_its_own_caller_entry_point_and_generation_only() {
        let cache = Cache::new();
        let (one, other) = (object(0xffff_ffff_f000), object(0x7fff_ffff_f000));
        assert_eq!(cache.get(one, 1, 0), None);
        cache.insert(one, 1, 5, 3);
        assert_eq!(cache.get(one, 1, 5), Some(3));
        for (caller, id, generation) in [(other, 1, 5), (None, 1, 5), (one, 2, 5), (one, 1, 6)] {
            assert_eq!(cache.get(caller, id, generation), None);
        }
        cache.insert(None, ENTRY_POINTS.len(), 5, 0);
        assert_eq!(cache.get(None, ENTRY_POINTS.len(), 5), Some(0));
    }

    #[test]
    fn later_entries_evict_earlier_ones() {
        let cache = Cache::new();
        let objects = 10 * Cache::SIZE;
        for n in 0..objects {
            cache.insert(object(0x5555_0000_0000 + 16 * n), 7, 0, n % PROVIDERS);
            // Whatever it replaced, it is found itself.
            assert_eq!(cache.get(object(0x5555_0000_0000 + 16 * n), 7, 0), Some(n % PROVIDERS));
        }
        let found = (0..objects).filter(|n| cache.get(object(0x5555_0000_0000 + 16 * n), 7, 0).is_some());
        assert!(found.count() > Cache::SIZE / 2);
    }

    #[test]
    fn nothing_outlives_an_unload() {
        let cache = Cache::new();
        cache.insert(object(0x5555_0000), 7, 0, 1);
        cache.clear();
        assert_eq!(cache.get(object(0x5555_0000), 7, 0), None);
        // A look-up that began before it comes too late.
        cache.insert(object(0x5555_0000), 7, 0, 1);
        assert_eq!(cache.get(object(0x5555_0000), 7, 1), None);
    }
}
