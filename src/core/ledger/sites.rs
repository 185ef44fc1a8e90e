//! Sites: the places that allocate, one per (stack, layer, device, entry point), numbered on first sight. It
//! must not know which blocks a site has, only how many.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::allocation_trend::{Made, Trend};
use crate::frameworks;
use crate::int_map::IntMap;

/// Sites kept at most. Allocations beyond are booked on one site without a stack per layer and device, and
/// counted.
const MAX_SITES: usize = 112 << 10;
/// The steps in which an operation has to have given more outputs than ever, before further ones share a site.
const TIMES_FURTHER: u32 = 3;

/// The level an allocation lives on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Layer {
    /// A block of a caching allocator.
    Block,
    /// A driver allocation that no caching allocator cuts up.
    Driver,
    /// Pinned host memory.
    Host,
    /// Memory that came from elsewhere: imported, opened by IPC, or the program's own that was page-locked.
    /// It counts apart from what this process allocated.
    External,
    /// Programs that were compiled for a device. They count apart, too: their bytes are what the compiler says, 0 where it
    /// says nothing.
    Code,
}

impl Layer {
    /// Returns the name that reports use.
    pub const fn name(self) -> &'static str {
        match self {
            Layer::Block => "block",
            Layer::Driver => "driver",
            Layer::External => "external",
            Layer::Host => "host",
            Layer::Code => "code",
        }
    }
}

/// What a site holds at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retained {
    pub site: u32,
    pub blocks: u64,
    pub bytes: u64,
}

/// Sorts by size, the largest first; equal ones in the order of first sight.
pub fn rank(sites: &mut [Retained]) {
    sites.sort_unstable_by_key(|r| (Reverse(r.bytes), r.site));
}

/// The net change of one site in one step, or in several that were merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delta {
    pub site: u32,
    pub blocks: i32,
    pub bytes: i64,
}

/// Changes by site. A short step leaves little, and takes no memory of its own for that.
pub type Deltas = SmallVec<[Delta; 1]>;

/// The blocks of several birth steps that were freed in one step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Release {
    pub step: u32,
    /// Birth steps among them, and the median of what one birth step held.
    pub cohorts: u32,
    pub cohort_bytes: u64,
    pub cohort_blocks: u64,
    pub blocks: u64,
    pub bytes: u64,
    /// Blocks freed by the garbage collector.
    pub collected: u64,
    pub oldest: u32,
    pub newest: u32,
    /// What the site still held when the step ended.
    pub left_blocks: u64,
    pub left_bytes: u64,
}

/// The longest life seen among the freed blocks of one birth step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Age {
    birth: u32,
    age: u32,
}

/// One site: what it holds, and the history that the verdicts need.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Site {
    /// Id in the stack table; 0: none was taken.
    pub stack: u32,
    /// Number of the entry point; 0 for blocks.
    pub entry_point: u16,
    pub device: u8,
    pub layer: Layer,
    /// Index of its device in the ledger's list.
    pub(super) device_index: u8,
    /// True if it is in [`Sites::touched`].
    touched: bool,
    pub live_blocks: u64,
    pub live_bytes: u64,
    peak_bytes: u64,
    /// Blocks ever allocated here.
    pub allocs: u64,
    /// Blocks freed while the program ran (teardown not counted).
    pub frees: u64,
    /// First and latest step in which a block was born here.
    pub first_birth: u32,
    pub last_birth: u32,
    /// The birth step before `last_birth`.
    birth_before: u32,
    /// Distinct birth steps.
    pub births: u32,
    /// First and latest step in which one was freed; 0: never.
    pub first_freed: u32,
    pub last_freed: u32,
    /// Freed blocks that had outlived a boundary.
    pub aged: u64,
    /// Freed blocks that had outlived two (a name that the next step assigns anew keeps a block over one), and those
    /// among them that the garbage collector freed.
    pub lasting: u64,
    collected: u64,
    /// First and latest step in which a block that had outlived a boundary was freed; 0: never.
    pub first_release: u32,
    pub last_release: u32,
    /// The latest steps in which blocks of several birth steps were freed together, and how many such steps
    /// there were.
    pub(super) releases: Vec<Release>,
    pub release_count: u32,
    oldest: [Age; 3],
    /// Net change since the last boundary.
    step_blocks: i64,
    step_bytes: i64,
    made: Made,
}

impl Site {
    /// Counts a step in which it is the first to allocate more than a scalar.
    #[inline]
    pub(super) fn begins_step(&mut self) {
        self.made.begins_step();
    }

    /// Returns in how many steps it was the first to allocate more than a scalar.
    pub fn steps_begun(&self) -> u32 {
        self.made.steps_begun()
    }

    /// Returns the bytes that it allocated in the latest step in which it did.
    pub fn latest_bytes(&self) -> u64 {
        self.made.latest()
    }

    /// Returns what of the bytes of the latest step in which it allocated it did not allocate in the first ones, as a share.
    pub fn grown(&self) -> f64 {
        self.made.grown()
    }

    /// Returns how what it allocates in a step has changed over the run.
    pub fn trend(&self) -> Trend {
        self.made.trend()
    }

    /// Returns whether it may be of one cause with another site: on one device, or by one call path, as where an array is
    /// spread over devices.
    pub fn may_be_one_with(&self, other: &Site) -> bool {
        self.layer == other.layer && (self.device == other.device || self.stack == other.stack)
    }

    /// Returns the most bytes it ever held.
    pub fn peak_bytes(&self) -> u64 {
        self.peak_bytes.max(self.live_bytes)
    }

    /// Returns the longest life, in steps, of a block freed here.
    pub fn longest_life(&self) -> u32 {
        self.oldest.iter().map(|a| a.age).max().unwrap_or(0)
    }

    /// Returns the third-longest life over distinct birth steps; 0 if fewer than three are known. Not the
    /// longest: one outlier must not blind the rule.
    pub fn usual_life(&self) -> u32 {
        self.oldest.iter().map(|a| a.age).min().unwrap_or(0)
    }

    /// Returns the second-longest life over distinct birth steps; 0 if fewer than two are known.
    pub fn second_life(&self) -> u32 {
        self.oldest[1].age
    }

    /// Returns the latest step up to this one in which a block was born here, as far as the latest two are known; 0: none.
    pub fn birth_up_to(&self, step: u32) -> u32 {
        [self.last_birth, self.birth_before].into_iter().find(|birth| *birth <= step).unwrap_or(0)
    }

    /// Counts a block born in `step`.
    #[inline]
    pub(super) fn born(&mut self, bytes: u64, step: u32) {
        self.live_blocks = self.live_blocks.wrapping_add(1);
        self.live_bytes = self.live_bytes.wrapping_add(bytes);
        self.allocs = self.allocs.wrapping_add(1);
        if self.last_birth != step {
            self.new_birth_step(step);
        }
        self.step_blocks = self.step_blocks.wrapping_add(1);
        self.step_bytes = self.step_bytes.wrapping_add(bytes as i64);
        self.made.add(bytes);
    }

    fn new_birth_step(&mut self, step: u32) {
        if self.first_birth == 0 {
            self.first_birth = step;
        }
        self.births = self.births.saturating_add(1);
        (self.birth_before, self.last_birth) = (self.last_birth, step);
    }

    /// Moves to step `to` what was counted in the step after it.
    fn move_births(&mut self, to: u32) {
        if self.last_birth > to {
            if self.birth_before == to {
                self.births = self.births.saturating_sub(1);
            }
            self.last_birth = to;
        }
        self.first_birth = self.first_birth.min(to);
        self.first_freed = self.first_freed.min(to);
        self.last_freed = self.last_freed.min(to);
    }

    /// Takes a block off the totals.
    #[inline]
    pub(super) fn removed(&mut self, bytes: u64) {
        self.peak_bytes = self.peak_bytes.max(self.live_bytes);
        self.live_blocks = self.live_blocks.wrapping_sub(1);
        self.live_bytes = self.live_bytes.wrapping_sub(bytes);
        self.step_blocks = self.step_blocks.wrapping_sub(1);
        self.step_bytes = self.step_bytes.wrapping_sub(bytes as i64);
    }

    /// Counts blocks freed in `step`.
    #[inline]
    pub(super) fn freed(&mut self, step: u32, blocks: u64) {
        self.frees = self.frees.wrapping_add(blocks);
        if self.first_freed == 0 {
            self.first_freed = step;
        }
        self.last_freed = step;
    }

    /// Takes in that a block born in `birth` lived `age` steps.
    #[inline]
    pub(super) fn lived(&mut self, birth: u32, age: u32) {
        if age > self.oldest[2].age {
            self.older(birth, age);
        }
    }

    /// Counts blocks born before `step` that were freed in it.
    pub(super) fn released(&mut self, blocks: u64, step: u32) {
        self.aged = self.aged.wrapping_add(blocks);
        self.last_release = step;
        if self.first_release == 0 {
            self.first_release = step;
        }
    }

    /// Counts freed blocks that had outlived two boundaries, `collected` of them by the garbage collector.
    pub(super) fn outlasted(&mut self, blocks: u64, collected: u64) {
        self.lasting = self.lasting.wrapping_add(blocks);
        self.collected = self.collected.wrapping_add(collected);
    }

    /// Returns whether the garbage collector ever freed what had outlived two boundaries.
    pub fn was_collected(&self) -> bool {
        self.collected > 0
    }

    /// Returns whether the garbage collector frees at least half of what is not freed in the next step.
    pub fn is_collected(&self) -> bool {
        mostly_collected([self].into_iter())
    }

    /// Returns the latest steps in which blocks of several birth steps were freed together.
    pub fn releases(&self) -> &[Release] {
        &self.releases
    }

    /// Keeps `oldest` the three largest ages of distinct birth steps, largest first.
    fn older(&mut self, birth: u32, age: u32) {
        let i = self.oldest.iter().position(|a| a.birth == birth).unwrap_or(2);
        if age > self.oldest[i].age {
            self.oldest[i] = Age { birth, age };
            self.oldest.sort_unstable_by_key(|a| Reverse(a.age));
        }
    }

    /// Takes an allocation off as if it had never been made here: it turned out to be a segment.
    pub(super) fn unborn(&mut self, bytes: u64) {
        let peak = self.peak_bytes;
        self.removed(bytes);
        self.peak_bytes = peak;
        self.allocs = self.allocs.wrapping_sub(1);
        self.made.take_off(bytes);
    }
}

/// Returns whether the garbage collector frees at least half of what these sites do not free in the next step.
pub fn mostly_collected<'a>(sites: impl Iterator<Item = &'a Site>) -> bool {
    let (lasting, collected) =
        sites.fold((0u64, 0u64), |sum, s| (sum.0.wrapping_add(s.lasting), sum.1.wrapping_add(s.collected)));
    collected > 0 && collected.saturating_mul(2) >= lasting
}

/// All sites, by number and by key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sites {
    list: Vec<Site>,
    #[serde(with = "crate::int_map::as_list")]
    index: IntMap<u64, u32>,
    /// The latest site of each stack: the look-up that needs no hash.
    #[serde(skip)]
    of_stack: ByStack,
    /// Sites changed since the last boundary.
    touched: Vec<u32>,
    /// Allocations beyond the bound on sites.
    pub refused: u64,
}

impl Sites {
    #[inline]
    pub fn get(&self, site: u32) -> Option<&Site> {
        self.list.get(site as usize)
    }

    /// Returns a site to change, whose net change the next boundary takes.
    #[inline]
    pub fn touch(&mut self, site: u32) -> Option<&mut Site> {
        let s = self.list.get_mut(site as usize)?;
        if !s.touched {
            s.touched = true;
            self.touched.push(site);
        }
        Some(s)
    }

    #[inline]
    pub fn get_mut(&mut self, site: u32) -> Option<&mut Site> {
        self.list.get_mut(site as usize)
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, &Site)> {
        self.list.iter().enumerate().map(|(i, s)| (i as u32, s))
    }

    /// Returns the number of a site that has one.
    #[inline]
    pub fn find(&mut self, stack: u32, layer: Layer, device: u8, entry_point: u16) -> Option<u32> {
        let likely = self.of_stack.get(stack);
        if let Some(s) = self.list.get(likely as usize)
            && (s.stack, s.layer, s.device, s.entry_point) == (stack, layer, device, entry_point)
        {
            return Some(likely);
        }
        self.look_up(stack, layer, device, entry_point)
    }

    #[inline(never)]
    fn look_up(&mut self, stack: u32, layer: Layer, device: u8, entry_point: u16) -> Option<u32> {
        let site = self.index.get(&key(stack, layer, device, entry_point)).copied()?;
        self.of_stack.set(stack, site);
        Some(site)
    }

    /// Returns the site that an output of an operation, new in `step`, shares with those before it. A function that returns all of
    /// a history gives one more with every call: else each has a site of its own, and none of them grows.
    fn shared(&self, stack: u32, layer: Layer, device: u8, entry_point: u16, step: u32) -> Option<u32> {
        let mut before = frameworks::outputs_before(entry_point).map_while(|output| {
            let number = *self.index.get(&key(stack, layer, device, output))?;
            Some((output, number, self.get(number)?))
        });
        let (output, nearest, site) = before.next()?;
        if site.entry_point != output {
            return Some(nearest);
        }
        let (mut since, mut times) = (step, 0);
        for birth in std::iter::once(site.first_birth).chain(before.map(|(_, _, site)| site.first_birth)) {
            if birth < since {
                (since, times) = (birth, times + 1);
            }
            // What came first in one step came with the same call.
            if times == 0 || times == TIMES_FURTHER {
                break;
            }
        }
        (times == TIMES_FURTHER).then_some(nearest)
    }

    /// Adds a site and returns its number.
    #[cold]
    pub fn add(
        &mut self,
        stack: u32,
        layer: Layer,
        device: u8,
        entry_point: u16,
        index: u8,
        step: u32,
    ) -> u32 {
        // Keys are counted, not sites: several may lead to one.
        let (stack, entry_point) = if self.index.len() < MAX_SITES {
            (stack, entry_point)
        } else {
            self.refused = self.refused.wrapping_add(1);
            (0, 0)
        };
        if let Some(shared) = self.shared(stack, layer, device, entry_point, step) {
            self.index.insert(key(stack, layer, device, entry_point), shared);
            return shared;
        }
        let next = self.list.len() as u32;
        let site = *self.index.entry(key(stack, layer, device, entry_point)).or_insert(next);
        if site == next {
            self.list.push(Site {
                stack,
                entry_point,
                device,
                layer,
                device_index: index,
                touched: false,
                live_blocks: 0,
                live_bytes: 0,
                peak_bytes: 0,
                allocs: 0,
                frees: 0,
                first_birth: 0,
                last_birth: 0,
                birth_before: 0,
                births: 0,
                first_freed: 0,
                last_freed: 0,
                aged: 0,
                lasting: 0,
                collected: 0,
                first_release: 0,
                last_release: 0,
                releases: Vec::new(),
                release_count: 0,
                oldest: [Age::default(); 3],
                step_blocks: 0,
                step_bytes: 0,
                made: Made::default(),
            });
        }
        site
    }

    /// Moves to step `to` what the sites counted in the step after it.
    pub fn move_births(&mut self, to: u32) {
        for &site in &self.touched {
            if let Some(s) = self.list.get_mut(site as usize) {
                s.move_births(to);
            }
        }
    }

    /// Takes the net changes since the last boundary, by site.
    pub fn take_deltas(&mut self) -> Deltas {
        self.touched.sort_unstable();
        let mut deltas = Deltas::new();
        for &site in &self.touched {
            let Some(s) = self.list.get_mut(site as usize) else { continue };
            s.touched = false;
            s.made.step_ends(s.births);
            let (blocks, bytes) = (std::mem::take(&mut s.step_blocks), std::mem::take(&mut s.step_bytes));
            if blocks != 0 || bytes != 0 {
                let blocks = blocks.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32;
                deltas.push(Delta { site, blocks, bytes });
            }
        }
        self.touched.clear();
        deltas
    }
}

/// Stacks are numbered from 1 without gaps; a damaged recording may name any number, and no table grows
/// beyond this.
const MAX_STACKS: usize = 1 << 20;
const NO_SITE: u32 = u32::MAX;

/// The site found last for each stack: a cache, and no part of the state.
#[derive(Clone, Debug, Default)]
struct ByStack(Vec<u32>);

impl PartialEq for ByStack {
    fn eq(&self, _: &ByStack) -> bool {
        true
    }
}

impl ByStack {
    #[inline(always)]
    fn get(&self, stack: u32) -> u32 {
        self.0.get(stack as usize).copied().unwrap_or(NO_SITE)
    }

    fn set(&mut self, stack: u32, site: u32) {
        let stack = stack as usize;
        if stack >= MAX_STACKS {
            return;
        }
        if stack >= self.0.len() {
            self.0.resize((stack + 1).next_power_of_two(), NO_SITE);
        }
        self.0[stack] = site;
    }
}

const fn key(stack: u32, layer: Layer, device: u8, entry_point: u16) -> u64 {
    (stack as u64) << 32 | (entry_point as u64) << 16 | (device as u64) << 8 | layer as u64
}
