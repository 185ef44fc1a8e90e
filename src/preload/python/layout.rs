//! Where CPython keeps what we read, one row per version. Pure: numbers in, a layout or nothing out.
//!
//! Up to 3.13 the offsets are those of the version's headers (x86-64 and aarch64 agree: all fields are
//! words), where they are the same in all releases of a version. From 3.13 on the interpreter describes its
//! stacks itself in `_Py_DebugOffsets`, and from 3.14 on some objects: it must agree with its row. A
//! version without [`ObjectLayout`] is not searched for holders.
//!
//! A free-threaded build has the row of its version, moved by what its objects begin with more.

use crate::python::debug_offsets::{self, SaidOfObjects, WORDS};
use crate::python::offsets::LIST_ITEMS;
use leaktrace_core::format::entry::LineTable;

/// How frames are linked, and how they say that they were entered from C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Up to 3.10: frame objects; the instruction is a number, each is entered from C.
    Object,
    /// 3.11: an instruction pointer, and a flag on frames entered from C.
    Flagged,
    /// 3.12 and later: frames entered from C lie before a shim, which is no frame of the program.
    Shimmed,
    /// Free-threaded 3.14 and later: as that, but the instruction may lie in a copy of the code's, which is its
    /// thread's own.
    Copied,
}

impl Kind {
    pub fn has_shims(self) -> bool {
        matches!(self, Kind::Shimmed | Kind::Copied)
    }
}

/// Byte offsets that a stack walk needs, and those of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    pub kind: Kind,
    pub lines: LineTable,
    /// What every object begins with, the type last, in bytes: 32 in a free-threaded build.
    pub head: usize,
    /// Bytes per unit of the stored offset ([`Kind::Object`] only): 3.8 and 3.9 store bytes, 3.10 code units.
    pub unit: u32,
    pub thread_frame: usize,
    /// 3.11 and 3.12 keep the frame in a `_PyCFrame` that the thread points to.
    pub cframe: Option<usize>,
    pub thread_id: usize,
    pub frame_code: usize,
    pub frame_back: usize,
    /// The last instruction: its offset (`i32`), or its address, which lies inside the code object.
    pub frame_instr: usize,
    /// `is_entry` in 3.11, `owner` later.
    pub frame_flag: usize,
    /// From a frame to its variables. From 3.14 on their low bits are marks. `None`: not as expected.
    pub frame_variables: Option<usize>,
    pub code_file: usize,
    /// The qualified name; up to 3.10 there is only the plain one.
    pub code_name: usize,
    pub code_first_line: usize,
    pub code_lines: usize,
    pub code_flags: usize,
    /// The `bytes` of the instructions, up to 3.10; later they are a part of the code object.
    pub code_bytes: Option<usize>,
    /// The `bytes` of the exception table.
    pub code_exceptions: Option<usize>,
    /// Where the instructions begin: the size of the fixed part, which `PyCode_Type.tp_basicsize` must agree
    /// with.
    pub code_size: usize,
    /// [`Kind::Copied`] only.
    pub copies: Option<Copies>,
    pub str_ascii: usize,
    pub str_compact: usize,
    /// The lowest of the bits that say which form a `str` has.
    pub str_form: u32,
    pub collector: Collector,
    pub objects: Option<ObjectLayout>,
}

/// Where the instructions are that a thread runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copies {
    /// From a code object to the array of its copies.
    pub array: usize,
    /// From a frame to the index of the copy that it runs.
    pub index: usize,
}

impl Layout {
    /// From an object to its type.
    pub fn object_type(&self) -> usize {
        self.head - size_of::<usize>()
    }

    /// From an object of variable size to that size.
    pub fn size(&self) -> usize {
        self.head
    }

    /// From a type object to a field, which is one of those of a build with the GIL.
    pub fn of_type(&self, field: usize) -> usize {
        field + self.head - HEAD
    }

    pub fn is_free_threaded(&self) -> bool {
        self.head != HEAD
    }
}

/// What every object begins with in builds with the GIL, and how much more it is in free-threaded ones.
const HEAD: usize = 16;
const MORE: usize = 16;

/// Where the cyclic collector's state is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collector {
    /// From the interpreter's state to the flag that it is running, where that is known; else it is found by
    /// its shape.
    pub collecting: Option<usize>,
    /// From the first generation to that flag.
    pub after_generations: usize,
}

/// The offsets that every walk reads, as small as can be.
#[derive(Clone, Copy, Debug)]
pub struct Links {
    pub kind: Kind,
    pub thread_frame: u16,
    /// [`Links::NO_CFRAME`] if there is none.
    pub cframe: u16,
    pub thread_id: u16,
    pub code: u16,
    pub back: u16,
    pub instr: u16,
    pub flag: u16,
}

impl Links {
    pub const NO_CFRAME: u16 = u16::MAX;

    /// Packs a layout; `None` if an offset does not fit.
    pub fn of(layout: &Layout) -> Option<Links> {
        let short = |offset: usize| u16::try_from(offset).ok().filter(|&at| at < Links::NO_CFRAME);
        Some(Links {
            kind: layout.kind,
            thread_frame: short(layout.thread_frame)?,
            cframe: layout.cframe.map_or(Some(Links::NO_CFRAME), short)?,
            thread_id: short(layout.thread_id)?,
            code: short(layout.frame_code)?,
            back: short(layout.frame_back)?,
            instr: short(layout.frame_instr)?,
            flag: short(layout.frame_flag)?,
        })
    }
}

/// The first value of `owner` that marks a shim.
pub const SHIM_OWNER: u8 = 3;

/// From 3.14 on the low bits of a variable say whether it owns what it refers to, or that it is a number.
pub const MARKS: u64 = 7;
pub const NUMBER: u64 = 3;

/// Byte offsets that a search through objects needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectLayout {
    pub code_argcount: usize,
    pub names: Names,
    pub function_code: usize,
    pub function_defaults: usize,
    pub function_kwdefaults: usize,
    pub function_closure: usize,
    pub exception_traceback: usize,
    pub exception_context: usize,
    pub exception_cause: usize,
    pub tuple_items: usize,
    /// From a generator to its frame, which lies inside it from 3.11 on, and is an object of its own before.
    pub generator_frame: Option<usize>,
    /// From a class to the names of the attributes that its instances keep without a dict.
    pub shared_keys: Option<usize>,
    pub attributes: Attributes,
}

/// Where a code object keeps the names of its variables: in one tuple from 3.11 on, in three before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    Three { variables: usize, cells: usize, free: usize },
    One { names: usize, free: usize },
}

/// How instances keep their attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attributes {
    /// In a dict at `tp_dictoffset`.
    Dict,
    /// 3.11: in two words before the object, one for a dict and one for values.
    Before,
    /// 3.12: in one word before the object, whose lowest bit tells values from a dict.
    Tagged,
    /// 3.13: in values inside the object.
    Inside,
}

const V3_8: Layout = Layout {
    kind: Kind::Object,
    lines: LineTable::Lnotab,
    head: HEAD,
    unit: 1,
    thread_frame: 24,
    cframe: None,
    thread_id: 176,
    frame_code: 32,
    frame_back: 24,
    frame_instr: 104,
    frame_flag: 0,
    frame_variables: Some(360),
    code_file: 104,
    code_name: 112,
    code_first_line: 40,
    code_lines: 120,
    code_flags: 36,
    code_bytes: Some(48),
    code_exceptions: None,
    code_size: 176,
    copies: None,
    str_ascii: 48,
    str_compact: 72,
    str_form: 2,
    collector: Collector { collecting: None, after_generations: 176 },
    objects: Some(OBJECTS_3_8),
};

const V3_10: Layout = Layout {
    lines: LineTable::Pairs,
    unit: 2,
    frame_instr: 96,
    frame_variables: Some(352),
    objects: Some(OBJECTS_3_10),
    ..V3_8
};

const V3_11: Layout = Layout {
    kind: Kind::Flagged,
    lines: LineTable::Locations,
    thread_frame: 56,
    cframe: Some(8),
    thread_id: 152,
    frame_code: 32,
    frame_back: 48,
    frame_instr: 56,
    frame_flag: 68,
    frame_variables: Some(72),
    code_file: 112,
    code_name: 128,
    code_first_line: 72,
    code_lines: 136,
    code_flags: 48,
    code_bytes: None,
    code_exceptions: Some(40),
    code_size: 184,
    objects: Some(OBJECTS_3_11),
    ..V3_8
};

const V3_12: Layout = Layout {
    kind: Kind::Shimmed,
    cframe: Some(0),
    thread_id: 136,
    frame_code: 0,
    frame_back: 8,
    frame_flag: 70,
    code_first_line: 68,
    code_size: 192,
    str_ascii: 40,
    str_compact: 56,
    objects: Some(OBJECTS_3_12),
    ..V3_11
};

const V3_13: Layout = Layout {
    thread_frame: 72,
    cframe: None,
    thread_id: 152,
    code_size: 200,
    objects: Some(OBJECTS_3_13),
    ..V3_12
};

const V3_14: Layout = Layout {
    frame_flag: 74,
    frame_variables: Some(80),
    code_size: 208,
    collector: Collector { collecting: Some(7600), after_generations: 168 },
    objects: Some(OBJECTS_3_14),
    ..V3_13
};

const V3_15: Layout = Layout {
    thread_id: 176,
    collector: Collector { collecting: Some(7512), after_generations: 104 },
    objects: Some(OBJECTS_3_15),
    ..V3_14
};

/// 3.13's says where the collector's flag is, too.
const V3_13T: Layout =
    Layout { collector: Collector { collecting: Some(7600), ..V3_13.collector }, ..free_threaded(V3_13) };

const V3_14T: Layout = Layout {
    kind: Kind::Copied,
    frame_flag: 78,
    code_size: 232,
    copies: Some(Copies { array: 224, index: 72 }),
    str_form: 8,
    ..free_threaded(V3_14)
};

const V3_15T: Layout = Layout {
    kind: V3_14T.kind,
    frame_flag: V3_14T.frame_flag,
    code_size: V3_14T.code_size,
    copies: V3_14T.copies,
    str_form: V3_14T.str_form,
    ..free_threaded(V3_15)
};

/// Moves what lies in objects, from 3.13 on. Those that only a search for holders reads change while it reads them.
const fn free_threaded(row: Layout) -> Layout {
    Layout {
        head: row.head + MORE,
        code_file: row.code_file + MORE,
        code_name: row.code_name + MORE,
        code_first_line: row.code_first_line + MORE,
        code_lines: row.code_lines + MORE,
        code_flags: row.code_flags + MORE,
        code_exceptions: match row.code_exceptions {
            Some(at) => Some(at + MORE),
            None => None,
        },
        code_size: row.code_size + MORE,
        str_ascii: row.str_ascii + MORE,
        str_compact: row.str_compact + MORE,
        objects: None,
        ..row
    }
}

const OBJECTS_3_8: ObjectLayout = ObjectLayout {
    code_argcount: 16,
    names: Names::Three { variables: 72, cells: 88, free: 80 },
    function_code: 16,
    function_defaults: 32,
    function_kwdefaults: 40,
    function_closure: 48,
    exception_traceback: 32,
    exception_context: 40,
    exception_cause: 48,
    tuple_items: 24,
    generator_frame: None,
    shared_keys: None,
    attributes: Attributes::Dict,
};

const OBJECTS_3_10: ObjectLayout = ObjectLayout {
    function_code: 48,
    function_defaults: 56,
    function_kwdefaults: 64,
    function_closure: 72,
    ..OBJECTS_3_8
};

const OBJECTS_3_11: ObjectLayout = ObjectLayout {
    code_argcount: 56,
    names: Names::One { names: 96, free: 92 },
    exception_traceback: 40,
    exception_context: 48,
    exception_cause: 56,
    generator_frame: Some(80),
    shared_keys: Some(872),
    attributes: Attributes::Before,
    ..OBJECTS_3_10
};

const OBJECTS_3_12: ObjectLayout = ObjectLayout {
    code_argcount: 52,
    names: Names::One { names: 96, free: 88 },
    generator_frame: Some(72),
    shared_keys: Some(880),
    attributes: Attributes::Tagged,
    ..OBJECTS_3_11
};

const OBJECTS_3_13: ObjectLayout = ObjectLayout { attributes: Attributes::Inside, ..OBJECTS_3_12 };

const OBJECTS_3_14: ObjectLayout = ObjectLayout { tuple_items: 32, ..OBJECTS_3_13 };

const OBJECTS_3_15: ObjectLayout = ObjectLayout { shared_keys: Some(888), ..OBJECTS_3_14 };

/// Returns the minor number of the version that `Py_GetVersion()` begins with, and whether it is a release
/// (or its candidate).
pub fn version(text: &str) -> Option<(u32, bool)> {
    let number = text.split([' ', '+']).next()?;
    let mut parts = number.splitn(3, '.');
    if parts.next()? != "3" {
        return None;
    }
    let minor = parts.next()?.parse().ok()?;
    let micro = parts.next()?;
    Some((minor, !micro.contains(['a', 'b'])))
}

/// A release of CPython 3.`minor`, as its version says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    pub minor: u32,
    pub free_threaded: bool,
}

/// Returns the layout of a release; `words` are the interpreter's own `_Py_DebugOffsets`, if it has any.
pub fn choose(release: Release, words: Option<&[u64; WORDS]>) -> Option<Layout> {
    let Release { minor, free_threaded } = release;
    let row = match (minor, free_threaded) {
        (8 | 9, false) => return Some(V3_8),
        (10, false) => return Some(V3_10),
        (11, false) => return Some(V3_11),
        (12, false) => return Some(V3_12),
        (13, false) => V3_13,
        (14, false) => V3_14,
        (15, false) => V3_15,
        (13, true) => V3_13T,
        (14, true) => V3_14T,
        (15, true) => V3_15T,
        _ => return None,
    };
    agreed(row, minor, words?)
}

/// Returns a row that the interpreter's own words agree with, with what only these say. Where they contradict it
/// about objects or variables alone, these are not known.
fn agreed(row: Layout, minor: u32, words: &[u64; WORDS]) -> Option<Layout> {
    let said = debug_offsets::read(words, minor, row.is_free_threaded())?;
    let stacks = Layout {
        head: said.head,
        thread_frame: said.thread_frame,
        thread_id: said.thread_id,
        frame_back: said.frame_back,
        frame_code: said.frame_code,
        frame_instr: said.frame_instr,
        frame_flag: said.frame_owner,
        code_file: said.code_file,
        code_name: said.code_name,
        code_lines: said.code_lines,
        code_first_line: said.code_first_line,
        code_size: said.code_size,
        copies: said.copies.map(|(array, index)| Copies { array, index }),
        ..row
    };
    let frame_variables = row.frame_variables.filter(|_| said.frame_variables == row.frame_variables);
    let agrees = |objects: &ObjectLayout| match &said.objects {
        Some(said) => said_of(*objects, said) == Some(*objects),
        // 3.13 is not asked about objects.
        None => minor == 13,
    };
    // 3.13's is found by its shape where there is a GIL. Where there is none, it is the row's or nothing.
    let collecting = said.collecting.filter(|&at| match row.is_free_threaded() {
        true => row.collector.collecting == Some(at),
        false => row.collector.collecting.is_some(),
    });
    (stacks == row).then_some(Layout {
        frame_variables,
        collector: Collector { collecting, ..row.collector },
        objects: row.objects.filter(agrees).filter(|_| frame_variables.is_some()),
        ..row
    })
}

/// Returns a row of objects with the offsets that the interpreter says.
fn said_of(row: ObjectLayout, said: &SaidOfObjects) -> Option<ObjectLayout> {
    let Names::One { free, .. } = row.names else { return None };
    (said.list_items == LIST_ITEMS).then_some(ObjectLayout {
        code_argcount: said.code_argcount,
        names: Names::One { names: said.code_names, free },
        tuple_items: said.tuple_items,
        generator_frame: Some(said.generator_frame),
        shared_keys: said.shared_keys.or(row.shared_keys),
        ..row
    })
}

#[cfg(test)]
mod tests;
