//! Objects and their types, read as they lie in memory. Knows what kinds of objects there are, not who holds
//! whom.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;

use crate::python::api::{Inquiry, Object, Traverse, Types, Visit};
use crate::python::heap::natives::containers::CONTAINERS;
use crate::python::heap::natives::{HANDLES, RECORDS};
use crate::python::memory::word;
use crate::python::offsets::*;
use leaktrace_core::holders::Node;
use leaktrace_core::int_map::IntMap;

/// What an object is to the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Module,
    Type,
    Dict,
    List,
    Tuple,
    Set,
    Deque,
    /// An array of NumPy's.
    Array,
    /// What `functools.lru_cache` makes of a function.
    Lru,
    Function,
    Method,
    Cell,
    Frame,
    Generator,
    Traceback,
    Exception,
    /// An instance of the tensor classes whose C++ objects are parts of a graph.
    Tensor,
    /// The context of an autograd function written in Python.
    Context,
    /// An instance of a framework's class of arrays: a row of [`HANDLES`].
    Handle(usize),
    /// What an allocator knows its blocks by: one of [`RECORDS`].
    Record,
    /// What keeps objects in memory that the collector does not see: one of [`CONTAINERS`].
    Container,
    Other,
}

impl Kind {
    pub fn is_collection(self) -> bool {
        matches!(self, Kind::Dict | Kind::List | Kind::Tuple | Kind::Set | Kind::Deque | Kind::Lru)
    }
}

/// Whether objects that the collector does not know, since they hold none, may be the address of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address {
    Never,
    /// A number.
    Number,
    /// In one of the words of a fixed part that some extension has defined, as CUDA's own bindings do.
    Word,
}

/// What is known of a type.
#[derive(Clone, Copy)]
pub struct Info {
    pub kind: Kind,
    pub address: Address,
    pub flags: u64,
    traverse: Option<Traverse>,
    is_gc: Option<Inquiry>,
    /// Words of an instance's fixed part; 2 of one whose size varies.
    pub words: usize,
    pub is_graph_node: bool,
    pub is_thread_local: bool,
    /// Bytes of an instance's fixed part, whatever follows it.
    pub size: usize,
}

/// Slots of the cache of types. A power of two.
const RECENT: usize = 1024;

/// What is known of all types met so far.
pub struct TypeTable {
    known: IntMap<u64, Info>,
    /// A direct-mapped cache, by the types' addresses.
    recent: Vec<(u64, Info)>,
    builtin: Types,
}

/// Returns the words `from..to` of an object.
pub fn words(object: Node, from: usize, to: usize) -> Vec<u64> {
    // SAFETY: called for words within the fixed part of a living object.
    (from..to).map(|i| unsafe { word(object, i * 8) }).collect()
}

/// Returns a word of an object, if its fixed part goes so far.
pub fn word_of(object: Node, at: usize, info: &Info) -> Option<u64> {
    // SAFETY: within the fixed part of a living object.
    (at + 8 <= info.size).then(|| unsafe { word(object, at) })
}

/// Copies a C string of the interpreter's.
///
/// # Safety
/// `address` is null, or that of a living C string.
pub unsafe fn c_text(address: u64) -> String {
    if address == 0 {
        return String::new();
    }
    // SAFETY: the caller's word.
    unsafe { CStr::from_ptr(ptr::with_exposed_provenance(address as usize)) }.to_string_lossy().into_owned()
}

impl TypeTable {
    pub fn new(builtin: Types) -> TypeTable {
        let none = Info {
            kind: Kind::Other,
            address: Address::Never,
            flags: 0,
            traverse: None,
            is_gc: None,
            words: 0,
            is_graph_node: false,
            is_thread_local: false,
            size: 0,
        };
        TypeTable { known: IntMap::default(), recent: vec![(0, none); RECENT], builtin }
    }

    /// Returns the type of an object, if its instances may hold others.
    #[inline]
    pub fn of(&mut self, object: Node) -> Option<Info> {
        Some(self.info(object)).filter(|info| info.traverse.is_some())
    }

    /// Returns the type of an object.
    pub fn info(&mut self, object: Node) -> Info {
        // SAFETY: an object that is alive under the GIL; every object has a type.
        let of = unsafe { word(object, OB_TYPE) };
        let slot = (of >> 4 ^ of >> 14) as usize % RECENT;
        if let Some((known, info)) = self.recent.get(slot)
            && *known == of
        {
            return *info;
        }
        let info = match self.known.get(&of) {
            Some(&info) => info,
            None => {
                let info = self.learn(of);
                self.known.insert(of, info);
                info
            }
        };
        self.recent[slot] = (of, info);
        info
    }

    /// True if the collector would visit this object, or it keeps what the collector does not see.
    pub fn may_hold(&mut self, object: Node) -> bool {
        match self.info(object) {
            Info { traverse: None, kind, .. } => kind == Kind::Container,
            Info { kind: Kind::Module, .. } => false,
            // SAFETY: the type's own answer for its object, as the collector asks it.
            Info { is_gc: Some(ask), .. } => unsafe {
                ask(ptr::with_exposed_provenance_mut(object as usize)) != 0
            },
            _ => true,
        }
    }

    /// Finds what the collector would find in an object.
    pub fn traverse(&self, object: Node, info: &Info, found: &mut Vec<Node>) {
        unsafe extern "C" fn visit(object: Object, found: *mut c_void) -> c_int {
            // SAFETY: the vector that was handed to `traverse`, by this very call alone.
            unsafe { (*found.cast::<Vec<Node>>()).push(object.expose_provenance() as u64) };
            0
        }
        if let Some(traverse) = info.traverse {
            // SAFETY: the type's own function for an object of it, with the GIL held, as the collector calls
            // it at any time.
            unsafe {
                traverse(
                    ptr::with_exposed_provenance_mut(object as usize),
                    visit,
                    ptr::from_mut(found).cast(),
                );
            }
        }
    }

    /// Returns a number that objects of one type share.
    pub fn number(&self, object: Node) -> u64 {
        // SAFETY: a living object.
        unsafe { word(object, OB_TYPE) }
    }

    /// Returns the name of an object's type, without its module.
    pub fn name(&self, object: Node) -> String {
        // SAFETY: a living object, its type, and that one's name.
        let name = unsafe { c_text(word(word(object, OB_TYPE), TYPE_NAME)) };
        let last = name.rsplit('.').next().unwrap_or(&name);
        match last {
            "method" => "bound method".to_owned(),
            other => other.to_owned(),
        }
    }

    /// Reads a type.
    fn learn(&self, of: u64) -> Info {
        // SAFETY: a type object, alive because its instance is; these fields never moved.
        let (flags, traverse, is_gc, size, item) = unsafe {
            (
                word(of, TYPE_FLAGS),
                word(of, TYPE_TRAVERSE),
                word(of, TYPE_IS_GC),
                word(of, TYPE_BASICSIZE),
                word(of, TYPE_ITEMSIZE),
            )
        };
        let collected = flags & FLAG_HAVE_GC != 0 && traverse != 0;
        let bases = bases(of);
        let is = |name: &CStr| bases.contains(&self.builtin.address(name));
        // SAFETY: living types, and their names.
        let names: Vec<String> = bases.iter().map(|&b| unsafe { c_text(word(b, TYPE_NAME)) }).collect();
        let named = |name: &str| names.iter().any(|n| n.rsplit('.').next() == Some(name));
        let kind = if is(c"PyModule_Type") {
            Kind::Module
        } else if flags & FLAG_TYPE != 0 {
            Kind::Type
        } else if flags & FLAG_DICT != 0 {
            Kind::Dict
        } else if flags & FLAG_LIST != 0 {
            Kind::List
        } else if flags & FLAG_TUPLE != 0 {
            Kind::Tuple
        } else if flags & FLAG_EXCEPTION != 0 {
            Kind::Exception
        } else if is(c"PySet_Type") || is(c"PyFrozenSet_Type") {
            Kind::Set
        } else if is(c"PyFunction_Type") {
            Kind::Function
        } else if is(c"PyMethod_Type") {
            Kind::Method
        } else if is(c"PyCell_Type") {
            Kind::Cell
        } else if is(c"PyFrame_Type") {
            Kind::Frame
        } else if is(c"PyGen_Type") || is(c"PyCoro_Type") || named("async_generator") {
            Kind::Generator
        } else if is(c"PyTraceBack_Type") {
            Kind::Traceback
        } else if named("deque") {
            Kind::Deque
        } else if named("_lru_cache_wrapper") {
            Kind::Lru
        } else if named("TensorBase") || named("_TensorBase") {
            Kind::Tensor
        } else if named("_FunctionBase") {
            Kind::Context
        } else if names.iter().any(|name| RECORDS.contains(&name.as_str())) {
            Kind::Record
        } else if names.iter().any(|name| CONTAINERS.contains(&name.as_str())) {
            Kind::Container
        } else {
            let row = HANDLES.iter().position(|of| named(of.name));
            row.map_or(Kind::Other, Kind::Handle)
        };
        let first = names.first().map_or("", String::as_str);
        let is_graph_node = kind == Kind::Other
            && bases.len() <= 2
            && (first == "AccumulateGrad"
                || first.trim_end_matches(|c: char| c.is_ascii_digit()).ends_with("Backward"));
        // SAFETY: slots of a type: functions of these signatures, or none.
        let (traverse, is_gc) = unsafe {
            (
                std::mem::transmute::<usize, Option<Traverse>>(if collected { traverse as usize } else { 0 }),
                std::mem::transmute::<usize, Option<Inquiry>>(is_gc as usize),
            )
        };
        // The collector does not know NumPy's arrays.
        let is_numpys = size as usize > ARRAY_TYPE && names.iter().any(|name| name == "numpy.ndarray");
        let (traverse, is_gc) =
            if is_numpys { (Some(visit_array as Traverse), None) } else { (traverse, is_gc) };
        let kind = if is_numpys { Kind::Array } else { kind };
        let words = if item == 0 && size < 1 << 16 { size as usize / 8 } else { 2 };
        let address = match traverse {
            None if flags & FLAG_LONG != 0 => Address::Number,
            None if item == 0 && (3..=LARGEST_OF_ONE_ADDRESS).contains(&words) && first.contains('.') => {
                Address::Word
            }
            _ => Address::Never,
        };
        let is_thread_local = kind == Kind::Other && named("_local");
        Info {
            kind,
            address,
            flags,
            traverse,
            is_gc,
            words,
            is_graph_node,
            is_thread_local,
            size: size as usize,
        }
    }
}

/// The most words of an object that is looked through for an address, and holds no other object.
const LARGEST_OF_ONE_ADDRESS: usize = 32;

/// Returns the value of a number, if it is so large as an address is: has two digits of 30 bits each.
pub fn address(number: Node, minor: u32) -> Option<u64> {
    // The number of digits, and from 3.12 on behind it three bits, none of which is set for one that is positive.
    let wanted = if minor < 12 { 2 } else { 2 << 3 };
    // SAFETY: a living number; the digits are read where there are two.
    let digits = unsafe { (word(number, INT_DIGITS - 8) == wanted).then(|| word(number, INT_DIGITS)) }?;
    Some(digits & 0xffff_ffff | digits >> 32 << 30)
}

/// Returns the value of a number that is not negative and has one digit at most, as its size says.
pub fn small_number(number: Node, minor: u32) -> Option<u64> {
    // SAFETY: a living number: its size, and its first digit, which even 0 has room for.
    let (size, digit) = unsafe { (word(number, INT_DIGITS - 8), word(number, INT_DIGITS) & 0x3fff_ffff) };
    match (size, minor) {
        // Two bits say whether it is 0 or negative, a third one that it lives for ever.
        (tag, 12..) if tag >> 3 == 1 && tag & 3 == 0 => Some(digit),
        (tag, 12..) if tag & 3 == 1 => Some(0),
        (1, ..12) => Some(digit),
        (0, ..12) => Some(0),
        _ => None,
    }
}

/// Where an array of NumPy's has its elements, the number of its dimensions, these, the owner of its memory, its type and
/// its flags, in every version (`PyArrayObject_fields`).
const ARRAY_DATA: usize = 16;
const ARRAY_RANK: usize = 24;
const ARRAY_DIMENSIONS: usize = 32;
const ARRAY_BASE: usize = 48;
const ARRAY_TYPE: usize = 56;
const ARRAY_FLAGS: usize = 64;
/// Either order of the elements without gaps.
const CONTIGUOUS: u64 = 1 | 2;
/// Where such a type has its kind, and that of elements which are objects.
const TYPE_KIND: usize = 24;
const OBJECTS: u8 = b'O';
const MOST_DIMENSIONS: u64 = 64;
/// The most elements that are looked at.
const MOST_ELEMENTS: u64 = 1 << 20;

/// Returns whether what an array of NumPy's holds is one of its elements, and not the owner of its memory.
pub fn is_element(array: Node, held: Node) -> bool {
    // SAFETY: a word of a living array.
    unsafe { word(array, ARRAY_BASE) != held }
}

/// Returns the objects that are an array's elements, 0 where there is none; `None` if it has others, or the memory of
/// another array.
pub fn elements(array: Node) -> Option<impl Iterator<Item = Node>> {
    let at = |address: u64, offset: usize| {
        // SAFETY: words of an array of NumPy's, or of what it has, alive under the GIL.
        unsafe { word(address, offset) }
    };
    let has_objects = at(at(array, ARRAY_TYPE), TYPE_KIND).to_le_bytes()[0] == OBJECTS;
    let rank = at(array, ARRAY_RANK) & 0xffff_ffff;
    let contiguous = at(array, ARRAY_FLAGS) & CONTIGUOUS != 0;
    if at(array, ARRAY_BASE) != 0 || !has_objects || !contiguous || rank > MOST_DIMENSIONS {
        return None;
    }
    let (data, dimensions) = (at(array, ARRAY_DATA), at(array, ARRAY_DIMENSIONS));
    let elements = (0..rank as usize).fold(1u64, |all, i| all.saturating_mul(at(dimensions, 8 * i)));
    Some((0..elements.min(MOST_ELEMENTS) as usize).map(move |i| at(data, 8 * i)))
}

/// What a `tp_traverse` of NumPy's arrays would do: an array holds the owner of its memory, if that is another object, else
/// the objects that are its elements.
unsafe extern "C" fn visit_array(array: Object, visit: Visit, argument: *mut c_void) -> c_int {
    let array = array.expose_provenance() as u64;
    let held = |object: u64| match object {
        0 => 0,
        // SAFETY: the function and the argument belong together, and what an array holds is alive.
        object => unsafe { visit(ptr::with_exposed_provenance_mut(object as usize), argument) },
    };
    // SAFETY: a word of a living array.
    let base = unsafe { word(array, ARRAY_BASE) };
    if base != 0 {
        return held(base);
    }
    elements(array).into_iter().flatten().map(held).find(|&status| status != 0).unwrap_or(0)
}

/// Returns a type and its bases, along the chain that decides the layout of instances.
pub fn bases(of: u64) -> Vec<u64> {
    let mut all = vec![of];
    while let Some(&last) = all.last().filter(|_| all.len() < 64) {
        // SAFETY: a type object that is alive; so is its base.
        match unsafe { word(last, TYPE_BASE) } {
            0 => break,
            base => all.push(base),
        }
    }
    all
}
