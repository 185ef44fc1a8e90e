//! What the driver gave: pointers and handles, mappings and address ranges; and which of it is a segment. It
//! must not know of blocks beyond the address of one.
//!
//! A driver allocation is a segment once a block report falls inside it. For memory that is mapped, the unit
//! that turns into segments is the address range it is mapped into.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::allocation::{Allocation, Extent};
use super::free_history::{FreeHistory, FreeOutcome};
use super::sites::{Layer, Sites};
use super::totals::{AFTER_EXIT, Books, CLASSES, Departed, MAX_HALVES, Removal, Space};
use crate::format::event::{Event, MemoryClass, NO_DEVICE};

/// Segments kept that were returned since the last boundary.
const MAX_RETURNED: usize = 65_536;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Reservation {
    end: u64,
    /// True once a block was reported in it: whatever is mapped there is a segment.
    segments: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Mapping {
    end: u64,
    handle: u64,
}

/// Everything alive at the driver's level.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Driver {
    pointers: BTreeMap<u64, Allocation>,
    handles: BTreeMap<u64, Allocation>,
    reservations: BTreeMap<u64, Reservation>,
    /// Pointers to device memory and reservations that may yet turn out to be segments.
    undecided: u64,
    mappings: BTreeMap<u64, Mapping>,
    /// Each `Map` whose `MapHandle` must have the next sequence number: its own, start, end.
    half_maps: Vec<(u64, u64, u64)>,
    frees: FreeHistory,
    /// Counts handles that live on in mappings only while their number was given out anew: they get numbers
    /// of ours.
    orphaned_handles: u64,
    /// Allocations whose address was given out anew, by their context: that may be ending just now.
    displaced: Vec<(u8, u64)>,
    /// Segments returned since the last boundary that were there at it: after a run that exited cleanly
    /// nothing else would be left to see.
    returned_segments: Vec<Extent>,
    /// True if cached memory went back to the driver since the last boundary.
    trimmed: bool,
}

impl Driver {
    pub fn alloc(&mut self, books: &mut Books, e: &Event) {
        let Some(class) = MemoryClass::from_code(e.class) else { return books.unknown_event() };
        let handle = class.is_handle();
        if e.address == 0 && !handle {
            return;
        }
        let layer = match class {
            _ if class.is_external() => Layer::External,
            MemoryClass::Code => Layer::Code,
            MemoryClass::Host => Layer::Host,
            _ if e.device == NO_DEVICE => Layer::Host,
            _ => Layer::Driver,
        };
        // Opened or imported once more: the same memory, one more reference.
        if class.is_external()
            && class != MemoryClass::Registered
            && let Some(a) = self.space(handle).get_mut(&e.address)
        {
            a.refs = a.refs.saturating_add(1);
            return;
        }
        let allocation = Allocation {
            bytes: e.size,
            site: books.site_of(e.stack, layer, e.device, e.entry_point),
            birth: books.birth(),
            context: e.context,
            class: e.class,
            segment: false,
            refs: 1,
            maps: 0,
        };
        book(books, &allocation);
        books.note_birth(if handle { Space::Handle } else { Space::Pointer }, e.address);
        self.undecided += u64::from(!handle && layer == Layer::Driver);
        let Some(old) = self.space(handle).insert(e.address, allocation) else { return };
        if handle && old.refs == 0 {
            self.orphan(e.address, old);
            return;
        }
        books.missed_free();
        self.decided(books, handle, &old);
        self.unbook(books, &old, Removal::Displaced);
        // Its context may be ending just now: another thread can be given the address before that end is
        // recorded.
        if old.context != 0 && old.context != e.context && old.ends_with_context() {
            match self.displaced.iter_mut().find(|(context, _)| *context == old.context) {
                Some((_, count)) => *count = count.saturating_add(1),
                None => self.displaced.push((old.context, 1)),
            }
        }
    }

    /// Keeps a handle that was released, but is still mapped, under a number of ours: its own was given out
    /// anew.
    fn orphan(&mut self, handle: u64, allocation: Allocation) {
        self.orphaned_handles = self.orphaned_handles.wrapping_add(1);
        let number = self.orphaned_handles.wrapping_neg();
        self.mappings.values_mut().filter(|m| m.handle == handle).for_each(|m| m.handle = number);
        self.handles.insert(number, allocation);
    }

    pub fn free(&mut self, books: &mut Books, e: &Event) {
        let Some(class) = MemoryClass::from_code(e.class) else { return books.unknown_event() };
        let handle = class.is_handle();
        if e.address == 0 && !handle {
            return;
        }
        let outcome = match self.space(handle).get_mut(&e.address).filter(|a| a.refs > 0) {
            Some(a) => {
                a.refs -= 1;
                let last = a.refs == 0 && a.maps == 0;
                let ended = if last { self.end(books, handle, e.address) } else { None };
                ended.map_or(FreeOutcome::Dereferenced, FreeOutcome::Ended)
            }
            None => {
                let class = e.class.min(CLASSES as u8 - 1);
                books.unknown_driver_free(usize::from(class));
                FreeOutcome::Unknown(class)
            }
        };
        self.frees.push(e.seq, handle, e.address, outcome);
    }

    /// Undoes the latest free of that address: the real call failed.
    pub fn undo_free(&mut self, books: &mut Books, e: &Event) {
        let handle = MemoryClass::from_code(e.class).is_some_and(MemoryClass::is_handle);
        match self.frees.take(handle, e.address) {
            Some(FreeOutcome::Unknown(class)) => {
                if let Some(count) = books.unknown_frees.get_mut(usize::from(class)) {
                    *count = count.saturating_sub(1);
                }
            }
            Some(FreeOutcome::Dereferenced) => {
                if let Some(a) = self.space(handle).get_mut(&e.address) {
                    a.refs = a.refs.saturating_add(1);
                }
            }
            Some(FreeOutcome::Ended(mut a)) if !self.space(handle).contains_key(&e.address) => {
                a.refs = 1;
                book(books, &a);
                if let Some(s) = books.sites.get_mut(a.site).filter(|_| !a.segment) {
                    // It was neither born again nor ever freed.
                    s.allocs = s.allocs.wrapping_sub(1);
                    let same = |d: &Departed| (d.site, d.birth, d.bytes) == (a.site, a.birth, a.bytes);
                    match books.releases_since_boundary.iter().rposition(same) {
                        Some(at) => drop(books.releases_since_boundary.remove(at)),
                        None => s.frees = s.frees.saturating_sub(1),
                    }
                }
                if a.segment && !handle {
                    self.returned_segments.retain(|s| s.start != e.address);
                }
                self.undecided += u64::from(!handle && may_be_segment(books, &a));
                self.space(handle).insert(e.address, a);
            }
            Some(FreeOutcome::Ended(_)) | None => {}
        }
    }

    pub fn reserve(&mut self, e: &Event) {
        let end = e.address.saturating_add(e.size);
        let old = self.reservations.insert(e.address, Reservation { end, segments: false });
        self.undecided += u64::from(old.is_none_or(|r| r.segments));
    }

    pub fn unreserve(&mut self, e: &Event) {
        if self.reservations.remove(&e.address).is_some_and(|r| !r.segments) {
            self.undecided = self.undecided.saturating_sub(1);
        }
    }

    /// Keeps the first half of a mapping until its handle comes.
    pub fn map(&mut self, e: &Event) {
        if self.half_maps.len() >= MAX_HALVES {
            self.half_maps.remove(0);
        }
        self.half_maps.push((e.seq, e.address, e.address.saturating_add(e.size)));
    }

    pub fn map_handle(&mut self, books: &mut Books, e: &Event) {
        let Some(at) = self.half_maps.iter().position(|half| half.0.wrapping_add(1) == e.seq) else { return };
        let (_, start, end) = self.half_maps.remove(at);
        self.mappings.insert(start, Mapping { end, handle: e.address });
        if let Some(a) = self.handles.get_mut(&e.address) {
            a.maps = a.maps.saturating_add(1);
        }
        let reservation = self.reservations.range(..=start).next_back().map(|(_, r)| r);
        if reservation.is_some_and(|r| start < r.end && r.segments) {
            self.mark_as_segment(books, true, e.address);
        }
    }

    pub fn unmap(&mut self, books: &mut Books, e: &Event) {
        let end = e.address.saturating_add(e.size);
        let inside = self.mappings.range(e.address..=end).filter(|(_, m)| m.end <= end);
        let inside: Vec<(u64, u64)> = inside.map(|(start, m)| (*start, m.handle)).collect();
        for (start, handle) in inside {
            let Some(mapping) = self.mappings.remove(&start) else { continue };
            let Some(a) = self.handles.get_mut(&handle) else { continue };
            a.maps = a.maps.saturating_sub(1);
            let ended = a.maps == 0 && a.refs == 0;
            if a.segment {
                let extent = a.extent(start, mapping.end, true);
                self.segment_returned(books, extent);
            }
            if ended {
                self.end(books, true, handle);
            }
        }
    }

    pub fn retain(&mut self, e: &Event) {
        if let Some(a) = self.handles.get_mut(&e.address) {
            a.refs = a.refs.saturating_add(1);
        }
    }

    /// Ends everything that was allocated in a context. A context whose number could not be determined (0)
    /// could be any: nothing is guessed.
    pub fn context_end(&mut self, books: &mut Books, e: &Event) {
        if let Some(at) = self.displaced.iter().position(|(context, _)| *context == e.context) {
            let (_, ended) = self.displaced.swap_remove(at);
            books.missed_frees = books.missed_frees.saturating_sub(ended);
            books.freed_with_context = books.freed_with_context.wrapping_add(ended);
        }
        let ends = |a: &Allocation| e.context != 0 && a.context == e.context && a.ends_with_context();
        for handle in [false, true] {
            let all = self.space(handle).iter().filter(|(_, a)| ends(a));
            let ended: Vec<u64> = all.map(|(&address, _)| address).collect();
            books.freed_with_context = books.freed_with_context.wrapping_add(ended.len() as u64);
            for address in ended {
                self.end(books, handle, address);
            }
        }
    }

    /// Returns whether a block report could show a segment.
    #[inline(always)]
    pub fn may_show_segment(&self) -> bool {
        self.undecided > 0
    }

    /// Takes in that a block was reported at `address`: what it lies in is a segment, or the whole range of
    /// addresses is.
    #[cold]
    pub fn block_reported(&mut self, books: &mut Books, address: u64) {
        if let Some((&start, a)) = self.pointers.range(..=address).next_back()
            && address < start.saturating_add(a.bytes)
        {
            return self.mark_as_segment(books, false, start);
        }
        let Some((&start, r)) = self.reservations.range_mut(..=address).next_back() else { return };
        if address >= r.end || r.segments {
            return;
        }
        (r.segments, self.undecided) = (true, self.undecided.saturating_sub(1));
        let mapped: Vec<u64> = self.mappings.range(start..r.end).map(|(_, m)| m.handle).collect();
        mapped.into_iter().for_each(|handle| self.mark_as_segment(books, true, handle));
    }

    fn mark_as_segment(&mut self, books: &mut Books, handle: bool, address: u64) {
        let Some(a) = self.space(handle).get_mut(&address).filter(|a| may_be_segment(books, a)) else {
            return;
        };
        a.segment = true;
        let (site, bytes, pooled) = (a.site, a.bytes, a.is_pooled());
        self.undecided = self.undecided.saturating_sub(u64::from(!handle));
        let Some(s) = books.sites.touch(site) else { return };
        s.unborn(bytes);
        let device = usize::from(s.device_index);
        if let Some(d) = books.devices.get_mut(device) {
            d.mark_as_segment(bytes);
            if pooled {
                d.pooled_bytes = d.pooled_bytes.wrapping_sub(bytes);
            }
        }
    }

    /// Removes an allocation and takes it off the books.
    fn end(&mut self, books: &mut Books, handle: bool, address: u64) -> Option<Allocation> {
        let allocation = self.space(handle).remove(&address)?;
        self.decided(books, handle, &allocation);
        self.unbook(books, &allocation, Removal::Freed { collected: false, given_on: false, address: 0 });
        if allocation.segment && !handle {
            let end = address.saturating_add(allocation.bytes);
            self.segment_returned(books, allocation.extent(address, end, false));
        }
        Some(allocation)
    }

    fn unbook(&mut self, books: &mut Books, a: &Allocation, how: Removal) {
        if a.segment {
            if let Some(d) = books.device_of(a.site) {
                d.segment_bytes = d.segment_bytes.wrapping_sub(a.bytes);
            }
            self.trimmed |= matches!(how, Removal::Freed { .. });
            return;
        }
        books.removed(a.site, a.birth, a.bytes, how);
        if a.is_pooled()
            && let Some(d) = books.device_of(a.site)
        {
            d.pooled_bytes = d.pooled_bytes.wrapping_sub(a.bytes);
        }
    }

    /// Keeps a segment that was there at the judged moment until the next boundary.
    #[cold]
    fn segment_returned(&mut self, books: &Books, extent: Extent) {
        let judged =
            if books.completed == 0 { books.exit.is_some() } else { extent.birth <= books.completed };
        if judged && extent.birth != AFTER_EXIT && self.returned_segments.len() < MAX_RETURNED {
            self.returned_segments.push(extent);
        }
    }

    /// Notes that a caching allocator gave back what it did not use.
    pub fn cache_emptied(&mut self) {
        self.trimmed = true;
    }

    /// Starts a new step; returns whether cached memory went back to the driver in the last one.
    pub fn end_step(&mut self) -> bool {
        self.returned_segments.clear();
        std::mem::take(&mut self.trimmed)
    }

    /// Moves an allocation born in step `from` to step `to`.
    pub fn move_birth(&mut self, space: Space, address: u64, from: u32, to: u32) {
        if let Some(a) = self.space(space == Space::Handle).get_mut(&address).filter(|a| a.birth == from) {
            a.birth = to;
        }
    }

    fn space(&mut self, handle: bool) -> &mut BTreeMap<u64, Allocation> {
        if handle { &mut self.handles } else { &mut self.pointers }
    }

    /// Takes in that an allocation is gone.
    fn decided(&mut self, books: &Books, handle: bool, a: &Allocation) {
        self.undecided = self.undecided.saturating_sub(u64::from(!handle && may_be_segment(books, a)));
    }

    /// Returns whether an allocation with this address is alive.
    pub fn is_alive(&self, address: u64) -> bool {
        self.pointers.contains_key(&address)
    }

    /// Returns every allocation.
    pub fn iter(&self) -> impl Iterator<Item = &Allocation> {
        self.pointers.values().chain(self.handles.values())
    }

    /// Returns what is known by its address, in its order.
    pub fn pointers(&self) -> impl Iterator<Item = (u64, &Allocation)> {
        self.pointers.iter().map(|(&address, a)| (address, a))
    }

    /// Returns where the segments lie, by address.
    pub fn segments(&self) -> Vec<Extent> {
        let own = self.pointers.iter().filter(|(_, a)| a.segment);
        let own = own.map(|(&start, a)| a.extent(start, start.saturating_add(a.bytes), false));
        let mapped = self.mappings.iter().filter_map(|(&start, m)| {
            let a = self.handles.get(&m.handle).filter(|a| a.segment)?;
            Some(a.extent(start, m.end, true))
        });
        let mut all: Vec<Extent> = own.chain(mapped).collect();
        all.sort_unstable_by_key(|e| (e.start, e.end));
        all
    }

    /// Returns the segments that were returned since the last boundary.
    pub fn returned_segments(&self) -> &[Extent] {
        &self.returned_segments
    }

    /// Returns the start, end and device of each segment, by address.
    pub fn segments_with_device(&self, sites: &Sites) -> Vec<(u64, u64, u8)> {
        let device = |site| sites.get(site).map_or(NO_DEVICE, |s| s.device);
        self.segments().into_iter().map(|e| (e.start, e.end, device(e.site))).collect()
    }
}

/// Returns whether a block report would show that an allocation is a segment.
fn may_be_segment(books: &Books, a: &Allocation) -> bool {
    !a.segment && books.site(a.site).is_some_and(|s| s.layer == Layer::Driver)
}

/// Books an allocation that is alive.
fn book(books: &mut Books, a: &Allocation) {
    if a.segment {
        if let Some(d) = books.device_of(a.site) {
            d.segment_bytes = d.segment_bytes.wrapping_add(a.bytes);
        }
        return;
    }
    books.born(a.site, a.bytes);
    if a.is_pooled()
        && let Some(d) = books.device_of(a.site)
    {
        d.pooled_bytes = d.pooled_bytes.wrapping_add(a.bytes);
    }
}
