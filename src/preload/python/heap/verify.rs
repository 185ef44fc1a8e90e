//! Whether objects lie as the layout says, before a search follows what is read there: the frames of all
//! threads, functions, classes and a list, read by the kernel, where a wrong address is an error and no crash.
//! Once for a process. Looks, and changes nothing.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::coverage_gaps;
use crate::python::api::ObjectApi;
use crate::python::interpreter::{Cpython, Interpreter};
use crate::python::layout::{MARKS, NUMBER, Names, ObjectLayout};
use crate::python::memory::{Unmapped, checked_word};
use crate::python::offsets::*;
use crate::python::thread_frames;

/// What is looked at, at most.
const MAX_FRAMES: usize = 64;
const MAX_SLOTS: usize = 64;
const MAX_OBJECTS: usize = 512;

/// An unexpected layout, by the name of what has it.
type Unexpected = &'static str;

static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const KNOWN: u8 = 1;
/// All but the attributes that instances keep without a dict.
const WITHOUT_ATTRIBUTES: u8 = 2;
const UNEXPECTED: u8 = 3;

/// Returns the layout of objects, less what was found to be otherwise; `None` if nothing can be relied on. With
/// the GIL held, where the kernel may be asked.
pub fn layout(python: &Interpreter, cpython: &Cpython) -> Option<ObjectLayout> {
    let (Some(layout), Some(api)) = (cpython.layout.objects, &python.api.objects) else {
        report(cpython, "objects", NOT_SEARCHED);
        return None;
    };
    if STATE.load(Ordering::Relaxed) == UNKNOWN {
        STATE.store(look(python, cpython, &layout, api), Ordering::Relaxed);
    }
    match STATE.load(Ordering::Relaxed) {
        KNOWN => Some(layout),
        WITHOUT_ATTRIBUTES => Some(ObjectLayout { shared_keys: None, ..layout }),
        _ => None,
    }
}

/// Looks at a sample; what is not as expected is a coverage gap.
fn look(python: &Interpreter, cpython: &Cpython, layout: &ObjectLayout, api: &ObjectApi) -> u8 {
    match (Sample { python, cpython, layout, api }.check()) {
        Ok(true) => KNOWN,
        Ok(false) => {
            report(cpython, "classes", "attributes that no dict holds have no name in what holds memory");
            WITHOUT_ATTRIBUTES
        }
        Err(what) => {
            report(cpython, what, NOT_SEARCHED);
            UNEXPECTED
        }
    }
}

const NOT_SEARCHED: &str = "holders are not searched for";

fn report(cpython: &Cpython, what: &str, lost: &str) {
    coverage_gaps::report(&format!("{}: unexpected layout of {what}; {lost}", cpython.name()));
}

struct Sample<'a> {
    python: &'a Interpreter,
    cpython: &'a Cpython,
    layout: &'a ObjectLayout,
    api: &'a ObjectApi,
}

/// Reads a word where there may be none.
fn word(address: usize) -> Result<usize, Unmapped> {
    // SAFETY: the kernel is asked: where that is forbidden, nothing is searched.
    unsafe { checked_word(address) }
}

fn type_of(object: usize) -> Result<usize, Unmapped> {
    word(object + OB_TYPE)
}

fn flags_of(object: usize) -> Result<u64, Unmapped> {
    Ok(word(type_of(object)? + TYPE_FLAGS)? as u64)
}

/// Returns whether a word is an object: its type has a type, which is a class.
fn is_object(address: usize) -> Result<bool, Unmapped> {
    Ok(flags_of(type_of(address)?)? & FLAG_TYPE != 0)
}

impl Sample<'_> {
    /// Returns whether attributes that instances keep without a dict can be named.
    fn check(&self) -> Result<bool, Unexpected> {
        let unexpected = |what| move |Unmapped| what;
        let holds = |right: bool, what| if right { Ok(()) } else { Err(what) };
        holds(self.sizes().map_err(unexpected("types"))?, "types")?;
        holds(self.frames().map_err(unexpected("frames"))?, "frames")?;
        let (mut functions, mut classes) = (Vec::new(), Vec::new());
        holds(self.modules(&mut functions, &mut classes).map_err(unexpected("modules"))?, "modules")?;
        let all = |list: &[usize], is: &dyn Fn(usize) -> Result<bool, Unmapped>| {
            list.iter().try_fold(true, |all, &object| Ok(all && is(object)?))
        };
        let right = all(&functions, &|f| self.is_function(f)).map_err(unexpected("functions"))?;
        holds(right, "functions")?;
        // A class leads to no more than names.
        Ok(self.have_keys(&classes).unwrap_or(false))
    }

    /// The sizes of instances say where what follows begins.
    fn sizes(&self) -> Result<bool, Unmapped> {
        let Some(variables) = self.cpython.layout.frame_variables else { return Ok(false) };
        let size = |name| word(self.api.types.address(name) as usize + TYPE_BASICSIZE);
        Ok(match self.layout.generator_frame {
            Some(frame) => size(c"PyGen_Type")? == frame + variables,
            None => size(c"PyFrame_Type")? == variables + 8,
        })
    }

    fn is_str(&self, object: usize) -> Result<bool, Unmapped> {
        Ok(type_of(object)? == self.cpython.str_type)
    }

    /// Returns how many names a tuple has; `None` if it is none, or has others than names.
    fn names(&self, tuple: usize) -> Result<Option<usize>, Unmapped> {
        let of = type_of(tuple)?;
        let is = word(of + TYPE_FLAGS)? as u64 & FLAG_TUPLE != 0
            && word(of + TYPE_BASICSIZE)? == self.layout.tuple_items;
        let length = word(tuple + VAR_SIZE)?;
        for i in 0..length.min(MAX_SLOTS) {
            if !is || !self.is_str(word(tuple + self.layout.tuple_items + 8 * i)?)? {
                return Ok(None);
            }
        }
        Ok(is.then_some(length))
    }

    fn frames(&self) -> Result<bool, Unmapped> {
        let Some(variables) = self.cpython.layout.frame_variables else { return Ok(false) };
        let threads = thread_frames::threads(self.python).into_iter();
        // SAFETY: the states of living threads, and the GIL is held.
        let frames = threads.flat_map(|thread| unsafe { self.cpython.frames(thread) });
        for frame in frames.take(MAX_FRAMES) {
            let code = frame.code as usize;
            let tuples = match self.layout.names {
                Names::One { names, .. } => vec![names],
                Names::Three { variables, cells, free } => vec![variables, cells, free],
            };
            let mut length = 0;
            for at in tuples {
                match self.names(word(code + at)?)? {
                    Some(names) => length += names,
                    None => return Ok(false),
                }
            }
            let arguments = word(code + self.layout.code_argcount)? as u32 as usize;
            let first = frame.address as usize + variables;
            for i in 0..length.min(MAX_SLOTS) {
                let slot = word(first + 8 * i)?;
                let (value, marks) = (slot & !(MARKS as usize), slot & MARKS as usize);
                if marks != NUMBER as usize && value != 0 && !is_object(value)? {
                    return Ok(false);
                }
            }
            if arguments > length {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Finds functions and classes of modules. Returns false if a module or a list is not what it should be.
    fn modules(&self, functions: &mut Vec<usize>, classes: &mut Vec<usize>) -> Result<bool, Unmapped> {
        // SAFETY: with the GIL; the reference is borrowed.
        let all = unsafe { (self.python.api.functions.PyImport_GetModuleDict)() };
        let (module, function) =
            (self.api.types.address(c"PyModule_Type"), self.api.types.address(c"PyFunction_Type"));
        for (_, object) in self.items(all.expose_provenance()) {
            if functions.len() + classes.len() >= MAX_OBJECTS || type_of(object)? != module as usize {
                continue;
            }
            let dict = word(object + MODULE_DICT)?;
            if dict != 0 && flags_of(dict)? & FLAG_DICT == 0 {
                return Ok(false);
            }
            let items = if dict == 0 { Vec::new() } else { self.items(dict) };
            for (_, value) in items.into_iter().take(MAX_OBJECTS / 8) {
                let flags = flags_of(value)?;
                if type_of(value)? == function as usize {
                    functions.push(value);
                } else if flags & FLAG_TYPE != 0 {
                    classes.push(value);
                } else if flags & FLAG_LIST != 0 && !is_list(value)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Returns the keys and values of a dict.
    fn items(&self, dict: usize) -> Vec<(usize, usize)> {
        let (mut items, mut at) = (Vec::new(), 0isize);
        let (mut key, mut value) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: a living dict that nobody changes while the GIL is held; the references are borrowed.
        unsafe {
            let dict = std::ptr::with_exposed_provenance_mut(dict);
            while (self.api.functions.PyDict_Next)(dict, &mut at, &mut key, &mut value) != 0 {
                items.push((key.expose_provenance(), value.expose_provenance()));
            }
        }
        items
    }

    fn is_function(&self, function: usize) -> Result<bool, Unmapped> {
        let layout = self.layout;
        let is_null_or = |at: usize, flag: u64| -> Result<bool, Unmapped> {
            let part = word(function + at)?;
            Ok(part == 0 || flags_of(part)? & flag != 0)
        };
        Ok(type_of(word(function + layout.function_code)?)? == self.cpython.code_type
            && is_null_or(layout.function_closure, FLAG_TUPLE)?
            && is_null_or(layout.function_defaults, FLAG_TUPLE)?
            && is_null_or(layout.function_kwdefaults, FLAG_DICT)?)
    }

    /// Returns whether the names that instances share are names, of the classes that have any.
    fn have_keys(&self, classes: &[usize]) -> Result<bool, Unmapped> {
        let Some(at) = self.layout.shared_keys else { return Ok(true) };
        let (mut found, mut expected) = (false, false);
        for &class in classes {
            let flags = word(class + TYPE_FLAGS)? as u64;
            if flags & FLAG_HEAP_TYPE == 0 || flags & FLAG_MANAGED_DICT == 0 {
                continue;
            }
            expected = true;
            match word(class + at)? {
                0 => {}
                keys if self.is_keys(keys)? => found = true,
                _ => return Ok(false),
            }
        }
        Ok(found || !expected)
    }

    fn is_keys(&self, keys: usize) -> Result<bool, Unmapped> {
        let head = word(keys + 8)?.to_le_bytes();
        let (kind, index) = (head[KEYS_KIND - 8], head[KEYS_LOG2_INDEX_BYTES - 8]);
        let count = word(keys + KEYS_ENTRIES)?;
        if kind != SPLIT || index > 20 || count > 1 << 20 {
            return Ok(false);
        }
        let entries = keys + KEYS_INDICES + (1 << index);
        (0..count.min(MAX_SLOTS)).try_fold(true, |all, i| {
            let name = word(entries + 16 * i)?;
            Ok(all && (name == 0 || self.is_str(name)?))
        })
    }
}

/// Returns whether the items of a list are objects.
fn is_list(list: usize) -> Result<bool, Unmapped> {
    let (length, items) = (word(list + VAR_SIZE)?, word(list + LIST_ITEMS)?);
    let right = length <= word(list + LIST_ALLOCATED)?;
    (0..length.min(8)).try_fold(right, |all, i| Ok(all && is_object(word(items + 8 * i)?)?))
}
