//! The bottom of the ledger: what every layer above books its allocations in. Per site and per device the
//! totals, and how far the run has come.
//!
//! It must not know what an event is, nor where blocks and driver allocations are kept: the layers above tell
//! it that something was born or removed.

use serde::{Deserialize, Serialize};

use super::devices::{Device, DeviceAt};
use super::sites::{Layer, Site, Sites};
use crate::int_map::IntMap;

/// Addresses kept to be moved to the step before if the next boundary supersedes the last one.
const MAX_NEWBORN: usize = 65_536;
/// Counters of unknown frees: 0 for blocks, else the memory class's code; whatever is beyond counts as the
/// last.
pub const CLASSES: usize = 16;
/// The birth step of what is allocated after the exit; it is never judged.
pub const AFTER_EXIT: u32 = u32::MAX;
/// The latest steps by which is known what every step gives back at its end.
const STEPS_COMPARED: usize = 4;
/// So many blocks are the largest since the last boundary.
const LARGEST: usize = 8;
/// Halves of event pairs whose other half is awaited.
pub const MAX_HALVES: usize = 64;

/// The address spaces, which are separate: a handle and a pointer may have the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Space {
    Block,
    Pointer,
    Handle,
}

/// A block or driver allocation that was alive at the last boundary and has been freed since.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Departed {
    pub site: u32,
    pub birth: u32,
    pub bytes: u64,
    /// True if the program's garbage collector freed it.
    pub collected: bool,
    /// The address of a block; 0 for anything else.
    pub address: u64,
}

/// How something ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// The program freed it, so its age counts. `address` as in [`Departed`]. `given_on`: its memory is another's, which
    /// could not be without it.
    Freed { collected: bool, given_on: bool, address: u64 },
    /// Its address was given out again: when it was freed was not seen.
    Displaced,
}

/// What came since the last boundary, as far as only who has seen the latest steps knows it: no part of the state.
#[derive(Clone, Debug, Default)]
pub struct Lately {
    /// Blocks of earlier steps that were freed since the last block was allocated, and how many of the latest steps ended with.
    trailing_frees: u64,
    of_steps: [u64; STEPS_COMPARED],
    /// The bytes freed since the last boundary, of blocks of earlier steps, and their sum weighted by how many allocations
    /// came before.
    bytes: u64,
    weighted: f64,
    /// The largest blocks allocated since the last boundary, from the smallest on.
    largest: [Allocated; LARGEST],
    /// The blocks of earlier steps that were copied to the host since the last boundary, by address: site and bytes.
    copied_to_host: IntMap<u64, (u32, u64)>,
    /// How many of the releases since the last boundary came before the exit.
    pub released_before_exit: usize,
}

/// A block that was allocated since the last boundary.
#[derive(Clone, Copy, Debug, Default)]
pub struct Allocated {
    pub bytes: u64,
    pub site: u32,
    /// How many blocks and driver allocations came before it.
    pub before: u32,
}

impl PartialEq for Lately {
    fn eq(&self, _: &Lately) -> bool {
        true
    }
}

impl Lately {
    /// Takes in that a step ended.
    pub fn end_step(&mut self) {
        self.of_steps.rotate_left(1);
        self.of_steps[STEPS_COMPARED - 1] = std::mem::take(&mut self.trailing_frees);
        (self.bytes, self.weighted, self.largest) = (0, 0.0, [Allocated::default(); LARGEST]);
        self.copied_to_host.clear();
    }

    /// Takes in that a block of an earlier step was copied to the host.
    pub fn copied_to_host(&mut self, address: u64, site: u32, bytes: u64) {
        self.copied_to_host.insert(address, (site, bytes));
    }

    /// Returns the bytes of a site, allocated in earlier steps, that were copied to the host since the last boundary.
    pub fn bytes_copied_to_host(&self, site: u32) -> u64 {
        let of_site = self.copied_to_host.values().filter(|(of, _)| *of == site);
        of_site.fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }

    /// Takes in that a site allocated a block, as the latest of so many allocations since the last boundary.
    #[inline]
    pub fn allocated(&mut self, site: u32, bytes: u64, born: usize) {
        self.trailing_frees = 0;
        let smaller = self.largest.iter().take_while(|other| other.bytes < bytes).count();
        if let Some(at) = smaller.checked_sub(1) {
            self.largest.copy_within(1..=at, 0);
            self.largest[at] = Allocated { bytes, site, before: born.saturating_sub(1) as u32 };
        }
    }

    /// Returns the largest blocks allocated since the last boundary; some of 0 bytes, where there were fewer.
    pub fn largest(&self) -> &[Allocated] {
        &self.largest
    }

    #[inline]
    fn freed(&mut self, bytes: u64, born: usize) {
        self.trailing_frees += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        self.weighted += bytes as f64 * born as f64;
    }

    /// Returns how many of `born` allocations since the last boundary came behind what was freed since, on average; 0 where
    /// nothing was seen to be freed.
    pub fn born_behind(&self, born: usize) -> u64 {
        match self.bytes {
            0 => 0,
            bytes => (born as f64 - self.weighted / bytes as f64).max(0.0) as u64,
        }
    }

    /// Returns how many blocks of earlier steps every one of the latest steps freed behind its last allocation, at least.
    pub fn usual_trailing_frees(&self) -> u64 {
        self.of_steps.into_iter().min().unwrap_or(0)
    }
}

/// The totals of all sites and devices, the steps so far, and what did not add up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Books {
    pub sites: Sites,
    pub devices: Vec<Device>,
    /// Steps that ended.
    pub completed: u32,
    /// The latest step in which more than a scalar was allocated.
    begun: u32,
    /// Time of the latest boundary, annotation or exit, in nanoseconds since the recording began.
    pub last_ns: u64,
    /// The devices when the program announced its exit; `None` while it runs.
    pub exit: Option<Vec<DeviceAt>>,
    /// Whether the recording began in a process that was running.
    pub attached: bool,
    /// What was born since the last boundary.
    pub newborn: Vec<(Space, u64)>,
    /// Freed since the last boundary though alive then. Until the next boundary shows that the program went
    /// on, this may be the end of the loop: what is freed there was held through every step of it.
    pub releases_since_boundary: Vec<Departed>,
    #[serde(skip)]
    pub lately: Lately,
    /// Events of a kind or class that this version does not know.
    pub unknown_events: u64,
    pub unknown_frees: [u64; CLASSES],
    pub missed_frees: u64,
    /// Allocations that ended with their context.
    pub freed_with_context: u64,
}

/// The bytes of a scalar, as caching allocators round them.
pub const SCALAR: u64 = 512;

impl Books {
    /// Returns the step in which what is allocated now is born.
    #[inline]
    pub fn birth(&self) -> u32 {
        if self.exit.is_some() { AFTER_EXIT } else { self.completed.saturating_add(1) }
    }

    /// Returns the last birth step that counts at the judged moment: what was born after the last boundary
    /// belongs to a step that never ended.
    pub fn last_judged_birth(&self) -> u32 {
        if self.completed == 0 { AFTER_EXIT - 1 } else { self.completed }
    }

    /// Books a birth at a site.
    pub fn born(&mut self, site: u32, bytes: u64) {
        let layer = self.sites.get(site).map_or(Layer::Block, |s| s.layer);
        self.born_in(layer, site, bytes);
    }

    /// Books a birth at a site of a known layer; returns the index of its device.
    #[inline(always)]
    pub fn born_in(&mut self, layer: Layer, site: u32, bytes: u64) -> usize {
        let step = self.completed.saturating_add(1);
        let Some(s) = self.sites.touch(site) else { return usize::MAX };
        s.born(bytes, step);
        if bytes > SCALAR && self.begun != step {
            self.begun = step;
            s.begins_step();
        }
        let index = usize::from(s.device_index);
        if let Some(d) = self.devices.get_mut(index) {
            d.add(layer, bytes);
        }
        index
    }

    /// Books the end of a block or allocation of a site.
    pub fn removed(&mut self, site: u32, birth: u32, bytes: u64, how: Removal) {
        let layer = self.sites.get(site).map_or(Layer::Block, |s| s.layer);
        self.removed_in(layer, site, birth, bytes, how);
    }

    /// Books the end of a block or allocation of a site of a known layer; returns the index of its device.
    #[inline(always)]
    pub fn removed_in(&mut self, layer: Layer, site: u32, birth: u32, bytes: u64, how: Removal) -> usize {
        let step = self.completed.saturating_add(1);
        let Some(s) = self.sites.touch(site) else { return usize::MAX };
        s.removed(bytes);
        let index = usize::from(s.device_index);
        let mut carried = false;
        if let Removal::Freed { collected, given_on, address } = how
            && birth != AFTER_EXIT
        {
            // Without steps the exit is the moment that is judged.
            if birth < step || (self.exit.is_some() && self.completed == 0) {
                self.releases_since_boundary.push(Departed { site, birth, bytes, collected, address });
                if layer == Layer::Block {
                    self.lately.freed(bytes, self.newborn.len());
                }
                carried = birth == self.completed && self.exit.is_none() && !given_on;
            } else {
                s.freed(step, 1);
            }
        }
        if let Some(d) = self.devices.get_mut(index) {
            match carried && matches!(layer, Layer::Block | Layer::Driver) {
                true => d.take_carried(layer, site, bytes),
                false => d.take(layer, bytes),
            }
        }
        index
    }

    /// Remembers what was born since the last boundary.
    #[inline]
    pub fn note_birth(&mut self, space: Space, address: u64) {
        if self.newborn.len() < MAX_NEWBORN {
            self.newborn.push((space, address));
        }
    }

    /// Returns the number of a site; it gets one on first sight.
    #[inline]
    pub fn site_of(&mut self, stack: u32, layer: Layer, device: u8, entry_point: u16) -> u32 {
        match self.sites.find(stack, layer, device, entry_point) {
            Some(site) => site,
            None => {
                let index = self.device_index(device) as u8;
                let step = self.completed.saturating_add(1);
                self.sites.add(stack, layer, device, entry_point, index, step)
            }
        }
    }

    /// Returns the index of a device in the list; it is added on first sight.
    pub fn device_index(&mut self, device: u8) -> usize {
        self.devices.iter().position(|d| d.device == device).unwrap_or_else(|| {
            self.devices.push(Device::new(device));
            self.devices.len() - 1
        })
    }

    /// Returns the device by its number; it is added on first sight.
    pub fn device(&mut self, device: u8) -> &mut Device {
        let index = self.device_index(device);
        &mut self.devices[index]
    }

    /// Returns the device of a site.
    pub fn device_of(&mut self, site: u32) -> Option<&mut Device> {
        let index = self.sites.get(site)?.device_index;
        self.devices.get_mut(usize::from(index))
    }

    /// Returns a site by its number.
    #[inline]
    pub fn site(&self, site: u32) -> Option<&Site> {
        self.sites.get(site)
    }

    /// Takes in the free of a block that nobody was seen to allocate. Of a process that was running, it may have been
    /// there before.
    pub fn unknown_block_free(&mut self, device: u8, bytes: u64) {
        if !self.attached || !self.device(device).freed_from_before(bytes) {
            self.unknown_free(0);
        }
    }

    /// Takes in the free of a driver allocation that nobody was seen to allocate. How large it was is not known.
    pub fn unknown_driver_free(&mut self, class: usize) {
        if !self.attached {
            self.unknown_free(class);
        }
    }

    /// Counts a free of something that nobody was seen to allocate.
    fn unknown_free(&mut self, class: usize) {
        let count = &mut self.unknown_frees[class.min(CLASSES - 1)];
        *count = count.wrapping_add(1);
    }

    /// Counts an event of a kind or class that this version does not know.
    #[cold]
    pub fn unknown_event(&mut self) {
        self.unknown_events = self.unknown_events.wrapping_add(1);
    }

    /// Counts an allocation at an address that was still in use.
    pub fn missed_free(&mut self) {
        self.missed_frees = self.missed_frees.wrapping_add(1);
    }
}
