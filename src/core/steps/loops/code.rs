//! What is known of a code object: its loops, and whose it is.

use std::collections::HashMap;

use super::extents::Extents;
use super::{EventContext, Seen};
use crate::frameworks;

/// A code object as it is read.
#[derive(Clone, Debug, Default)]
pub struct CodeText {
    /// CPython 3.`minor`.
    pub minor: u32,
    pub file: String,
    pub name: String,
    /// `co_flags`
    pub flags: u32,
    /// The slots of its frames before those of the stack, where that is known.
    pub variables: Option<u16>,
    /// The instructions as they lie in memory, and the exception table.
    pub bytes: Vec<u8>,
    pub exceptions: Vec<u8>,
    /// Number of the code in the recording.
    pub id: u32,
    /// Neither the user's nor a program's.
    pub library: bool,
}

/// A function, whose variables are slots; a module's and a class's are in dictionaries.
const OPTIMIZED: u32 = 0x01;
const VARIABLE_ARGUMENTS: u32 = 0x04 | 0x08;
/// Made in another function.
const NESTED: u32 = 0x10;
const GENERATOR: u32 = 0x20 | 0x80 | 0x200;
/// A generator that is iterated over, and not a coroutine.
const ITERATED: u32 = 0x20 | 0x200;
const COROUTINE: u32 = 0x80;
/// What C calls once for each instruction that asks for it: an object that is called, code that is executed.
const ONCE: [&str; 3] = ["__call__", "_wrapped_call_impl", MODULE];
const MODULE: &str = "<module>";
/// The library's functions by which a model is made, or moved to its device.
const BUILDERS: [&str; 2] = ["__init__", "_apply"];
/// The functions of the library by which a thread begins, and the file they are in.
const BOOTSTRAP: [&str; 3] = ["_bootstrap", "_bootstrap_inner", "run"];
const THREADS: &str = "/threading.py";
/// The file whose loops are none: they run whatever part of a task is next, and the tasks are what comes round. Other event
/// loops have no Python frames.
const EVENT_LOOP: &str = "/asyncio/base_events.py";
/// Where the loops are not the program's, beside those of frameworks, which go over the layers of a model, the parameters of
/// an optimizer, the operations of a graph: those of a notebook's kernel over its messages. A cell may have any loop of its
/// own.
const NOTEBOOKS: [&str; 2] = ["/ipykernel/", "/IPython/"];

#[derive(Debug)]
pub(super) struct Code {
    pub id: u32,
    pub extents: Extents,
    /// The slots of a frame before those of its stack, where the iterators of its loops lie; `None` where that is not known.
    pub variables: Option<u16>,
    pub generator: bool,
    /// It yields what a loop elsewhere goes over.
    pub iterated: bool,
    pub coroutine: bool,
    /// A thread begins with it.
    pub bootstrap: bool,
    pub once: bool,
    /// A wrapper that a decorator has put around another function.
    pub decorator: bool,
    pub library: bool,
    /// The framework's, or the notebook's: none of its loops is the program's.
    pub framework: bool,
    /// What it allocates is a model's own.
    pub builds: bool,
    /// A module's code: its variables are there as long as the program runs.
    pub module: bool,
    /// Its bytecode could not be read.
    pub opaque: bool,
}

impl Code {
    pub fn new(text: &CodeText) -> Code {
        let extents = Extents::of(text.minor, &text.bytes, &text.exceptions, &text.name);
        let plain = text.name.rsplit('.').next().unwrap_or("");
        let is_event_loop = text.library && text.file.ends_with(EVENT_LOOP);
        Code {
            id: text.id,
            variables: text.variables.or((text.flags & OPTIMIZED == 0).then_some(0)),
            generator: text.flags & GENERATOR != 0,
            iterated: text.flags & ITERATED != 0,
            coroutine: text.flags & COROUTINE != 0,
            bootstrap: text.library && BOOTSTRAP.contains(&plain) && text.file.ends_with(THREADS),
            once: ONCE.contains(&plain),
            decorator: text.flags & (VARIABLE_ARGUMENTS | NESTED) == VARIABLE_ARGUMENTS | NESTED,
            library: text.library,
            framework: text.library
                && (frameworks::is_own_file(&text.file)
                    || NOTEBOOKS.iter().any(|folder| text.file.contains(folder))),
            builds: text.library && BUILDERS.contains(&plain),
            module: plain == MODULE,
            opaque: extents.is_none(),
            extents: extents.filter(|_| !is_event_loop).unwrap_or_default(),
        }
    }
}

/// Code objects that are distinguished.
const MOST_CODES: usize = 1 << 16;
/// Places of the table from address to code. A power of two.
const PLACES: usize = 4096;

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    address: usize,
    epoch: u64,
    code: u32,
}

/// All code objects seen. The first stands for all that found no room.
#[derive(Debug)]
pub(super) struct Codes {
    list: Vec<Code>,
    by_id: HashMap<u32, u32>,
    places: Vec<Known>,
    epoch: u64,
}

impl Codes {
    pub fn new() -> Codes {
        let mut list = Vec::with_capacity(1024);
        list.push(Code::new(&CodeText { minor: 8, ..CodeText::default() }));
        Codes { list, by_id: HashMap::with_capacity(1024), places: vec![Known::default(); PLACES], epoch: 0 }
    }

    /// Addresses may mean other code objects from here on, unless this is the epoch there was.
    pub fn at(&mut self, epoch: u64) {
        self.epoch = epoch;
    }

    #[inline(always)]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    #[inline]
    pub fn get(&self, code: u32) -> &Code {
        &self.list[code as usize]
    }

    /// The code of a frame.
    #[inline]
    pub fn number(&mut self, seen: &Seen, around: &mut dyn EventContext) -> u32 {
        let place = (seen.code >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52;
        let known = self.places[place % PLACES];
        if known.address == seen.code && known.epoch == self.epoch {
            return known.code;
        }
        let code = self.learn(seen, around);
        self.places[place % PLACES] = Known { address: seen.code, epoch: self.epoch, code };
        code
    }

    #[cold]
    fn learn(&mut self, seen: &Seen, around: &mut dyn EventContext) -> u32 {
        let id = around.id(seen);
        if id == 0 {
            return 0;
        }
        if let Some(&code) = self.by_id.get(&id) {
            return code;
        }
        if self.list.len() >= MOST_CODES {
            return 0;
        }
        let code = self.list.len() as u32;
        self.list.push(Code::new(&CodeText { id, ..around.read(seen) }));
        self.by_id.insert(id, code);
        code
    }

    /// How many could not be understood.
    pub fn opaque(&self) -> usize {
        self.list.iter().filter(|code| code.opaque).count()
    }
}
