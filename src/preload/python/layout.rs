//! Where CPython keeps what a stack walk reads, per version. Pure: numbers in, a layout or a reason out.
//!
//! Up to 3.13 the offsets are those of the version's headers (x86-64 and aarch64 agree: all fields are words); from 3.13 on
//! the interpreter describes itself in `_Py_DebugOffsets`. 3.13 must agree with the table, 3.14 is taken at its word.

use leaktrace_core::format::entry::LineTable;

/// How frames are linked and what they say of themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Up to 3.10: frame objects, the offset is a number, each is entered from C.
    Object,
    /// 3.11: an instruction pointer, and a flag on frames entered from C.
    Flagged,
    /// 3.12 and later: frames entered from C lie before a shim, which is no frame of the program.
    Shimmed,
}

/// Byte offsets inside CPython's structures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub kind: Kind,
    pub lines: LineTable,
    /// Bytes per unit of the stored offset ([`Kind::Object`] only): 3.8 and 3.9 store bytes, 3.10 code units.
    pub unit: u32,
    pub thread_frame: usize,
    /// 3.11 and 3.12 keep the frame in a `_PyCFrame` the thread points to.
    pub cframe: Option<usize>,
    pub thread_id: usize,
    pub frame_code: usize,
    pub frame_back: usize,
    /// The last instruction: its offset (`i32`), or its address, which lies inside the code object.
    pub frame_instr: usize,
    /// 3.11: `is_entry`. Later: `owner`.
    pub frame_flag: usize,
    pub code_file: usize,
    /// The qualified name; up to 3.10 there is only the plain one.
    pub code_name: usize,
    pub code_first_line: usize,
    pub code_lines: usize,
    pub code_flags: usize,
    /// Up to 3.10: the `bytes` of the instructions. Later they are a part of the code object.
    pub code_bytes: Option<usize>,
    /// The `bytes` of the exception table.
    pub code_exceptions: Option<usize>,
    /// Where the instructions begin, and the size of the fixed part: `PyCode_Type.tp_basicsize` must say the same.
    pub code_size: usize,
    pub str_ascii: usize,
    pub str_compact: usize,
}

/// What a walk needs of a layout, as small as can be: it is looked at with every stack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Links {
    pub kind: Kind,
    pub thread_frame: u16,
    /// [`Links::NO_CFRAME`]: none.
    pub cframe: u16,
    pub thread_id: u16,
    pub code: u16,
    pub back: u16,
    pub instr: u16,
    pub flag: u16,
}

impl Links {
    pub const NO_CFRAME: u16 = u16::MAX;

    /// `None`: an offset is larger than any there ever was.
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

/// An `owner` from here on marks a shim.
pub(crate) const SHIM_OWNER: u8 = 3;

// The same in every version here.
pub(crate) const OB_TYPE: usize = 8;
pub(crate) const VAR_SIZE: usize = 16;
pub(crate) const STR_LENGTH: usize = 16;
pub(crate) const STR_STATE: usize = 32;
pub(crate) const BYTES_DATA: usize = 32;
pub(crate) const TYPE_BASICSIZE: usize = 32;
pub(crate) const TYPE_DEALLOC: usize = 48;

const V3_8: Layout = Layout {
    kind: Kind::Object,
    lines: LineTable::Lnotab,
    unit: 1,
    thread_frame: 24,
    cframe: None,
    thread_id: 176,
    frame_code: 32,
    frame_back: 24,
    frame_instr: 104,
    frame_flag: 0,
    code_file: 104,
    code_name: 112,
    code_first_line: 40,
    code_lines: 120,
    code_flags: 36,
    code_bytes: Some(48),
    code_exceptions: None,
    code_size: 176,
    str_ascii: 48,
    str_compact: 72,
};

const V3_10: Layout = Layout { lines: LineTable::Pairs, unit: 2, frame_instr: 96, ..V3_8 };

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
    code_file: 112,
    code_name: 128,
    code_first_line: 72,
    code_lines: 136,
    code_flags: 48,
    code_bytes: None,
    code_exceptions: Some(40),
    code_size: 184,
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
    ..V3_11
};

const V3_13: Layout = Layout { thread_frame: 72, cframe: None, thread_id: 152, code_size: 200, ..V3_12 };

/// The version that `Py_GetVersion()` begins with: minor number, and whether it is a release (or its candidate).
pub(crate) fn version(text: &str) -> Option<(u32, bool)> {
    let number = text.split([' ', '+']).next()?;
    let mut parts = number.splitn(3, '.');
    if parts.next()? != "3" {
        return None;
    }
    let minor = parts.next()?.parse().ok()?;
    let micro = parts.next()?;
    Some((minor, !micro.contains(['a', 'b'])))
}

/// The layout of a release of CPython 3.`minor`; `words` are the interpreter's own `_Py_DebugOffsets`, if it has any.
pub(crate) fn choose(minor: u32, words: Option<&[u64; WORDS]>) -> Option<Layout> {
    match minor {
        8 | 9 => Some(V3_8),
        10 => Some(V3_10),
        11 => Some(V3_11),
        12 => Some(V3_12),
        13 => described(words?, 13).filter(|layout| *layout == V3_13),
        14 => described(words?, 14),
        _ => None,
    }
}

/// As many words of `_Py_DebugOffsets` as are read; the smallest (3.13's) has 73.
pub(crate) const WORDS: usize = 64;

const COOKIE: u64 = u64::from_le_bytes(*b"xdebugpy");

/// Reads `_Py_DebugOffsets`: groups of words, each beginning with the size of the structure it describes. The groups grow
/// from one minor version to the next, hence one schema for each.
fn described(words: &[u64; WORDS], minor: u64) -> Option<Layout> {
    // How many words the groups before `thread_state`, of the frame, and of the code have.
    let (interpreter, frame_words, code_words) = match minor {
        13 => (13, 6, 10),
        14 => (16, 8, 11),
        _ => return None,
    };
    let (cookie, version, free_threaded) = (words[0], words[1], words[2]);
    if cookie != u64::from_le(COOKIE) || version >> 16 != 0x0300 | minor || free_threaded != 0 {
        return None;
    }
    let thread = 6 + interpreter;
    let frame = thread + 9;
    let code = frame + frame_words;
    let object = code + code_words;
    let field = |group: usize, at: usize| {
        let (size, offset) = (words[group], words[group + at]);
        (offset < size && size < 1 << 16).then_some(offset as usize)
    };
    // The head of every object is 16 bytes, the type its second word.
    if words[object] != 16 || words[object + 1] != OB_TYPE as u64 {
        return None;
    }
    Some(Layout {
        thread_frame: field(thread, 4)?,
        cframe: None,
        thread_id: field(thread, 5)?,
        frame_back: field(frame, 1)?,
        frame_code: field(frame, 2)?,
        frame_instr: field(frame, 3)?,
        frame_flag: field(frame, 5)?,
        code_file: field(code, 1)?,
        code_name: field(code, 3)?,
        code_lines: field(code, 4)?,
        code_first_line: field(code, 5)?,
        code_size: field(code, 9)?,
        ..V3_13
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        assert_eq!(version("3.11.7 (main, Jan  1 2024) [GCC 12.2.0]"), Some((11, true)));
        assert_eq!(version("3.13.0+ (heads/3.13)"), Some((13, true)));
        assert_eq!(version("3.14.0a3 (main)"), Some((14, false)));
        assert_eq!(version("3.14.0rc2 (main)"), Some((14, true)));
        assert_eq!(version("2.7.18 (default)"), None);
        assert_eq!(version("nonsense"), None);
    }

    #[test]
    fn an_unknown_version_has_no_layout() {
        assert_eq!(choose(7, None), None);
        assert_eq!(choose(13, None), None);
        assert_eq!(choose(15, Some(&[0; WORDS])), None);
        assert_eq!(choose(14, Some(&[u64::MAX; WORDS])), None);
    }
}
