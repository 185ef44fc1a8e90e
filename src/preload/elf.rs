//! Looks things up in loaded objects without the loader: no lock, no allocation, fit for the inside of a hook.
//!
//! `dlsym` is out of the question there (the loader's lock is held while constructors run, and they may allocate), and
//! `RTLD_NEXT` is blind for providers that came in RTLD_LOCAL. So: the caller's return address gives its object, the
//! object's own NEEDED list gives its scope, and each object's hash table gives the symbol. What a program may unload
//! while it calls into it is its own business; the caller and what it depends on are pinned by the call.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicPtr, Ordering::*};

/// The public head of the loader's `struct link_map`.
#[repr(C)]
pub struct LinkMap {
    bias: usize,
    name: *const c_char,
    dynamic: *const Dyn,
    next: *const LinkMap,
    previous: *const LinkMap,
}

#[repr(C)]
struct Dyn {
    tag: i64,
    value: usize,
}

#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: usize,
    size: usize,
}

/// glibc's `struct dl_find_object`; only the head is read.
#[repr(C)]
struct FoundObject {
    flags: u64,
    start: *const c_void,
    end: *const c_void,
    map: *const LinkMap,
    rest: [u64; 12],
}

type FindObject = unsafe extern "C" fn(*const c_void, *mut FoundObject) -> i32;

static FIND: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static CHAIN: AtomicPtr<LinkMap> = AtomicPtr::new(std::ptr::null_mut());
static SELF: AtomicPtr<LinkMap> = AtomicPtr::new(std::ptr::null_mut());

/// Finds the loader's own look-up function and the head of its list. Not for the inside of a hook.
pub fn arm(real_dlsym: unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void) {
    // SAFETY: documented functions of the C library, asked for by name.
    unsafe {
        FIND.store(real_dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr()), Release);
        let program = libc::dlopen(std::ptr::null(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        // A handle is the object's link map (dlinfo's RTLD_DI_LINKMAP says the same).
        CHAIN.store(program.cast(), Release);
    }
    SELF.store(
        object_of(arm as *const c_void).map_or(std::ptr::null_mut(), |m| std::ptr::from_ref(m).cast_mut()),
        Release,
    );
}

/// The object whose code or data `address` lies in.
pub fn object_of(address: *const c_void) -> Option<&'static LinkMap> {
    let find = FIND.load(Acquire);
    if find.is_null() {
        return object_by_walk(address);
    }
    let mut found = std::mem::MaybeUninit::<FoundObject>::zeroed();
    // SAFETY: `find` is glibc's `_dl_find_object`; the struct is at least as large as its own. On success the link map
    // is that of a loaded object.
    unsafe {
        let find: FindObject = std::mem::transmute(find);
        (find(address, found.as_mut_ptr()) == 0).then(|| found.assume_init().map.as_ref()).flatten()
    }
}

/// glibc before 2.35: asks the loader, lock and all.
fn object_by_walk(address: *const c_void) -> Option<&'static LinkMap> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr fills `info` when it returns nonzero.
    let base = unsafe {
        if libc::dladdr(address, info.as_mut_ptr()) == 0 {
            return None;
        }
        info.assume_init().dli_fbase as usize
    };
    chain().find(|map| {
        // The bias of a position-independent object is its base; the program itself may have bias 0.
        map.bias == base || (map.bias == 0 && map.previous.is_null() && base < 0x1000_0000)
    })
}

fn chain() -> impl Iterator<Item = &'static LinkMap> {
    // SAFETY: the head is the program's own map, never unloaded; `next` leads to loaded objects.
    let mut at = unsafe { CHAIN.load(Acquire).as_ref() };
    std::iter::from_fn(move || {
        let map = at?;
        // SAFETY: as above.
        at = unsafe { map.next.as_ref() };
        Some(map)
    })
}

/// The definition of `symbol` that a call out of `caller` would reach without us: its own object, then what it needs,
/// breadth first; then any object at all.
pub fn definition(caller: &LinkMap, symbol: &CStr) -> Option<*mut c_void> {
    let mut scope: [Option<&LinkMap>; 64] = [None; 64];
    scope[0] = Some(caller);
    let (mut done, mut known) = (0, 1);
    while done < known {
        let object = scope[done]?;
        if let Some(found) = object.find(symbol) {
            return Some(found);
        }
        done += 1;
        for needed in object.needed() {
            let Some(map) = chain().find(|m| m.is_named(needed)) else { continue };
            if known < scope.len() && !scope[..known].iter().flatten().any(|m| std::ptr::eq(*m, map)) {
                scope[known] = Some(map);
                known += 1;
            }
        }
    }
    anywhere(symbol)
}

/// The first definition of `symbol` in any loaded object but ours.
pub fn anywhere(symbol: &CStr) -> Option<*mut c_void> {
    chain().find_map(|object| object.find(symbol))
}

impl LinkMap {
    fn is_self(&self) -> bool {
        std::ptr::eq(self, SELF.load(Acquire))
    }

    fn entries(&self) -> impl Iterator<Item = &Dyn> {
        let mut at = self.dynamic;
        std::iter::from_fn(move || {
            // SAFETY: the dynamic section of a loaded object ends with a DT_NULL entry (tag 0).
            let entry = unsafe { at.as_ref()? };
            // SAFETY: still inside the section, see above.
            at = if entry.tag == 0 { std::ptr::null() } else { unsafe { at.add(1) } };
            (entry.tag != 0).then_some(entry)
        })
    }

    fn value(&self, tag: i64) -> Option<usize> {
        self.entries().find(|d| d.tag == tag).map(|d| d.value)
    }

    /// A pointer in the dynamic section: glibc relocates them in place for all but a few objects (the vDSO).
    fn pointer(&self, tag: i64) -> Option<usize> {
        self.value(tag).map(|v| if v < self.bias { v.wrapping_add(self.bias) } else { v })
    }

    fn string(&self, offset: usize) -> Option<&CStr> {
        let strings = self.pointer(DT_STRTAB)?;
        // SAFETY: offsets in the dynamic section and the symbol table name strings of the object's own table.
        Some(unsafe { CStr::from_ptr((strings + offset) as *const c_char) })
    }

    fn needed(&self) -> impl Iterator<Item = &CStr> {
        self.entries().filter(|d| d.tag == DT_NEEDED).filter_map(|d| self.string(d.value))
    }

    /// Goes by this SONAME or file name.
    fn is_named(&self, name: &CStr) -> bool {
        if self.value(DT_SONAME).and_then(|v| self.string(v)) == Some(name) {
            return true;
        }
        // SAFETY: the loader's own NUL-terminated path.
        let path = unsafe { CStr::from_ptr(self.name) }.to_bytes();
        path.rsplit(|b| *b == b'/').next() == Some(name.to_bytes())
    }

    /// The address of a symbol this object defines; never ours. Versions are not compared: an object defines each of
    /// the symbols asked for here once.
    pub fn find(&self, symbol: &CStr) -> Option<*mut c_void> {
        if self.is_self() {
            return None;
        }
        let (table, symbols) = (self.pointer(DT_GNU_HASH)?, self.pointer(DT_SYMTAB)? as *const Symbol);
        let table = table as *const u32;
        let hash = gnu_hash(symbol.to_bytes());
        // SAFETY: the layout of a DT_GNU_HASH table: four words, then `bloom` words of 64 bits, `buckets` words, and
        // chains that end with a set low bit. The object is loaded, so all of it is mapped.
        unsafe {
            let (buckets, first, bloom) = (*table, *table.add(1), *table.add(2));
            if buckets == 0 || bloom == 0 {
                return None;
            }
            let filter = table.add(4).cast::<u64>().add((hash / 64 % bloom) as usize).read_unaligned();
            if filter >> (hash % 64) & filter >> ((hash >> *table.add(3)) % 64) & 1 == 0 {
                return None;
            }
            let bucket = table.add(4 + 2 * bloom as usize);
            let chains = bucket.add(buckets as usize);
            let mut index = *bucket.add((hash % buckets) as usize);
            if index < first {
                return None;
            }
            loop {
                let link = *chains.add((index - first) as usize);
                let entry = &*symbols.add(index as usize);
                if link | 1 == hash | 1
                    && entry.section != 0
                    && entry.info & 0xf == STT_FUNC
                    && self.string(entry.name as usize) == Some(symbol)
                {
                    return Some(self.bias.wrapping_add(entry.value) as *mut c_void);
                }
                if link & 1 == 1 {
                    return None;
                }
                index += 1;
            }
        }
    }
}

const DT_NEEDED: i64 = 1;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_SONAME: i64 = 14;
const DT_GNU_HASH: i64 = 0x6fff_fef5;
const STT_FUNC: u8 = 2;

fn gnu_hash(name: &[u8]) -> u32 {
    name.iter().fold(5381, |h: u32, b| h.wrapping_mul(33).wrapping_add(u32::from(*b)))
}
