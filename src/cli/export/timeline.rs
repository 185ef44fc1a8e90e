//! Translates events to entries of PyTorch's memory traces. Its viewer plays a trace backwards from the
//! blocks and segments at its end, so the two must fit: whatever the events do not account for is added at
//! the end of the trace.

use std::collections::{BTreeMap, HashMap, HashSet};

use leaktrace_core::format::event::{Event, EventKind, MemoryClass, NO_DEVICE};
use leaktrace_core::ledger::{Layer, Ledger, LiveAllocation};

use super::range::EventRange;

/// An entry of a trace: an action of the allocator.
#[derive(Clone, Copy, Debug)]
pub struct TraceEntry {
    pub action: &'static str,
    pub device: u8,
    pub address: u64,
    pub bytes: u64,
    pub stack: u32,
}

/// What is at an address. A block may be at the start of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Region {
    Block,
    /// A part of a segment that is mapped by itself.
    MappedPiece,
    Segment,
    /// A driver allocation, which is shown as a segment with one block.
    DriverAllocation,
}

#[derive(Clone, Copy, Debug)]
struct Extent {
    bytes: u64,
    device: u8,
}

/// All that is alive, by kind and address.
type LiveSet = BTreeMap<(Region, u64), Extent>;

/// The trace of one recording, built event by event.
pub struct Timeline {
    live: LiveSet,
    /// The numbers of the events that allocated a segment of a caching allocator.
    segment_allocs: HashSet<u64>,
    /// The numbers of the events that mapped a piece of such a segment, with its device.
    piece_maps: HashMap<u64, u8>,
}

impl Timeline {
    /// Prepares the trace of a range of events up to number `judged`, where the ledger is `then`.
    pub fn new(range: &EventRange<'_>, judged: u64, then: &Ledger) -> Timeline {
        let mut timeline = Timeline {
            live: live_set(&range.base),
            segment_allocs: HashSet::new(),
            piece_maps: HashMap::new(),
        };
        // Driver allocations that no block was seen in yet: end and event number by start.
        let mut unknown: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        // Mapped pieces that no block was seen in yet: end, event number and device by start.
        let mut pieces: BTreeMap<u64, (u64, u64, u8)> = BTreeMap::new();
        let mut devices: HashMap<u64, u8> = HashMap::new();
        let mut half = None;
        for e in range.events().map(|p| p.event).take_while(|e| e.seq <= judged) {
            match EventKind::from_code(e.kind) {
                Some(EventKind::Alloc) if is_pointer(&e) => {
                    unknown.insert(e.address, (e.address.saturating_add(e.size), e.seq));
                }
                Some(EventKind::Alloc) if e.class == MemoryClass::Physical as u8 => {
                    devices.insert(e.address, e.device);
                }
                Some(EventKind::Free) if is_pointer(&e) => {
                    unknown.remove(&e.address);
                }
                Some(EventKind::Map) => half = Some(e),
                Some(EventKind::MapHandle) => {
                    let known = devices.get(&e.address).copied();
                    if let (Some(map), Some(device)) = (half.take(), known) {
                        pieces.insert(map.address, (map.address.saturating_add(map.size), map.seq, device));
                    }
                }
                Some(EventKind::Unmap) => {
                    let end = e.address.saturating_add(e.size);
                    pieces.retain(|&start, p| start < e.address || p.0 > end);
                }
                Some(EventKind::BlockAlloc) => {
                    let under =
                        unknown.range(..=e.address).next_back().filter(|(_, (end, _))| e.address < *end);
                    if let Some((&start, &(_, seq))) = under {
                        timeline.segment_allocs.insert(seq);
                        unknown.remove(&start);
                    }
                    let end = e.address.saturating_add(e.size);
                    // Every piece that the block covers.
                    let under = pieces.range(..end).rev().take_while(|(_, p)| p.0 > e.address);
                    let under: Vec<u64> = under.map(|(&start, _)| start).collect();
                    for start in under {
                        if let Some((_, seq, device)) = pieces.remove(&start) {
                            timeline.piece_maps.insert(seq, device);
                        }
                    }
                }
                _ => {}
            }
        }
        for s in then.live_segments().iter().filter(|s| s.mapped) {
            if let Some((_, seq, device)) = pieces.remove(&s.start) {
                timeline.piece_maps.insert(seq, device);
            }
        }
        timeline
    }

    /// Appends the entries of an event, of which there may be none.
    pub fn apply(&mut self, e: &Event, entries: &mut Vec<TraceEntry>) {
        match EventKind::from_code(e.kind) {
            Some(EventKind::BlockAlloc) => self.begin(Region::Block, e, e.device, entries),
            Some(EventKind::BlockFree) => self.end(Region::Block, e.address, entries),
            Some(EventKind::Alloc) if is_pointer(e) => {
                let segment = self.segment_allocs.contains(&e.seq);
                self.begin(
                    if segment { Region::Segment } else { Region::DriverAllocation },
                    e,
                    e.device,
                    entries,
                );
            }
            Some(EventKind::Free) if is_pointer(e) => {
                self.end(Region::Segment, e.address, entries);
                self.end(Region::DriverAllocation, e.address, entries);
            }
            Some(EventKind::Map) => {
                if let Some(&device) = self.piece_maps.get(&e.seq) {
                    self.begin(Region::MappedPiece, e, device, entries);
                }
            }
            Some(EventKind::Unmap) => {
                let end = e.address.saturating_add(e.size);
                let pieces = self.live.range((Region::MappedPiece, e.address)..(Region::MappedPiece, end));
                let inside: Vec<u64> = pieces.map(|(&(_, start), _)| start).collect();
                inside.into_iter().for_each(|start| self.end(Region::MappedPiece, start, entries));
            }
            Some(EventKind::OutOfMemory) => entries.push(TraceEntry {
                action: "oom",
                device: e.device,
                address: 0,
                bytes: e.size,
                stack: e.stack,
            }),
            _ => {}
        }
    }

    /// Appends the entries that no event accounts for: region is gone at the end, and region is there.
    pub fn finish(mut self, then: &Ledger, entries: &mut Vec<TraceEntry>) {
        let live = live_set(then);
        let gone: Vec<(Region, u64)> =
            self.live.keys().filter(|key| !live.contains_key(key)).copied().collect();
        gone.into_iter().for_each(|(region, address)| self.end(region, address, entries));
        for (&(region, address), extent) in live.iter().rev().filter(|(key, _)| !self.live.contains_key(key))
        {
            started(region, address, *extent, 0, entries);
        }
    }

    fn begin(&mut self, region: Region, e: &Event, device: u8, entries: &mut Vec<TraceEntry>) {
        // The end of region was here before was not seen.
        self.end(region, e.address, entries);
        let extent = Extent { bytes: e.size, device };
        self.live.insert((region, e.address), extent);
        started(region, e.address, extent, e.stack, entries);
    }

    fn end(&mut self, region: Region, address: u64, entries: &mut Vec<TraceEntry>) {
        let Some(Extent { bytes, device }) = self.live.remove(&(region, address)) else { return };
        let actions: &[&str] = match region {
            Region::Block => &["free_requested", "free_completed"],
            Region::MappedPiece => &["segment_unmap"],
            Region::Segment => &["segment_free"],
            Region::DriverAllocation => &["free_requested", "free_completed", "segment_free"],
        };
        entries.extend(actions.iter().map(|action| TraceEntry { action, device, address, bytes, stack: 0 }));
    }
}

fn started(region: Region, address: u64, extent: Extent, stack: u32, entries: &mut Vec<TraceEntry>) {
    let actions: &[&str] = match region {
        Region::Block => &["alloc"],
        Region::MappedPiece => &["segment_map"],
        Region::Segment => &["segment_alloc"],
        Region::DriverAllocation => &["segment_alloc", "alloc"],
    };
    let Extent { bytes, device } = extent;
    entries.extend(actions.iter().map(|action| TraceEntry { action, device, address, bytes, stack }));
}

fn live_set(ledger: &Ledger) -> LiveSet {
    let device = |site: u32| ledger.site(site).map_or(NO_DEVICE, |s| s.device);
    let living = |region| {
        move |l: LiveAllocation| ((region, l.address), Extent { bytes: l.bytes, device: device(l.site) })
    };
    let blocks = ledger.live_blocks().into_iter().map(living(Region::Block));
    let of_device = |l: &LiveAllocation| ledger.site(l.site).is_some_and(|s| s.layer == Layer::Driver);
    let objects =
        ledger.live_driver_allocations().into_iter().filter(of_device).map(living(Region::DriverAllocation));
    let segments = ledger.live_segments().into_iter().map(|s| {
        let region = if s.mapped { Region::MappedPiece } else { Region::Segment };
        ((region, s.start), Extent { bytes: s.end.saturating_sub(s.start), device: device(s.site) })
    });
    blocks.chain(objects).chain(segments).collect()
}

fn is_pointer(e: &Event) -> bool {
    MemoryClass::from_code(e.class).is_some_and(|c| !c.is_handle() && !c.is_external() && !c.is_host())
}
