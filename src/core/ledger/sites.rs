//! Sites: who allocates. One per (stack, layer, device, entry point), numbered on first sight.

use serde::{Deserialize, Serialize};

use super::keys::Map;
use super::releases::Release;

/// Sites kept at most; what comes beyond is booked on one site without a stack per layer and device, and counted.
const MAX_SITES: usize = 200_000;

/// Which level an allocation lives on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Layer {
    /// A block of a caching allocator.
    Block,
    /// A driver allocation that no caching allocator cuts up.
    Driver,
    /// Pinned host memory.
    Host,
    /// Memory that somebody else gave: another process's, another interface's, the program's own made to be page-locked.
    /// It counts apart from what this process took.
    External,
}

impl Layer {
    /// The name reports use.
    pub const fn name(self) -> &'static str {
        match self {
            Layer::Block => "block",
            Layer::Driver => "driver",
            Layer::External => "external",
            Layer::Host => "host",
        }
    }
}

/// The longest life seen among the freed blocks of one birth step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Age {
    birth: u32,
    age: u32,
}

/// What is known of one site.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Site {
    /// Id in the stack table; 0: none was taken.
    pub stack: u32,
    /// Number of the entry point; 0 for blocks.
    pub entry_point: u16,
    pub device: u8,
    pub layer: Layer,
    /// Where its device stands in the ledger's list.
    pub(super) slot: u8,
    pub(super) touched: bool,
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
    /// The birth step before `last_birth`, and how many there were.
    birth_before: u32,
    pub births: u32,
    /// Latest step in which one was freed; 0: never.
    pub last_freed: u32,
    /// Of the freed blocks those that had outlived a boundary, and those among them that the garbage collector freed.
    pub aged: u64,
    pub collected: u64,
    /// First and latest step in which one that had outlived a boundary was freed; 0: never.
    pub first_release: u32,
    pub last_release: u32,
    /// The latest steps in which blocks of several birth steps were freed together, and how many such steps there were.
    pub(super) releases: Vec<Release>,
    pub release_count: u32,
    oldest: [Age; 3],
    /// Net change since the last boundary.
    pub(super) step_blocks: i64,
    pub(super) step_bytes: i64,
}

impl Site {
    /// The most bytes it ever held.
    pub fn peak_bytes(&self) -> u64 {
        self.peak_bytes.max(self.live_bytes)
    }

    /// The longest life, in steps, of a block freed here.
    pub fn longest_life(&self) -> u32 {
        self.oldest.iter().map(|a| a.age).max().unwrap_or(0)
    }

    /// The third-longest life over distinct birth steps; 0 if fewer than three are known. Not the longest: one freak
    /// lifetime must not blind the rule.
    pub fn usual_life(&self) -> u32 {
        self.oldest.iter().map(|a| a.age).min().unwrap_or(0)
    }

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
    }

    fn new_birth_step(&mut self, step: u32) {
        if self.first_birth == 0 {
            self.first_birth = step;
        }
        self.births = self.births.saturating_add(1);
        (self.birth_before, self.last_birth) = (self.last_birth, step);
    }

    /// What was taken for step `to + 1` belongs to `to`.
    pub(super) fn relabel(&mut self, to: u32) {
        if self.last_birth > to {
            if self.birth_before == to {
                self.births = self.births.saturating_sub(1);
            }
            self.last_birth = to;
        }
        self.first_birth = self.first_birth.min(to);
        self.last_freed = self.last_freed.min(to);
    }

    /// Takes a block off, without saying why.
    #[inline]
    pub(super) fn removed(&mut self, bytes: u64) {
        self.peak_bytes = self.peak_bytes.max(self.live_bytes);
        self.live_blocks = self.live_blocks.wrapping_sub(1);
        self.live_bytes = self.live_bytes.wrapping_sub(bytes);
        self.step_blocks = self.step_blocks.wrapping_sub(1);
        self.step_bytes = self.step_bytes.wrapping_sub(bytes as i64);
    }

    /// Notes that `blocks` were freed in `step`.
    #[inline]
    pub(super) fn freed(&mut self, step: u32, blocks: u64) {
        self.frees = self.frees.wrapping_add(blocks);
        self.last_freed = step;
    }

    /// Notes that a block born in `birth` lived `age` steps.
    #[inline]
    pub(super) fn lived(&mut self, birth: u32, age: u32) {
        if age > self.oldest[2].age {
            self.older(birth, age);
        }
    }

    /// Notes that blocks born before `step` were freed in it; `collected` of them by the garbage collector.
    pub(super) fn released(&mut self, blocks: u64, collected: u64, step: u32) {
        self.aged = self.aged.wrapping_add(blocks);
        self.collected = self.collected.wrapping_add(collected);
        self.last_release = step;
        if self.first_release == 0 {
            self.first_release = step;
        }
    }

    /// The latest steps in which blocks of several birth steps were freed together.
    pub fn releases(&self) -> &[Release] {
        &self.releases
    }

    /// Keeps `oldest` the three largest ages of distinct birth steps, largest first.
    fn older(&mut self, birth: u32, age: u32) {
        let place = self.oldest.iter().position(|a| a.birth == birth).unwrap_or(2);
        if age > self.oldest[place].age {
            self.oldest[place] = Age { birth, age };
            self.oldest.sort_unstable_by_key(|a| std::cmp::Reverse(a.age));
        }
    }

    /// It turned out that this was not an object of its own: as if it had never been allocated here.
    pub(super) fn unborn(&mut self, bytes: u64) {
        let peak = self.peak_bytes;
        self.removed(bytes);
        self.peak_bytes = peak;
        self.allocs = self.allocs.wrapping_sub(1);
    }
}

/// All sites, by number and by key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sites {
    list: Vec<Site>,
    #[serde(with = "super::keys::listed")]
    index: Map<u32>,
    /// The latest site of each stack, found without a hash.
    #[serde(skip)]
    of_stack: ByStack,
    /// Sites with a net change to look at, since the last boundary.
    pub(super) touched: Vec<u32>,
    /// Allocations whose site found no room.
    pub(super) refused: u64,
}

impl Sites {
    #[inline]
    pub(super) fn get(&self, site: u32) -> Option<&Site> {
        self.list.get(site as usize)
    }

    /// The site to change; it is then looked at by the next boundary.
    #[inline]
    pub(super) fn touch(&mut self, site: u32) -> Option<&mut Site> {
        let s = self.list.get_mut(site as usize)?;
        if !s.touched {
            s.touched = true;
            self.touched.push(site);
        }
        Some(s)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, site: u32) -> Option<&mut Site> {
        self.list.get_mut(site as usize)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Site)> {
        self.list.iter().enumerate().map(|(i, s)| (i as u32, s))
    }

    /// The number of a site, if it has one already.
    #[inline]
    pub(super) fn find(&mut self, stack: u32, layer: Layer, device: u8, entry_point: u16) -> Option<u32> {
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

    /// Numbers a new site.
    #[cold]
    pub(super) fn add(&mut self, stack: u32, layer: Layer, device: u8, entry_point: u16, slot: u8) -> u32 {
        let (stack, entry_point) = if self.list.len() < MAX_SITES {
            (stack, entry_point)
        } else {
            self.refused = self.refused.wrapping_add(1);
            (0, 0)
        };
        let next = self.list.len() as u32;
        let site = *self.index.entry(key(stack, layer, device, entry_point)).or_insert(next);
        if site == next {
            self.list.push(Site {
                stack,
                entry_point,
                device,
                layer,
                slot,
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
                last_freed: 0,
                aged: 0,
                collected: 0,
                first_release: 0,
                last_release: 0,
                releases: Vec::new(),
                release_count: 0,
                oldest: [Age::default(); 3],
                step_blocks: 0,
                step_bytes: 0,
            });
        }
        site
    }
}

/// Stacks are numbered from 1 without gaps; of what a damaged recording may say of them, so many.
const MAX_STACKS: usize = 1 << 20;
const NO_SITE: u32 = u32::MAX;

/// What was found last for each stack. No part of the state: it is found again.
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
