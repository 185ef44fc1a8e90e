//! The slots by which loaded objects call what we export: words that the loader filled with addresses, or will fill at
//! the first call. One is pointed to us by a single store, and back by another. Whose slots are to be pointed to us
//! is not decided here.
//!
//! Not inside a hook.

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, Ordering::*};

use crate::loader::link_map::{LoadedObjects, is_own_address, page_size};
use crate::loader::object::{AddressSlot, LinkMap, SlotOf, Version};
use crate::lock::{Mutex, Rank};

/// A slot that was pointed to us in a running process, and what it held before.
#[derive(Clone, Copy, Debug)]
pub struct Changed {
    address: usize,
    before: usize,
}

/// Held while slots are written: between making a page writable and back no other thread may do the same. The slots that
/// detaching puts back, by address.
pub static SLOTS: Mutex<Vec<Changed>> = Mutex::new(Rank::ImportTables, Vec::new());

/// The most exports of ours that one object refers to.
const MAX_REFERENCES: usize = 256;

/// Calls `each` with the slots of an object that may hold exports of ours, and with the export; ends with the first
/// `None`.
fn each_slot(
    objects: &LoadedObjects,
    object: &LinkMap,
    mut each: impl FnMut(AddressSlot, &AtomicPtr<c_void>, *mut c_void) -> Option<()>,
) -> Option<()> {
    let Some(own) = objects.own().filter(|_| !object.is_own()) else { return Some(()) };
    let references = object.references_to::<MAX_REFERENCES>(own);
    if references.is_empty() {
        return Some(());
    }
    for slot in object.address_slots() {
        if let Some(export) = references.get(slot.symbol) {
            // SAFETY: the loader stores an address there, as a whole word.
            each(slot, unsafe { &*(slot.address as *const AtomicPtr<c_void>) }, export)?;
        }
    }
    Some(())
}

/// Points all slots of an object that was just opened to our exports. `None` if that cannot be done.
pub fn point_to_us(objects: &LoadedObjects, object: &LinkMap) -> Option<()> {
    each_slot(objects, object, |_, slot, export| {
        // Also where it is bound to the program's own function or that of a preload before us: there we hand it on.
        if slot.load(Acquire) == export { Some(()) } else { store(objects, object, slot, export) }
    })
}

/// Points the slots of all objects to our exports, in a process that was running, and keeps what they held in `changed`,
/// which does not grow. Returns how many there are that found no room, or could not be written.
pub fn take_over(objects: &LoadedObjects, changed: &mut Vec<Changed>) -> (usize, usize) {
    let (mut without_room, mut unwritten) = (0, 0);
    for object in objects.all() {
        each_slot(objects, object, |kind, slot, export| {
            let before = slot.load(Acquire);
            if before == export || !is_bound_as_ever(objects, object, kind, before) {
                return Some(());
            }
            if changed.len() == changed.capacity() {
                without_room += 1;
                return Some(());
            }
            changed.push(Changed { address: kind.address, before: before as usize });
            if store(objects, object, slot, export).is_none() {
                changed.pop();
                unwritten += 1;
            }
            Some(())
        });
    }
    (without_room, unwritten)
}

/// Points the slots back to what they held. Returns how many could not be.
pub fn give_back(objects: &LoadedObjects, changed: &mut Vec<Changed>) -> usize {
    let mut unwritten = 0;
    changed.sort_unstable_by_key(|slot| slot.address);
    for object in objects.all() {
        each_slot(objects, object, |kind, slot, export| {
            let Ok(at) = changed.binary_search_by_key(&kind.address, |slot| slot.address) else {
                return Some(());
            };
            // Who wrote there since has it.
            let before = changed.get(at).map_or(0, |slot| slot.before) as *mut c_void;
            if slot.load(Acquire) == export && store(objects, object, slot, before).is_none() {
                unwritten += 1;
            }
            Some(())
        });
    }
    changed.clear();
    unwritten
}

/// Returns whether a slot holds what the loader put there: the program may have stored something else since. `false` too for
/// what we could not hand on.
fn is_bound_as_ever(
    objects: &LoadedObjects,
    object: &LinkMap,
    slot: AddressSlot,
    value: *mut c_void,
) -> bool {
    let Some(name) = object.symbol_name(slot.symbol).filter(|_| !value.is_null()) else { return false };
    if is_own_address(value) || objects.find_in_any(name).is_none() {
        return false;
    }
    let defines = |o: &LinkMap| o.definition(name, Version::Any).is_some();
    match slot.of {
        // Not bound yet: the way to the loader, inside of the object itself.
        SlotOf::Call if objects.at(value).is_some_and(|o| o.id() == object.id()) => true,
        SlotOf::Call | SlotOf::Reference => objects.at(value).is_some_and(defines),
        SlotOf::Data => objects.all().any(|o| o.definition(name, Version::Any) == Some(value)),
    }
}

/// Stores into a slot, also where the loader has made the page read-only after relocation.
fn store(
    objects: &LoadedObjects,
    object: &LinkMap,
    slot: &AtomicPtr<c_void>,
    value: *mut c_void,
) -> Option<()> {
    let address = std::ptr::from_ref(slot) as usize;
    objects.data(object).find(|range| range.contains(&address))?;
    let page = address & !(page_size() - 1);
    let read_only = objects.protected(object).contains(&address);
    let protect = |how: i32| {
        // SAFETY: a page of the object's own data, mapped and private; readable throughout.
        !read_only || unsafe { libc::mprotect(page as *mut c_void, page_size(), how) } == 0
    };
    if !protect(libc::PROT_READ | libc::PROT_WRITE) {
        return None;
    }
    slot.store(value, Release);
    protect(libc::PROT_READ).then_some(())
}
