//! The loader's list of objects, and what lies at an address.
//!
//! `dlsym` is out of the question in a hook: it takes the loader's main lock, which is held while
//! constructors run, and those may allocate; and `RTLD_NEXT` is blind for providers that came in RTLD_LOCAL.
//! So the list is read here, each object's own hash table gives its symbols, and `scope` says which objects
//! are asked, in what order.
//!
//! Another thread may close a library meanwhile. [`with_objects`] therefore reads the list inside
//! `dl_iterate_phdr`, which holds `dl_load_write_lock`: glibc unmaps objects, and changes the list, under
//! that lock only. It holds it for nothing else: no constructor, no destructor and no call of the program's
//! runs under it, so that whoever waits for it waits for bookkeeping, whatever locks he holds himself. In
//! return nothing inside may allocate, take a lock or ask the loader. A hook does this once, at the first
//! call of its kind; what it does at each call is [`object_id`], which takes no lock.

use std::any::Any;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::*};

use crate::loader::nesting::Nesting;
use crate::loader::object::{COPY, LinkMap, OWN, Version};
use crate::loader::walk;

/// glibc's `struct dl_find_object`.
#[repr(C)]
pub(super) struct FoundObject {
    flags: u64,
    pub start: *const c_void,
    pub end: *const c_void,
    pub map: *const LinkMap,
    /// Its segment `PT_GNU_EH_FRAME`.
    pub eh_frame: *const c_void,
    rest: [u64; 11],
}

type FindObject = unsafe extern "C" fn(*const c_void, *mut FoundObject) -> i32;

static FIND_OBJECT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
/// The program itself: the head of the loader's list.
static HEAD: AtomicPtr<LinkMap> = AtomicPtr::new(std::ptr::null_mut());
/// The last of the objects that the process began with.
static LAST_AT_STARTUP: AtomicPtr<LinkMap> = AtomicPtr::new(std::ptr::null_mut());
/// Whether this library came into a process that was running: see [`came_late`].
static IS_LATE: AtomicBool = AtomicBool::new(false);

/// Finds our own object and the loader's list. Called by the constructor, when the list holds what the
/// process began with (and what constructors before ours have opened), or by the first look-up, should one
/// come earlier.
pub fn init() {
    if !OWN.load(Acquire).is_null() {
        return;
    }
    // SAFETY: the loader's own record, whose list begins with the program's map.
    let head = unsafe { _r_debug.map };
    with_objects(|_| {
        // SAFETY: the list is borrowed; it leads to loaded objects.
        let list = std::iter::successors(unsafe { head.as_ref() }, |object| unsafe { object.next.as_ref() });
        let (mut own, mut last) = (std::ptr::null(), std::ptr::null());
        for object in list {
            last = std::ptr::from_ref(object);
            if object.has_dynamic_section(&raw const _DYNAMIC) {
                own = last;
            } else if object.defined(c"leaktrace_attach", |_| true).is_some() {
                COPY.store(last.cast_mut(), Release);
            }
        }
        HEAD.store(head.cast_mut(), Release);
        LAST_AT_STARTUP.store(last.cast_mut(), Release);
        OWN.store(own.cast_mut(), Release);
    });
    FIND_OBJECT.store(find_in_any(c"_dl_find_object").unwrap_or(std::ptr::null_mut()), Release);
}

/// Notes that this library was opened in a running process, which began with the objects up to `last`: nothing
/// stands behind us, and nothing is bound to us.
pub fn came_late(last: &LinkMap) {
    LAST_AT_STARTUP.store(std::ptr::from_ref(last).cast_mut(), Release);
    IS_LATE.store(true, Release);
}

/// Returns whether [`came_late`] was said.
pub fn is_late() -> bool {
    IS_LATE.load(Acquire)
}

/// glibc's `struct r_debug`, as far as it is read.
#[repr(C)]
struct LoaderRecord {
    version: c_int,
    map: *const LinkMap,
}

unsafe extern "C" {
    static _r_debug: LoaderRecord;
    /// This library's own dynamic section.
    static _DYNAMIC: u8;
}

/// Which object: the address of its link map, good for comparing until the object is unloaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObjectId(usize);

impl ObjectId {
    /// The object behind a handle that `dlopen` returned; it is its link map (dlinfo's RTLD_DI_LINKMAP says
    /// the same).
    pub fn of_handle(handle: *mut c_void) -> Option<ObjectId> {
        (!handle.is_null()).then_some(ObjectId(handle as usize))
    }

    pub fn address(self) -> usize {
        self.0
    }
}

/// The object whose code or data `address` lies in. Takes no lock where glibc has `_dl_find_object` (2.35 and
/// later).
pub fn object_id(address: *const c_void) -> Option<ObjectId> {
    if !finds_objects() {
        return object_id_by_segments(address);
    }
    find_object(address).map(|found| ObjectId(found.map as usize))
}

/// True if [`find_object`] can answer: glibc 2.35 and later.
pub(super) fn finds_objects() -> bool {
    !FIND_OBJECT.load(Acquire).is_null()
}

/// What `_dl_find_object` says of an address. Takes no lock, so also while another thread loads, and
/// allocates nothing.
pub(super) fn find_object(address: *const c_void) -> Option<FoundObject> {
    let find = FIND_OBJECT.load(Acquire);
    if find.is_null() {
        return None;
    }
    let mut found = std::mem::MaybeUninit::<FoundObject>::zeroed();
    // SAFETY: `find` is glibc's `_dl_find_object`; the struct is at least as large as its own, and filled on
    // success.
    unsafe {
        let find: FindObject = std::mem::transmute(find);
        (find(address, found.as_mut_ptr()) == 0).then(|| found.assume_init())
    }
}

fn object_id_by_segments(address: *const c_void) -> Option<ObjectId> {
    let mut found = None;
    iterate(&mut |info, objects| {
        let offset = (address as usize).wrapping_sub(info.dlpi_addr as usize) as u64;
        let holds = |h: &libc::Elf64_Phdr| {
            h.p_type == libc::PT_LOAD && (h.p_vaddr..h.p_vaddr + h.p_memsz).contains(&offset)
        };
        if headers(info).iter().any(holds) {
            found = objects.all().find(|o| std::ptr::eq(o.path().as_ptr(), info.dlpi_name)).map(LinkMap::id);
            return true;
        }
        false
    });
    found
}

/// The program headers of an object, as many as the loader says.
pub(super) fn headers(info: &libc::dl_phdr_info) -> &[libc::Elf64_Phdr] {
    if info.dlpi_phdr.is_null() {
        return &[];
    }
    // SAFETY: a record of the loader's, of an object that is loaded.
    unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) }
}

pub(super) type Visit<'v> = dyn FnMut(&libc::dl_phdr_info, &LoadedObjects) -> bool + 'v;

/// Calls `visit` with the loader's record of each object, until it returns `true`: under
/// `dl_load_write_lock`, see the head of this file. A panic of it goes on when the lock is free again.
pub(super) fn iterate(visit: &mut Visit) {
    struct Search<'s, 'v> {
        visit: &'s mut Visit<'v>,
        panic: Option<Box<dyn Any + Send>>,
    }

    unsafe extern "C" fn step(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
        // SAFETY: the loader passes a valid record, and our pointer through.
        let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
        match catch_unwind(AssertUnwindSafe(|| (search.visit)(info, &LoadedObjects(())))) {
            Ok(over) => c_int::from(over),
            Err(panic) => {
                search.panic = Some(panic);
                1
            }
        }
    }

    let mut search = Search { visit, panic: None };
    // SAFETY: `step` gets the pointer back as what it is, while `search` lives.
    walk(|| unsafe { libc::dl_iterate_phdr(Some(step), (&raw mut search).cast()) });
    if let Some(panic) = search.panic {
        resume_unwind(panic);
    }
}

/// How many objects the loader has unloaded so far, in all namespaces: the one thing that tells whether a
/// link map, or an address, may mean another object than before. An object that came instead does not hide
/// it.
pub fn unloads() -> u64 {
    let mut unloads = 0;
    iterate(&mut |info, _| {
        unloads = info.dlpi_subs;
        true
    });
    unloads
}

/// How many objects the loader has loaded so far.
pub fn loads() -> u64 {
    let mut loads = 0;
    iterate(&mut |info, _| {
        loads = info.dlpi_adds;
        true
    });
    loads
}

/// The unloads that were dealt with.
static FORGOTTEN: AtomicU64 = AtomicU64::new(0);
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// A number that changes before anything remembered of unloaded objects is forgotten. What was looked up
/// under another one may be about an object that is gone.
pub fn generation() -> u64 {
    GENERATION.load(Acquire)
}

/// Runs `forget` if something was unloaded since the last time. Whoever comes second while the first is at it
/// does it too: when this returns, all is forgotten.
pub fn after_unloads(forget: impl FnOnce()) {
    let unloads = unloads();
    if FORGOTTEN.load(Acquire) != unloads {
        GENERATION.fetch_add(1, AcqRel);
        forget();
        FORGOTTEN.store(unloads, Release);
    }
}

/// The loaded objects, none of which is unloaded while this is borrowed. Lent by [`with_objects`] alone.
pub struct LoadedObjects(());

/// The threads that call `dl_iterate_phdr`, and that nothing was lent to yet.
pub static ENTERING: Nesting = Nesting::new();

/// Lends the loaded objects to `look`, which must not allocate, take a lock or call the loader.
pub fn with_objects<R>(look: impl FnOnce(&LoadedObjects) -> R) -> Option<R> {
    // A program's own `dl_iterate_phdr` may look up the real one at its first call. That look-up does without the lock.
    let Some(entering) = ENTERING.enter() else { return Some(look(&LoadedObjects(()))) };
    let (mut look, mut result, mut entering) = (Some(look), None, Some(entering));
    iterate(&mut |_, objects| {
        drop(entering.take());
        result = look.take().map(|look| look(objects));
        true
    });
    result
}

/// The address of the first definition of `symbol` in any loaded object but ours.
pub fn find_in_any(symbol: &CStr) -> Option<*mut c_void> {
    with_objects(|objects| objects.find_in_any(symbol)).flatten()
}

/// The address of `symbol` in the object that `address` lies in.
pub fn find_beside(address: *const c_void, symbol: &CStr) -> Option<*mut c_void> {
    with_objects(|objects| objects.at(address)?.definition(symbol, Version::Any)).flatten()
}

/// What this library exports under that name.
pub fn own_export(symbol: &CStr) -> Option<*mut c_void> {
    // SAFETY: null, or our own link map; this library is never unloaded.
    let own = unsafe { OWN.load(Acquire).as_ref()? };
    own.defined(symbol, |_| true).map(|(_, address)| address)
}

/// True for an address inside this library: a hook, or an export.
pub fn is_own_address(address: *const c_void) -> bool {
    unsafe extern "C" {
        static __ehdr_start: u8;
        static _end: u8;
    }
    (&raw const __ehdr_start..&raw const _end).contains(&address.cast())
}

impl LoadedObjects {
    /// Every loaded object, in the order of loading.
    pub fn all(&self) -> impl Iterator<Item = &LinkMap> {
        // SAFETY: the head is the program's own map, never unloaded; `next` leads to objects that stay while
        // we are borrowed.
        let mut at = unsafe { HEAD.load(Acquire).as_ref() };
        std::iter::from_fn(move || {
            let object = at?;
            // SAFETY: see above.
            at = unsafe { object.next.as_ref() };
            Some(object)
        })
    }

    /// This library.
    pub fn own(&self) -> Option<&LinkMap> {
        // SAFETY: null, or our own link map; this library is never unloaded.
        unsafe { OWN.load(Acquire).as_ref() }
    }

    /// The objects that the process began with: the program, the preloads, what they need.
    pub fn startup_objects(&self) -> impl Iterator<Item = &LinkMap> {
        let last = LAST_AT_STARTUP.load(Acquire).cast_const();
        let mut over = false;
        self.all().take_while(move |o| !std::mem::replace(&mut over, std::ptr::eq(*o, last)))
    }

    /// The objects opened since.
    pub fn dlopened_objects(&self) -> impl Iterator<Item = &LinkMap> {
        let last = LAST_AT_STARTUP.load(Acquire).cast_const();
        self.all().skip_while(move |o| !std::ptr::eq(*o, last)).skip(1)
    }

    /// The objects that stand behind `object` in the list.
    pub fn after(&self, object: ObjectId) -> impl Iterator<Item = &LinkMap> {
        self.all().skip_while(move |o| o.id() != object).skip(1)
    }

    /// The object of that id, if it is still loaded.
    pub fn get(&self, id: ObjectId) -> Option<&LinkMap> {
        self.all().find(|o| o.id() == id)
    }

    /// The program headers of an object.
    pub fn program_headers<'o>(&self, object: &'o LinkMap) -> &'o [libc::Elf64_Phdr] {
        let mut found: &[libc::Elf64_Phdr] = &[];
        iterate(&mut |info, _| {
            let is_it = std::ptr::eq(object.path().as_ptr(), info.dlpi_name);
            if is_it {
                // SAFETY: the headers lie in the object, or in the loader's memory for as long as it is
                // loaded.
                found = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
            }
            is_it
        });
        found
    }

    /// Where the segments of an object's own data are.
    pub fn data<'o>(&self, object: &'o LinkMap) -> impl Iterator<Item = Range<usize>> + 'o {
        let headers = self.program_headers(object).iter();
        let is_data = |p: &&libc::Elf64_Phdr| p.p_type == libc::PT_LOAD && p.p_flags & libc::PF_W != 0;
        headers.filter(is_data).map(|p| object.segment(p))
    }

    /// The pages of it that the loader makes read-only after relocation: whole ones only.
    pub fn protected(&self, object: &LinkMap) -> Range<usize> {
        let mask = !(page_size() - 1);
        let relro = self.program_headers(object).iter().find(|p| p.p_type == libc::PT_GNU_RELRO);
        let range = relro.map_or(0..0, |p| object.segment(p));
        range.start & mask..range.end & mask
    }

    /// The words of an object's own data that may be written.
    pub fn writable_words<'o>(&self, object: &'o LinkMap) -> impl Iterator<Item = &'o AtomicPtr<c_void>> {
        const WORD: usize = size_of::<usize>();
        let read_only = self.protected(object);
        self.data(object)
            .flat_map(|range| (range.start.next_multiple_of(WORD)..range.end & !(WORD - 1)).step_by(WORD))
            .filter(move |address| !read_only.contains(address))
            // SAFETY: an aligned word inside of a mapped segment of the object's, which may be written, and stays as long
            // as the object is borrowed.
            .map(|address| unsafe { &*(address as *const AtomicPtr<c_void>) })
    }

    /// The object that an address lies in.
    pub fn at(&self, address: *const c_void) -> Option<&LinkMap> {
        self.get(object_id(address)?)
    }

    /// The address of the first definition of `symbol` in any loaded object but ours.
    pub fn find_in_any(&self, symbol: &CStr) -> Option<*mut c_void> {
        self.all().find_map(|object| object.definition(symbol, Version::Any))
    }
}

/// The size of a page of memory.
pub fn page_size() -> usize {
    // SAFETY: asks for a number.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

impl LinkMap {
    /// Where a segment lies.
    fn segment(&self, header: &libc::Elf64_Phdr) -> Range<usize> {
        let start = self.bias().wrapping_add(header.p_vaddr as usize);
        start..start + header.p_memsz as usize
    }

    pub fn id(&self) -> ObjectId {
        ObjectId(std::ptr::from_ref(self) as usize)
    }
}

/// A name copied out of the loader's memory, without allocating. One that is too long is cut.
pub struct Name<const SIZE: usize> {
    bytes: [u8; SIZE],
}

impl<const SIZE: usize> Name<SIZE> {
    pub const fn empty() -> Name<SIZE> {
        Name { bytes: [0; SIZE] }
    }

    pub fn set(&mut self, name: &CStr) {
        let bytes = name.to_bytes();
        let length = bytes.len().min(SIZE - 1);
        self.bytes[..length].copy_from_slice(&bytes[..length]);
        self.bytes[length] = 0;
    }

    pub fn get(&self) -> &CStr {
        // SAFETY: the last byte is 0 always.
        unsafe { CStr::from_ptr(self.bytes.as_ptr().cast::<c_char>()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loader::functions::real_dlsym;

    fn loader(symbol: &CStr) -> *mut c_void {
        // SAFETY: a C string.
        unsafe { real_dlsym().unwrap()(libc::RTLD_DEFAULT, symbol.as_ptr()) }
    }

    #[test]
    fn definitions_are_where_the_loader_says() {
        init();
        for name in [c"malloc", c"free", c"dlopen", c"pthread_create", c"_Unwind_Resume"] {
            assert_eq!(find_in_any(name), Some(loader(name)), "{name:?}");
            assert_eq!(find_beside(loader(c"malloc"), c"free"), Some(loader(c"free")));
        }
        assert_eq!(find_in_any(c"no_such_name"), None);
        // A variable is no function.
        assert_eq!(find_in_any(c"environ"), None);
    }

    #[test]
    fn an_address_belongs_to_the_same_object_either_way() {
        init();
        let own = object_id(init as *const c_void);
        let libc_object = object_id(loader(c"malloc"));
        assert!(own.is_some() && libc_object.is_some() && own != libc_object);
        for address in [init as *const c_void, loader(c"malloc")] {
            assert_eq!(object_id_by_segments(address), object_id(address));
        }
        let local = 0u8;
        assert_eq!(object_id((&raw const local).cast()), None);
        assert_eq!(object_id_by_segments((&raw const local).cast()), None);
        assert!(is_own_address(init as *const c_void) && !is_own_address(loader(c"malloc")));
    }

    #[test]
    fn an_unload_is_counted_whatever_was_opened_meanwhile() {
        init();
        // SAFETY: a library of the C library's own; opened and closed here alone.
        unsafe {
            let before = unloads();
            let handle = libc::dlopen(c"libanl.so.1".as_ptr(), libc::RTLD_NOW);
            assert!(!handle.is_null());
            let object = ObjectId::of_handle(handle).unwrap();
            let path = with_objects(|o| o.get(object).map(|o| o.file_name().to_vec())).flatten();
            assert_eq!(path.as_deref(), Some(&b"libanl.so.1"[..]));
            assert!(with_objects(|o| o.dlopened_objects().any(|o| o.id() == object)).unwrap());
            assert_eq!(libc::dlclose(handle), 0);
            assert!(unloads() > before);
            assert!(with_objects(|o| o.get(object).is_none()).unwrap());
        }
    }

    #[test]
    fn a_name_is_cut_to_its_room() {
        let mut name = Name::<8>::empty();
        name.set(c"libwho.1.2");
        assert_eq!(name.get(), c"libwho.");
        name.set(c"v1");
        assert_eq!(name.get(), c"v1");
    }
}
