//! What the caching allocator says of itself with every block: kept per device, and sampled at step boundaries.

use std::sync::atomic::{AtomicU64, Ordering::*};

use crate::thread_state;
use crate::writer::recording;
use leaktrace_core::format::event::{Event, EventKind};

/// The devices whose caching allocator has reported blocks, a bit each.
#[unsafe(link_section = ".data.leaktrace")]
static REPORTED: AtomicU64 = AtomicU64::new(0);

/// The totals that the caching allocator of a device last reported.
struct Totals {
    seq: AtomicU64,
    allocated: AtomicU64,
    reserved: AtomicU64,
}

#[unsafe(link_section = ".data.leaktrace")]
static TOTALS: [Totals; 64] =
    [const { Totals { seq: AtomicU64::new(0), allocated: AtomicU64::new(0), reserved: AtomicU64::new(0) } };
        64];

/// Keeps the totals that the caching allocator reports with a block. Under the allocator's lock of that
/// device.
#[inline]
pub fn allocator_reports(device: u8, allocated: u64, reserved: u64) {
    let Some(totals) = TOTALS.get(device as usize) else { return };
    if REPORTED.load(Relaxed) >> device & 1 == 0 {
        REPORTED.fetch_or(1 << device, Relaxed);
    }
    totals.seq.store(0, Relaxed);
    totals.allocated.store(allocated, Release);
    totals.reserved.store(reserved, Release);
    totals.seq.store(recording::sequence() - 1, Release);
}

/// Returns whether a caching allocator has reported blocks.
pub fn has_blocks() -> bool {
    REPORTED.load(Relaxed) != 0
}

/// Returns the devices that a mask has a bit of.
pub fn devices(mask: u64) -> impl Iterator<Item = u8> {
    let less = |mask: &u64| Some(mask & mask.wrapping_sub(1)).filter(|&rest| rest != 0);
    std::iter::successors(Some(mask).filter(|&mask| mask != 0), less).map(|mask| mask.trailing_zeros() as u8)
}

/// Records the totals of every device at this moment.
pub fn sample() {
    for device in devices(REPORTED.load(Acquire)) {
        let totals = &TOTALS[usize::from(device)];
        let seq = totals.seq.load(Acquire);
        let (allocated, reserved) = (totals.allocated.load(Acquire), totals.reserved.load(Acquire));
        // Unchanged, so the three belong together.
        if seq != 0 && totals.seq.load(Acquire) == seq {
            thread_state::append(&Event {
                address: allocated,
                size: reserved,
                device,
                stack: seq as u32,
                ..Event::new(EventKind::AllocatorTotals)
            });
        }
    }
}

/// Forgets the totals of the parent, in a forked child.
pub fn after_fork_child() {
    for totals in &TOTALS {
        totals.seq.store(0, Relaxed);
    }
}
