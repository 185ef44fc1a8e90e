//! The ledger: events in, truth out. What is alive, who allocated it, when it was born, what each step kept.
//!
//! A pure replay that knows no file, no CUDA and no Python. The traced process runs it at each boundary, the reader
//! again over what came after the last checkpoint; being the same code, the two cannot disagree. Nothing an event says
//! can make it panic: sums wrap, lookups may fail, ranges saturate.

mod carried;
mod devices;
mod driver;
mod fragments;
mod graphs;
mod keys;
mod levels;
mod marks;
mod oom;
mod phases;
mod releases;
mod segments;
mod sites;
mod steps;
#[cfg(test)]
mod tests;
mod unattributed;
pub mod verdict;
mod view;
mod whole;

use serde::{Deserialize, Serialize};

pub use devices::{Device, DeviceAt};
pub use keys::Map;
pub use levels::BoundarySource;
pub use marks::Annotation;
pub use oom::OutOfMemory;
pub use phases::Phases;
pub use segments::{Extent, Segment};
pub use sites::{Layer, Site};
pub use steps::StepRecord;
pub use view::LiveAllocation;
pub use view::{Retained, retained};

use crate::format::event::{AnnotationKind, Event, EventKind, StepSource};
use releases::Departed;
use steps::Delta;

/// Addresses kept to relabel if the next boundary replaces the last one.
const MAX_NEWBORN: usize = 65_536;
/// Gaps in the sequence numbers of which a late event is still taken in.
const MAX_MISSING: usize = 1024;
/// Events after which one that is missing is not awaited any more.
const LATE: u64 = 1 << 20;
/// Halves of pairs whose other half is awaited.
const MAX_HALVES: usize = 64;
/// Counters of unknown frees: 0 for blocks, else the class's code; beyond that the last.
const CLASSES: usize = 16;
/// Birth step of what is allocated after the exit: never judged.
const AFTER_EXIT: u32 = u32::MAX;

const BLOCK: u8 = 0;
const POINTER: u8 = 1;
const HANDLE: u8 = 2;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Block {
    bytes: u64,
    site: u32,
    birth: u32,
}

/// Calls that take memory without saying how much.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UntrackedCalls {
    pub entry_point: u16,
    pub calls: u64,
    /// Where it tells a size.
    pub bytes: u64,
}

/// The books of one process. `Default` is an empty one; serialising gives a checkpoint that continues exactly.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ledger {
    last_seq: u64,
    #[serde(with = "keys::listed")]
    blocks: Map<Block>,
    driver: driver::Driver,
    graphs: graphs::Graphs,
    sites: sites::Sites,
    devices: Vec<Device>,
    steps: steps::Steps,
    /// Steps that ended.
    completed: u32,
    /// Born since the last boundary: (space, address).
    newborn: Vec<(u8, u64)>,
    /// Boundaries by source code.
    sources: [u32; 8],
    levels: levels::Levels,
    phases: phases::Phases,
    mark: u32,
    marks: marks::Marks,
    last_ns: u64,
    /// The devices when the program said that it was ending.
    exit: Option<Vec<DeviceAt>>,
    /// Freed since the last boundary though alive then. Until the next boundary says that the program went on, this may
    /// be the end of the loop: what is let go there was held by every step of it.
    departed: Vec<Departed>,
    /// Segments given back since, that were there at the last boundary.
    departed_segments: Vec<segments::Extent>,
    past: releases::Past,
    carried: carried::Carried,
    pinned: Vec<fragments::Pinned>,
    out_of_memory: Vec<OutOfMemory>,
    out_of_memory_count: u64,
    lost_events: u64,
    /// Sequence numbers that were not there in their turn: first and last of each gap.
    missing: Vec<(u64, u64)>,
    unknown_kinds: u64,
    unknown_frees: [u64; CLASSES],
    missed_frees: u64,
    /// Those among them that may still turn out to be none, by the context they were allocated in.
    displaced: Vec<(u8, u64)>,
    freed_with_context: u64,
    /// By entry point.
    markers: Vec<UntrackedCalls>,
}

impl Ledger {
    /// A ledger as a checkpoint left it (`None`: an empty one), and what was committed after it. Events that it covers
    /// are passed over. `None`: that is no checkpoint of this version.
    pub fn replay(checkpoint: Option<&[u8]>, events: impl IntoIterator<Item = Event>) -> Option<Ledger> {
        let mut ledger: Ledger = match checkpoint {
            Some(state) => postcard::from_bytes(state).ok()?,
            None => Ledger::default(),
        };
        events.into_iter().for_each(|e| ledger.apply(&e));
        Some(ledger)
    }

    /// Takes in one event. Events come in sequence order; one that was taken in already is passed over. One that was not
    /// there in its turn may come later: its thread stood still with it in hand, so nothing can rest on it yet.
    #[inline]
    pub fn apply(&mut self, e: &Event) {
        if e.seq <= self.last_seq {
            if e.seq == 0 {
                return self.placed(e);
            }
            if self.missing.is_empty() || !self.was_missing(e.seq) {
                return;
            }
        } else {
            if e.seq - self.last_seq > 1 {
                self.skipped(self.last_seq + 1, e.seq - 1);
            }
            self.last_seq = e.seq;
        }
        if e.kind == EventKind::BlockAlloc as u8 {
            return self.block_alloc(e);
        }
        if e.kind == EventKind::BlockFree as u8 {
            return self.block_free(e);
        }
        self.other(e);
    }

    #[inline(never)]
    fn other(&mut self, e: &Event) {
        match EventKind::from_code(e.kind) {
            Some(EventKind::AllocatorTotals) => {
                // One that is late may be a block's: only where none is awaited can the two be compared.
                let awaited = self.missing.last().is_some_and(|&(_, last)| e.seq.saturating_sub(last) < LATE);
                let slot = self.slot(e.device);
                if let Some(d) = self.devices.get_mut(slot).filter(|_| !awaited) {
                    d.allocator_said(e.seq, e.address, e.stack);
                }
            }
            Some(kind) => self.rarer(kind, e),
            None => self.unknown(),
        }
    }

    /// A boundary that was found out about later, at its place. One that a checkpoint covers was taken in.
    #[cold]
    fn placed(&mut self, e: &Event) {
        match EventKind::from_code(e.kind) {
            Some(kind @ (EventKind::StepEnd | EventKind::AltBoundary)) if e.size > self.last_seq => {
                self.rarer(kind, e)
            }
            _ => {}
        }
    }

    #[cold]
    fn skipped(&mut self, first: u64, last: u64) {
        self.lost_events = self.lost_events.wrapping_add(last - first).wrapping_add(1);
        if self.missing.len() >= MAX_MISSING {
            self.missing.remove(0);
        }
        self.missing.push((first, last));
    }

    /// Takes a number off those that are missing; false if it is none of them.
    #[cold]
    fn was_missing(&mut self, seq: u64) -> bool {
        let Some(at) = self.missing.iter().position(|&(first, last)| first <= seq && seq <= last) else {
            return false;
        };
        let (first, last) = self.missing.remove(at);
        if seq < last {
            self.missing.insert(at, (seq + 1, last));
        }
        if first < seq {
            self.missing.insert(at, (first, seq - 1));
        }
        self.lost_events = self.lost_events.saturating_sub(1);
        true
    }

    #[inline(never)]
    fn rarer(&mut self, kind: EventKind, e: &Event) {
        match kind {
            EventKind::Alloc => self.alloc(e),
            EventKind::Free => self.free(e),
            EventKind::FreeFailed => self.free_undo(e),
            EventKind::Reserve => self.reserve(e),
            EventKind::Unreserve => self.unreserve(e),
            EventKind::Map => self.map(e),
            EventKind::MapHandle => self.map_handle(e),
            EventKind::Unmap => self.unmap(e),
            EventKind::Retain => self.retain(e),
            EventKind::ContextEnd => self.context_end(e),
            EventKind::PoolTotals => {
                let slot = self.slot(e.device);
                self.devices[slot].pools_said(e.size, e.address);
            }
            EventKind::MemInfo => {
                let slot = self.slot(e.device);
                self.devices[slot].driver_said(e.address, e.size);
            }
            EventKind::StepEnd => self.boundary(e),
            EventKind::AltBoundary => self.levels.count(e),
            EventKind::OutOfMemory => self.ran_out(e),
            EventKind::Exit => self.exit(e),
            EventKind::UntrackedCall => self.marker(e),
            EventKind::GraphAllocNode => self.plan(e),
            EventKind::GraphNode => self.graph_node(e),
            EventKind::GraphExec => self.graph_exec(e),
            EventKind::GraphLaunch => self.graph_launch(e),
            EventKind::GraphEnd => self.graph_end(e),
            EventKind::Annotation => self.marked(e),
            EventKind::BlockAlloc | EventKind::BlockFree | EventKind::AllocatorTotals => {}
        }
    }

    #[inline]
    fn block_alloc(&mut self, e: &Event) {
        if self.driver.may_claim() {
            self.claim(e.address);
        }
        let site = self.site_of(e.stack, Layer::Block, e.device, e.entry_point);
        let block = Block { bytes: e.size, site, birth: self.birth() };
        let slot = self.born_in(Layer::Block, site, e.size);
        if let Some(d) = self.devices.get_mut(slot) {
            d.block_event(e.seq);
        }
        self.note_birth(BLOCK, e.address);
        if let Some(old) = self.blocks.insert(e.address, block) {
            self.missed_frees = self.missed_frees.wrapping_add(1);
            self.died(old.site, old.birth, old.bytes, None);
        }
    }

    #[inline]
    fn block_free(&mut self, e: &Event) {
        match self.blocks.remove(&e.address) {
            Some(b) => {
                let collected = e.context == 1;
                if collected && self.exit.is_none() {
                    self.marks.collected(self.completed.saturating_add(1), self.last_ns);
                }
                let freed = Some((collected, e.address));
                let slot = self.died_in(Layer::Block, b.site, b.birth, b.bytes, freed);
                if let Some(d) = self.devices.get_mut(slot) {
                    d.block_event(e.seq);
                }
            }
            None => {
                self.unknown_frees[0] = self.unknown_frees[0].wrapping_add(1);
                let slot = self.slot(e.device);
                self.devices[slot].block_event(e.seq);
                if self.driver.may_claim() {
                    self.claim(e.address);
                }
            }
        }
    }

    /// The step in which a block that comes now is born.
    #[inline]
    fn birth(&self) -> u32 {
        if self.exit.is_some() { AFTER_EXIT } else { self.completed.saturating_add(1) }
    }

    /// Books a birth.
    fn born(&mut self, site: u32, bytes: u64) {
        let layer = self.sites.get(site).map_or(Layer::Block, |s| s.layer);
        self.born_in(layer, site, bytes);
    }

    /// The same where the site's layer is known; returns the device's slot.
    #[inline(always)]
    fn born_in(&mut self, layer: Layer, site: u32, bytes: u64) -> usize {
        let step = self.completed.saturating_add(1);
        let Some(s) = self.sites.touch(site) else { return usize::MAX };
        s.born(bytes, step);
        let slot = usize::from(s.slot);
        if let Some(d) = self.devices.get_mut(slot) {
            d.add(layer, bytes);
        }
        slot
    }

    /// Books a death; `freed`: by the program, so that the age counts, whether by its garbage collector, and where it lay
    /// (0: not a block).
    fn died(&mut self, site: u32, birth: u32, bytes: u64, freed: Option<(bool, u64)>) {
        let layer = self.sites.get(site).map_or(Layer::Block, |s| s.layer);
        self.died_in(layer, site, birth, bytes, freed);
    }

    /// The same where the site's layer is known; returns the device's slot.
    #[inline(always)]
    fn died_in(
        &mut self,
        layer: Layer,
        site: u32,
        birth: u32,
        bytes: u64,
        freed: Option<(bool, u64)>,
    ) -> usize {
        let step = self.completed.saturating_add(1);
        let Some(s) = self.sites.touch(site) else { return usize::MAX };
        s.removed(bytes);
        let slot = usize::from(s.slot);
        let mut carried = false;
        if let Some((collected, address)) = freed
            && birth != AFTER_EXIT
        {
            // Without steps the exit is the moment that is judged.
            if birth < step || (self.exit.is_some() && self.completed == 0) {
                self.departed.push(Departed { site, birth, bytes, collected, address });
                carried = birth == self.completed && self.exit.is_none();
            } else {
                s.freed(step, 1);
            }
        }
        if let Some(d) = self.devices.get_mut(slot) {
            if carried && matches!(layer, Layer::Block | Layer::Driver) {
                d.carried_over(site, bytes);
            }
            d.take(layer, bytes);
        }
        slot
    }

    #[inline]
    fn note_birth(&mut self, space: u8, address: u64) {
        if self.newborn.len() < MAX_NEWBORN {
            self.newborn.push((space, address));
        }
    }

    #[inline]
    fn site_of(&mut self, stack: u32, layer: Layer, device: u8, entry_point: u16) -> u32 {
        match self.sites.find(stack, layer, device, entry_point) {
            Some(site) => site,
            None => {
                let slot = self.slot(device) as u8;
                self.sites.add(stack, layer, device, entry_point, slot)
            }
        }
    }

    /// Where the device stands in the list; it is put there on first sight.
    fn slot(&mut self, device: u8) -> usize {
        self.devices.iter().position(|d| d.device == device).unwrap_or_else(|| {
            self.devices.push(Device::new(device));
            self.devices.len() - 1
        })
    }

    #[cold]
    fn unknown(&mut self) {
        self.unknown_kinds = self.unknown_kinds.wrapping_add(1);
    }

    fn boundary(&mut self, e: &Event) {
        // What a program steps through while it tears itself down is no step.
        if self.exit.is_some() {
            return;
        }
        let replaces = e.context == 1 && self.completed > 0;
        if replaces {
            self.relabel();
        } else {
            self.completed = self.completed.saturating_add(1);
            self.phases.ended(self.completed, e.class == StepSource::Loop as u8);
        }
        self.newborn.clear();
        self.settle_departed();
        self.settle_carried(replaces);
        self.look_at_segments();
        self.last_ns = e.address;
        let count = &mut self.sources[usize::from(e.class & 7)];
        *count = count.saturating_add(1);
        self.levels.count(e);
        let record = StepRecord {
            step: self.completed,
            at_ns: e.address,
            source: e.class,
            label: std::mem::take(&mut self.mark),
            devices: self.devices.iter_mut().map(Device::end_step).collect(),
            deltas: self.take_deltas(),
        };
        if replaces { self.steps.extend(record) } else { self.steps.push(record) }
    }

    /// The last step is not over: what was born since belongs to it.
    fn relabel(&mut self) {
        let (from, to) = (self.completed.saturating_add(1), self.completed);
        self.marks.relabel(from, to);
        for &(space, address) in &self.newborn {
            match space {
                BLOCK => {
                    if let Some(b) = self.blocks.get_mut(&address).filter(|b| b.birth == from) {
                        b.birth = to;
                    }
                }
                _ => self.driver.relabel(space == HANDLE, address, from, to),
            }
        }
        for i in 0..self.sites.touched.len() {
            let site = self.sites.touched[i];
            if let Some(s) = self.sites.get_mut(site) {
                s.relabel(to);
            }
        }
    }

    /// Looks at what the step before had left and this one let go. Where this boundary replaces the last one, the step
    /// they lie in is not over: what died was not carried over into another.
    fn settle_carried(&mut self, replaces: bool) {
        let step = self.completed;
        for d in &mut self.devices {
            let gone = if replaces { &[][..] } else { &d.carried[..] };
            let before = d.peak_of_steps();
            let last = if replaces { d.step_so_far() } else { d.last_span() };
            self.carried.step(d.device, step, gone, last, before);
            d.carried.clear();
        }
    }

    fn take_deltas(&mut self) -> Vec<Delta> {
        let mut touched = std::mem::take(&mut self.sites.touched);
        touched.sort_unstable();
        let mut deltas = Vec::new();
        for &site in &touched {
            let Some(s) = self.sites.get_mut(site) else { continue };
            s.touched = false;
            let (blocks, bytes) = (std::mem::take(&mut s.step_blocks), std::mem::take(&mut s.step_bytes));
            if blocks != 0 || bytes != 0 {
                let blocks = blocks.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32;
                deltas.push(Delta { site, blocks, bytes });
            }
        }
        touched.clear();
        self.sites.touched = touched;
        deltas
    }

    fn marked(&mut self, e: &Event) {
        // What a program does while it tears itself down is no part of its run.
        let Some(kind) = AnnotationKind::from_code(e.class).filter(|_| self.exit.is_none()) else { return };
        self.last_ns = e.address;
        if kind == AnnotationKind::User {
            self.mark = e.stack;
        }
        self.marks.push(marks::Annotation::new(self.completed.saturating_add(1), e.address, kind, e.stack));
    }

    fn marker(&mut self, e: &Event) {
        match self.markers.binary_search_by_key(&e.entry_point, |m| m.entry_point) {
            Ok(at) => {
                let m = &mut self.markers[at];
                m.calls = m.calls.wrapping_add(1);
                m.bytes = m.bytes.wrapping_add(e.size);
            }
            Err(at) => {
                self.markers
                    .insert(at, UntrackedCalls { entry_point: e.entry_point, calls: 1, bytes: e.size });
            }
        }
    }

    fn exit(&mut self, e: &Event) {
        if self.exit.is_none() {
            self.last_ns = e.address;
            self.exit = Some(self.devices.iter().map(Device::now).collect());
        }
    }
}
