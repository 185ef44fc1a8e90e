//! Object files in the process, by number, and the loader's answers about them. Knows ELF, not what the code in it is for.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use crate::stacks::hash::Map;
use crate::stacks::hash::content;
use crate::stacks::hash::map;
use crate::stacks::stack_interner::count;
use crate::stacks::stack_interner::lock;
use crate::writer::recording::append_entry;
use leaktrace_core::format::entry::{Frame, TableEntry};

/// Where an object file lies, as the loader says.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    start: u64,
    end: u64,
    bias: u64,
    /// The loader's own record of it: two files at one place differ in it, unless one was unloaded before (see
    /// [`changed`]).
    map: usize,
}

pub(crate) struct Modules {
    known: Vec<(Place, u32)>,
    contents: Map<u128, u32>,
    last: u32,
    /// The unloads that `known` knows of.
    unloads: usize,
}

pub(crate) type Guard = MutexGuard<'static, Modules>;

static MODULES: Mutex<Modules> =
    Mutex::new(Modules { known: Vec::new(), contents: map(), last: 0, unloads: 0 });
static UNLOADS: AtomicUsize = AtomicUsize::new(0);

/// Something was unloaded: what lies where it lay is another file, even if the loader's record of that got the same memory.
pub(crate) fn changed() {
    UNLOADS.fetch_add(1, Ordering::AcqRel);
}

/// How many objects the loader has unloaded so far, of all namespaces.
pub(crate) fn unloads() -> u64 {
    unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
        // SAFETY: the loader passes a valid record, and our pointer through.
        unsafe { *data.cast::<u64>() = (*info).dlpi_subs };
        1
    }
    let mut unloads = 0u64;
    // SAFETY: `first` gets the pointer back as what it is, while that lives.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut unloads).cast()) };
    unloads
}

/// The frame of a return address.
pub(crate) fn frame(pc: u64) -> Frame {
    // The call lies before the address it returns to, which may be the next function, or the next module.
    let address = pc.wrapping_sub(1);
    let Some(place) = locate(address) else { return Frame::Address(pc) };
    let Ok(offset) = u32::try_from(pc.wrapping_sub(place.bias)) else { return Frame::Address(pc) };
    match number(place) {
        0 => Frame::Address(pc),
        module => Frame::Native { module, offset },
    }
}

/// Where a module's unwind tables lie.
#[cfg(target_arch = "x86_64")]
pub(crate) struct Tables {
    pub start: u64,
    pub end: u64,
    /// Its `.eh_frame_hdr`; 0 if it has none.
    pub header: u64,
}

/// The unwind tables of the module at an address. Takes no lock and allocates nothing.
#[cfg(target_arch = "x86_64")]
pub(crate) fn tables(address: u64) -> Option<Tables> {
    let found = find(FIND_OBJECT.load(Ordering::Acquire), address)?;
    Some(Tables {
        start: found.map_start.addr() as u64,
        end: found.map_end.addr() as u64,
        header: found.eh_frame.addr() as u64,
    })
}

/// Whether [`tables`] can answer.
#[cfg(target_arch = "x86_64")]
pub(crate) fn has_tables() -> bool {
    FIND_OBJECT.load(Ordering::Acquire) != 0
}

pub(crate) fn range_of(address: u64) -> Option<(u64, u64)> {
    locate(address).map(|place| (place.start, place.end))
}

/// The number of a module; 0 if it could not be written.
fn number(place: Place) -> u32 {
    let unloads = UNLOADS.load(Ordering::Acquire);
    {
        let mut modules = lock(&MODULES);
        if modules.unloads != unloads {
            modules.known.clear();
            modules.unloads = unloads;
        }
        if let Some(&(_, id)) = modules.known.iter().find(|(known, _)| *known == place) {
            return id;
        }
    }
    let (path, build_id) = describe(&place);
    let key = content(&[
        &place.start.to_le_bytes(),
        &place.end.to_le_bytes(),
        &place.bias.to_le_bytes(),
        &build_id,
        path.as_bytes(),
    ]);
    let mut modules = lock(&MODULES);
    let known = modules.contents.get(&key).copied();
    let id = known.unwrap_or(modules.last + 1);
    if known.is_none() {
        let Place { start, end, bias, .. } = place;
        let entry = TableEntry::Module { id, start, end, bias, build_id: &build_id, path: &path };
        if !count(path.len() + build_id.len() + 32) || !append_entry(&entry) {
            return 0;
        }
        modules.last = id;
        modules.contents.insert(key, id);
    }
    modules.known.retain(|(other, _)| other.end <= place.start || place.end <= other.start);
    modules.known.push((place, id));
    id
}

/// glibc's answer to "what is at this address" (2.35 and later): without a lock, so also while another thread loads.
#[repr(C)]
struct DlFindObject {
    flags: u64,
    map_start: *mut c_void,
    map_end: *mut c_void,
    link_map: *const LinkMap,
    /// `PT_GNU_EH_FRAME`
    eh_frame: *const c_void,
    rest: [u64; 8],
}

/// The public beginning of the loader's record of an object.
#[repr(C)]
struct LinkMap {
    addr: usize,
    name: *const c_char,
}

type FindObject = unsafe extern "C" fn(*mut c_void, *mut DlFindObject) -> c_int;

static FIND_OBJECT: AtomicUsize = AtomicUsize::new(0);

pub(crate) fn arm() {
    if let Some(find) = Scope::PROGRAM.symbol(c"_dl_find_object") {
        FIND_OBJECT.store(find.addr(), Ordering::Release);
    }
}

fn locate(address: u64) -> Option<Place> {
    let find_object = FIND_OBJECT.load(Ordering::Acquire);
    if find_object == 0 {
        return iterate(|place, _, _| (place.start..place.end).contains(&address).then_some(place));
    }
    let found = find(find_object, address)?;
    Some(Place {
        start: found.map_start.addr() as u64,
        end: found.map_end.addr() as u64,
        // SAFETY: the map of an object that is loaded.
        bias: unsafe { (*found.link_map).addr as u64 },
        map: found.link_map.addr(),
    })
}

/// `find_object`: [`FIND_OBJECT`], or 0.
fn find(find_object: usize, address: u64) -> Option<DlFindObject> {
    if find_object == 0 {
        return None;
    }
    let mut found = DlFindObject {
        flags: 0,
        map_start: ptr::null_mut(),
        map_end: ptr::null_mut(),
        link_map: ptr::null(),
        eh_frame: ptr::null(),
        rest: [0; 8],
    };
    // SAFETY: the function of that name, with its documented signature; `found` is as large as any version's structure.
    let status = unsafe {
        let find: FindObject = std::mem::transmute::<usize, FindObject>(find_object);
        find(ptr::without_provenance_mut(address as usize), &mut found)
    };
    (status == 0 && !found.link_map.is_null()).then_some(found)
}

/// Path and build id of the module at a place.
fn describe(place: &Place) -> (String, Vec<u8>) {
    let found = iterate(|other, path, headers| {
        (other.bias == place.bias && place.start <= other.start && other.start < place.end)
            .then(|| (path.to_owned(), build_id(other.bias, headers)))
    });
    let (path, build_id) = found.unwrap_or_default();
    // The loader has no name for the program itself.
    let program = || std::fs::read_link("/proc/self/exe").map(|path| path.to_string_lossy().into_owned());
    (if path.is_empty() { program().unwrap_or_default() } else { path }, build_id)
}

/// Asks the loader for every object until `visit` has an answer.
fn iterate<T>(visit: impl FnMut(Place, &str, &[libc::Elf64_Phdr]) -> Option<T>) -> Option<T> {
    struct Search<T, F> {
        visit: F,
        answer: Option<T>,
    }

    unsafe extern "C" fn step<T, F>(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int
    where
        F: FnMut(Place, &str, &[libc::Elf64_Phdr]) -> Option<T>,
    {
        // SAFETY: the loader passes a valid record, and our pointer through; both live during the call.
        unsafe {
            let (info, search) = (&*info, &mut *data.cast::<Search<T, F>>());
            if info.dlpi_phdr.is_null() {
                return 0;
            }
            let headers = std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum as usize);
            let loaded = headers.iter().filter(|h| h.p_type == libc::PT_LOAD);
            let start = loaded.clone().map(|h| h.p_vaddr & !0xfff).min().unwrap_or(0);
            let end = loaded.map(|h| h.p_vaddr.wrapping_add(h.p_memsz)).max().unwrap_or(0);
            let bias = info.dlpi_addr;
            let place = Place {
                start: bias.wrapping_add(start),
                end: bias.wrapping_add(end),
                bias,
                map: info.dlpi_phdr.addr(),
            };
            let name = if info.dlpi_name.is_null() { c"" } else { CStr::from_ptr(info.dlpi_name) };
            let path = name.to_string_lossy();
            search.answer = (search.visit)(place, &path, headers);
            search.answer.is_some() as c_int
        }
    }

    fn call<T, F>(mut search: Search<T, F>) -> Option<T>
    where
        F: FnMut(Place, &str, &[libc::Elf64_Phdr]) -> Option<T>,
    {
        // SAFETY: `step` gets the pointer back as what it is, while `search` lives.
        unsafe { libc::dl_iterate_phdr(Some(step::<T, F>), (&raw mut search).cast()) };
        search.answer
    }

    call(Search { visit, answer: None })
}

const PT_NOTE: u32 = 4;
const NT_GNU_BUILD_ID: u32 = 3;

fn build_id(bias: u64, headers: &[libc::Elf64_Phdr]) -> Vec<u8> {
    for header in headers.iter().filter(|h| h.p_type == PT_NOTE) {
        let end = header.p_vaddr.wrapping_add(header.p_memsz);
        let readable = headers.iter().any(|h| {
            h.p_type == libc::PT_LOAD
                && h.p_flags & libc::PF_R != 0
                && h.p_vaddr <= header.p_vaddr
                && end <= h.p_vaddr.wrapping_add(h.p_filesz)
        });
        if !readable || header.p_memsz > 1 << 16 {
            continue;
        }
        // SAFETY: inside a readable loaded segment of a module that is mapped now.
        let notes = unsafe {
            let start: *const u8 = ptr::with_exposed_provenance(bias.wrapping_add(header.p_vaddr) as usize);
            std::slice::from_raw_parts(start, header.p_memsz as usize)
        };
        if let Some(id) = build_id_in(notes, if header.p_align == 8 { 8 } else { 4 }) {
            return id.to_vec();
        }
    }
    Vec::new()
}

fn build_id_in(mut notes: &[u8], align: usize) -> Option<&[u8]> {
    loop {
        let (head, rest) = notes.split_first_chunk::<12>()?;
        let word = |i: usize| u32::from_ne_bytes([head[i], head[i + 1], head[i + 2], head[i + 3]]);
        let (name_len, len, kind) = (word(0) as usize, word(4) as usize, word(8));
        let begin =
            name_len.checked_next_multiple_of(4)?.checked_add(12)?.checked_next_multiple_of(align)? - 12;
        let id = rest.get(begin..begin.checked_add(len)?)?;
        if kind == NT_GNU_BUILD_ID && rest.get(..name_len)? == b"GNU\0" {
            return Some(id);
        }
        notes = rest.get((begin + len + 12).checked_next_multiple_of(align)? - 12..)?;
    }
}

/// Where names are looked up: a handle of the loader's.
#[derive(Clone, Copy)]
pub(crate) struct Scope(*mut c_void);

// SAFETY: a handle is a name for what the loader keeps, good on every thread; it is never closed.
unsafe impl Send for Scope {}
// SAFETY: as above.
unsafe impl Sync for Scope {}

impl Scope {
    pub const PROGRAM: Scope = Scope(libc::RTLD_DEFAULT);

    /// The program's own scope if `name` is there, else the object whose file's name begins with `file` (a library that
    /// somebody loaded for himself only).
    pub fn with(name: &CStr, file: &str) -> Option<Scope> {
        if Scope::PROGRAM.symbol(name).is_some() {
            return Some(Scope::PROGRAM);
        }
        let path = iterate(|_, path, _| {
            let base = path.rsplit('/').next().unwrap_or(path);
            base.starts_with(file).then(|| path.to_owned())
        })?;
        let path = CString::new(path).ok()?;
        // SAFETY: loads nothing: the object is there already.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        let scope = Scope(handle);
        (!handle.is_null() && scope.symbol(name).is_some()).then_some(scope)
    }

    /// # Safety
    /// `F` is the type of a pointer to the function of that name.
    pub unsafe fn function<F: Copy>(self, name: &CStr) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        // SAFETY: same size, and the caller's word for the type.
        self.symbol(name).map(|address| unsafe { std::mem::transmute_copy(&address) })
    }

    pub fn symbol(self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: a valid handle and a C string.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        (!address.is_null()).then_some(address)
    }

    /// The bytes of an exported variable.
    pub fn variable(self, name: &CStr) -> Option<Range<usize>> {
        /// `RTLD_DL_SYMENT`
        const SYMBOL: c_int = 1;
        unsafe extern "C" {
            fn dladdr1(
                address: *const c_void,
                info: *mut libc::Dl_info,
                extra: *mut *mut c_void,
                flags: c_int,
            ) -> c_int;
        }
        let address = self.symbol(name)?;
        // SAFETY: plain words, for which zero is a value.
        let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
        let mut symbol = ptr::null_mut();
        // SAFETY: places for both answers; the symbol is an entry of its object's table.
        let size = unsafe {
            if dladdr1(address, &mut info, &mut symbol, SYMBOL) == 0 || symbol.is_null() {
                return None;
            }
            (*symbol.cast::<libc::Elf64_Sym>()).st_size as usize
        };
        let start = address.addr();
        (info.dli_saddr == address).then(|| start..start + size)
    }
}

pub(crate) fn lock_all() -> Guard {
    lock(&MODULES)
}

pub(crate) fn forget(modules: &mut Guard) {
    modules.known.clear();
    modules.contents.clear();
    modules.last = 0;
}
