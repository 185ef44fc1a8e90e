//! Events in the words of PyTorch's memory traces. Its viewer plays a trace backwards from the blocks and segments at its
//! end, so the two must fit: whatever the events do not account for is made up for at the end of the trace.

use std::collections::{BTreeMap, HashMap, HashSet};

use leaktrace_core::format::event::{Event, EventKind, MemoryClass, NO_DEVICE};
use leaktrace_core::ledger::{Layer, Ledger, LiveAllocation};

use super::window::Window;

/// An entry of a trace.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    pub action: &'static str,
    pub device: u8,
    pub address: u64,
    pub bytes: u64,
    pub stack: u32,
}

/// What lies at an address. A block may lie where a segment begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum What {
    Block,
    /// A segment's part that is mapped by itself.
    Piece,
    Segment,
    /// A driver allocation that stands for a segment with one block.
    Object,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    bytes: u64,
    device: u8,
}

/// All that is alive; where the driver's pointers and pieces are, at most one of each address.
type Alive = BTreeMap<(What, u64), Held>;

/// The trace of one recording, told event by event.
pub struct Story {
    alive: Alive,
    /// The numbers of the events that gave a caching allocator a segment.
    given: HashSet<u64>,
    /// The same of what it mapped, with the device.
    mapped: HashMap<u64, u8>,
}

impl Story {
    /// From the beginning of a window to `judged`, where the books are `then`.
    pub fn new(window: &Window<'_>, judged: u64, then: &Ledger) -> Story {
        let mut story = Story { alive: alive(&window.base), given: HashSet::new(), mapped: HashMap::new() };
        // Not yet known to be a segment: end and number by start.
        let mut unknown: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        // The same of what is mapped, with its device.
        let mut pieces: BTreeMap<u64, (u64, u64, u8)> = BTreeMap::new();
        let mut devices: HashMap<u64, u8> = HashMap::new();
        let mut half = None;
        for e in window.events().map(|p| p.event).take_while(|e| e.seq <= judged) {
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
                        story.given.insert(seq);
                        unknown.remove(&start);
                    }
                    let end = e.address.saturating_add(e.size);
                    // Every piece that the block lies on.
                    let under = pieces.range(..end).rev().take_while(|(_, p)| p.0 > e.address);
                    let under: Vec<u64> = under.map(|(&start, _)| start).collect();
                    for start in under {
                        if let Some((_, seq, device)) = pieces.remove(&start) {
                            story.mapped.insert(seq, device);
                        }
                    }
                }
                _ => {}
            }
        }
        for s in then.live_segments().iter().filter(|s| s.mapped) {
            if let Some((_, seq, device)) = pieces.remove(&s.start) {
                story.mapped.insert(seq, device);
            }
        }
        story
    }

    /// What an event is, in any number of entries.
    pub fn goes_on(&mut self, e: &Event, told: &mut Vec<Told>) {
        match EventKind::from_code(e.kind) {
            Some(EventKind::BlockAlloc) => self.begin(What::Block, e, e.device, told),
            Some(EventKind::BlockFree) => self.end(What::Block, e.address, told),
            Some(EventKind::Alloc) if is_pointer(e) => {
                let segment = self.given.contains(&e.seq);
                self.begin(if segment { What::Segment } else { What::Object }, e, e.device, told);
            }
            Some(EventKind::Free) if is_pointer(e) => {
                self.end(What::Segment, e.address, told);
                self.end(What::Object, e.address, told);
            }
            Some(EventKind::Map) => {
                if let Some(&device) = self.mapped.get(&e.seq) {
                    self.begin(What::Piece, e, device, told);
                }
            }
            Some(EventKind::Unmap) => {
                let end = e.address.saturating_add(e.size);
                let pieces = self.alive.range((What::Piece, e.address)..(What::Piece, end));
                let inside: Vec<u64> = pieces.map(|(&(_, start), _)| start).collect();
                inside.into_iter().for_each(|start| self.end(What::Piece, start, told));
            }
            Some(EventKind::OutOfMemory) => {
                told.push(Told { action: "oom", device: e.device, address: 0, bytes: e.size, stack: e.stack })
            }
            _ => {}
        }
    }

    /// At the end: what is no more, though nothing said so, and what is there, though nothing said so.
    pub fn ends(mut self, then: &Ledger, told: &mut Vec<Told>) {
        let there = alive(then);
        let gone: Vec<(What, u64)> =
            self.alive.keys().filter(|key| !there.contains_key(key)).copied().collect();
        gone.into_iter().for_each(|(what, address)| self.end(what, address, told));
        for (&(what, address), held) in there.iter().rev().filter(|(key, _)| !self.alive.contains_key(key)) {
            started(what, address, *held, 0, told);
        }
    }

    fn begin(&mut self, what: What, e: &Event, device: u8, told: &mut Vec<Told>) {
        // Its end was not seen.
        self.end(what, e.address, told);
        let held = Held { bytes: e.size, device };
        self.alive.insert((what, e.address), held);
        started(what, e.address, held, e.stack, told);
    }

    fn end(&mut self, what: What, address: u64, told: &mut Vec<Told>) {
        let Some(Held { bytes, device }) = self.alive.remove(&(what, address)) else { return };
        let actions: &[&str] = match what {
            What::Block => &["free_requested", "free_completed"],
            What::Piece => &["segment_unmap"],
            What::Segment => &["segment_free"],
            What::Object => &["free_requested", "free_completed", "segment_free"],
        };
        told.extend(actions.iter().map(|action| Told { action, device, address, bytes, stack: 0 }));
    }
}

fn started(what: What, address: u64, held: Held, stack: u32, told: &mut Vec<Told>) {
    let actions: &[&str] = match what {
        What::Block => &["alloc"],
        What::Piece => &["segment_map"],
        What::Segment => &["segment_alloc"],
        What::Object => &["segment_alloc", "alloc"],
    };
    let Held { bytes, device } = held;
    told.extend(actions.iter().map(|action| Told { action, device, address, bytes, stack }));
}

fn alive(books: &Ledger) -> Alive {
    let device = |site: u32| books.site(site).map_or(NO_DEVICE, |s| s.device);
    let living =
        |what| move |l: LiveAllocation| ((what, l.address), Held { bytes: l.bytes, device: device(l.site) });
    let blocks = books.live_blocks().into_iter().map(living(What::Block));
    let of_device = |l: &LiveAllocation| books.site(l.site).is_some_and(|s| s.layer == Layer::Driver);
    let objects = books.live_driver_allocations().into_iter().filter(of_device).map(living(What::Object));
    let segments = books.live_segments().into_iter().map(|s| {
        let what = if s.mapped { What::Piece } else { What::Segment };
        ((what, s.start), Held { bytes: s.end.saturating_sub(s.start), device: device(s.site) })
    });
    blocks.chain(objects).chain(segments).collect()
}

fn is_pointer(e: &Event) -> bool {
    MemoryClass::from_code(e.class).is_some_and(|c| !c.is_handle() && !c.is_external() && !c.is_host())
}
