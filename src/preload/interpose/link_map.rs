//! Looks things up in loaded objects without the loader: no lock, no allocation, fit for the inside of a hook.
//!
//! `dlsym` is out of the question there (the loader's lock is held while constructors run, and they may allocate), and
//! `RTLD_NEXT` is blind for providers that came in RTLD_LOCAL. Each object's own hash table gives its symbols; which
//! objects are to be asked, and in what order, is `scope`'s business. What a program may unload while it calls into it
//! is its own business too; the caller and what it depends on are pinned by the call.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicPtr, Ordering::*};

use crate::interpose::elf_format::Dyn;
use crate::interpose::elf_format::Symbol;
use crate::interpose::elf_format::VersionDefinition;
use crate::interpose::elf_format::VersionName;
use crate::interpose::elf_format::VersionNeed;
use crate::interpose::elf_format::VersionUse;
use crate::interpose::elf_format::gnu_hash;
use crate::interpose::elf_format::tag;

/// The public head of the loader's `struct link_map`.
#[repr(C)]
pub struct LinkMap {
    bias: usize,
    name: *const c_char,
    dynamic: *const Dyn,
    next: *const LinkMap,
    previous: *const LinkMap,
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
/// The program itself: the head of the loader's list.
static HEAD: AtomicPtr<LinkMap> = AtomicPtr::new(std::ptr::null_mut());
/// The last of the objects that the process began with.
static LAST: AtomicPtr<LinkMap> = AtomicPtr::new(std::ptr::null_mut());
static SELF: AtomicPtr<LinkMap> = AtomicPtr::new(std::ptr::null_mut());

/// Finds our own object and the loader's list. Called by the constructor, when the list holds what the process began
/// with (and what constructors before ours have opened), or by the first look-up, should one come earlier.
pub fn orient() {
    if !SELF.load(Acquire).is_null() {
        return;
    }
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    let mut own: *mut c_void = std::ptr::null_mut();
    // SAFETY: documented: fills `info`, and with this flag `own` with the link map of the object of that address. From a
    // loaded object the list leads to loaded objects both ways.
    unsafe {
        if dladdr1(orient as *const c_void, info.as_mut_ptr(), &mut own, RTLD_DL_LINKMAP) == 0
            || own.is_null()
        {
            return;
        }
        let own = own.cast::<LinkMap>();
        let (mut head, mut last) = (own.cast_const(), own.cast_const());
        while !(*head).previous.is_null() {
            head = (*head).previous;
        }
        while !(*last).next.is_null() {
            last = (*last).next;
        }
        HEAD.store(head.cast_mut(), Release);
        LAST.store(last.cast_mut(), Release);
        SELF.store(own, Release);
    }
    FIND.store(anywhere(c"_dl_find_object").unwrap_or(std::ptr::null_mut()), Release);
}

unsafe extern "C" {
    fn dladdr1(address: *const c_void, info: *mut libc::Dl_info, extra: *mut *mut c_void, flags: i32) -> i32;
}
const RTLD_DL_LINKMAP: i32 = 2;

/// This library.
pub fn own() -> Option<&'static LinkMap> {
    // SAFETY: null, or our own link map; we are never unloaded.
    unsafe { SELF.load(Acquire).as_ref() }
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

/// Every loaded object, in the order of loading.
pub fn chain() -> impl Iterator<Item = &'static LinkMap> {
    // SAFETY: the head is the program's own map, never unloaded; `next` leads to loaded objects.
    let mut at = unsafe { HEAD.load(Acquire).as_ref() };
    std::iter::from_fn(move || {
        let map = at?;
        // SAFETY: as above.
        at = unsafe { map.next.as_ref() };
        Some(map)
    })
}

/// The objects that the process began with: the program, the preloads, what they need.
pub fn started_with() -> impl Iterator<Item = &'static LinkMap> {
    let last = LAST.load(Acquire).cast_const();
    let mut over = false;
    chain().take_while(move |map| !std::mem::replace(&mut over, std::ptr::eq(*map, last)))
}

/// The objects opened since.
pub fn opened() -> impl Iterator<Item = &'static LinkMap> {
    let last = LAST.load(Acquire).cast_const();
    chain().skip_while(move |map| !std::ptr::eq(*map, last)).skip(1)
}

/// The first definition of `symbol` in any loaded object but ours.
pub fn anywhere(symbol: &CStr) -> Option<*mut c_void> {
    chain().find_map(|object| object.find(symbol))
}

/// What we export under that name.
pub fn export(symbol: &CStr) -> Option<*mut c_void> {
    own()?.defined(symbol, |_| true).map(|(_, address)| address)
}

/// How an object refers to a symbol.
#[derive(Clone, Copy, Default)]
pub struct Reference<'o> {
    /// It can do without.
    pub weak: bool,
    pub version: Version<'o>,
}

/// Which definitions of a symbol will do.
#[derive(Clone, Copy, Default)]
pub enum Version<'v> {
    #[default]
    Any,
    /// The one that an object was linked against; a definition without a version satisfies it too.
    Linked(&'v CStr),
    /// The one that `dlvsym` was asked for; it takes no other, unless the object has no versions at all.
    Asked(&'v CStr),
}

impl LinkMap {
    pub fn is_self(&self) -> bool {
        std::ptr::eq(self, SELF.load(Acquire))
    }

    pub fn bias(&self) -> usize {
        self.bias
    }

    pub fn dynamic(&self) -> *const Dyn {
        self.dynamic
    }

    /// The file; empty for the program itself.
    pub fn path(&self) -> &CStr {
        // SAFETY: the loader's own NUL-terminated path.
        unsafe { CStr::from_ptr(self.name) }
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

    pub fn value(&self, tag: i64) -> Option<usize> {
        self.entries().find(|d| d.tag == tag).map(|d| d.value)
    }

    /// A pointer in the dynamic section: glibc relocates most of them in place, but not all, nor in every object.
    pub fn pointer(&self, tag: i64) -> Option<usize> {
        self.value(tag).map(|v| if v < self.bias { v.wrapping_add(self.bias) } else { v })
    }

    fn string(&self, offset: usize) -> Option<&CStr> {
        let strings = self.pointer(tag::STRTAB)?;
        // SAFETY: offsets in the dynamic section and the symbol table name strings of the object's own table.
        Some(unsafe { CStr::from_ptr((strings + offset) as *const c_char) })
    }

    pub fn needed(&self) -> impl Iterator<Item = &CStr> {
        self.entries().filter(|d| d.tag == tag::NEEDED).filter_map(|d| self.string(d.value))
    }

    pub fn soname(&self) -> Option<&CStr> {
        self.value(tag::SONAME).and_then(|v| self.string(v))
    }

    pub fn file_name(&self) -> &[u8] {
        self.path().to_bytes().rsplit(|b| *b == b'/').next().unwrap_or_default()
    }

    /// The address of a symbol this object defines, in any version; never ours.
    pub fn find(&self, symbol: &CStr) -> Option<*mut c_void> {
        self.find_version(symbol, Version::Any)
    }

    /// The same if the definition will do, by the loader's rules.
    pub fn find_version(&self, symbol: &CStr, version: Version) -> Option<*mut c_void> {
        if self.is_self() {
            return None;
        }
        let fits = |index: usize| match (version, self.version_index(index)) {
            (Version::Any, _) | (_, None) | (Version::Linked(_), Some(0 | 1)) => true,
            (Version::Linked(wanted) | Version::Asked(wanted), _) => self.version(index) == Some(wanted),
        };
        self.defined(symbol, fits).map(|(_, address)| address)
    }

    /// The same if the definition bears exactly this version.
    pub fn find_exactly(&self, symbol: &CStr, version: &CStr) -> Option<*mut c_void> {
        self.defined(symbol, |index| self.version(index) == Some(version)).map(|(_, address)| address)
    }

    /// How this object refers to a symbol; `None` if it does not.
    pub fn reference(&self, symbol: &CStr) -> Option<Reference<'_>> {
        let index =
            self.undefined(symbol).or_else(|| self.defined(symbol, |_| true).map(|(index, _)| index))?;
        let version = self.version(index).map_or(Version::Any, Version::Linked);
        Some(Reference { weak: self.symbol(index)?.is_weak(), version })
    }

    /// The name of a symbol by its place in the table.
    pub fn symbol_name(&self, index: usize) -> Option<&CStr> {
        self.string(self.symbol(index)?.name as usize)
    }

    fn symbol(&self, index: usize) -> Option<&Symbol> {
        let symbols = self.pointer(tag::SYMTAB)? as *const Symbol;
        // SAFETY: indices come from the object's own hash tables and relocations.
        Some(unsafe { &*symbols.add(index) })
    }

    /// Undefined symbols stand before those that the hash table knows.
    fn undefined(&self, symbol: &CStr) -> Option<usize> {
        // SAFETY: the heads of the two kinds of hash table.
        let count = unsafe {
            match self.pointer(tag::GNU_HASH) {
                Some(table) => *(table as *const u32).add(1),
                None => *(self.pointer(tag::HASH)? as *const u32).add(1),
            }
        };
        let (symbols, strings) = (self.pointer(tag::SYMTAB)? as *const Symbol, self.pointer(tag::STRTAB)?);
        (1..count as usize).find(|index| {
            // SAFETY: below the count of the hash table's symbols; the names lie in the object's own string table.
            unsafe {
                let entry = &*symbols.add(*index);
                entry.section == 0
                    && CStr::from_ptr((strings + entry.name as usize) as *const c_char) == symbol
            }
        })
    }

    fn version_index(&self, index: usize) -> Option<u16> {
        let table = self.pointer(tag::VERSYM)? as *const u16;
        // SAFETY: the table has a place for every symbol; the topmost bit says that it is hidden.
        Some(unsafe { *table.add(index) } & 0x7fff)
    }

    /// The version of a symbol, defined or not.
    fn version(&self, index: usize) -> Option<&CStr> {
        let number = self.version_index(index).filter(|n| *n > 1)?;
        self.needed_version(number).or_else(|| self.defined_version(number))
    }

    fn needed_version(&self, number: u16) -> Option<&CStr> {
        let mut at = self.pointer(tag::VERNEED)?;
        for _ in 0..self.value(tag::VERNEEDNUM)? {
            // SAFETY: the table of a loaded object: as many entries as it says, each with as many uses as it says.
            unsafe {
                let need = &*(at as *const VersionNeed);
                let mut place = at + need.uses as usize;
                for _ in 0..need.count {
                    let used = &*(place as *const VersionUse);
                    if used.number & 0x7fff == number {
                        return self.string(used.name as usize);
                    }
                    place += used.next as usize;
                }
                at += need.next as usize;
            }
        }
        None
    }

    fn defined_version(&self, number: u16) -> Option<&CStr> {
        let mut at = self.pointer(tag::VERDEF)?;
        for _ in 0..self.value(tag::VERDEFNUM)? {
            // SAFETY: as above; the first name of a definition is its own.
            unsafe {
                let definition = &*(at as *const VersionDefinition);
                if definition.number & 0x7fff == number {
                    let name = &*((at + definition.names as usize) as *const VersionName);
                    return self.string(name.name as usize);
                }
                at += definition.next as usize;
            }
        }
        None
    }

    /// Place and address of a function that this object defines.
    fn defined(&self, symbol: &CStr, fits: impl Fn(usize) -> bool) -> Option<(usize, *mut c_void)> {
        let is_it = |index: usize| {
            let entry = self.symbol(index)?;
            (entry.is_defined_function() && self.symbol_name(index) == Some(symbol) && fits(index))
                .then(|| (index, self.bias.wrapping_add(entry.value) as *mut c_void))
        };
        let Some(table) = self.pointer(tag::GNU_HASH) else { return self.defined_by_old_hash(is_it) };
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
                if link | 1 == hash | 1
                    && let Some(found) = is_it(index as usize)
                {
                    return Some(found);
                }
                if link & 1 == 1 {
                    return None;
                }
                index += 1;
            }
        }
    }

    /// Objects with the old hash table only: rare enough to go through all of it.
    fn defined_by_old_hash(
        &self,
        is_it: impl Fn(usize) -> Option<(usize, *mut c_void)>,
    ) -> Option<(usize, *mut c_void)> {
        let table = self.pointer(tag::HASH)? as *const u32;
        // SAFETY: the second word of a DT_HASH table is the number of symbols.
        (1..unsafe { *table.add(1) } as usize).find_map(is_it)
    }
}
