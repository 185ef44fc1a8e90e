//! The tables of a loaded object, as the ELF specification and its GNU extensions lay them out. Knows no process.

/// An entry of the dynamic section.
#[repr(C)]
pub struct Dyn {
    pub tag: i64,
    pub value: usize,
}

/// Tags of the dynamic section.
pub mod tag {
    pub const NEEDED: i64 = 1;
    pub const PLTRELSZ: i64 = 2;
    pub const HASH: i64 = 4;
    pub const STRTAB: i64 = 5;
    pub const SYMTAB: i64 = 6;
    pub const RELA: i64 = 7;
    pub const RELASZ: i64 = 8;
    pub const SONAME: i64 = 14;
    pub const JMPREL: i64 = 23;
    pub const GNU_HASH: i64 = 0x6fff_fef5;
    pub const VERSYM: i64 = 0x6fff_fff0;
    pub const VERDEF: i64 = 0x6fff_fffc;
    pub const VERDEFNUM: i64 = 0x6fff_fffd;
    pub const VERNEED: i64 = 0x6fff_fffe;
    pub const VERNEEDNUM: i64 = 0x6fff_ffff;
}

/// An entry of the symbol table.
#[repr(C)]
pub struct Symbol {
    pub name: u32,
    info: u8,
    other: u8,
    pub section: u16,
    pub value: usize,
    size: usize,
}

impl Symbol {
    pub fn is_defined_function(&self) -> bool {
        const STT_FUNC: u8 = 2;
        self.section != 0 && self.info & 0xf == STT_FUNC
    }

    pub fn is_weak(&self) -> bool {
        const STB_WEAK: u8 = 2;
        self.info >> 4 == STB_WEAK
    }
}

/// A library of which versions are needed.
#[repr(C)]
pub struct VersionNeed {
    revision: u16,
    pub count: u16,
    file: u32,
    pub uses: u32,
    pub next: u32,
}

/// A version that is needed.
#[repr(C)]
pub struct VersionUse {
    hash: u32,
    flags: u16,
    pub number: u16,
    pub name: u32,
    pub next: u32,
}

/// A version that is defined.
#[repr(C)]
pub struct VersionDefinition {
    revision: u16,
    flags: u16,
    pub number: u16,
    count: u16,
    hash: u32,
    pub names: u32,
    pub next: u32,
}

/// The name of a version that is defined.
#[repr(C)]
pub struct VersionName {
    pub name: u32,
    next: u32,
}

/// A relocation with its addend.
#[repr(C)]
pub struct Relocation {
    pub place: usize,
    info: u64,
    pub addend: i64,
}

impl Relocation {
    /// What it is about, by its place in the symbol table, if it stores the symbol's address as it is.
    pub fn stores_address_of(&self) -> Option<usize> {
        const R_X86_64_64: u32 = 1;
        const R_X86_64_GLOB_DAT: u32 = 6;
        const R_X86_64_JUMP_SLOT: u32 = 7;
        let plain = match self.info as u32 {
            R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT => true,
            R_X86_64_64 => self.addend == 0,
            _ => false,
        };
        plain.then_some((self.info >> 32) as usize)
    }
}

/// The head of the file, of which it is the first thing mapped.
#[repr(C)]
pub struct Header {
    pub ident: [u8; 16],
    kind: u16,
    machine: u16,
    version: u32,
    entry: usize,
    pub programs: usize,
    sections: usize,
    flags: u32,
    size: u16,
    program_size: u16,
    pub program_count: u16,
    rest: [u16; 3],
}

/// A program header.
#[repr(C)]
pub struct Program {
    pub kind: u32,
    pub flags: u32,
    offset: usize,
    pub address: usize,
    physical: usize,
    file_size: usize,
    pub size: usize,
    align: usize,
}

/// The hash of a name in a DT_GNU_HASH table.
pub fn gnu_hash(name: &[u8]) -> u32 {
    name.iter().fold(5381, |h: u32, b| h.wrapping_mul(33).wrapping_add(u32::from(*b)))
}
