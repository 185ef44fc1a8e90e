//! What the loader says of the objects in the process: where they lie, where their unwind tables are, how
//! often it loaded and unloaded some, what their symbols are. Knows the loader's interfaces and ELF, not what
//! the code in an object is for.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::loader::walk;

/// Where an object lies, as the loader says.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    pub start: u64,
    pub end: u64,
    pub bias: u64,
    /// The loader's own record of it: two files at one address differ in it, unless one was unloaded before
    /// the other came.
    record: usize,
}

/// How many objects the loader has loaded and unloaded so far, of all namespaces (glibc's `dlpi_adds` and
/// `dlpi_subs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation {
    pub loads: u64,
    pub unloads: u64,
}

/// Returns the generation of the loaded objects: equal to an earlier one if nothing was loaded or unloaded in
/// between. Takes the loader's lock, so not for the inside of a hook.
pub fn generation() -> Generation {
    unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
        // SAFETY: the loader passes a valid record, and our pointer through.
        unsafe {
            let info = &*info;
            *data.cast() = Generation { loads: info.dlpi_adds, unloads: info.dlpi_subs };
        }
        1
    }
    let mut generation = Generation { loads: 0, unloads: 0 };
    // SAFETY: `first` gets the pointer back as what it is, while that lives.
    walk(|| unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut generation).cast()) });
    generation
}

/// Where an object lies that has unwind tables, and where these are.
#[cfg(target_arch = "x86_64")]
pub struct Tables {
    pub start: u64,
    pub end: u64,
    /// Its `.eh_frame_hdr`; 0 if it has none.
    pub header: u64,
}

/// Returns the unwind tables of the object at an address. Takes no lock and allocates nothing.
#[cfg(target_arch = "x86_64")]
pub fn tables(address: u64) -> Option<Tables> {
    let found = find(FIND_OBJECT.load(Ordering::Acquire), address)?;
    Some(Tables {
        start: found.map_start.addr() as u64,
        end: found.map_end.addr() as u64,
        header: found.eh_frame.addr() as u64,
    })
}

/// True if [`tables`] can answer.
#[cfg(target_arch = "x86_64")]
pub fn has_tables() -> bool {
    FIND_OBJECT.load(Ordering::Acquire) != 0
}

/// What `_dl_find_object` says of an address (glibc 2.35 and later): without a lock, so also while another
/// thread loads.
#[repr(C)]
struct DlFindObject {
    flags: u64,
    map_start: *mut c_void,
    map_end: *mut c_void,
    link_map: *const LinkMap,
    /// Its segment `PT_GNU_EH_FRAME`.
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

/// Looks up what is asked for inside hooks.
pub fn arm() {
    if let Some(find) = Scope::PROGRAM.symbol(c"_dl_find_object") {
        FIND_OBJECT.store(find.addr(), Ordering::Release);
    }
}

/// Returns where the object lies that an address is in.
pub fn locate(address: u64) -> Option<Extent> {
    let find_object = FIND_OBJECT.load(Ordering::Acquire);
    if find_object == 0 {
        return iterate(|extent, _, _| (extent.start..extent.end).contains(&address).then_some(extent));
    }
    let found = find(find_object, address)?;
    Some(Extent {
        start: found.map_start.addr() as u64,
        end: found.map_end.addr() as u64,
        // SAFETY: the map of an object that is loaded.
        bias: unsafe { (*found.link_map).addr as u64 },
        record: found.link_map.addr(),
    })
}

/// Calls `find_object`, which is [`FIND_OBJECT`] or 0.
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
    // SAFETY: the function of that name, with its documented signature; `found` is as large as any version's
    // structure.
    let status = unsafe {
        let find: FindObject = std::mem::transmute::<usize, FindObject>(find_object);
        find(ptr::without_provenance_mut(address as usize), &mut found)
    };
    (status == 0 && !found.link_map.is_null()).then_some(found)
}

/// Returns path and build id of an object.
pub fn describe(extent: &Extent) -> (String, Vec<u8>) {
    let found = iterate(|other, path, headers| {
        (other.bias == extent.bias && extent.start <= other.start && other.start < extent.end)
            .then(|| (path.to_owned(), build_id(other.bias, headers)))
    });
    let (path, build_id) = found.unwrap_or_default();
    // The loader has no name for the program itself.
    let program = || std::fs::read_link("/proc/self/exe").map(|path| path.to_string_lossy().into_owned());
    (if path.is_empty() { program().unwrap_or_default() } else { path }, build_id)
}

/// Asks the loader for every object until `visit` has an answer.
fn iterate<T>(visit: impl FnMut(Extent, &str, &[libc::Elf64_Phdr]) -> Option<T>) -> Option<T> {
    struct Search<T, F> {
        visit: F,
        answer: Option<T>,
    }

    unsafe extern "C" fn step<T, F>(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int
    where
        F: FnMut(Extent, &str, &[libc::Elf64_Phdr]) -> Option<T>,
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
            let extent = Extent {
                start: bias.wrapping_add(start),
                end: bias.wrapping_add(end),
                bias,
                record: info.dlpi_phdr.addr(),
            };
            let name = if info.dlpi_name.is_null() { c"" } else { CStr::from_ptr(info.dlpi_name) };
            let path = name.to_string_lossy();
            search.answer = (search.visit)(extent, &path, headers);
            search.answer.is_some() as c_int
        }
    }

    fn call<T, F>(mut search: Search<T, F>) -> Option<T>
    where
        F: FnMut(Extent, &str, &[libc::Elf64_Phdr]) -> Option<T>,
    {
        // SAFETY: `step` gets the pointer back as what it is, while `search` lives.
        walk(|| unsafe { libc::dl_iterate_phdr(Some(step::<T, F>), (&raw mut search).cast()) });
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

/// Where symbols are looked up: a handle of the loader's.
#[derive(Clone, Copy)]
pub struct Scope(*mut c_void);

// SAFETY: a handle is a name for what the loader keeps, good on every thread; it is never closed.
unsafe impl Send for Scope {}
// SAFETY: as above.
unsafe impl Sync for Scope {}

impl Scope {
    pub const PROGRAM: Scope = Scope(libc::RTLD_DEFAULT);

    /// Returns the program's own scope if `name` is there, else the object whose file's name begins with
    /// `file` (a library that was loaded `RTLD_LOCAL`).
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

    /// Returns the function of a name.
    ///
    /// # Safety
    /// `F` is the type of a pointer to the function of that name.
    pub unsafe fn function<F: Copy>(self, name: &CStr) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        // SAFETY: same size, and the caller's word for the type.
        self.symbol(name).map(|address| unsafe { std::mem::transmute_copy(&address) })
    }

    /// Returns the address of a name.
    pub fn symbol(self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: a valid handle and a C string.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        (!address.is_null()).then_some(address)
    }

    /// Returns the bytes of an exported variable.
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
        // SAFETY: both answers have room; the symbol is an entry of its object's table.
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
