//! Objects opened with RTLD_DEEPBIND: their own scope comes before ours, so what they call by name is bound
//! past us. Their slots in the global offset table are pointed to our exports, where the caller's own scope
//! is looked through first.
//!
//! Not inside a hook: this runs where the program itself asks the loader.

use std::ffi::CStr;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};
use std::time::Duration;

use crate::coverage_gaps;
use crate::interpose::slots::{self, SLOTS};
use crate::loader::link_map::{self, Name, ObjectId};
use crate::loader::object::LinkMap;
use crate::loader::scope;
use crate::lock::{Mutex, Rank};
use crate::shield::shield;

/// The objects whose own scope comes first, by id; 0: a free entry, after those that were ever used;
/// [`GONE`]: one that was used.
static DEEPBIND: [AtomicUsize; 256] = [const { AtomicUsize::new(0) }; 256];
const GONE: usize = 1;

/// True for an object whose own scope comes first.
pub fn is_deepbind(object: ObjectId) -> bool {
    DEEPBIND.iter().map(|d| d.load(Acquire)).take_while(|d| *d != 0).any(|d| d == object.address())
}

/// Drops objects that were unloaded: another may get the address of one of them.
pub fn forget_unloaded() {
    link_map::with_objects(|objects| {
        for entry in &DEEPBIND {
            match entry.load(Acquire) {
                0 => break,
                GONE => {}
                id if objects.all().any(|o| o.id().address() == id) => {}
                _ => entry.store(GONE, Release),
            }
        }
    });
}

/// Remembers an object. `false`: there is no room for it.
fn remember(object: &LinkMap) -> bool {
    let own = object.id().address();
    DEEPBIND.iter().any(|entry| {
        let known = entry.load(Acquire);
        known == own || known <= GONE && entry.compare_exchange(known, own, AcqRel, Acquire).is_ok()
    })
}

/// The last of the loaded objects: what is opened from now on comes after it.
pub fn last_object() -> Option<ObjectId> {
    link_map::with_objects(|objects| objects.all().last().map(LinkMap::id)).flatten()
}

/// Patches what was just opened: `root`, and what it needs, as far as it came after `last`.
pub fn patch_opened(root: ObjectId, last: Option<ObjectId>) {
    // One at a time: between making a page writable and back no other may do the same.
    shield(|| {
        let Some(_one) = SLOTS.try_lock_for(Duration::from_secs(1)) else {
            return coverage_gaps::report(
                "what was opened with RTLD_DEEPBIND while another such opening took its time",
            );
        };
        // The objects that could not be patched are named one by one: naming allocates, which is not allowed
        // below.
        let mut path = Name::<{ libc::PATH_MAX as usize }>::empty();
        let mut unpatched = 0;
        while patch_closure(root, last, unpatched, &mut path) {
            unpatched += 1;
            let path = path.get().to_string_lossy();
            coverage_gaps::report(&format!(
                "{path} was opened with RTLD_DEEPBIND, and its calls could not be led here"
            ));
        }
    });
}

/// Patches the new objects that `root` needs. If more than `named` of them could not be: `true`, and the path
/// of the next.
fn patch_closure<const SIZE: usize>(
    root: ObjectId,
    last: Option<ObjectId>,
    named: usize,
    path: &mut Name<SIZE>,
) -> bool {
    let mut unpatched = 0;
    link_map::with_objects(|objects| {
        let Some(root) = objects.get(root) else { return };
        scope::each_of_closure(objects, root, |object| {
            // Where the last one was closed meanwhile, what was opened since startup may be new.
            let is_new = match last.filter(|last| objects.get(*last).is_some()) {
                Some(last) => objects.after(last).any(|o| o.id() == object.id()),
                None => objects.dlopened_objects().any(|o| o.id() == object.id()),
            };
            if is_new && !(remember(object) && slots::point_to_us(objects, object).is_some()) {
                if unpatched == named {
                    path.set(object.path());
                }
                unpatched += 1;
            }
        });
    });
    unpatched > named
}

/// An opening whose file only the loader can find, for it searches on behalf of the caller: it takes place
/// behind us, and the same thread's next call of an interposer patches it. Who opens a library asks it for
/// something.
pub struct Pending {
    thread: usize,
    name: Name<120>,
    last: Option<ObjectId>,
}

pub static PENDING: [Mutex<Option<Pending>>; 8] = [const { Mutex::new(Rank::PendingOpenings, None) }; 8];
static PENDING_COUNT: AtomicU32 = AtomicU32::new(0);

fn thread() -> usize {
    // SAFETY: always succeeds.
    unsafe { libc::pthread_self() as usize }
}

/// Remembers an opening that is about to take place behind us.
pub fn patch_when_opened(file: &CStr) {
    let name = file.to_bytes().rsplit(|b| *b == b'/').next().unwrap_or_default();
    if name.len() < 120 {
        let skipped = file.to_bytes().len() - name.len();
        let mut pending = Pending { thread: thread(), name: Name::empty(), last: last_object() };
        // SAFETY: inside the same C string.
        pending.name.set(unsafe { CStr::from_ptr(file.as_ptr().add(skipped)) });
        for entry in &PENDING {
            // Held for moments only. Tried without waiting, it would be left to whoever waits to fork.
            if let Some(mut entry) = entry.try_lock_for(Duration::from_millis(100))
                && entry.is_none()
            {
                *entry = Some(pending);
                PENDING_COUNT.fetch_add(1, AcqRel);
                return;
            }
        }
    }
    coverage_gaps::report(&format!(
        "{} was opened with RTLD_DEEPBIND, and is not seen",
        file.to_string_lossy()
    ));
}

/// Patches what this thread has opened behind us since. Called by every interposer.
#[inline(always)]
pub fn poll_pending() {
    if PENDING_COUNT.load(Relaxed) != 0 {
        patch_pending();
    }
}

#[cold]
fn patch_pending() {
    let thread = thread();
    for entry in &PENDING {
        let taken = entry.try_lock().and_then(|mut p| p.take_if(|p| p.thread == thread));
        let Some(pending) = taken else { continue };
        PENDING_COUNT.fetch_sub(1, AcqRel);
        let name = pending.name.get();
        let goes_by_name = |o: &LinkMap| o.file_name() == name.to_bytes() || o.soname() == Some(name);
        let root = link_map::with_objects(|objects| {
            let last = pending.last.filter(|last| objects.get(*last).is_some());
            let new = |o: &&LinkMap| last.is_none_or(|last| objects.after(last).any(|n| n.id() == o.id()));
            objects.dlopened_objects().filter(new).find(|o| goes_by_name(o)).map(LinkMap::id)
        });
        if let Some(root) = root.flatten() {
            patch_opened(root, pending.last);
        }
    }
}

/// Names an object that is opened in a namespace without any export of ours.
pub fn note_dlmopen(file: &CStr) {
    shield(|| {
        coverage_gaps::report(&format!(
            "{} was opened in a namespace of its own, and is not seen",
            file.to_string_lossy()
        ));
    });
}

/// Forgets the openings of other threads, which a forked child does not have.
pub fn after_fork_child() {
    for mut pending in PENDING.iter().filter_map(Mutex::lock) {
        if pending.take_if(|p| p.thread != thread()).is_some() {
            PENDING_COUNT.fetch_sub(1, AcqRel);
        }
    }
}
