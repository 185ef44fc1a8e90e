//! Objects opened with RTLD_DEEPBIND: their own scope comes before ours, so what they call by name is bound past us. Their
//! slots are pointed to our exports, where the caller's own scope is looked through first.
//!
//! Not inside a hook: this runs where the program itself asks the loader.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};
use std::time::Duration;

use crate::coverage_gaps;
use crate::interpose::elf_format::Header;
use crate::interpose::elf_format::Program;
use crate::interpose::elf_format::Relocation;
use crate::interpose::elf_format::tag;
use crate::interpose::link_map;
use crate::interpose::link_map::LinkMap;
use crate::interpose::scope;
use crate::shield;
use crate::writer::lock::Mutex;

/// Objects at a time that can be kept apart.
const MOST: usize = 256;
static DEEP: [AtomicPtr<LinkMap>; MOST] = [const { AtomicPtr::new(std::ptr::null_mut()) }; MOST];

/// True for an object whose own scope comes first.
pub fn is_deep(object: &LinkMap) -> bool {
    DEEP.iter()
        .map(|d| d.load(Acquire).cast_const())
        .take_while(|d| !d.is_null())
        .any(|d| std::ptr::eq(d, object))
}

/// Objects were unloaded; another may get the place of one of them.
pub fn forget_unloaded() {
    for place in &DEEP {
        let known = place.load(Acquire).cast_const();
        if known.is_null() {
            break;
        }
        if known != GONE && !link_map::chain().any(|o| std::ptr::eq(o, known)) {
            place.store(GONE.cast_mut(), Release);
        }
    }
}
const GONE: *const LinkMap = std::ptr::without_provenance(1);

fn remember(object: &LinkMap) -> bool {
    let own = std::ptr::from_ref(object).cast_mut();
    DEEP.iter().any(|place| {
        let known = place.load(Acquire);
        let free = known.is_null() || std::ptr::eq(known, GONE);
        known == own || free && place.compare_exchange(known, own, AcqRel, Acquire).is_ok()
    })
}

/// What was just opened: `root`, and what it needs, as far as it came after `last`.
pub fn opened(root: &LinkMap, last: Option<&LinkMap>) {
    // One at a time: between making a page writable and back no other may do the same.
    static ONE: Mutex<()> = Mutex::new(());
    shield::fenced(|| {
        let Some(_one) = ONE.try_lock_for(Duration::from_secs(1)) else {
            return coverage_gaps::name(
                "what was opened with RTLD_DEEPBIND while another such opening took its time",
            );
        };
        scope::each_of_closure(root, |object| {
            let new = last.is_none_or(|last| {
                link_map::chain()
                    .skip_while(|o| !std::ptr::eq(*o, last))
                    .skip(1)
                    .any(|o| std::ptr::eq(o, object))
            });
            if new && !(remember(object) && point_to_us(object).is_some()) {
                coverage_gaps::name(&format!(
                    "{} was opened with RTLD_DEEPBIND, and its calls could not be led here",
                    object.path().to_string_lossy()
                ));
            }
        });
    });
}

/// Points the slots of an object to our exports. `None` if that cannot be done.
fn point_to_us(object: &LinkMap) -> Option<()> {
    for (table, size) in [(tag::JMPREL, tag::PLTRELSZ), (tag::RELA, tag::RELASZ)] {
        let (Some(table), Some(size)) = (object.pointer(table), object.value(size)) else { continue };
        let count = size / size_of::<Relocation>();
        // SAFETY: the relocations of a loaded object, as many as it says.
        let all = unsafe { std::slice::from_raw_parts(table as *const Relocation, count) };
        for relocation in all {
            let name = relocation.stores_address_of().and_then(|index| object.symbol_name(index));
            let Some(export) = name.and_then(link_map::export) else { continue };
            let slot = object.bias().wrapping_add(relocation.place) as *const AtomicPtr<c_void>;
            // SAFETY: the loader wrote an address there.
            let bound = unsafe { &*slot };
            // Also where it is bound to the program's own function or that of a preload before us: there we hand it on.
            if bound.load(Acquire) != export {
                write(object, bound, export)?;
            }
        }
    }
    Some(())
}

/// Stores into a slot, also where the loader has made the page read-only after relocation.
fn write(object: &LinkMap, slot: &AtomicPtr<c_void>, value: *mut c_void) -> Option<()> {
    const PT_LOAD: u32 = 1;
    const PT_GNU_RELRO: u32 = 0x6474_e552;
    const PF_W: u32 = 2;
    const PAGE: usize = 4096;
    let programs = programs(object)?;
    let place = std::ptr::from_ref(slot) as usize;
    let holds = |p: &&Program| {
        let start = object.bias().wrapping_add(p.address);
        (start..start + p.size).contains(&place)
    };
    programs.iter().filter(|p| p.kind == PT_LOAD && p.flags & PF_W != 0).find(holds)?;
    let page = place & !(PAGE - 1);
    // The loader protects whole pages only.
    let read_only = programs.iter().filter(|p| p.kind == PT_GNU_RELRO).any(|p| {
        let start = object.bias().wrapping_add(p.address);
        (start & !(PAGE - 1)..(start + p.size) & !(PAGE - 1)).contains(&place)
    });
    let protect = |how: i32| {
        // SAFETY: a page of the object's own data, mapped and private; readable throughout.
        !read_only || unsafe { libc::mprotect(page as *mut c_void, PAGE, how) } == 0
    };
    if !protect(libc::PROT_READ | libc::PROT_WRITE) {
        return None;
    }
    slot.store(value, Release);
    protect(libc::PROT_READ).then_some(())
}

/// The program headers of a loaded object.
fn programs(object: &LinkMap) -> Option<&[Program]> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr fills `info` when it returns nonzero; an object begins with the head of its file.
    unsafe {
        if libc::dladdr(object.dynamic().cast(), info.as_mut_ptr()) == 0 {
            return None;
        }
        let start = info.assume_init().dli_fbase.cast_const();
        let header = &*start.cast::<Header>();
        (header.ident[..4] == *b"\x7fELF").then(|| {
            let table = start.byte_add(header.programs).cast::<Program>();
            std::slice::from_raw_parts(table, usize::from(header.program_count))
        })
    }
}

/// Openings whose file only the loader can find, for it searches on behalf of the caller: they take place behind us, and
/// the same thread's next passage through a door sees to them. Who opens a library asks it for something.
struct Pending {
    thread: usize,
    name: [u8; 120],
    length: usize,
    last: usize,
}

static PENDING: [Mutex<Option<Pending>>; 8] = [const { Mutex::new(None) }; 8];
static COUNT: AtomicU32 = AtomicU32::new(0);

fn thread() -> usize {
    // SAFETY: always succeeds.
    unsafe { libc::pthread_self() as usize }
}

/// An opening is about to take place behind us.
pub fn will_open(file: &CStr) {
    let name = file.to_bytes().rsplit(|b| *b == b'/').next().unwrap_or_default();
    let last = link_map::chain().last().map_or(0, |o| std::ptr::from_ref(o) as usize);
    let mut pending = Pending { thread: thread(), name: [0; 120], length: name.len(), last };
    if let Some(place) = pending.name.get_mut(..name.len()) {
        place.copy_from_slice(name);
        for place in &PENDING {
            // Held for moments only. Tried without waiting, it would be left to whoever waits to fork.
            if let Some(mut place) = place.try_lock_for(Duration::from_millis(100))
                && place.is_none()
            {
                *place = Some(pending);
                COUNT.fetch_add(1, AcqRel);
                return;
            }
        }
    }
    coverage_gaps::name(&format!(
        "{} was opened with RTLD_DEEPBIND, and is not seen",
        file.to_string_lossy()
    ));
}

/// A thread passes a door.
#[inline(always)]
pub fn passed() {
    if COUNT.load(Relaxed) != 0 {
        see_to_pending();
    }
}

#[cold]
fn see_to_pending() {
    let thread = thread();
    for place in &PENDING {
        let taken = place.try_lock().and_then(|mut p| p.take_if(|p| p.thread == thread));
        let Some(pending) = taken else { continue };
        COUNT.fetch_sub(1, AcqRel);
        let last = link_map::chain().find(|o| std::ptr::from_ref(*o) as usize == pending.last);
        let name = &pending.name[..pending.length];
        let is_it = |o: &LinkMap| o.file_name() == name || o.soname().is_some_and(|s| s.to_bytes() == name);
        let mut new = link_map::chain().skip_while(|o| last.is_some_and(|l| !std::ptr::eq(*o, l))).skip(1);
        if let Some(root) = new.find(|o| is_it(o)) {
            opened(root, last);
        }
    }
}

/// An object is opened where there is nothing of ours.
pub fn elsewhere(file: &CStr) {
    shield::fenced(|| {
        coverage_gaps::name(&format!(
            "{} was opened in a namespace of its own, and is not seen",
            file.to_string_lossy()
        ));
    });
}
