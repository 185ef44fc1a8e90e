//! Byte offsets inside CPython's structures that every version here shares (builds with the GIL, 64 bits).
//! What differs from version to version stands in [`layout`](crate::python::layout), and how a free-threaded build
//! differs, which is read by that layout's own words for these.

/// `PyObject`: the reference count, the type.
pub const OB_REFCNT: usize = 0;
pub const OB_TYPE: usize = 8;
/// `PyVarObject`.
pub const VAR_SIZE: usize = 16;

/// From the end of what every object begins with.
pub const STR_LENGTH: usize = 0;
pub const STR_STATE: usize = 16;
pub const BYTES_DATA: usize = 16;
/// Behind the number of digits.
pub const INT_DIGITS: usize = 24;

/// `PyTypeObject`.
pub const TYPE_NAME: usize = 24;
pub const TYPE_BASICSIZE: usize = 32;
pub const TYPE_ITEMSIZE: usize = 40;
pub const TYPE_DEALLOC: usize = 48;
pub const TYPE_FLAGS: usize = 168;
pub const TYPE_ITERNEXT: usize = 224;
pub const TYPE_TRAVERSE: usize = 184;
pub const TYPE_MEMBERS: usize = 240;
pub const TYPE_BASE: usize = 256;
pub const TYPE_DICT: usize = 264;
pub const TYPE_DICTOFFSET: usize = 288;
pub const TYPE_IS_GC: usize = 328;

pub const FLAG_INLINE_VALUES: u64 = 1 << 2;
pub const FLAG_MANAGED_DICT: u64 = 1 << 4;
pub const FLAG_HEAP_TYPE: u64 = 1 << 9;
pub const FLAG_HAVE_GC: u64 = 1 << 14;
pub const FLAG_LONG: u64 = 1 << 24;
pub const FLAG_LIST: u64 = 1 << 25;
pub const FLAG_TUPLE: u64 = 1 << 26;
pub const FLAG_DICT: u64 = 1 << 29;
pub const FLAG_EXCEPTION: u64 = 1 << 30;
pub const FLAG_TYPE: u64 = 1 << 31;

/// `PyMemberDef`: its size; the name comes first.
pub const MEMBER_SIZE: usize = 40;
pub const MEMBER_OFFSET: usize = 16;

pub const LIST_ITEMS: usize = 24;
/// The places that a list's items have room for.
pub const LIST_ALLOCATED: usize = 32;
pub const MODULE_DICT: usize = 16;
pub const METHOD_FUNCTION: usize = 16;
pub const METHOD_SELF: usize = 24;
pub const DEQUE_MAXLEN: usize = 64;
/// Of what `functools.lru_cache` makes of a function.
pub const LRU_CACHE: usize = 72;
pub const LRU_MAXSIZE: usize = 96;
/// From a frame object to its code, up to 3.10; from 3.11 on the frame says.
pub const OLD_FRAME_CODE: usize = 32;
/// From a frame object to its frame, from 3.11 on.
pub const FRAME_OBJECT_FRAME: usize = 24;

/// `PyDictKeysObject`.
pub const KEYS_LOG2_INDEX_BYTES: usize = 9;
pub const KEYS_KIND: usize = 10;
pub const KEYS_ENTRIES: usize = 24;
pub const KEYS_INDICES: usize = 32;
/// The kind of keys that instances share.
pub const SPLIT: u8 = 2;

/// From the beginning of a context variable to its name.
pub const CONTEXT_VARIABLE_NAME: usize = 16;

/// From behind the head of a dict to its version, up to CPython 3.12.
pub const DICT_VERSION: usize = 8;

/// From a frame to the dict of its names, where dicts have a version: CPython 3.8 to 3.12.
pub const fn frame_names(minor: u32) -> Option<usize> {
    match minor {
        8..=10 => Some(56),
        11 => Some(24),
        12 => Some(40),
        _ => None,
    }
}
