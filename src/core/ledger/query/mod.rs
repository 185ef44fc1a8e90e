//! What can be asked of the ledger: read only. Here its figures; in the files below what is alive, what was
//! retained at a step, and the map of the segments.

pub mod live;
pub mod retained;
pub mod segment_map;

use super::after_last::{self, Gathered};
use super::annotations::Annotation;
use super::devices::{Device, DeviceAt};
use super::out_of_memory::OutOfMemory;
use super::phases::Phases;
use super::replay::Ledger;
use super::sites::Site;
use super::step_sources::BoundarySource;
use super::steps::StepRecord;
use super::totals::{Allocated, CLASSES, Space};
use super::untracked::UntrackedCalls;
use crate::format::event::{AnnotationKind, Event, EventKind, StepSource};
use crate::int_map::IntMap;

/// Allocations that are those of several steps: so many at least, and as many as so many steps have.
const LEAST_BEHIND: u64 = 32;
const STEPS_BEHIND: u64 = 8;
/// … of a program that has exited: no long step can be under way.
const STEPS_BEHIND_AT_EXIT: u64 = 2;

/// How many more blocks sites have than at the last boundary.
pub struct MadeSinceBoundary(IntMap<u32, u64>);

impl MadeSinceBoundary {
    /// Takes in an event that the ledger has not seen. Returns whether it frees what a new block has replaced: a block of an
    /// earlier step, no older than others of its site that were freed, where the site has more than at the last boundary.
    pub fn replaces(&mut self, ledger: &Ledger, e: &Event) -> bool {
        if e.kind != EventKind::BlockFree as u8 {
            return false;
        }
        let Some(block) = ledger.blocks.get(e.address) else { return false };
        let age = ledger.books.completed.saturating_add(1).saturating_sub(block.birth);
        let as_before = || ledger.site(block.site).is_some_and(|site| site.longest_life() >= age);
        match self.0.get_mut(&block.site) {
            Some(made) if *made > 0 && (age == 0 || as_before()) => {
                *made -= 1;
                age > 0
            }
            _ => false,
        }
    }
}

impl Ledger {
    /// Returns the sequence number of the next event it has not seen.
    pub fn next_seq(&self) -> u64 {
        self.sequence.last().saturating_add(1)
    }

    /// Returns whether the event frees a block of an earlier step.
    #[inline]
    pub fn frees_retained_block(&self, e: &Event) -> bool {
        e.kind == EventKind::BlockFree as u8
            && self.blocks.get(e.address).is_some_and(|b| b.birth <= self.books.completed)
    }

    /// Returns how many blocks of earlier steps a step frees behind its last allocation, at least: what a name held that is
    /// bound anew. 0 where too few steps were seen.
    pub fn usual_trailing_frees(&self) -> u64 {
        self.books.lately.usual_trailing_frees()
    }

    /// Returns how many more blocks sites have than at the last boundary, or nothing where more than these are freed now: that
    /// is no replacement of each by another.
    pub fn made_since_boundary(&self, frees: u64) -> MadeSinceBoundary {
        let mut made: IntMap<u32, u64> = IntMap::default();
        let newborn = self.books.newborn.iter().filter(|(space, _)| *space == Space::Block);
        for block in newborn.filter_map(|&(_, address)| self.blocks.get(address)) {
            *made.entry(block.site).or_default() += 1;
        }
        for departed in &self.books.releases_since_boundary {
            made.entry(departed.site).and_modify(|made| *made = made.saturating_sub(1));
        }
        let all = made.values().fold(0u64, |sum, made| sum.saturating_add(*made));
        MadeSinceBoundary(if frees <= all { made } else { IntMap::default() })
    }

    /// Counts the steps that ended.
    pub fn step_count(&self) -> u32 {
        self.books.completed
    }

    /// Returns what ended most of the steps; where loops end steps only in phases between others, what ended
    /// these.
    pub fn source(&self) -> Option<StepSource> {
        self.step_sources.most_frequent(self.phases.have_sources().then_some(StepSource::Loop))
    }

    /// Returns how often an optimizer stepped, whether that ended steps or not.
    pub fn optimizer_steps(&self) -> u32 {
        self.step_sources.of(StepSource::Optimizer)
    }

    /// Returns which steps were ended by loops between others.
    pub fn phases(&self) -> &Phases {
        &self.phases
    }

    /// Counts the steps that were ended by loops between others.
    pub fn phase_steps(&self) -> u32 {
        if self.phases.have_sources() { self.phases.count(true, self.books.completed) } else { 0 }
    }

    /// Returns everything that ended steps or could have, with the number of its boundaries.
    pub fn step_sources(&self) -> impl Iterator<Item = (BoundarySource, u32)> {
        self.step_sources.all()
    }

    /// Returns the latest annotations, oldest first.
    pub fn annotations(&self) -> impl Iterator<Item = &Annotation> {
        self.annotations.latest()
    }

    /// Returns how often each annotation came, by kind and label; of garbage collections, in how many steps.
    pub fn annotation_counts(&self) -> impl Iterator<Item = (AnnotationKind, u32, u32)> {
        self.annotations.counts()
    }

    /// Returns the records of the steps, oldest first. An old one may stand for several steps: it has the
    /// last one's number.
    pub fn steps(&self) -> &[StepRecord] {
        self.steps.all()
    }

    /// Returns the record of one step.
    pub fn step(&self, step: u32) -> Option<&StepRecord> {
        self.steps.get(step)
    }

    /// Returns a site by its number.
    pub fn site(&self, site: u32) -> Option<&Site> {
        self.books.site(site)
    }

    /// Returns every site with its number.
    pub fn sites(&self) -> impl Iterator<Item = (u32, &Site)> {
        self.books.sites.iter()
    }

    /// Returns the totals of every device seen, `NO_DEVICE` among them, as of the last event.
    pub fn devices(&self) -> &[Device] {
        &self.books.devices
    }

    /// Returns the devices at the moment that is judged: the last boundary; without steps the exit, or the
    /// last event. One seen only later held nothing then. The peaks are those of the whole run.
    pub fn judged_devices(&self) -> Vec<DeviceAt> {
        let at = match (self.steps.all().last(), &self.books.exit) {
            (Some(record), _) => &record.devices[..],
            (None, Some(exit)) => exit,
            (None, None) => return self.devices().iter().map(Device::now).collect(),
        };
        let then = |d: &Device| {
            let held = at.iter().find(|a| a.device == d.device).cloned();
            let held = held.unwrap_or(DeviceAt { device: d.device, ..DeviceAt::default() });
            DeviceAt { peak_bytes: d.peak_bytes(), ..held }
        };
        self.devices().iter().map(then).collect()
    }

    /// Returns how many allocations came after the last step, and the bytes by which what is alive has grown from then to
    /// the exit, or until now; `None` where it has not, or by no more than the rest of a step.
    pub fn after_last_step(&self) -> Option<(u64, u64)> {
        let last = self.steps.all().last()?;
        let allocations = self.books.newborn.len() as u64;
        if !self.are_several_steps(allocations) {
            return None;
        }
        let live = |at: &[DeviceAt]| at.iter().fold(0u64, |sum, d| sum.saturating_add(d.live_bytes()));
        let end = match &self.books.exit {
            Some(exit) => live(exit),
            None => live(&self.devices().iter().map(Device::now).collect::<Vec<_>>()),
        };
        let grown = end.saturating_sub(live(&last.devices));
        (grown > 0).then_some((allocations, grown))
    }

    /// Returns what was allocated after the last step and was there still when the program exited, or is now; nothing where
    /// that is no more than the rest of a step.
    pub fn gathered_after_last_step(&self) -> Vec<Gathered> {
        let allocations = self.books.newborn.len() as u64;
        match self.books.exit {
            Some(_) if self.are_steps(allocations, STEPS_BEHIND_AT_EXIT) => self.after_last.clone(),
            None if self.are_several_steps(allocations) => after_last::gathered(&self.books, &self.blocks),
            _ => Vec::new(),
        }
    }

    /// Returns by how many bytes less was alive on a device when the program exited, or is by now, than after the last step.
    pub fn freed_after_last_step(&self, device: u8) -> u64 {
        let live = |at: &[DeviceAt]| at.iter().find(|d| d.device == device).map_or(0, DeviceAt::live_bytes);
        let last = self.steps.all().last().map_or(0, |last| live(&last.devices));
        let now = || self.devices().iter().find(|d| d.device == device).map_or(0, |d| d.now().live_bytes());
        last.saturating_sub(self.books.exit.as_ref().map_or_else(now, |exit| live(exit)))
    }

    /// Returns the bytes that a site freed after the last step, of what it had then, and before the program exited.
    pub fn released_after_last_step(&self, site: u32) -> u64 {
        let all = &self.books.releases_since_boundary;
        let count = if self.exited() { self.books.lately.released_before_exit } else { all.len() };
        let of_site = all.iter().take(count).filter(|d| d.site == site);
        of_site.fold(0, |sum, d| sum.saturating_add(d.bytes))
    }

    /// Returns the bytes of what a site had at the last step that were copied to the host since.
    pub fn copied_to_host_after_last_step(&self, site: u32) -> u64 {
        self.books.lately.bytes_copied_to_host(site)
    }

    /// Returns how many allocations came after the last step, and after what was freed there.
    pub fn allocated_after_releases(&self) -> u64 {
        self.books.lately.born_behind(self.books.newborn.len())
    }

    /// Returns the largest blocks allocated after the last step; some of 0 bytes, where there were fewer.
    pub fn largest_after_last_step(&self) -> &[Allocated] {
        self.books.lately.largest()
    }

    /// Returns whether so many allocations are those of several steps.
    pub fn are_several_steps(&self, allocations: u64) -> bool {
        self.are_steps(allocations, STEPS_BEHIND)
    }

    fn are_steps(&self, allocations: u64, steps: u64) -> bool {
        let all = self.devices().iter().fold(0u64, |sum, d| sum.saturating_add(d.allocations()));
        allocations >= LEAST_BEHIND.max(steps * (all / u64::from(self.books.completed.max(1))))
    }

    /// Returns whether the program announced its exit.
    pub fn exited(&self) -> bool {
        self.books.exit.is_some()
    }

    /// Returns the time of the latest boundary, annotation or exit, in nanoseconds since the recording began.
    pub fn last_ns(&self) -> u64 {
        self.books.last_ns
    }

    /// Returns the snapshots of the latest few times memory ran out.
    pub fn out_of_memory(&self) -> &[OutOfMemory] {
        self.out_of_memory.latest()
    }

    /// Counts how often memory ran out.
    pub fn out_of_memory_count(&self) -> u64 {
        self.out_of_memory.count()
    }

    /// Counts the events missing from the sequence.
    pub fn lost_events(&self) -> u64 {
        self.sequence.lost()
    }

    /// Counts the events of a kind or class that this version does not know.
    pub fn unknown_events(&self) -> u64 {
        self.books.unknown_events
    }

    /// Counts the frees of what nobody was seen to allocate, by class code; 0: blocks.
    pub fn unknown_frees(&self) -> &[u64; CLASSES] {
        &self.books.unknown_frees
    }

    /// Counts the allocations at an address that was still in use: its free was not seen.
    pub fn missed_frees(&self) -> u64 {
        self.books.missed_frees
    }

    /// Counts the allocations that ended with their context.
    pub fn freed_with_context(&self) -> u64 {
        self.books.freed_with_context
    }

    /// Counts the allocations booked without their stack because there were too many sites.
    pub fn allocations_without_stack(&self) -> u64 {
        self.books.sites.refused
    }

    /// Returns the calls that take memory without saying how much, by entry point.
    pub fn untracked_calls(&self) -> &[UntrackedCalls] {
        self.untracked.all()
    }

    /// Returns whether the caching allocators' own totals agreed with the blocks here; `None` if never
    /// compared.
    pub fn matches_allocator(&self) -> Option<bool> {
        let (checks, mismatches) = self.allocator_checks();
        (checks > 0).then_some(mismatches == 0)
    }

    /// Counts the comparisons with the caching allocators' totals, and those that did not agree.
    pub fn allocator_checks(&self) -> (u64, u64) {
        let sum = |of: fn(&Device) -> u64| self.devices().iter().map(of).fold(0, u64::wrapping_add);
        (sum(|d| d.checks), sum(|d| d.mismatches))
    }
}
