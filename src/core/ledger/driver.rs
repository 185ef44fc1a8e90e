//! What the driver gave: pointers and handles, mappings and address ranges; and which of it is a segment.
//!
//! A driver allocation is a segment once a block report falls inside it, else an object of its own. For memory that is
//! mapped, the unit of that claim is the address range it is mapped into.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::Ledger;
use super::keys::Map;
use super::segments::Extent;
use super::sites::Layer;
use crate::format::event::{Event, MemoryClass, NO_DEVICE};

/// Frees that can still be undone. The undo follows its free on the same thread; only other threads come in between, but
/// with more threads than cores that may be all of them for many turns (64 on 2 cores: thousands of events).
const RECENT: usize = 16_384;
/// The same for frees of what is not known, which are rare: here the turns may be as many as they like.
const STRANGERS: usize = 4096;

/// One allocation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Given {
    pub bytes: u64,
    pub site: u32,
    pub birth: u32,
    context: u8,
    class: u8,
    pub segment: bool,
    /// Of a handle: references and mappings. It ends when both are gone.
    refs: u32,
    maps: u32,
}

impl Given {
    fn at(&self, start: u64, end: u64, mapped: bool) -> Extent {
        Extent { start, end, site: self.site, birth: self.birth, mapped }
    }

    fn is_pooled(&self) -> bool {
        MemoryClass::from_code(self.class).is_some_and(MemoryClass::is_pooled)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Unclaimed {
    end: u64,
    reservation: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Reservation {
    end: u64,
    claimed: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Mapping {
    end: u64,
    handle: u64,
}

/// A free that may be undone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Freed {
    seq: u64,
    handle: bool,
    address: u64,
    what: What,
}

/// What a free did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum What {
    /// Ended the allocation.
    Ended(Given),
    /// Gave back one of several references.
    Reference,
    /// Nothing that was known; counted under this class.
    Unknown(u8),
}

/// Everything alive at the driver's level.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Driver {
    #[serde(with = "super::keys::listed")]
    pointers: Map<Given>,
    #[serde(with = "super::keys::listed")]
    handles: Map<Given>,
    /// Ranges that a block report would claim, by start.
    unclaimed: BTreeMap<u64, Unclaimed>,
    reservations: BTreeMap<u64, Reservation>,
    mappings: BTreeMap<u64, Mapping>,
    /// Each `Map` whose `MapHandle` must have the next sequence number: its own, start, end.
    half_maps: Vec<(u64, u64, u64)>,
    recent: VecDeque<Freed>,
    strangers: VecDeque<Freed>,
    /// Handles that live on in mappings only while their number was given out anew.
    ghosts: u64,
}

impl Driver {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Given> {
        self.pointers.values().chain(self.handles.values())
    }

    /// Where the segments lie, in order.
    pub(super) fn segments(&self) -> Vec<Extent> {
        let own = self.pointers.iter().filter(|(_, g)| g.segment);
        let own = own.map(|(&start, g)| g.at(start, start.saturating_add(g.bytes), false));
        let mapped = self.mappings.iter().filter_map(|(&start, m)| {
            let g = self.handles.get(&m.handle).filter(|g| g.segment)?;
            Some(g.at(start, m.end, true))
        });
        let mut all: Vec<Extent> = own.chain(mapped).collect();
        all.sort_unstable_by_key(|e| (e.start, e.end));
        all
    }

    /// What is known by its address.
    pub(super) fn pointers(&self) -> impl Iterator<Item = (u64, &Given)> {
        self.pointers.iter().map(|(&address, given)| (address, given))
    }

    /// True if a pointer is alive.
    pub(super) fn is_alive(&self, address: u64) -> bool {
        self.pointers.contains_key(&address)
    }

    fn has(&self, handle: bool, address: u64) -> bool {
        if handle { self.handles.contains_key(&address) } else { self.pointers.contains_key(&address) }
    }

    fn space(&mut self, handle: bool) -> &mut Map<Given> {
        if handle { &mut self.handles } else { &mut self.pointers }
    }

    /// Gives allocations born since the last boundary to the step before.
    pub(super) fn relabel(&mut self, handle: bool, address: u64, from: u32, to: u32) {
        if let Some(g) = self.space(handle).get_mut(&address)
            && g.birth == from
        {
            g.birth = to;
        }
    }

    #[inline(always)]
    pub(super) fn may_claim(&self) -> bool {
        !self.unclaimed.is_empty()
    }

    fn reservation(&self, address: u64) -> Option<&Reservation> {
        self.reservations.range(..=address).next_back().map(|(_, r)| r).filter(|r| address < r.end)
    }
}

impl Ledger {
    pub(super) fn alloc(&mut self, e: &Event) {
        let Some(class) = MemoryClass::from_code(e.class) else { return self.unknown() };
        let handle = class.is_handle();
        if e.address == 0 && !handle {
            return;
        }
        let host = class == MemoryClass::Host || e.device == NO_DEVICE;
        let layer = match class {
            _ if class.is_external() => Layer::External,
            _ if host => Layer::Host,
            _ => Layer::Driver,
        };
        let known = || class != MemoryClass::Registered && self.driver.has(handle, e.address);
        if class.is_external() && known() {
            // Opened or imported once more: the same memory, one more reference.
            if let Some(g) = self.driver.space(handle).get_mut(&e.address) {
                g.refs = g.refs.saturating_add(1);
            }
            return;
        }
        let site = self.site_of(e.stack, layer, e.device, e.entry_point);
        let given = Given {
            bytes: e.size,
            site,
            birth: self.birth(),
            context: e.context,
            class: e.class,
            segment: false,
            refs: 1,
            maps: 0,
        };
        self.given(&given);
        self.note_birth(if handle { super::HANDLE } else { super::POINTER }, e.address);
        if !handle && layer == Layer::Driver {
            let end = e.address.saturating_add(e.size);
            self.driver.unclaimed.insert(e.address, Unclaimed { end, reservation: false });
        }
        let Some(old) = self.driver.space(handle).insert(e.address, given) else { return };
        if handle && old.refs == 0 {
            // Released, but mapped still: its bytes live on under a number of ours.
            self.driver.ghosts = self.driver.ghosts.wrapping_add(1);
            let ghost = self.driver.ghosts.wrapping_neg();
            self.driver
                .mappings
                .values_mut()
                .filter(|m| m.handle == e.address)
                .for_each(|m| m.handle = ghost);
            self.driver.handles.insert(ghost, old);
        } else {
            self.missed_frees = self.missed_frees.wrapping_add(1);
            self.gone(&old, false);
            // Its context may be ending just now: another thread can be given the address before that is noted.
            if old.context != 0 && old.context != e.context && is_of_context(&old) {
                match self.displaced.iter_mut().find(|(context, _)| *context == old.context) {
                    Some((_, count)) => *count = count.saturating_add(1),
                    None => self.displaced.push((old.context, 1)),
                }
            }
        }
    }

    pub(super) fn free(&mut self, e: &Event) {
        let Some(class) = MemoryClass::from_code(e.class) else { return self.unknown() };
        let handle = class.is_handle();
        if e.address == 0 && !handle {
            return;
        }
        let what = match self.driver.space(handle).get_mut(&e.address).filter(|g| g.refs > 0) {
            Some(g) => {
                g.refs -= 1;
                let last = g.refs == 0 && g.maps == 0;
                let ended = if last { self.end(handle, e.address) } else { None };
                ended.map_or(What::Reference, What::Ended)
            }
            None => {
                let class = e.class.min(super::CLASSES as u8 - 1);
                let count = &mut self.unknown_frees[usize::from(class)];
                *count = count.wrapping_add(1);
                What::Unknown(class)
            }
        };
        let (list, most) = match what {
            What::Unknown(_) => (&mut self.driver.strangers, STRANGERS),
            _ => (&mut self.driver.recent, RECENT),
        };
        if list.len() >= most {
            list.pop_front();
        }
        list.push_back(Freed { seq: e.seq, handle, address: e.address, what });
    }

    pub(super) fn free_undo(&mut self, e: &Event) {
        let handle = MemoryClass::from_code(e.class).is_some_and(MemoryClass::is_handle);
        let same = |f: &Freed| f.handle == handle && f.address == e.address;
        let seq = |list: &VecDeque<Freed>, at: Option<usize>| at.and_then(|at| list.get(at)).map(|f| f.seq);
        let (recent, strangers) = (&mut self.driver.recent, &mut self.driver.strangers);
        let (known, strange) = (recent.iter().rposition(same), strangers.iter().rposition(same));
        let later = seq(strangers, strange) > seq(recent, known);
        let freed = if later {
            strange.and_then(|at| strangers.remove(at))
        } else {
            known.and_then(|at| recent.remove(at))
        };
        let Some(freed) = freed else { return };
        match freed.what {
            What::Unknown(class) => {
                if let Some(count) = self.unknown_frees.get_mut(usize::from(class)) {
                    *count = count.saturating_sub(1);
                }
            }
            What::Reference => {
                if let Some(g) = self.driver.space(handle).get_mut(&e.address) {
                    g.refs = g.refs.saturating_add(1);
                }
            }
            What::Ended(mut g) if !self.driver.space(handle).contains_key(&e.address) => {
                g.refs = 1;
                self.given(&g);
                if let Some(s) = self.sites.get_mut(g.site).filter(|_| !g.segment) {
                    // It was neither born again nor ever freed.
                    s.allocs = s.allocs.wrapping_sub(1);
                    let same = |d: &super::Departed| (d.site, d.birth, d.bytes) == (g.site, g.birth, g.bytes);
                    match self.departed.iter().rposition(same) {
                        Some(at) => drop(self.departed.remove(at)),
                        None => s.frees = s.frees.saturating_sub(1),
                    }
                }
                if g.segment && !handle {
                    self.departed_segments.retain(|s| s.start != e.address);
                }
                if !handle && !g.segment && self.is_of_device(g.site) {
                    let end = e.address.saturating_add(g.bytes);
                    self.driver.unclaimed.insert(e.address, Unclaimed { end, reservation: false });
                }
                self.driver.space(handle).insert(e.address, g);
            }
            What::Ended(_) => {}
        }
    }

    pub(super) fn reserve(&mut self, e: &Event) {
        let end = e.address.saturating_add(e.size);
        self.driver.reservations.insert(e.address, Reservation { end, claimed: false });
        self.driver.unclaimed.insert(e.address, Unclaimed { end, reservation: true });
    }

    pub(super) fn unreserve(&mut self, e: &Event) {
        self.driver.reservations.remove(&e.address);
        if self.driver.unclaimed.get(&e.address).is_some_and(|u| u.reservation) {
            self.driver.unclaimed.remove(&e.address);
        }
    }

    pub(super) fn map(&mut self, e: &Event) {
        if self.driver.half_maps.len() >= super::MAX_HALVES {
            self.driver.half_maps.remove(0);
        }
        self.driver.half_maps.push((e.seq, e.address, e.address.saturating_add(e.size)));
    }

    pub(super) fn map_handle(&mut self, e: &Event) {
        let first = |half: &(u64, u64, u64)| half.0.wrapping_add(1) == e.seq;
        let Some(at) = self.driver.half_maps.iter().position(first) else { return };
        let (_, start, end) = self.driver.half_maps.remove(at);
        self.driver.mappings.insert(start, Mapping { end, handle: e.address });
        if let Some(g) = self.driver.handles.get_mut(&e.address) {
            g.maps = g.maps.saturating_add(1);
        }
        if self.driver.reservation(start).is_some_and(|r| r.claimed) {
            self.claim_given(true, e.address);
        }
    }

    pub(super) fn unmap(&mut self, e: &Event) {
        let end = e.address.saturating_add(e.size);
        let inside: Vec<(u64, u64)> = self
            .driver
            .mappings
            .range(e.address..=end)
            .filter(|(_, m)| m.end <= end)
            .map(|(start, m)| (*start, m.handle))
            .collect();
        for (start, handle) in inside {
            let Some(gone) = self.driver.mappings.remove(&start) else { continue };
            let Some(g) = self.driver.handles.get_mut(&handle) else { continue };
            g.maps = g.maps.saturating_sub(1);
            if g.segment {
                let extent = g.at(start, gone.end, true);
                self.segment_departs(extent);
            }
            let Some(g) = self.driver.handles.get(&handle) else { continue };
            if g.maps == 0 && g.refs == 0 {
                self.end(true, handle);
            }
        }
    }

    pub(super) fn retain(&mut self, e: &Event) {
        if let Some(g) = self.driver.handles.get_mut(&e.address) {
            g.refs = g.refs.saturating_add(1);
        }
    }

    pub(super) fn context_end(&mut self, e: &Event) {
        let of_it = |g: &Given| e.context != 0 && g.context == e.context && is_of_context(g);
        if let Some(at) = self.displaced.iter().position(|(context, _)| *context == e.context) {
            let (_, ended) = self.displaced.swap_remove(at);
            self.missed_frees = self.missed_frees.saturating_sub(ended);
            self.freed_with_context = self.freed_with_context.wrapping_add(ended);
        }
        for handle in [false, true] {
            let of_it = self.driver.space(handle).iter().filter(|(_, g)| of_it(g));
            let mut ended: Vec<u64> = of_it.map(|(&address, _)| address).collect();
            // Not in the order of a hash table: a replay must end in the same state.
            ended.sort_unstable();
            self.freed_with_context = self.freed_with_context.wrapping_add(ended.len() as u64);
            for address in ended {
                self.end(handle, address);
            }
        }
    }

    /// A block report came for `address`: what it lies in is a segment.
    #[cold]
    pub(super) fn claim(&mut self, address: u64) {
        let Some((&start, range)) = self.driver.unclaimed.range(..=address).next_back() else { return };
        let (end, reservation) = (range.end, range.reservation);
        if address >= end {
            return;
        }
        self.driver.unclaimed.remove(&start);
        if !reservation {
            return self.claim_given(false, start);
        }
        if let Some(r) = self.driver.reservations.get_mut(&start) {
            r.claimed = true;
        }
        let mapped: Vec<u64> = self.driver.mappings.range(start..end).map(|(_, m)| m.handle).collect();
        mapped.into_iter().for_each(|handle| self.claim_given(true, handle));
    }

    fn claim_given(&mut self, handle: bool, address: u64) {
        let Some(g) = self.driver.space(handle).get_mut(&address).filter(|g| !g.segment) else { return };
        let (site, bytes, pooled) = (g.site, g.bytes, g.is_pooled());
        if !self.is_of_device(site) {
            return;
        }
        if let Some(g) = self.driver.space(handle).get_mut(&address) {
            g.segment = true;
        }
        let Some(s) = self.sites.touch(site) else { return };
        s.unborn(bytes);
        if let Some(d) = self.devices.get_mut(usize::from(s.slot)) {
            d.claim(bytes);
            if pooled {
                d.pooled_bytes = d.pooled_bytes.wrapping_sub(bytes);
            }
        }
    }

    fn is_of_device(&self, site: u32) -> bool {
        self.sites.get(site).is_some_and(|s| s.layer == Layer::Driver)
    }

    /// Books a living allocation.
    fn given(&mut self, g: &Given) {
        if g.segment {
            if let Some(d) = self.device_of(g.site) {
                d.segment_bytes = d.segment_bytes.wrapping_add(g.bytes);
            }
            return;
        }
        self.born(g.site, g.bytes);
        if g.is_pooled()
            && let Some(d) = self.device_of(g.site)
        {
            d.pooled_bytes = d.pooled_bytes.wrapping_add(g.bytes);
        }
    }

    /// Takes an allocation out and off the books.
    fn end(&mut self, handle: bool, address: u64) -> Option<Given> {
        let given = self.driver.space(handle).remove(&address)?;
        if !handle && self.driver.unclaimed.get(&address).is_some_and(|u| !u.reservation) {
            self.driver.unclaimed.remove(&address);
        }
        self.gone(&given, true);
        if given.segment && !handle {
            self.segment_departs(given.at(address, address.saturating_add(given.bytes), false));
        }
        Some(given)
    }

    /// Takes an allocation off the books; `freed`: by the program, so that its age counts.
    fn gone(&mut self, g: &Given, freed: bool) {
        if g.segment {
            if let Some(d) = self.device_of(g.site) {
                d.segment_bytes = d.segment_bytes.wrapping_sub(g.bytes);
            }
            self.past.trimmed |= freed;
            return;
        }
        self.died(g.site, g.birth, g.bytes, freed.then_some((false, 0)));
        if g.is_pooled()
            && let Some(d) = self.device_of(g.site)
        {
            d.pooled_bytes = d.pooled_bytes.wrapping_sub(g.bytes);
        }
    }

    fn device_of(&mut self, site: u32) -> Option<&mut super::devices::Device> {
        let slot = self.sites.get(site)?.slot;
        self.devices.get_mut(usize::from(slot))
    }
}

/// Physical memory, one's own or another's, belongs to no context. One whose number was not to be had could be any: nothing
/// is guessed.
fn is_of_context(g: &Given) -> bool {
    !matches!(MemoryClass::from_code(g.class), Some(MemoryClass::Physical | MemoryClass::ExternalHandle))
}
