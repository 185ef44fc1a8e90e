//! What can be asked of the books.

use serde::{Deserialize, Serialize};

use super::keys::{Map, pair};
use super::{CLASSES, Device, DeviceAt, Ledger, OutOfMemory, Site, StepRecord, UntrackedCalls};
use crate::format::event::{AnnotationKind, Event, EventKind, StepSource};

/// What a site holds at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retained {
    pub site: u32,
    pub blocks: u64,
    pub bytes: u64,
}

/// Largest first; equal ones in the order of first sight.
pub(super) fn rank(sites: &mut [Retained]) {
    sites.sort_unstable_by_key(|r| (std::cmp::Reverse(r.bytes), r.site));
}

/// The blocks of a site that were born in one step and are alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cohort {
    pub birth: u32,
    pub blocks: u64,
    pub bytes: u64,
}

/// A block that is alive, or an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveAllocation {
    pub address: u64,
    pub bytes: u64,
    pub site: u32,
    /// The step it was born in.
    pub birth: u32,
}

/// What each site holds at the boundary that ended `step` (`None`: at the program's exit, or now), largest first. Empty
/// for a step of which there is no record.
pub fn retained(ledger: &Ledger, step: Option<u32>) -> Vec<Retained> {
    let mut all: Vec<Retained> = match step {
        Some(step) if ledger.step(step).is_some() => {
            let mut sums: Map<(i64, i64)> = Map::default();
            for d in ledger.steps().iter().take_while(|r| r.step <= step).flat_map(|r| &r.deltas) {
                let sum = sums.entry(u64::from(d.site)).or_insert((0, 0));
                *sum = (sum.0.wrapping_add(i64::from(d.blocks)), sum.1.wrapping_add(d.bytes));
            }
            let held = sums.into_iter().filter(|(_, (blocks, _))| *blocks > 0);
            held.map(|(site, (blocks, bytes))| Retained {
                site: site as u32,
                blocks: blocks as u64,
                bytes: bytes as u64,
            })
            .collect()
        }
        Some(_) => Vec::new(),
        None => {
            let sum = |cohorts: &[Cohort], of: fn(&Cohort) -> u64| {
                cohorts.iter().map(of).fold(0, u64::wrapping_add)
            };
            ledger
                .cohorts()
                .into_iter()
                .map(|(site, c)| Retained {
                    site,
                    blocks: sum(&c, |c| c.blocks),
                    bytes: sum(&c, |c| c.bytes),
                })
                .collect()
        }
    };
    rank(&mut all);
    all
}

impl Ledger {
    /// The sequence number of the next event it has not seen.
    pub fn next_seq(&self) -> u64 {
        self.last_seq.saturating_add(1)
    }

    /// True for an event that frees a block of an earlier step.
    pub fn frees_retained_block(&self, e: &Event) -> bool {
        e.kind == EventKind::BlockFree as u8
            && self.blocks.get(&e.address).is_some_and(|b| b.birth <= self.completed)
    }

    /// Steps that ended.
    pub fn step_count(&self) -> u32 {
        self.completed
    }

    /// What most of the boundaries came from; where loops are steps only between others, what these came from.
    pub fn source(&self) -> Option<StepSource> {
        let counts = |&i: &usize| i != StepSource::Loop as usize || !self.phases.are_mixed();
        let most = (0..self.sources.len()).rev().filter(counts).max_by_key(|&i| self.sources[i])?;
        StepSource::from_code(most as u8).filter(|_| self.sources[most] > 0)
    }

    /// Which steps were ended by loops between others.
    pub fn phases(&self) -> &super::Phases {
        &self.phases
    }

    /// The number of those.
    pub fn phase_steps(&self) -> u32 {
        if self.phases.are_mixed() { self.phases.count(true, self.completed) } else { 0 }
    }

    /// Everything that ended, or would have ended, steps, and how many.
    pub fn step_sources(&self) -> impl Iterator<Item = (super::BoundarySource, u32)> {
        self.levels.all()
    }

    /// The latest marks, oldest first.
    pub fn annotations(&self) -> impl Iterator<Item = &super::Annotation> {
        self.marks.latest()
    }

    /// How often there was which, by kind and label; of collections, in how many steps.
    pub fn annotation_counts(&self) -> impl Iterator<Item = (AnnotationKind, u32, u32)> {
        self.marks.counts()
    }

    /// The records of the steps, oldest first. Old ones may stand for several steps: they carry the last one's number.
    pub fn steps(&self) -> &[StepRecord] {
        self.steps.all()
    }

    /// The record of one step.
    pub fn step(&self, step: u32) -> Option<&StepRecord> {
        self.steps.get(step)
    }

    /// A site by its number.
    pub fn site(&self, site: u32) -> Option<&Site> {
        self.sites.get(site)
    }

    /// The totals of every device met, `NO_DEVICE` among them, as of the last event.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// The devices at the moment that is judged: the last boundary; without steps the exit, or the last event. One met
    /// only later held nothing then. The peaks are those of the whole run.
    pub fn judged_devices(&self) -> Vec<DeviceAt> {
        let at = match (self.steps.all().last(), &self.exit) {
            (Some(record), _) => &record.devices[..],
            (None, Some(exit)) => exit,
            (None, None) => return self.devices.iter().map(Device::now).collect(),
        };
        let then = |d: &Device| {
            let held = at.iter().find(|a| a.device == d.device).cloned();
            let held = held.unwrap_or(DeviceAt { device: d.device, ..DeviceAt::default() });
            DeviceAt { peak_bytes: d.peak_bytes(), ..held }
        };
        self.devices.iter().map(then).collect()
    }

    /// The program said that it was ending.
    pub fn exited(&self) -> bool {
        self.exit.is_some()
    }

    /// The latest moment a boundary, mark or exit told of, in nanoseconds since the recording began.
    pub fn last_ns(&self) -> u64 {
        self.last_ns
    }

    /// The latest few times memory ran out.
    pub fn out_of_memory(&self) -> &[OutOfMemory] {
        &self.out_of_memory
    }

    /// How often memory ran out.
    pub fn out_of_memory_count(&self) -> u64 {
        self.out_of_memory_count
    }

    /// Gaps in the sequence numbers.
    pub fn lost_events(&self) -> u64 {
        self.lost_events
    }

    /// Events of a kind or class that this version does not know.
    pub fn unknown_events(&self) -> u64 {
        self.unknown_kinds
    }

    /// Frees of what nobody was seen to allocate, by class code; 0: blocks.
    pub fn unknown_frees(&self) -> &[u64; CLASSES] {
        &self.unknown_frees
    }

    /// Allocations at an address that was still in use: its free was not seen.
    pub fn missed_frees(&self) -> u64 {
        self.missed_frees
    }

    /// Allocations that ended with their context.
    pub fn freed_with_context(&self) -> u64 {
        self.freed_with_context
    }

    /// Allocations whose stack is not known because there were too many different ones.
    pub fn allocations_without_stack(&self) -> u64 {
        self.sites.refused
    }

    /// Calls that take memory without saying how much, by entry point.
    pub fn untracked_calls(&self) -> &[UntrackedCalls] {
        &self.markers
    }

    /// Whether the caching allocators' own totals agreed with the blocks here; `None`: never compared.
    pub fn matches_allocator(&self) -> Option<bool> {
        let checked = self.devices.iter().any(|d| d.checks > 0);
        checked.then(|| self.devices.iter().all(|d| d.mismatches == 0))
    }

    /// Comparisons with the caching allocators' totals, and how many of them did not agree.
    pub fn allocator_checks(&self) -> (u64, u64) {
        let sum = |of: fn(&Device) -> u64| self.devices.iter().map(of).fold(0, u64::wrapping_add);
        (sum(|d| d.checks), sum(|d| d.mismatches))
    }

    /// Stacks that allocated in one step only: which of them are of one line matters to what stayed.
    pub fn single_step_stacks(&self) -> Vec<u32> {
        let sites = self.sites.iter().filter(|(_, s)| s.births == 1);
        sites.map(|(_, s)| s.stack).collect()
    }

    /// Where the segments lie: start, end, device; in order.
    pub(super) fn segments(&self) -> Vec<(u64, u64, u8)> {
        let device = |site| self.site(site).map_or(crate::format::event::NO_DEVICE, |s| s.device);
        self.driver.segments().into_iter().map(|e| (e.start, e.end, device(e.site))).collect()
    }

    /// What is alive of these sites, by address.
    pub fn live_at_sites(&self, sites: &[u32]) -> Vec<LiveAllocation> {
        let of = |site: u32| sites.contains(&site);
        let blocks = self.blocks.iter().filter(|(_, b)| of(b.site)).map(|(&address, b)| LiveAllocation {
            address,
            bytes: b.bytes,
            site: b.site,
            birth: b.birth,
        });
        let objects = self.driver.pointers().filter(|(_, g)| !g.segment && of(g.site));
        let objects = objects.map(|(address, g)| LiveAllocation {
            address,
            bytes: g.bytes,
            site: g.site,
            birth: g.birth,
        });
        let mut all: Vec<LiveAllocation> = blocks.chain(objects).collect();
        all.sort_unstable_by_key(|l| l.address);
        all
    }

    /// Everything alive at the judged moment but segments: per site the cohorts by birth step, sites by number.
    pub fn cohorts(&self) -> Vec<(u32, Vec<Cohort>)> {
        let last = self.last_judged();
        let mut sums: Map<(u64, u64)> = Map::default();
        let mut add = |site, birth, bytes| {
            if birth <= last {
                let sum = sums.entry(pair(site, birth)).or_insert((0, 0));
                *sum = (sum.0.wrapping_add(1), sum.1.wrapping_add(bytes));
            }
        };
        self.departed.iter().for_each(|d| add(d.site, d.birth, d.bytes));
        self.blocks.values().for_each(|b| add(b.site, b.birth, b.bytes));
        self.driver.iter().filter(|g| !g.segment).for_each(|g| add(g.site, g.birth, g.bytes));
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_unstable_by_key(|(key, _)| *key);
        let mut all: Vec<(u32, Vec<Cohort>)> = Vec::new();
        for (key, (blocks, bytes)) in sums {
            let (site, cohort) = ((key >> 32) as u32, Cohort { birth: key as u32, blocks, bytes });
            match all.last_mut() {
                Some((last, cohorts)) if *last == site => cohorts.push(cohort),
                _ => all.push((site, vec![cohort])),
            }
        }
        all
    }
}
