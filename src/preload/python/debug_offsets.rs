//! What the interpreter says of its own layout: `_Py_DebugOffsets`, at the beginning of `_PyRuntime` from
//! 3.13 on. Pure: words in, offsets or nothing out.

/// As many words of `_Py_DebugOffsets` as are read; the smallest (3.13's) has 73.
pub const WORDS: usize = 64;

const COOKIE: u64 = u64::from_le_bytes(*b"xdebugpy");

/// The offsets that a stack walk needs.
pub struct DebugOffsets {
    pub thread_frame: usize,
    pub thread_id: usize,
    pub frame_back: usize,
    pub frame_code: usize,
    pub frame_instr: usize,
    pub frame_owner: usize,
    pub code_file: usize,
    pub code_name: usize,
    pub code_lines: usize,
    pub code_first_line: usize,
    pub code_size: usize,
}

/// How many words the groups of a version have: groups grow from one minor version to the next without saying
/// so.
struct Schema {
    minor: u64,
    /// All groups before `thread_state`, but for the three words before them.
    interpreter: usize,
    frame: usize,
    code: usize,
}

const SCHEMAS: [Schema; 2] = [
    Schema { minor: 13, interpreter: 13, frame: 6, code: 10 },
    Schema { minor: 14, interpreter: 16, frame: 8, code: 11 },
];

/// Reads the words of CPython 3.`minor`: groups, each of which begins with the size of the structure it
/// describes.
pub fn read(words: &[u64; WORDS], minor: u32) -> Option<DebugOffsets> {
    let minor = u64::from(minor);
    let schema = SCHEMAS.iter().find(|schema| schema.minor == minor)?;
    let (cookie, version, free_threaded) = (words[0], words[1], words[2]);
    if cookie != u64::from_le(COOKIE) || version >> 16 != 0x0300 | minor || free_threaded != 0 {
        return None;
    }
    let thread = 6 + schema.interpreter;
    let frame = thread + 9;
    let code = frame + schema.frame;
    let object = code + schema.code;
    let field = |group: usize, at: usize| {
        let (size, offset) = (words[group], words[group + at]);
        (offset < size && size < 1 << 16).then_some(offset as usize)
    };
    // The head of every object is 16 bytes, the type its second word.
    if words[object] != 16 || words[object + 1] != 8 {
        return None;
    }
    Some(DebugOffsets {
        thread_frame: field(thread, 4)?,
        thread_id: field(thread, 5)?,
        frame_back: field(frame, 1)?,
        frame_code: field(frame, 2)?,
        frame_instr: field(frame, 3)?,
        frame_owner: field(frame, 5)?,
        code_file: field(code, 1)?,
        code_name: field(code, 3)?,
        code_lines: field(code, 4)?,
        code_first_line: field(code, 5)?,
        code_size: field(code, 9)?,
    })
}
