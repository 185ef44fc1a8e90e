//! Tells optimizers from one another: not by their addresses, since one that is made after another one went
//! mostly gets its memory.
//!
//! A weak reference to each is held, which leaves it as it is and says whether it is still there.

use std::ptr;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::python::api::{Api, Object};
use crate::python::callbacks;

/// The optimizers that are told from one another at a time.
const MOST: usize = 16;

/// One that has stepped. Read and changed with the GIL held, and by one thread at a time where there is none.
struct Known {
    address: AtomicUsize,
    reference: AtomicPtr<std::ffi::c_void>,
    id: AtomicUsize,
}

static KNOWN: [Known; MOST] = [const {
    Known {
        address: AtomicUsize::new(0),
        reference: AtomicPtr::new(ptr::null_mut()),
        id: AtomicUsize::new(0),
    }
}; MOST];
/// The number given out last.
static LAST: AtomicUsize = AtomicUsize::new(0);
/// The optimizer that stepped last.
static LATEST: AtomicUsize = AtomicUsize::new(0);

static BUSY: AtomicBool = AtomicBool::new(false);

/// Returns the number of an optimizer, and reports those that are gone; `None` while another thread asks.
///
/// # Safety
/// The GIL is held.
pub unsafe fn identify(api: &Api, optimizer: Object) -> Option<usize> {
    // Without a GIL nobody is waited for: whoever is inside may wait for this thread, to stop the world.
    if BUSY.swap(true, Acquire) {
        return None;
    }
    // SAFETY: the caller's word.
    let id = unsafe { number(api, optimizer) };
    BUSY.store(false, Release);
    Some(id)
}

/// In a forked child, in which no other thread asks.
pub fn after_fork_child() {
    BUSY.store(false, Release);
}

/// Returns the number of an optimizer. Where there is no room, or it cannot be referred to weakly, its address.
///
/// # Safety
/// As for [`identify`].
unsafe fn number(api: &Api, optimizer: Object) -> usize {
    let address = optimizer as usize;
    // Called, a weak reference returns what it refers to, or `None`. Its other function is gone from new versions.
    // SAFETY: the caller's word; the reference that is returned is given up at once.
    let is_there = |known: &Known| unsafe {
        let reference = known.reference.load(Relaxed);
        let object =
            (api.functions.PyObject_CallFunctionObjArgs)(reference, ptr::null_mut(), ptr::null_mut());
        api.release(object);
        object.addr() == known.address.load(Relaxed)
    };
    let find = || KNOWN.iter().find(|known| known.address.load(Relaxed) == address);
    if LATEST.swap(address, Relaxed) == address
        && let Some(known) = find().filter(|known| is_there(known))
    {
        return known.id.load(Relaxed);
    }
    for known in KNOWN.iter().filter(|known| known.address.load(Relaxed) != 0 && !is_there(known)) {
        known.address.store(0, Relaxed);
        // SAFETY: as above; the reference is ours.
        unsafe { api.release(known.reference.swap(ptr::null_mut(), Relaxed)) };
        (callbacks::get().optimizer_gone)(known.id.load(Relaxed));
    }
    if let Some(known) = find() {
        return known.id.load(Relaxed);
    }
    let Some(free) = KNOWN.iter().find(|known| known.address.load(Relaxed) == 0) else { return address };
    // SAFETY: as above.
    let reference = unsafe { (api.functions.PyWeakref_NewRef)(optimizer, ptr::null_mut()) };
    if reference.is_null() {
        // SAFETY: as above.
        unsafe { (api.functions.PyErr_Clear)() };
        return address;
    }
    let id = LAST.fetch_add(1, Relaxed) + 1;
    free.address.store(address, Relaxed);
    free.reference.store(reference, Relaxed);
    free.id.store(id, Relaxed);
    id
}
