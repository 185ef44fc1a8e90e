//! What the loader says of the object at an address: where it lies, where its unwind tables are, its path and
//! build id. Knows the loader's interfaces and ELF, not what the code in an object is for.

use std::borrow::Cow;
use std::ffi::CStr;
use std::ptr;

use crate::loader::link_map::{find_object, finds_objects, headers, iterate};

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
    let found = find_object(ptr::without_provenance(address as usize))?;
    Some(Tables {
        start: found.start.addr() as u64,
        end: found.end.addr() as u64,
        header: found.eh_frame.addr() as u64,
    })
}

/// True if [`tables`] can answer.
#[cfg(target_arch = "x86_64")]
pub fn has_tables() -> bool {
    finds_objects()
}

/// Returns where the object lies that an address is in.
pub fn locate(address: u64) -> Option<Extent> {
    if !finds_objects() {
        return find(|object| Some(object.extent()).filter(|e| (e.start..e.end).contains(&address)));
    }
    let found = find_object(ptr::without_provenance(address as usize))?;
    Some(Extent {
        start: found.start.addr() as u64,
        end: found.end.addr() as u64,
        // SAFETY: the map of an object that is loaded.
        bias: unsafe { (*found.map).bias() } as u64,
        record: found.map.addr(),
    })
}

/// Returns the path of the first loaded object whose path is `wanted`.
pub fn path_of(wanted: impl Fn(&str) -> bool) -> Option<String> {
    find(|object| Some(object.path()).filter(|path| wanted(path)).map(Cow::into_owned))
}

/// Returns path and build id of an object.
pub fn describe(extent: &Extent) -> (String, Vec<u8>) {
    // There may be thousands of objects: what costs more than a comparison is asked of the one at that bias.
    let found = find(|object| {
        let is_it =
            object.bias() == extent.bias && (extent.start..extent.end).contains(&object.extent().start);
        is_it.then(|| (object.path().into_owned(), build_id(object.bias(), headers(object.0))))
    });
    let (path, build_id) = found.unwrap_or_default();
    // The loader has no name for the program itself.
    (if path.is_empty() { mapped_file(extent.start).unwrap_or_default() } else { path }, build_id)
}

/// Returns the path of the file that is mapped at an address. `/proc/self/exe` is the loader, where a program was started by that.
fn mapped_file(address: u64) -> Option<String> {
    let maps = std::fs::read("/proc/self/maps").ok()?;
    let maps = String::from_utf8_lossy(&maps);
    let hexadecimal = |text: &str| u64::from_str_radix(text, 16).ok();
    let line = maps.lines().find(|line| {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        range.and_then(|(start, end)| Some((hexadecimal(start)?..hexadecimal(end)?).contains(&address)))
            == Some(true)
    })?;
    line.find('/').map(|at| line[at..].to_owned())
}

/// The loader's record of an object.
struct Listed<'i>(&'i libc::dl_phdr_info);

impl Listed<'_> {
    fn bias(&self) -> u64 {
        self.0.dlpi_addr
    }

    fn extent(&self) -> Extent {
        let loaded = headers(self.0).iter().filter(|h| h.p_type == libc::PT_LOAD);
        let start = loaded.clone().map(|h| h.p_vaddr & !0xfff).min().unwrap_or(0);
        let end = loaded.map(|h| h.p_vaddr.wrapping_add(h.p_memsz)).max().unwrap_or(0);
        let bias = self.bias();
        Extent {
            start: bias.wrapping_add(start),
            end: bias.wrapping_add(end),
            bias,
            record: self.0.dlpi_phdr.addr(),
        }
    }

    fn path(&self) -> Cow<'_, str> {
        let name = self.0.dlpi_name;
        // SAFETY: the loader's own NUL-terminated path, if there is one.
        let path = if name.is_null() { c"" } else { unsafe { CStr::from_ptr(name) } };
        path.to_string_lossy()
    }
}

/// Asks the loader for every object until `visit` has an answer. `visit` may allocate, but must not ask the
/// loader.
fn find<T>(mut visit: impl FnMut(&Listed) -> Option<T>) -> Option<T> {
    let mut answer = None;
    iterate(&mut |info, _| {
        let found = visit(&Listed(info));
        let is_over = found.is_some();
        if is_over {
            answer = found;
        }
        is_over
    });
    answer
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
