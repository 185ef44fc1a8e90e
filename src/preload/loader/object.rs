//! One loaded object: its dynamic section, its symbols and their versions, read where they are mapped.
//!
//! No lock and no allocation. That the object stays mapped is the borrower's business: see `link_map`.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicPtr, Ordering::Acquire};

use object::NativeEndian;
use object::elf::{self, Dyn64, GnuHashHeader, Rela64, Sym64, Verdaux, Verdef, Vernaux, Verneed, gnu_hash};

use crate::machine;

const E: NativeEndian = NativeEndian;

/// This library; null until it is known.
pub(super) static OWN: AtomicPtr<LinkMap> = AtomicPtr::new(std::ptr::null_mut());
/// Another copy of it that the process began with; null if there is none.
pub(super) static COPY: AtomicPtr<LinkMap> = AtomicPtr::new(std::ptr::null_mut());

/// The public head of the loader's `struct link_map`.
#[repr(C)]
pub struct LinkMap {
    bias: usize,
    name: *const c_char,
    dynamic: *const Dyn64<NativeEndian>,
    pub(super) next: *const LinkMap,
    pub(super) previous: *const LinkMap,
}

/// A word that the loader stores a symbol's address in.
#[derive(Clone, Copy)]
pub struct AddressSlot {
    /// The symbol's index.
    pub symbol: usize,
    pub address: usize,
    pub of: SlotOf,
}

/// What an [`AddressSlot`] is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SlotOf {
    /// Calls, which are bound at the first of them as a rule.
    Call,
    /// Code that loads the address.
    Reference,
    /// A variable of the program's, which it may change.
    Data,
}

/// Symbols of one object that another one defines too: the index in the one, the address in the other.
pub struct References<const N: usize> {
    count: usize,
    list: [(usize, *mut c_void); N],
}

impl<const N: usize> References<N> {
    fn push(&mut self, index: usize, address: *mut c_void) {
        if let Some(entry) = self.list.get_mut(self.count) {
            *entry = (index, address);
            self.count += 1;
        }
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The other object's address of the symbol with that index in this one.
    #[inline]
    pub fn get(&self, index: usize) -> Option<*mut c_void> {
        self.list[..self.count].iter().find(|(i, _)| *i == index).map(|(_, address)| *address)
    }
}

/// How an object refers to a symbol.
#[derive(Clone, Copy, Default)]
pub struct Reference<'o> {
    /// It may stay unresolved.
    pub weak: bool,
    pub version: Version<'o>,
}

/// Which definitions of a symbol satisfy a reference.
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
    /// True for this library.
    pub fn is_own(&self) -> bool {
        std::ptr::eq(self, OWN.load(Acquire))
    }

    /// True for another copy of this library.
    pub fn is_copy(&self) -> bool {
        std::ptr::eq(self, COPY.load(Acquire))
    }

    /// Returns whether its dynamic section is this one.
    pub fn has_dynamic_section(&self, section: *const u8) -> bool {
        self.dynamic.cast() == section
    }

    pub fn bias(&self) -> usize {
        self.bias
    }

    /// The file's path; empty for the program itself.
    pub fn path(&self) -> &CStr {
        // SAFETY: the loader's own NUL-terminated path.
        unsafe { CStr::from_ptr(self.name) }
    }

    pub fn file_name(&self) -> &[u8] {
        self.path().to_bytes().rsplit(|b| *b == b'/').next().unwrap_or_default()
    }

    fn entries(&self) -> impl Iterator<Item = (u64, usize)> {
        let mut at = self.dynamic;
        std::iter::from_fn(move || {
            // SAFETY: the dynamic section of a loaded object ends with a DT_NULL entry.
            let entry = unsafe { at.as_ref()? };
            let tag = entry.d_tag.get(E);
            // SAFETY: still inside the section, see above.
            at = if tag == u64::from(elf::DT_NULL) { std::ptr::null() } else { unsafe { at.add(1) } };
            (!at.is_null()).then_some((tag, entry.d_val.get(E) as usize))
        })
    }

    fn value(&self, tag: u32) -> Option<usize> {
        self.entries().find(|(t, _)| *t == u64::from(tag)).map(|(_, value)| value)
    }

    /// A pointer in the dynamic section: glibc relocates most of them in place, but not all, nor in every
    /// object.
    fn pointer(&self, tag: u32) -> Option<usize> {
        self.value(tag).map(|v| if v < self.bias { v.wrapping_add(self.bias) } else { v })
    }

    fn string(&self, offset: usize) -> Option<&CStr> {
        let strings = self.pointer(elf::DT_STRTAB)?;
        // SAFETY: offsets in the dynamic section and the symbol table name strings of the object's own table.
        Some(unsafe { CStr::from_ptr((strings + offset) as *const c_char) })
    }

    /// Returns whether a symbol has this name. By a loop of its own: a program may have put another in place of each function of
    /// the C library that would do it, which looks up the real one by what needs this.
    fn has_name(&self, index: usize, name: &CStr) -> bool {
        let (Some(strings), Some(symbol)) = (self.pointer(elf::DT_STRTAB), self.symbol(index)) else {
            return false;
        };
        let text = (strings + symbol.st_name.get(E) as usize) as *const u8;
        // SAFETY: a NUL-terminated string of the object's own table: the first byte that differs, or the NUL, ends it.
        name.to_bytes_with_nul()
            .iter()
            .enumerate()
            .all(|(i, byte)| unsafe { text.add(i).read_volatile() } == *byte)
    }

    pub fn needed(&self) -> impl Iterator<Item = &CStr> {
        let needed = self.entries().filter(|(tag, _)| *tag == u64::from(elf::DT_NEEDED));
        needed.filter_map(|(_, offset)| self.string(offset))
    }

    pub fn soname(&self) -> Option<&CStr> {
        self.value(elf::DT_SONAME).and_then(|offset| self.string(offset))
    }

    /// The relocations that store a symbol's address as it is.
    pub fn address_slots(&self) -> impl Iterator<Item = AddressSlot> {
        let tables = [(elf::DT_JMPREL, elf::DT_PLTRELSZ), (elf::DT_RELA, elf::DT_RELASZ)];
        let relocations = tables.into_iter().filter_map(|(table, size)| {
            let (table, size) = (self.pointer(table)?, self.value(size)?);
            let count = size / size_of::<Rela64<NativeEndian>>();
            // SAFETY: the relocations of a loaded object, as many as it says.
            Some(unsafe { std::slice::from_raw_parts(table as *const Rela64<NativeEndian>, count) })
        });
        relocations.flatten().filter_map(|relocation| {
            let info = relocation.r_info.get(E);
            let of = match info as u32 {
                machine::GLOBAL_DATA => SlotOf::Reference,
                machine::JUMP_SLOT => SlotOf::Call,
                machine::ABSOLUTE if relocation.r_addend.get(E) == 0 => SlotOf::Data,
                _ => return None,
            };
            let address = self.bias.wrapping_add(relocation.r_offset.get(E) as usize);
            Some(AddressSlot { symbol: (info >> 32) as usize, address, of })
        })
    }

    /// The indices under which this object refers to what `other` defines and `other`'s address of it, up to `N`.
    /// It may define the same itself, and still be bound to another's.
    pub fn references_to<const N: usize>(&self, other: &LinkMap) -> References<N> {
        let mut found = References { count: 0, list: [(0, std::ptr::null_mut()); N] };
        for index in self.undefined_symbols() {
            let name = self.symbol_name(index).filter(|name| !name.is_empty());
            if let Some((_, address)) = name.and_then(|name| other.defined(name, |_| true)) {
                found.push(index, address);
            }
        }
        for index in other.defined_symbols() {
            let Some(name) = other.symbol_name(index) else { continue };
            if let Some((own, _)) = self.defined(name, |_| true)
                && let Some((_, address)) = other.defined(name, |_| true)
            {
                found.push(own, address);
            }
        }
        found
    }

    /// The name of a symbol by its index in the table.
    pub fn symbol_name(&self, index: usize) -> Option<&CStr> {
        self.string(self.symbol(index)?.st_name.get(E) as usize)
    }

    /// How this object refers to a symbol; `None` if it does not.
    pub fn reference(&self, symbol: &CStr) -> Option<Reference<'_>> {
        let index =
            self.undefined(symbol).or_else(|| self.defined(symbol, |_| true).map(|(index, _)| index))?;
        let version = self.version(index).map_or(Version::Any, Version::Linked);
        Some(Reference { weak: self.symbol(index)?.st_bind() == elf::STB_WEAK, version })
    }

    /// The address of a function that this object defines in a version that will do, by the loader's rules;
    /// never an export of this library, nor of another copy of it: each would hand on to the other.
    pub fn definition(&self, symbol: &CStr, version: Version) -> Option<*mut c_void> {
        if self.is_own() || self.is_copy() {
            return None;
        }
        let fits = |index: usize| match (version, self.version_index(index)) {
            (Version::Any, _) | (_, None) | (Version::Linked(_), Some(0 | 1)) => true,
            (Version::Linked(wanted) | Version::Asked(wanted), _) => self.version(index) == Some(wanted),
        };
        self.defined(symbol, fits).map(|(_, address)| address)
    }

    /// The address of a function that this object defines in exactly this version.
    pub fn definition_exactly(&self, symbol: &CStr, version: &CStr) -> Option<*mut c_void> {
        self.defined(symbol, |index| self.version(index) == Some(version)).map(|(_, address)| address)
    }

    fn symbol(&self, index: usize) -> Option<&Sym64<NativeEndian>> {
        let symbols = self.pointer(elf::DT_SYMTAB)? as *const Sym64<NativeEndian>;
        // SAFETY: indices come from the object's own hash tables and relocations.
        Some(unsafe { &*symbols.add(index) })
    }

    /// The indices of the symbols that the object needs; these stand before those that the hash table knows.
    fn undefined_symbols(&self) -> impl Iterator<Item = usize> {
        let table = self.pointer(elf::DT_GNU_HASH).or_else(|| self.pointer(elf::DT_HASH));
        // SAFETY: the heads of the two kinds of hash table: in both the second word ends the undefined symbols.
        let count = table.map_or(0, |table| unsafe { *(table as *const u32).add(1) });
        let is_undefined =
            |index: &usize| self.symbol(*index).is_some_and(|entry| entry.st_shndx.get(E) == elf::SHN_UNDEF);
        (1..count as usize).filter(is_undefined)
    }

    /// The index of a symbol that the object needs.
    fn undefined(&self, symbol: &CStr) -> Option<usize> {
        self.undefined_symbols().find(|&index| self.has_name(index, symbol))
    }

    /// The indices of the symbols that the object defines, if it has the new kind of hash table.
    fn defined_symbols(&self) -> impl Iterator<Item = usize> {
        let range = self.pointer(elf::DT_GNU_HASH).map_or(0..0, |table| {
            // SAFETY: the layout of a DT_GNU_HASH table, see `defined`: the bucket with the highest index begins the
            // last chain.
            unsafe {
                let head = &*(table as *const GnuHashHeader<NativeEndian>);
                let (buckets, first) = (head.bucket_count.get(E), head.symbol_base.get(E));
                let filters = (table as *const GnuHashHeader<NativeEndian>).add(1).cast::<u64>();
                let bucket = filters.add(head.bloom_count.get(E) as usize).cast::<u32>();
                let chains = bucket.add(buckets as usize);
                let mut last = (0..buckets as usize).map(|i| *bucket.add(i)).max().unwrap_or(0);
                if last < first {
                    return 0..0;
                }
                while *chains.add((last - first) as usize) & 1 == 0 {
                    last += 1;
                }
                first as usize..last as usize + 1
            }
        });
        range.filter(|index| self.symbol(*index).is_some_and(|s| s.st_type() == elf::STT_FUNC))
    }

    fn version_index(&self, index: usize) -> Option<u16> {
        let table = self.pointer(elf::DT_VERSYM)? as *const u16;
        // SAFETY: the table has an entry for every symbol.
        Some(unsafe { *table.add(index) } & elf::VERSYM_VERSION)
    }

    /// The version of a symbol, defined or not.
    fn version(&self, index: usize) -> Option<&CStr> {
        let number = self.version_index(index).filter(|n| *n > elf::VER_NDX_GLOBAL)?;
        self.needed_version(number).or_else(|| self.defined_version(number))
    }

    fn needed_version(&self, number: u16) -> Option<&CStr> {
        let mut at = self.pointer(elf::DT_VERNEED)?;
        for _ in 0..self.value(elf::DT_VERNEEDNUM)? {
            // SAFETY: the table of a loaded object: as many entries as it says, each with as many versions as
            // it says.
            unsafe {
                let need = &*(at as *const Verneed<NativeEndian>);
                let mut version = at + need.vn_aux.get(E) as usize;
                for _ in 0..need.vn_cnt.get(E) {
                    let used = &*(version as *const Vernaux<NativeEndian>);
                    if used.vna_other.get(E) & elf::VERSYM_VERSION == number {
                        return self.string(used.vna_name.get(E) as usize);
                    }
                    version += used.vna_next.get(E) as usize;
                }
                at += need.vn_next.get(E) as usize;
            }
        }
        None
    }

    fn defined_version(&self, number: u16) -> Option<&CStr> {
        let mut at = self.pointer(elf::DT_VERDEF)?;
        for _ in 0..self.value(elf::DT_VERDEFNUM)? {
            // SAFETY: the table of a loaded object: as many entries as it says; the first name of each is its
            // own.
            unsafe {
                let definition = &*(at as *const Verdef<NativeEndian>);
                if definition.vd_ndx.get(E) & elf::VERSYM_VERSION == number {
                    let name = &*((at + definition.vd_aux.get(E) as usize) as *const Verdaux<NativeEndian>);
                    return self.string(name.vda_name.get(E) as usize);
                }
                at += definition.vd_next.get(E) as usize;
            }
        }
        None
    }

    /// The index and the address of a function that this object defines.
    pub(super) fn defined(
        &self,
        symbol: &CStr,
        fits: impl Fn(usize) -> bool,
    ) -> Option<(usize, *mut c_void)> {
        let check = |index: usize| {
            let entry = self.symbol(index)?;
            let function = entry.st_shndx.get(E) != elf::SHN_UNDEF && entry.st_type() == elf::STT_FUNC;
            (function && self.has_name(index, symbol) && fits(index))
                .then(|| (index, self.bias.wrapping_add(entry.st_value.get(E) as usize) as *mut c_void))
        };
        let Some(table) = self.pointer(elf::DT_GNU_HASH) else {
            // The old kind of hash table: rare enough to go through all symbols.
            let table = self.pointer(elf::DT_HASH)? as *const u32;
            // SAFETY: the second word of a DT_HASH table is the number of symbols.
            return (1..unsafe { *table.add(1) } as usize).find_map(check);
        };
        let hash = gnu_hash(symbol.to_bytes());
        // SAFETY: the layout of a DT_GNU_HASH table: its head, then `bloom_count` words of 64 bits,
        // `bucket_count` words, and chains that end with a set low bit. The object is loaded, so all of it is
        // mapped.
        unsafe {
            let head = &*(table as *const GnuHashHeader<NativeEndian>);
            let (buckets, first) = (head.bucket_count.get(E), head.symbol_base.get(E));
            let (bloom, shift) = (head.bloom_count.get(E), head.bloom_shift.get(E));
            if buckets == 0 || bloom == 0 {
                return None;
            }
            let filters = (table as *const GnuHashHeader<NativeEndian>).add(1).cast::<u64>();
            let filter = filters.add((hash / 64 % bloom) as usize).read_unaligned();
            if filter >> (hash % 64) & filter >> ((hash >> shift) % 64) & 1 == 0 {
                return None;
            }
            let bucket = filters.add(bloom as usize).cast::<u32>();
            let chains = bucket.add(buckets as usize);
            let mut index = *bucket.add((hash % buckets) as usize);
            if index < first {
                return None;
            }
            loop {
                let link = *chains.add((index - first) as usize);
                if link | 1 == hash | 1
                    && let Some(found) = check(index as usize)
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
}
