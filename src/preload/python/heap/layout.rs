//! Where CPython keeps what its objects hold, per version: byte offsets of the headers of 3.8 to 3.13, where they are the
//! same in all of a version's releases. Another version is not searched.

/// Byte offsets.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub code_argcount: usize,
    /// Names of a code's variables: one tuple of all from 3.11 on, three before.
    pub names: Names,
    pub function_code: usize,
    pub function_defaults: usize,
    pub function_kwdefaults: usize,
    pub function_closure: usize,
    pub exception_traceback: usize,
    pub exception_context: usize,
    pub exception_cause: usize,
    /// From a frame to its variables.
    pub frame_variables: usize,
    /// A generator's frame: inside it from 3.11 on, an object of its own before.
    pub generator_frame: Option<usize>,
    /// A class's names of the attributes that instances keep without a dict.
    pub shared_keys: Option<usize>,
    pub attributes: Attributes,
}

#[derive(Clone, Copy, Debug)]
pub enum Names {
    Three { variables: usize, cells: usize, free: usize },
    One { names: usize, free: usize },
}

/// How instances keep their attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attributes {
    /// In a dict, `tp_dictoffset` says where.
    Dict,
    /// 3.11: before the object, the dict or the values.
    Before,
    /// 3.12: one word, whose lowest bit says which.
    Tagged,
    /// 3.13: values inside the object.
    Inside,
}

const V3_8: Layout = Layout {
    code_argcount: 16,
    names: Names::Three { variables: 72, cells: 88, free: 80 },
    function_code: 16,
    function_defaults: 32,
    function_kwdefaults: 40,
    function_closure: 48,
    exception_traceback: 32,
    exception_context: 40,
    exception_cause: 48,
    frame_variables: 360,
    generator_frame: None,
    shared_keys: None,
    attributes: Attributes::Dict,
};

const V3_10: Layout = Layout {
    function_code: 48,
    function_defaults: 56,
    function_kwdefaults: 64,
    function_closure: 72,
    frame_variables: 352,
    ..V3_8
};

const V3_11: Layout = Layout {
    code_argcount: 56,
    names: Names::One { names: 96, free: 92 },
    exception_traceback: 40,
    exception_context: 48,
    exception_cause: 56,
    frame_variables: 72,
    generator_frame: Some(80),
    shared_keys: Some(872),
    attributes: Attributes::Before,
    ..V3_10
};

const V3_12: Layout = Layout {
    code_argcount: 52,
    names: Names::One { names: 96, free: 88 },
    generator_frame: Some(72),
    shared_keys: Some(880),
    attributes: Attributes::Tagged,
    ..V3_11
};

const V3_13: Layout = Layout { attributes: Attributes::Inside, ..V3_12 };

/// The layout of CPython 3.`minor`.
pub fn choose(minor: u32) -> Option<Layout> {
    match minor {
        8 | 9 => Some(V3_8),
        10 => Some(V3_10),
        11 => Some(V3_11),
        12 => Some(V3_12),
        13 => Some(V3_13),
        _ => None,
    }
}

// The same in all of them.
pub const REFERENCES: usize = 0;
pub const TYPE: usize = 8;
pub const SIZE: usize = 16;
pub const TYPE_NAME: usize = 24;
pub const TYPE_BASICSIZE: usize = 32;
pub const TYPE_ITEMSIZE: usize = 40;
pub const TYPE_FLAGS: usize = 168;
pub const TYPE_TRAVERSE: usize = 184;
pub const TYPE_MEMBERS: usize = 240;
pub const TYPE_BASE: usize = 256;
pub const TYPE_DICT: usize = 264;
pub const TYPE_DICTOFFSET: usize = 288;
pub const TYPE_IS_GC: usize = 328;
pub const LIST_ITEMS: usize = 24;
pub const TUPLE_ITEMS: usize = 24;
pub const MODULE_DICT: usize = 16;
pub const METHOD_FUNCTION: usize = 16;
/// Of a deque, and of what `functools.lru_cache` makes: the same from 3.8 to 3.13.
pub const DEQUE_MAXLEN: usize = 64;
pub const LRU_MAXSIZE: usize = 96;
pub const LRU_CACHE: usize = 72;
pub const METHOD_SELF: usize = 24;
/// From a frame object to the frame, 3.11 and later.
pub const FRAME_OBJECT_FRAME: usize = 24;
/// From a frame object to its code, up to 3.10; from 3.11 on the frame says.
pub const OLD_FRAME_CODE: usize = 32;
/// `PyMemberDef`: 40 bytes; the name first.
pub const MEMBER: usize = 40;
pub const MEMBER_OFFSET: usize = 16;
pub const KEYS_LOG2_INDEX_BYTES: usize = 9;
pub const KEYS_KIND: usize = 10;
pub const KEYS_ENTRIES: usize = 24;
pub const KEYS_INDICES: usize = 32;
/// The kind of keys that instances share.
pub const SPLIT: u8 = 2;

pub const FLAG_INLINE_VALUES: u64 = 1 << 2;
pub const FLAG_MANAGED_DICT: u64 = 1 << 4;
pub const FLAG_HAVE_GC: u64 = 1 << 14;
pub const FLAG_LIST: u64 = 1 << 25;
pub const FLAG_TUPLE: u64 = 1 << 26;
pub const FLAG_DICT: u64 = 1 << 29;
pub const FLAG_EXCEPTION: u64 = 1 << 30;
pub const FLAG_TYPE: u64 = 1 << 31;
