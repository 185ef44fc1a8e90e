//! Table entries: what is written once, on first sight, and referred to by number ever after (stacks, code
//! objects, modules, names). Encoded with postcard; borrowed, so that writing allocates nothing.

use serde::{Deserialize, Serialize};

/// How the line table of a code object is encoded (it changed twice).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LineTable {
    /// CPython 3.8, 3.9: `co_lnotab`, pairs of (address step, signed line step).
    Lnotab,
    /// CPython 3.10: PEP 626 pairs.
    Pairs,
    /// CPython 3.11 and later: variable-length location entries.
    Locations,
}

/// One entry of the tables. Ids start at 1 and are dense per kind; an entry is written before anything refers
/// to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum TableEntry<'a> {
    /// A fact about the process: `argv` (NUL-separated), `exe`, `cwd`, `host`, `rank`, `python`, a setting…
    Meta { key: &'a str, value: &'a str },
    /// The name of an entry point's number.
    Symbol { id: u16, name: &'a str },
    /// A Python code object.
    Code { id: u32, file: &'a str, name: &'a str, first_line: i32, encoding: LineTable, lines: &'a [u8] },
    /// An object file mapped at `start..end`; `pc - bias` is the address inside the file's own symbol tables.
    Module { id: u32, start: u64, end: u64, bias: u64, build_id: &'a [u8], path: &'a str },
    /// A call stack: `python` Python frames, then native ones, each list innermost first; packed [`Frame`]s,
    /// 8 bytes little-endian each.
    Stack { id: u32, python: u32, frames: &'a [u8] },
    /// A label given to `leaktrace_step` or `leaktrace_mark`.
    Label { id: u32, text: &'a str },
    /// A line for the reader, shown as it is: a coverage gap, a part switched off.
    Note { text: &'a str },
    /// A device's name and total memory in bytes.
    Device { index: u8, name: &'a str, total_bytes: u64 },
    /// A node of an autograd graph: the mangled name of its type, and the stack of the forward operation that
    /// made it (0: not known). Or an operation of a function that runs on threads without Python: its name behind
    /// [`OPERATION`], and the stack that called the function.
    Backward { id: u32, node: &'a str, forward: u32 },
    /// A holder of blocks of a site after step `step`. Of one site only the entries of the highest `search`
    /// count. `name_len`: the bytes of `path` that name the holder alone.
    Holder {
        site: Site,
        search: u32,
        step: u32,
        blocks: u64,
        bytes: u64,
        name_len: u32,
        retention: Retention,
        path: &'a str,
    },
    /// Why no holder is known of blocks of a site that were searched for after step `step`.
    Unheld { site: Site, step: u32, why: &'a str },
    /// A stack of Python frames alone, and a mixed stack of the same Python frames with the native ones that
    /// were seen.
    NativeSample { stack: u32, mixed: u32 },
    /// Boundaries found out about later ([`super::backfilled`]). Those of a later `round` replace all before
    /// once its `last` entry is written; further entries of that round add to them.
    Backfilled { round: u32, last: bool, ends: &'a [u8] },
}

/// How a holder retains what it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Retention {
    /// Not known.
    #[default]
    Unknown,
    /// It can grow without bound.
    Unbounded,
    /// It has `entries` now, and never more than `max_entries`.
    Bounded { entries: u64, max_entries: u64 },
    /// It is unreachable: garbage that waits for the collector.
    Unreachable,
    /// A variable whose value is made anew each time, from nothing that it had before.
    Replaced,
    /// A variable whose value is computed anew each time, of what another holder keeps.
    Computed,
    /// A collection without a bound that is made anew each time, of all that it had before.
    Remade,
    /// A list or queue without a bound: it takes in whatever is appended to it, where a dict may have a key already.
    Appended,
    /// A collection that has `entries` now. By its source the program drops or refuses what is beyond `limit`, which was not passed.
    Limited { entries: u64, limit: u64 },
}

impl Retention {
    /// Returns whether it is a variable whose value is another one each time, of nothing that it had before.
    pub fn is_replaced(self) -> bool {
        matches!(self, Retention::Replaced | Retention::Computed)
    }

    /// Returns whether the holder can grow without bound by itself.
    pub fn is_unbounded(self) -> bool {
        matches!(self, Retention::Unbounded | Retention::Remade | Retention::Appended)
    }

    /// Returns whether the holder is alive and keeps what it has.
    pub fn is_owned(self) -> bool {
        !matches!(self, Retention::Unknown | Retention::Unreachable)
    }
}

/// What identifies a site in every reading of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Site {
    /// Its stack's id.
    pub stack: u32,
    pub entry_point: u16,
    pub device: u8,
    pub layer: u8,
}

/// One frame of a stack.
///
/// ```text
///  63 62 61              32 31               0
/// │ 0   │ code id          │ byte offset    e │   Python; e = 1: entered from C (offsets are even)
/// │ 1   │ module id        │ pc − bias        │   native, a return address
/// │ 2   │ address                             │   native, in no known module
/// │ 3   │ 0                                   │   the stack goes on, but could not be followed
/// │ 3   │ backward id      │ 0                │   what lies further in ran in this node or operation
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Frame {
    Python { code: u32, offset: u32, entry: bool },
    Native { module: u32, offset: u32 },
    Address(u64),
    Backward(u32),
    Truncated,
}

/// What the name of an operation begins with; no type's does.
pub const OPERATION: &str = "operation ";

const ID: u64 = (1 << 30) - 1;
const ADDRESS: u64 = (1 << 62) - 1;

impl Frame {
    pub const fn pack(self) -> u64 {
        match self {
            Frame::Python { code, offset, entry } => {
                (code as u64 & ID) << 32 | (offset as u64 & !1) | entry as u64
            }
            Frame::Native { module, offset } => 1 << 62 | (module as u64 & ID) << 32 | offset as u64,
            Frame::Address(pc) => 2 << 62 | (pc & ADDRESS),
            Frame::Backward(id) => 3 << 62 | (id as u64 & ID) << 32,
            Frame::Truncated => 3 << 62,
        }
    }

    pub const fn unpack(word: u64) -> Frame {
        let id = (word >> 32 & ID) as u32;
        match word >> 62 {
            0 => Frame::Python { code: id, offset: word as u32 & !1, entry: word & 1 == 1 },
            1 => Frame::Native { module: id, offset: word as u32 },
            2 => Frame::Address(word & ADDRESS),
            _ if id != 0 => Frame::Backward(id),
            _ => Frame::Truncated,
        }
    }
}
