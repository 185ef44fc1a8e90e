//! What the interpreter says of its own layout: `_Py_DebugOffsets`, at the beginning of `_PyRuntime` from
//! 3.13 on. Pure: words in, offsets or nothing out.

/// As many words of `_Py_DebugOffsets` as are read. 3.13's has fewer; what follows belongs to `_PyRuntime`.
pub const WORDS: usize = 104;

const COOKIE: u64 = u64::from_le_bytes(*b"xdebugpy");

/// The offsets that a stack walk needs, and from 3.14 on others.
pub struct DebugOffsets {
    pub head: usize,
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
    pub frame_variables: Option<usize>,
    /// Of a free-threaded build from 3.14 on: from a code object to the array of the copies of its instructions, from
    /// a frame to the index of its copy.
    pub copies: Option<(usize, usize)>,
    pub objects: Option<SaidOfObjects>,
    /// From the interpreter's state to the collector's flag.
    pub collecting: Option<usize>,
}

/// The offsets that a search through objects needs.
pub struct SaidOfObjects {
    pub code_argcount: usize,
    pub code_names: usize,
    pub tuple_items: usize,
    pub list_items: usize,
    pub generator_frame: usize,
    /// From 3.15 on.
    pub shared_keys: Option<usize>,
}

/// At which words the groups of a version begin: they grow from one minor version to the next without saying
/// so.
struct Schema {
    minor: u64,
    thread: usize,
    /// In the group of the thread.
    thread_id: usize,
    frame: usize,
    code: usize,
    object: usize,
    /// In the group of the interpreter: the collector's state.
    interpreter_collector: usize,
    collector: usize,
    more: Option<More>,
}

/// The groups that are read from 3.14 on.
struct More {
    heap_type: Option<usize>,
    tuple: usize,
    list: usize,
    generator: usize,
}

const INTERPRETER: usize = 6;

const SCHEMAS: [Schema; 3] = [
    Schema {
        minor: 13,
        thread: 19,
        thread_id: 5,
        frame: 28,
        code: 34,
        object: 44,
        interpreter_collector: 4,
        collector: 71,
        more: None,
    },
    Schema {
        minor: 14,
        thread: 22,
        thread_id: 5,
        frame: 31,
        code: 39,
        object: 50,
        interpreter_collector: 5,
        collector: 81,
        more: Some(More { heap_type: None, tuple: 56, list: 59, generator: 83 }),
    },
    Schema {
        minor: 15,
        thread: 22,
        thread_id: 8,
        frame: 39,
        code: 47,
        object: 58,
        interpreter_collector: 5,
        collector: 94,
        more: Some(More { heap_type: Some(66), tuple: 68, list: 71, generator: 99 }),
    },
];

/// Reads the words of CPython 3.`minor`: groups, each of which begins with the size of the structure it
/// describes.
pub fn read(words: &[u64; WORDS], minor: u32, free_threaded: bool) -> Option<DebugOffsets> {
    let minor = u64::from(minor);
    let schema = SCHEMAS.iter().find(|schema| schema.minor == minor)?;
    let (cookie, version, threaded) = (words[0], words[1], words[2]);
    if cookie != u64::from_le(COOKIE)
        || version >> 16 != 0x0300 | minor
        || threaded != u64::from(free_threaded)
    {
        return None;
    }
    // An interpreter's state is the largest that is described: less than a megabyte.
    let field = |group: usize, at: usize| {
        let (size, offset) = (words[group], words[group + at]);
        (offset < size && size < 1 << 20).then_some(offset as usize)
    };
    let &Schema { thread, thread_id, frame, code, object, .. } = schema;
    // What every object begins with ends with its type.
    let head = words[object];
    if words[object + 1].checked_add(8) != Some(head) {
        return None;
    }
    let copies = match free_threaded && minor >= 14 {
        true => Some((field(code, 10)?, field(frame, 7)?)),
        false => None,
    };
    let objects = |more: &More| {
        let shared_keys = match more.heap_type {
            Some(group) => Some(field(group, 1)?),
            None => None,
        };
        Some(SaidOfObjects {
            code_argcount: field(code, 6)?,
            code_names: field(code, 7)?,
            tuple_items: field(more.tuple, 1)?,
            list_items: field(more.list, 1)?,
            generator_frame: field(more.generator, 2)?,
            shared_keys,
        })
    };
    let collecting = || Some(field(INTERPRETER, schema.interpreter_collector)? + field(schema.collector, 1)?);
    Some(DebugOffsets {
        head: head as usize,
        thread_frame: field(thread, 4)?,
        thread_id: field(thread, thread_id)?,
        frame_back: field(frame, 1)?,
        frame_code: field(frame, 2)?,
        frame_instr: field(frame, 3)?,
        frame_owner: field(frame, 5)?,
        code_file: field(code, 1)?,
        code_name: field(code, 3)?,
        code_lines: field(code, 4)?,
        code_first_line: field(code, 5)?,
        code_size: field(code, 9)?,
        frame_variables: field(frame, 4),
        copies,
        objects: schema.more.as_ref().and_then(objects),
        collecting: collecting(),
    })
}
