//! The Python frames of the calling thread as they stand, for whoever compares them from one moment to the
//! next.

use std::ptr;

use crate::python::codes::{self, Numbered};
use crate::python::interpreter::{self, Cpython};
use crate::python::layout::{MARKS, NUMBER};
use crate::python::memory::read;
use crate::python::offsets::{DICT_VERSION, TYPE_ITERNEXT, frame_names};
use crate::python::walk::{self, Found, Walk};
use crate::python::{current, gc, packages, strings};
use crate::thread_state::{self, ThreadState};
use leaktrace_core::steps::loops::{COUNTED, CodeText, Seen};

/// The local variables of a frame that are looked at.
const MOST_LOCALS: u16 = 64;
/// What spreads the bits of an address over a word: FxHash's.
const SPREAD: u64 = 0x517c_c1b7_2722_0a95;
/// The objects on a frame's stack that are looked at.
const MOST_SLOTS: usize = 32;
/// From CPython 3.15 on a loop has two slots: a list may lie there in place of an iterator, and its index beside it.
const VIRTUAL_ITERATORS: u32 = 15;
/// From CPython 3.12 on an iterator of a range begins with its next item.
const RANGES_BEGIN_WITH_ITEMS: u32 = 12;

/// Longer code is not read.
const LONGEST_CODE: usize = 1 << 17;

/// The frames of this moment, and what more can be read of them while it lasts.
pub struct Frames<'a> {
    /// Outermost first.
    pub list: &'a [Seen],
    /// How many of the outermost are certainly unchanged.
    pub same: usize,
    /// Changes when an address may mean another code object.
    pub epoch: u64,
    /// A count that changes whenever Python makes an object that its collector watches.
    pub objects: u32,
    pub code: Reader,
}

/// Reads code objects of the frames at hand.
pub struct Reader {
    cpython: &'static Cpython,
}

/// Mixes words to one.
#[inline(always)]
fn spread(words: impl Iterator<Item = u64>) -> u64 {
    words.fold(0, |sum, word| (sum.rotate_left(5) ^ word).wrapping_mul(SPREAD))
}

/// What a `for` loop goes over.
enum Iterated {
    Nothing,
    /// What has no iterator, but a number of its own.
    Index(u64),
    /// An iterator, and whether it counts.
    Object(u64, bool),
}

/// The address of what a word refers to, that may have marks.
fn address(object: u64) -> *const u8 {
    ptr::with_exposed_provenance((object & !MARKS) as usize)
}

/// Hands the calling thread's frames to `look`; `list` holds those of the moment before. Also returns the
/// walk, if it is `wanted` and there is one. `None`: the thread has no frames, or they cannot be read.
#[inline]
pub fn frames<R>(
    thread: &ThreadState,
    list: &mut Vec<Seen>,
    wanted: bool,
    look: impl FnOnce(Frames<'_>) -> R,
) -> Option<(R, Option<Walk>)> {
    thread.read_section(|| {
        let top = current::top()?;
        // Not before: nothing is allocated for a thread without Python.
        if list.capacity() < walk::LIMIT {
            list.reserve_exact(walk::LIMIT - list.len());
        }
        let epoch = thread_state::epoch();
        let (same, walk) = walk::follow(top, list, wanted);
        let (objects, code) = (gc::objects(top.cpython), Reader { cpython: top.cpython });
        Some((look(Frames { list, same, epoch, objects, code }), walk))
    })?
}

/// Returns the count of objects and what reads the code, if the calling thread's frames are those of `list`. In a read
/// section only.
#[inline(always)]
pub fn if_same(list: &[Seen]) -> Option<(u32, Reader)> {
    let top = current::top()?;
    let cpython = top.cpython;
    walk::is_same(top, list).then(|| (gc::objects(cpython), Reader { cpython }))
}

/// Returns a word that tells where the innermost of some frames stands.
#[inline(always)]
pub fn place_of(list: &[Seen]) -> u64 {
    list.last().map_or(0, |seen| walk::place_of(seen.frame, seen.key))
}

/// Returns that word for the frames of the calling thread; 0 if it has none.
pub fn place(thread: &ThreadState) -> u64 {
    thread.read_section(|| current::top().map_or(0, walk::place)).unwrap_or(0)
}

/// True if the innermost Python function of the calling thread is one that `is` accepts, by its file and its
/// name.
#[cold]
pub fn runs(thread: &ThreadState, is: impl FnOnce(&str, &str) -> bool) -> bool {
    let (mut is, mut accepted) = (Some(is), false);
    thread.read_section(|| {
        let Some(top) = current::top() else { return };
        walk::walk(top, |found| {
            let layout = &found.cpython.layout;
            // SAFETY: the code object of a frame of the calling thread, in a read section.
            let [file, name] = [layout.code_file, layout.code_name]
                .map(|at| unsafe { strings::text(layout, read(found.code, at)) });
            accepted = is.take().is_some_and(|is| is(&file, &name));
            false
        });
    });
    accepted
}

/// True from CPython 3.11 on, where frames say whether they were entered from C.
pub fn knows_entries() -> bool {
    interpreter::cpython().is_some_and(|cpython| cpython.minor >= 11)
}

impl Reader {
    fn code(&self, seen: &Seen) -> *const u8 {
        ptr::with_exposed_provenance(seen.code)
    }

    /// Returns the id of a frame's code object; 0 if it has none.
    pub fn id(&self, seen: &Seen) -> u32 {
        let found =
            Found { code: self.code(seen), offset: seen.offset, entry: seen.entry, cpython: self.cpython };
        match codes::id(&found) {
            Numbered::Id(id) => id.number,
            _ => 0,
        }
    }

    /// Returns the address of the object that a local variable of a frame names; 0 where there is none, or the layout of
    /// frames is not known.
    #[inline]
    pub fn variable(&self, seen: &Seen, variable: u16) -> u64 {
        let Some(variables) = self.cpython.layout.frame_variables else { return 0 };
        let slot = variables + size_of::<u64>() * usize::from(variable);
        // SAFETY: a frame of the calling thread, in a read section, which has a slot for each variable of its code; the
        // number is from an instruction of that code, or less than how many there are.
        let slot: u64 = unsafe { read(ptr::with_exposed_provenance(seen.frame), slot) };
        if slot & MARKS == NUMBER { slot } else { slot & !MARKS }
    }

    /// Returns what tells the objects that the first `count` local variables of a frame name from those that they named
    /// before; 0 where the layout of frames is not known. A frame of a module has none, but a dict.
    pub fn locals(&self, seen: &Seen, count: u16) -> u64 {
        if count == 0 {
            return self.version_of_names(seen);
        }
        let all = (0..count.min(MOST_LOCALS)).map(|variable| self.variable(seen, variable));
        spread(all)
    }

    /// The same, also where the next object was given the memory of the one before. Only of frames that go on: one that ends
    /// gives back what its variables name, one by one.
    pub fn locals_closely(&self, seen: &Seen, count: u16) -> u64 {
        let all = (0..count.min(MOST_LOCALS)).map(|variable| self.variable(seen, variable));
        spread(all.map(|object| self.told_apart(object)))
    }

    /// Returns another number each time that the module whose frame this is has assigned to a name: up to CPython 3.12 a dict has
    /// a version. 0: it is not known.
    fn version_of_names(&self, seen: &Seen) -> u64 {
        let layout = &self.cpython.layout;
        let known = frame_names(self.cpython.minor).filter(|_| layout.frame_variables.is_some());
        let Some(names) = known else { return 0 };
        // SAFETY: a frame of the calling thread, in a read section, of a known layout; what it refers to is alive. A dict has its
        // version behind its size.
        unsafe {
            let dict: u64 = read(ptr::with_exposed_provenance(seen.frame), names);
            match dict != 0 && read::<usize>(address(dict), layout.object_type()) == self.cpython.dict_type {
                true => read(address(dict), layout.head + DICT_VERSION),
                false => 0,
            }
        }
    }

    /// Returns what tells an object that a local variable names from what it named before, which may have been in the same
    /// memory: of an `int` its lowest digit, of a cell which object is in it.
    fn told_apart(&self, object: u64) -> u64 {
        let (layout, [int, cell]) = (&self.cpython.layout, self.cpython.common_types);
        if object == 0 || object & MARKS != 0 {
            return object;
        }
        // SAFETY: an object that a frame of the calling thread refers to, which goes on, so that it stays, in a read section.
        // An `int` has its digits behind its size; what a cell refers to is another thread's to change, and not looked at.
        unsafe {
            match read::<usize>(address(object), layout.object_type()) {
                of if of == int => u64::from(read::<u32>(address(object), layout.head + 8)) | COUNTED,
                of if of == cell => read(address(object), layout.head),
                _ => object,
            }
        }
    }

    /// Returns how far the iterator has come that a `for` loop goes over, of a frame: the one behind `depth` others from the
    /// slot `stack` on: another number for each item, with [`COUNTED`]; or what tells a generator's items apart; 0 where
    /// neither is known.
    pub fn iterator(&self, seen: &Seen, stack: u16, depth: u16) -> u64 {
        match self.iterated(seen, stack, depth) {
            Iterated::Index(index) => index | COUNTED,
            Iterated::Object(object, true) => self.word_of_iterator(object, 0) | COUNTED,
            Iterated::Object(object, false) => self.generator(object) & !COUNTED,
            Iterated::Nothing => 0,
        }
    }

    /// Returns whether that number is less for each item: of a range with a negative step, and of what goes backwards.
    pub fn goes_down(&self, seen: &Seen, stack: u16, depth: u16) -> bool {
        let Iterated::Object(object, true) = self.iterated(seen, stack, depth) else { return false };
        let [range, .., reversed] = self.cpython.counting_types;
        // SAFETY: an iterator on the stack of a frame of the calling thread, in a read section.
        match unsafe { read::<usize>(address(object), self.cpython.layout.object_type()) } {
            of if of == range && self.cpython.minor >= RANGES_BEGIN_WITH_ITEMS => {
                (self.word_of_iterator(object, 1) as i64) < 0
            }
            of => of == reversed,
        }
    }

    /// Returns a word of an iterator that counts: what it begins with, or of a range also the step behind it.
    #[inline(always)]
    fn word_of_iterator(&self, object: u64, n: usize) -> u64 {
        // SAFETY: one of the types that count, found on the stack of a frame of the calling thread, in a read section: it has
        // these words behind what every object has.
        unsafe { read(address(object), self.cpython.layout.head + 8 * n) }
    }

    #[inline(always)]
    fn iterated(&self, seen: &Seen, stack: u16, mut depth: u16) -> Iterated {
        let layout = &self.cpython.layout;
        let Some(variables) = layout.frame_variables else { return Iterated::Nothing };
        let slot = |slot: usize| -> u64 {
            let at = variables + size_of::<u64>() * slot;
            // SAFETY: a frame of the calling thread, in a read section. Its loops' iterators lie on its stack, which
            // begins behind its variables, in the order of the loops. What lies among them was put there and is alive,
            // and no slot behind the one that is looked for, and what belongs to it, is read.
            unsafe { read(ptr::with_exposed_provenance(seen.frame), at) }
        };
        // SAFETY: an object of such a slot.
        let type_of = |object: u64| -> usize { unsafe { read(address(object), layout.object_type()) } };
        let counts = |object: u64| self.cpython.counting_types.contains(&type_of(object));
        // SAFETY: the type of such an object.
        let is_iterator = |object: u64| unsafe {
            read::<usize>(ptr::with_exposed_provenance(type_of(object)), layout.of_type(TYPE_ITERNEXT)) != 0
        };
        if self.cpython.minor >= VIRTUAL_ITERATORS {
            let at = usize::from(stack) + 2 * usize::from(depth);
            return match slot(at + 1) {
                index if index & NUMBER == NUMBER => Iterated::Index(index),
                none if none & !MARKS == 0 && slot(at) & !MARKS != 0 => {
                    Iterated::Object(slot(at), counts(slot(at)))
                }
                _ => Iterated::Nothing,
            };
        }
        for at in (usize::from(stack)..).take(MOST_SLOTS) {
            let object = slot(at);
            if object & NUMBER == NUMBER || object & !MARKS == 0 {
                return Iterated::Nothing;
            }
            // Those that count are iterators, and need not be looked up.
            let counts = counts(object);
            match (counts || is_iterator(object), depth) {
                (false, _) => {}
                (true, 0) => return Iterated::Object(object, counts),
                (true, _) => depth -= 1,
            }
        }
        Iterated::Nothing
    }

    /// Returns what tells the objects that the variables of a generator name, which a frame's loop goes over, from those that
    /// they named before; 0 where it is none, or the layout is not known.
    #[inline(never)]
    fn generator(&self, object: u64) -> u64 {
        let layout = &self.cpython.layout;
        // SAFETY: an iterator that a frame of the calling thread refers to, in a read section.
        if unsafe { read::<usize>(address(object), layout.object_type()) } != self.cpython.generator_type {
            return 0;
        }
        let inside = layout.frame_variables.and(layout.objects).and_then(|objects| objects.generator_frame);
        let Some(frame) = inside.map(|at| address(object).wrapping_add(at)) else { return 0 };
        // SAFETY: as before: it is a generator. Its own frame lies in it, with its code, as long as it has not ended; else with
        // none, or another object.
        let code = unsafe { read::<u64>(frame, layout.frame_code) } & !MARKS;
        // SAFETY: as before: an object, if it is there.
        let is_code =
            |code| unsafe { read::<usize>(address(code), layout.object_type()) } == self.cpython.code_type;
        if code == 0 || !is_code(code) {
            return 0;
        }
        let seen = Seen { frame: frame.addr(), code: code as usize, ..Seen::default() };
        // SAFETY: code of a generator that is there, and a frame that has slots for its variables.
        unsafe { self.variables(address(code)) }.map_or(0, |count| self.locals(&seen, count))
    }

    /// Returns how many slots for variables a frame of some code has, if its sizes agree; before 3.11 that is not looked at.
    ///
    /// # Safety
    /// As in [`Reader::text`].
    unsafe fn variables(&self, code: *const u8) -> Option<u16> {
        let layout = &self.cpython.layout;
        // SAFETY: the caller's word: the sizes lie behind the first line, that of the stack before it.
        let size = |n: usize| unsafe { read::<u32>(code, layout.code_first_line + 4 * n - 4) as usize };
        let agree = match self.cpython.minor {
            ..11 => false,
            // All are locals, cells that are none of these, and free variables.
            11 => [3, 4, 6].map(size).iter().sum::<usize>() == size(2),
            // A frame has these, its stack, and what comes before both.
            _ => Some(size(3)) == layout.frame_variables.map(|fixed| fixed / 8 + size(2) + size(0)),
        };
        agree.then(|| u16::try_from(size(2)).ok()).flatten()
    }

    /// Returns what a frame's code object says of itself. Only of one that has an id.
    pub fn text(&self, seen: &Seen) -> CodeText {
        let (cpython, layout, code) = (self.cpython, &self.cpython.layout, self.code(seen));
        // SAFETY: a code object (it has an id), held by a frame of the calling thread, in a read section. Its
        // strings and tables are immutable and live as long as it does. The instructions of 3.11 and later,
        // as many units behind its fixed part as its size says, are rewritten while they run: each is read whole,
        // by itself.
        unsafe {
            let exceptions = layout.code_exceptions.map_or(ptr::null(), |at| read::<*const u8>(code, at));
            let bytes = match layout.code_bytes {
                Some(at) => strings::bytes(layout, read(code, at), LONGEST_CODE).to_vec(),
                None => {
                    let units = read::<usize>(code, layout.size()).min(LONGEST_CODE / 2);
                    let first = code.add(layout.code_size).cast::<u16>();
                    (0..units).flat_map(|unit| first.add(unit).read_volatile().to_ne_bytes()).collect()
                }
            };
            let file = strings::text(layout, read(code, layout.code_file));
            CodeText {
                minor: cpython.minor,
                library: !packages::ownership().is_own_file(&file),
                file,
                name: strings::text(layout, read(code, layout.code_name)),
                flags: read(code, layout.code_flags),
                variables: self.variables(code),
                bytes,
                exceptions: strings::bytes(layout, exceptions, LONGEST_CODE).to_vec(),
                id: 0,
            }
        }
    }
}
