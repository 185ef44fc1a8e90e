//! A second ledger, as simple as can be, written from what `format/event.rs` says of each kind of event. It
//! finds everything by a linear search, and knows nothing of how the real one does it.

use std::collections::BTreeMap;

use super::*;

/// Stack, layer, device, entry point.
pub(super) type Key = (u32, Layer, u8, u16);
/// Blocks and bytes.
pub(super) type Sums<K> = BTreeMap<K, (u64, u64)>;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Of {
    Block,
    Pointer,
    Handle,
}

/// A block or an allocation, dead or alive.
#[derive(Clone)]
pub(super) struct Thing {
    pub(super) of: Of,
    pub(super) number: u64,
    pub(super) bytes: u64,
    pub(super) class: Option<MemoryClass>,
    pub(super) context: u8,
    pub(super) refs: u32,
    pub(super) alive: bool,
    key: Key,
    birth: u32,
    segment: bool,
}

/// Start, end, and the thing that is mapped there.
pub(super) type Mapping = (u64, u64, usize);

#[derive(Clone, Copy)]
pub(super) struct Node {
    pub(super) exec: u64,
    pub(super) address: u64,
    pub(super) frees: bool,
    size: u64,
    device: u8,
}

#[derive(Default)]
pub(super) struct Oracle {
    pub(super) things: Vec<Thing>,
    pub(super) mappings: Vec<Mapping>,
    /// Start, end, and whether a block was reported inside.
    pub(super) ranges: Vec<(u64, u64, bool)>,
    pub(super) nodes: Vec<Node>,
    pub(super) completed: u32,
    pub(super) exited: bool,
    pub(super) freed_with_context: u64,
    plans: BTreeMap<u64, (u32, u16)>,
    first_half: Option<Event>,
    undone: Option<(usize, Thing)>,
    /// What was alive at each boundary, and at the latest.
    pub(super) retained: BTreeMap<u32, Sums<Key>>,
    judged: Vec<usize>,
}

impl Oracle {
    fn alive(&self, of: Of) -> impl Iterator<Item = usize> {
        (0..self.things.len()).filter(move |&i| self.things[i].alive && self.things[i].of == of)
    }

    /// Returns what a call with this number means: the latest thing of the number that has a reference.
    pub(super) fn named(&self, of: Of, number: u64) -> Option<usize> {
        self.alive(of).filter(|&i| self.things[i].number == number && self.things[i].refs > 0).last()
    }

    fn maps(&self, thing: usize) -> usize {
        self.mappings.iter().filter(|m| m.2 == thing).count()
    }

    pub(super) fn apply(&mut self, e: &Event) {
        let first_half = self.first_half.take();
        match EventKind::from_code(e.kind).expect("legal") {
            EventKind::BlockAlloc => {
                self.reported(e.address);
                self.begin(Of::Block, Layer::Block, e);
            }
            EventKind::BlockFree => {
                let block = self.named(Of::Block, e.address).expect("legal");
                self.things[block].alive = false;
            }
            EventKind::Alloc => self.alloc(e),
            EventKind::Free => {
                let class = MemoryClass::from_code(e.class).expect("legal");
                let of = if class.is_handle() { Of::Handle } else { Of::Pointer };
                let Some(thing) = self.named(of, e.address) else { return };
                self.undone = Some((thing, self.things[thing].clone()));
                self.drop_reference(thing);
            }
            EventKind::FreeFailed => {
                if let Some((thing, before)) = self.undone.take() {
                    self.things[thing] = before;
                }
            }
            EventKind::Reserve => self.ranges.push((e.address, e.address + e.size, false)),
            EventKind::Unreserve => self.ranges.retain(|r| r.0 != e.address),
            EventKind::Map | EventKind::GraphNode => self.first_half = Some(*e),
            EventKind::MapHandle => {
                let Some(map) = first_half else { return };
                let thing = self.alive(Of::Handle).filter(|&i| self.things[i].number == e.address).last();
                let thing = thing.expect("legal");
                self.mappings.push((map.address, map.address + map.size, thing));
                let claimed = |r: &&(u64, u64, bool)| r.2 && r.0 <= map.address && map.address < r.1;
                if self.ranges.iter().find(claimed).is_some() {
                    self.is_segment(thing);
                }
            }
            EventKind::Unmap => {
                let inside = |m: &Mapping| e.address <= m.0 && m.1 <= e.address + e.size;
                let gone: Vec<Mapping> = self.mappings.iter().copied().filter(inside).collect();
                self.mappings.retain(|m| !inside(m));
                for (_, _, thing) in gone {
                    self.things[thing].alive = self.things[thing].refs > 0 || self.maps(thing) > 0;
                }
            }
            EventKind::Retain => {
                let thing = self.alive(Of::Handle).filter(|&i| self.things[i].number == e.address).last();
                self.things[thing.expect("legal")].refs += 1;
            }
            EventKind::ContextEnd => {
                for t in self.things.iter_mut().filter(|t| t.alive && t.context == e.context) {
                    if !matches!(t.class, None | Some(MemoryClass::Physical | MemoryClass::ExternalHandle)) {
                        t.alive = false;
                        self.freed_with_context += 1;
                    }
                }
            }
            EventKind::StepEnd => self.boundary(e.context == 1),
            EventKind::Exit => self.exited = true,
            EventKind::GraphAllocNode => drop(self.plans.insert(e.address, (e.stack, e.entry_point))),
            EventKind::GraphExec => {
                let Some(node) = first_half else { return };
                let (address, size, device) = (node.address, node.size, node.device);
                self.nodes.push(Node { exec: e.address, address, size, device, frees: node.context == 1 });
            }
            EventKind::GraphLaunch => self.launch(e),
            EventKind::GraphEnd => self.nodes.retain(|n| n.exec != e.address),
            EventKind::AllocatorTotals | EventKind::PoolTotals | EventKind::MemInfo => {}
            EventKind::Segment => self.reported(e.address),
            EventKind::Trained | EventKind::CopyToHost => {}
            EventKind::OutOfMemory
            | EventKind::Attached
            | EventKind::Annotation
            | EventKind::AltBoundary
            | EventKind::UntrackedCall => {}
        }
    }

    /// Takes in that a block was reported: the memory around it is a segment, or the whole range of addresses
    /// is.
    fn reported(&mut self, address: u64) {
        let around = |t: &Thing| t.number <= address && address < t.number + t.bytes;
        for thing in self.alive(Of::Pointer).collect::<Vec<_>>() {
            if around(&self.things[thing]) {
                self.is_segment(thing);
            }
        }
        for range in 0..self.ranges.len() {
            let (start, end, _) = self.ranges[range];
            if start <= address && address < end {
                self.ranges[range].2 = true;
                let inside = self.mappings.iter().filter(|m| start <= m.0 && m.0 < end);
                for thing in inside.map(|m| m.2).collect::<Vec<_>>() {
                    self.is_segment(thing);
                }
            }
        }
    }

    fn is_segment(&mut self, thing: usize) {
        let t = &mut self.things[thing];
        t.segment |= t.key.1 == Layer::Driver;
    }

    fn begin(&mut self, of: Of, layer: Layer, e: &Event) {
        self.things.push(Thing {
            of,
            number: e.address,
            bytes: e.size,
            class: MemoryClass::from_code(e.class),
            context: e.context,
            refs: 1,
            alive: true,
            key: (e.stack, layer, e.device, e.entry_point),
            birth: if self.exited { u32::MAX } else { self.completed + 1 },
            segment: false,
        });
    }

    fn alloc(&mut self, e: &Event) {
        let class = MemoryClass::from_code(e.class).expect("legal");
        let of = if class.is_handle() { Of::Handle } else { Of::Pointer };
        if matches!(class, MemoryClass::External | MemoryClass::ExternalHandle)
            && let Some(had) = self.named(of, e.address)
        {
            self.things[had].refs += 1;
            return;
        }
        let layer = match class {
            MemoryClass::External | MemoryClass::ExternalHandle | MemoryClass::Registered => Layer::External,
            MemoryClass::Host => Layer::Host,
            _ if e.device == NO_DEVICE => Layer::Host,
            _ => Layer::Driver,
        };
        self.begin(of, layer, e);
    }

    fn drop_reference(&mut self, thing: usize) {
        let mapped = self.maps(thing) > 0;
        let t = &mut self.things[thing];
        t.refs -= 1;
        t.alive = t.refs > 0 || mapped;
    }

    fn launch(&mut self, e: &Event) {
        let nodes: Vec<Node> = self.nodes.iter().copied().filter(|n| n.exec == e.address).collect();
        let other = |n: &Node| nodes.iter().any(|o| o.address == n.address && o.frees != n.frees);
        for n in &nodes {
            if other(n) {
                continue; // Allocated and freed inside.
            }
            if let Some(thing) = self.named(Of::Pointer, n.address) {
                self.drop_reference(thing);
            }
            if !n.frees {
                let (stack, entry_point) =
                    self.plans.get(&n.address).copied().unwrap_or((e.stack, e.entry_point));
                let (class, device) = (MemoryClass::Graph as u8, n.device);
                let of = Event { address: n.address, size: n.size, class, device, ..*e };
                self.begin(Of::Pointer, Layer::Driver, &Event { stack, entry_point, ..of });
            }
        }
    }

    fn boundary(&mut self, replaces: bool) {
        if self.exited {
            return;
        }
        if replaces && self.completed > 0 {
            let next = self.completed + 1;
            self.things.iter_mut().filter(|t| t.birth == next).for_each(|t| t.birth -= 1);
        } else {
            self.completed += 1;
        }
        let held = |t: &Thing| t.alive && !t.segment;
        self.judged = (0..self.things.len()).filter(|&i| held(&self.things[i])).collect();
        let held = self.things.iter().filter(|t| held(t));
        self.retained.insert(self.completed, add_up(held.map(|t| (t.key, t.bytes))));
    }

    /// Returns what is judged: all that was alive at the latest boundary and did not turn out to be a segment
    /// since.
    pub(super) fn cohorts(&self) -> Sums<(Key, u32)> {
        let judged = self.judged.iter().map(|&i| &self.things[i]).filter(|t| !t.segment);
        add_up(judged.map(|t| ((t.key, t.birth), t.bytes)))
    }

    /// Returns the bytes alive now by device and layer; segments apart.
    pub(super) fn totals(&self) -> BTreeMap<(u8, Layer, bool), u64> {
        let mut sums = BTreeMap::new();
        for t in self.things.iter().filter(|t| t.alive) {
            *sums.entry((t.key.2, t.key.1, t.segment)).or_default() += t.bytes;
        }
        sums
    }
}

fn add_up<K: Ord>(all: impl Iterator<Item = (K, u64)>) -> Sums<K> {
    let mut sums = Sums::new();
    for (key, bytes) in all {
        let sum = sums.entry(key).or_insert((0, 0));
        *sum = (sum.0 + 1, sum.1 + bytes);
    }
    sums
}
