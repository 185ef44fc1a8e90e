//! The ledger itself: gives each event to the layer it is about, and says what happens at a boundary. What
//! can be asked of it is above, in `query`.

use serde::{Deserialize, Serialize};

use super::after_last::{self, Gathered};
use super::annotations::{Annotation, Annotations};
use super::blocks::Blocks;
use super::carry_over::CarryOver;
use super::devices::Device;
use super::driver::Driver;
use super::fragmentation::Fragmentation;
use super::graphs::Graphs;
use super::out_of_memory::OutOfMemoryLog;
use super::phases::Phases;
use super::releases::Releases;
use super::sequence::Sequence;
use super::step_sources::StepSources;
use super::steps::{StepRecord, Steps};
use super::totals::{Books, Space};
use super::untracked::Untracked;
use crate::format::event::{AnnotationKind, Event, EventKind, StepSource};

/// The ledger of one process. `Default` is an empty one; serialising gives a checkpoint that continues
/// exactly.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ledger {
    pub(super) sequence: Sequence,
    pub(super) books: Books,
    pub(super) blocks: Blocks,
    pub(super) driver: Driver,
    pub(super) graphs: Graphs,
    pub(super) steps: Steps,
    pub(super) step_sources: StepSources,
    pub(super) phases: Phases,
    pub(super) annotations: Annotations,
    /// Id of the label of the latest user annotation in this step; 0: none.
    pub(super) step_label: u32,
    pub(super) releases: Releases,
    pub(super) carry_over: CarryOver,
    pub(super) fragmentation: Fragmentation,
    pub(super) out_of_memory: OutOfMemoryLog,
    pub(super) untracked: Untracked,
    /// What was gathered after the last step when the program exited.
    pub(super) after_last: Vec<Gathered>,
}

impl Ledger {
    /// Returns the ledger that a checkpoint holds (`None`: an empty one) after the events that were committed
    /// since. Events that the checkpoint covers are passed over. `None` if it is no checkpoint of this
    /// version.
    pub fn replay(checkpoint: Option<&[u8]>, events: impl IntoIterator<Item = Event>) -> Option<Ledger> {
        let mut ledger: Ledger = match checkpoint {
            Some(state) => postcard::from_bytes(state).ok()?,
            None => Ledger::default(),
        };
        events.into_iter().for_each(|e| ledger.apply(&e));
        Some(ledger)
    }

    /// Takes in one event. Events come in the order of their sequence numbers; one that was taken in already
    /// is passed over, and one that was missing in its turn may come later.
    #[inline]
    pub fn apply(&mut self, e: &Event) {
        if !self.sequence.admits(e.seq) {
            if e.seq == 0 {
                self.apply_backfilled(e);
            }
            return;
        }
        if e.kind == EventKind::BlockAlloc as u8 {
            return self.block_alloc(e);
        }
        if e.kind == EventKind::BlockFree as u8 {
            return self.block_free(e);
        }
        self.apply_other(e);
    }

    #[inline]
    fn block_alloc(&mut self, e: &Event) {
        if self.driver.may_show_segment() {
            self.driver.block_reported(&mut self.books, e.address);
        }
        self.blocks.alloc(&mut self.books, e);
    }

    #[inline]
    fn block_free(&mut self, e: &Event) {
        let known = self.blocks.free(&mut self.books, &mut self.annotations, e);
        if !known && self.driver.may_show_segment() {
            self.driver.block_reported(&mut self.books, e.address);
        }
    }

    /// Takes in a boundary that was found out about later, unless a checkpoint covers it.
    #[cold]
    fn apply_backfilled(&mut self, e: &Event) {
        let kind = EventKind::from_code(e.kind);
        if matches!(kind, Some(EventKind::StepEnd | EventKind::AltBoundary)) && e.size > self.sequence.last()
        {
            self.apply_other(e);
        }
    }

    #[inline(never)]
    fn apply_other(&mut self, e: &Event) {
        let Some(kind) = EventKind::from_code(e.kind) else { return self.books.unknown_event() };
        let books = &mut self.books;
        match kind {
            EventKind::BlockAlloc | EventKind::BlockFree => {}
            EventKind::Alloc => self.driver.alloc(books, e),
            EventKind::Free => self.driver.free(books, e),
            EventKind::FreeFailed => self.driver.undo_free(books, e),
            EventKind::Reserve => self.driver.reserve(e),
            EventKind::Unreserve => self.driver.unreserve(e),
            EventKind::Map => self.driver.map(e),
            EventKind::MapHandle => self.driver.map_handle(books, e),
            EventKind::Unmap => self.driver.unmap(books, e),
            EventKind::Retain => self.driver.retain(e),
            EventKind::ContextEnd => self.driver.context_end(books, e),
            EventKind::AllocatorTotals => {
                let attached = books.attached;
                let device = books.device(e.device);
                // A block event that is missing may change the total: the two can be compared only where none
                // is.
                if !self.sequence.awaits_before(e.seq) {
                    device.compare_allocator(e.seq, e.address, e.size, e.stack, attached);
                }
            }
            EventKind::PoolTotals => books.device(e.device).set_pool_totals(e.size, e.address),
            EventKind::MemInfo => books.device(e.device).set_memory_info(e.address, e.size),
            EventKind::StepEnd => self.step_end(e),
            EventKind::AltBoundary => {
                self.step_sources.count(e);
                if e.class == StepSource::Backward as u8 {
                    self.phases.trained();
                }
            }
            EventKind::OutOfMemory => self.out_of_memory.record(books, &self.blocks, &self.driver, e),
            EventKind::Exit => self.exit(e),
            EventKind::UntrackedCall => self.untracked.count(e.entry_point, e.size),
            EventKind::GraphAllocNode => self.graphs.alloc_node(e),
            EventKind::GraphNode => self.graphs.node(e),
            EventKind::GraphExec => self.graphs.exec(e),
            EventKind::GraphLaunch => self.graphs.launch(&mut self.driver, books, e),
            EventKind::GraphEnd => self.graphs.end(e),
            EventKind::Annotation => self.annotate(e),
            EventKind::Attached => books.attached = true,
            EventKind::Segment => self.driver.block_reported(books, e.address),
            EventKind::Trained => self.phases.trained(),
            EventKind::CopyToHost => self.blocks.copied_to_host(books, e),
        }
    }

    fn step_end(&mut self, e: &Event) {
        // What a program steps through while it tears itself down is no step.
        if self.books.exit.is_some() {
            return;
        }
        let supersedes = e.context == 1 && self.books.completed > 0;
        if supersedes {
            self.move_births();
        } else {
            self.books.completed = self.books.completed.saturating_add(1);
            if matches!(StepSource::from_code(e.class), Some(StepSource::Optimizer | StepSource::Backward)) {
                self.phases.trained();
            }
            self.phases.end_step(self.books.completed, e.class == StepSource::Loop as u8);
        }
        self.books.newborn.clear();
        self.books.lately.end_step();
        let trimmed = self.driver.end_step();
        self.releases.settle(&mut self.books, trimmed);
        self.carry_over.settle(&mut self.books, supersedes);
        self.fragmentation.look(&self.books, &self.blocks, &self.driver);
        // Who reads the clock first may be recorded last.
        let at_ns = e.address.max(self.books.last_ns.saturating_add(1));
        self.books.last_ns = at_ns;
        self.step_sources.count_step_end(e);
        let record = StepRecord {
            step: self.books.completed,
            at_ns,
            source: e.class,
            label: std::mem::take(&mut self.step_label),
            devices: self.books.devices.iter_mut().map(Device::end_step).collect(),
            deltas: self.books.sites.take_deltas(),
        };
        if supersedes { self.steps.extend(record) } else { self.steps.push(record) }
    }

    /// Moves what was born since the last boundary to the step that it ended: that step is not over.
    fn move_births(&mut self) {
        let (from, to) = (self.books.completed.saturating_add(1), self.books.completed);
        self.annotations.move_steps(from, to);
        for &(space, address) in &self.books.newborn {
            match space {
                Space::Block => self.blocks.move_birth(address, from, to),
                _ => self.driver.move_birth(space, address, from, to),
            }
        }
        self.books.sites.move_births(to);
    }

    fn annotate(&mut self, e: &Event) {
        // What a program does while it tears itself down is no part of its run.
        let Some(kind) = AnnotationKind::from_code(e.class).filter(|_| self.books.exit.is_none()) else {
            return;
        };
        self.books.last_ns = e.address;
        match kind {
            AnnotationKind::User => self.step_label = e.stack,
            // A cache that is the driver's own pool gives back no segment that was seen.
            AnnotationKind::EmptyCache => self.driver.cache_emptied(),
            AnnotationKind::Range | AnnotationKind::Gc => {}
        }
        let step = self.books.completed.saturating_add(1);
        self.annotations.push(Annotation::new(step, e.address, kind, e.stack));
    }

    fn exit(&mut self, e: &Event) {
        if self.books.exit.is_none() {
            self.books.last_ns = e.address;
            self.after_last = after_last::gathered(&self.books, &self.blocks);
            self.books.lately.released_before_exit = self.books.releases_since_boundary.len();
            self.books.exit = Some(self.books.devices.iter().map(Device::now).collect());
        }
    }
}
