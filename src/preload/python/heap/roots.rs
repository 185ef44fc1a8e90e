//! The roots of the search: the variables of modules and of the functions that are running, in every thread.
//!
//! The program's own come first (its main module and functions, then its other modules); those of packages
//! and the standard library come last, for what nothing else holds.

use std::ffi::CStr;
use std::ptr;

use crate::python::heap::Heap;
use crate::python::heap::objects::{Info, Kind};
use crate::python::layout::{MARKS, NUMBER, Names};
use crate::python::memory::word;
use crate::python::offsets::{FLAG_HEAP_TYPE, MODULE_DICT, OB_TYPE, VAR_SIZE};
use crate::python::packages;
use crate::python::thread_frames;
use leaktrace_core::holders::{GcRoot, Node, Root};

/// The functions of an uncaught exception that are looked at.
const MAX_FRAMES: usize = 200;

fn is_own_file(file: &str) -> bool {
    packages::ownership().is_own_file(file)
}

/// A module in `sys.modules`.
struct Module {
    name: String,
    dict: Node,
}

impl Heap<'_> {
    pub fn roots_of(&mut self, rank: usize) -> Option<Vec<Root>> {
        let mut roots = Vec::new();
        match rank {
            0 => {
                self.globals(|name, _| name == "__main__", &mut roots);
                self.locals(true, &mut roots);
                self.uncaught(&mut roots);
            }
            1 => self.globals(|name, file| name != "__main__" && file.is_some_and(is_own_file), &mut roots),
            2 => {
                self.globals(|name, file| name != "__main__" && !file.is_some_and(is_own_file), &mut roots);
                self.locals(false, &mut roots);
            }
            _ => return None,
        }
        Some(roots)
    }

    /// Returns the program's own roots: variables of modules, then of each thread's outermost functions, then of those that
    /// these have called, and so on.
    pub fn roots_in_layers(&mut self) -> Vec<Vec<Root>> {
        let mut layers = vec![Vec::new()];
        self.globals(|name, file| name == "__main__" || file.is_some_and(is_own_file), &mut layers[0]);
        for thread in thread_frames::threads(self.python) {
            // SAFETY: the state of a living thread, and the GIL is held.
            let frames = unsafe { self.cpython.frames(thread) };
            let mut depth = 1;
            for frame in frames.into_iter().rev() {
                let mut roots = Vec::new();
                self.locals_of(frame.address, frame.code, true, &mut roots);
                // A module has no variables of this kind.
                if !roots.is_empty() {
                    layers.resize_with(layers.len().max(depth + 1), Vec::new);
                    layers[depth].append(&mut roots);
                    depth += 1;
                }
            }
        }
        layers
    }

    /// Returns (key, value) of all items of a dict; none of 0, which stands where there is no dict: from 3.12 on those of the
    /// interpreter's own classes lie elsewhere.
    pub fn items(&self, dict: Node) -> Vec<(Node, Node)> {
        let mut items = Vec::new();
        if dict == 0 {
            return items;
        }
        let (mut at, mut key, mut value) = (0isize, ptr::null_mut(), ptr::null_mut());
        // SAFETY: a living dict that nobody changes meanwhile; the references are borrowed, and used under
        // the GIL only.
        unsafe {
            let dict = ptr::with_exposed_provenance_mut(dict as usize);
            while (self.api.functions.PyDict_Next)(dict, &mut at, &mut key, &mut value) != 0 {
                items.push((key.expose_provenance() as u64, value.expose_provenance() as u64));
            }
        }
        items
    }

    fn modules(&mut self) -> Vec<Module> {
        // SAFETY: with the GIL; a borrowed reference to a dict that lives as long as the interpreter.
        let dict = unsafe { (self.functions.PyImport_GetModuleDict)() }.expose_provenance() as u64;
        let mut modules: Vec<Module> = Vec::new();
        for (name, module) in self.items(dict) {
            if self.is_str(name) && self.types.of(module).is_some_and(|info| info.kind == Kind::Module) {
                // SAFETY: a module object: its dict is where it always was, and may be missing.
                let dict = unsafe { word(module, MODULE_DICT) };
                // A module of two names (`__mp_main__`) goes by the first.
                if dict != 0 && modules.iter().all(|m| m.dict != dict) {
                    modules.push(Module { name: self.text(name), dict });
                }
            }
        }
        modules
    }

    /// Notes the dicts of modules, which are names and no holders.
    pub fn learn_namespaces(&mut self) {
        // SAFETY: with the GIL; the reference is borrowed.
        let all = unsafe { (self.functions.PyImport_GetModuleDict)() }.expose_provenance() as u64;
        self.namespaces.insert(all, ());
        for module in self.modules() {
            self.namespaces.insert(module.dict, ());
        }
    }

    /// Whether it is what a context variable gave when it was set: it has the value of before, which the variable mostly has
    /// again, and is known by.
    fn is_token(&mut self, object: Node) -> bool {
        let is_static = |info: Info| info.kind == Kind::Other && info.flags & FLAG_HEAP_TYPE == 0;
        self.types.of(object).is_some_and(is_static) && self.types.name(object) == "Token"
    }

    pub fn is_str(&self, object: Node) -> bool {
        self.is_exactly(object, c"PyUnicode_Type")
    }

    pub fn is_exactly(&self, object: Node, name: &CStr) -> bool {
        let wanted = self.api.types.address(name);
        // SAFETY: a living object.
        object != 0 && unsafe { word(object, OB_TYPE) } == wanted
    }

    fn globals(&mut self, wanted: impl Fn(&str, Option<&str>) -> bool, roots: &mut Vec<Root>) {
        for module in self.modules() {
            let items = self.items(module.dict);
            let file = self.file_in(&items);
            if !wanted(&module.name, file.as_deref()) {
                continue;
            }
            for (key, value) in items {
                if self.is_str(key) && self.may_hold(value) {
                    let name = format!("{}.{}", module.name, self.text(key));
                    roots.push(Root { node: value, origin: GcRoot::Global(name) });
                }
            }
        }
    }

    /// Returns the program's own modules, with their files.
    pub fn own_files(&mut self) -> Vec<(String, String)> {
        let modules = self.modules().into_iter();
        let named = modules.filter_map(|module| Some((module.name, self.file_of_module(module.dict)?)));
        named.filter(|(_, file)| is_own_file(file)).collect()
    }

    /// Returns the value of a variable of the program's own modules.
    pub fn variable(&mut self, name: &str) -> Option<Node> {
        let mut modules = self.modules().into_iter();
        modules.find_map(|module| {
            let is_own = self.file_of_module(module.dict).is_some_and(|file| is_own_file(&file));
            if is_own { self.value_in(&self.items(module.dict), name) } else { None }
        })
    }

    /// Returns the value of a variable of the program's functions that are running, the innermost first.
    pub fn local_variable(&mut self, name: &str) -> Option<Node> {
        let threads = thread_frames::threads(self.python);
        // SAFETY: the states of living threads, and the GIL is held.
        let mut frames = threads.into_iter().flat_map(|thread| unsafe { self.cpython.frames(thread) });
        frames.find_map(|frame| {
            // SAFETY: a frame keeps its code alive.
            let (file, _) = unsafe { self.cpython.names(frame.code) };
            let variables =
                if is_own_file(&file) { self.variables(frame.address, frame.code) } else { Vec::new() };
            let (_, value) = variables.into_iter().find(|(known, _)| known == name)?;
            self.content(value)
        })
    }

    /// Returns the file of a module. That of `__main__` has a name no more when it is done, but for what loaded it.
    fn file_of_module(&mut self, dict: Node) -> Option<String> {
        let variables = self.items(dict);
        if let Some(file) = self.file_in(&variables) {
            return Some(file);
        }
        let loader = self.value_in(&variables, "__loader__")?;
        let path = self.attribute(loader, "path").filter(|&path| self.is_str(path))?;
        Some(self.text(path))
    }

    /// Returns the file of the module that has some variables.
    fn file_in(&self, variables: &[(Node, Node)]) -> Option<String> {
        self.value_in(variables, "__file__").filter(|&file| self.is_str(file)).map(|file| self.text(file))
    }

    fn value_in(&self, variables: &[(Node, Node)], name: &str) -> Option<Node> {
        let is_named = |&(key, _): &(Node, Node)| self.is_str(key) && self.text(key) == name;
        variables.iter().copied().find(is_named).map(|(_, value)| value)
    }

    /// Adds the variables of functions that are running: the program's `own` functions, or all others.
    fn locals(&mut self, own: bool, roots: &mut Vec<Root>) {
        for thread in thread_frames::threads(self.python) {
            // SAFETY: the state of a living thread, and the GIL is held.
            let frames = unsafe { self.cpython.frames(thread) };
            // Outermost first: what a function was handed is held by its caller's variable.
            for frame in frames.into_iter().rev() {
                self.locals_of(frame.address, frame.code, own, roots);
            }
        }
    }

    fn locals_of(&mut self, frame: Node, code: Node, own: bool, roots: &mut Vec<Root>) {
        // SAFETY: a frame keeps its code alive.
        let (file, function) = unsafe { self.cpython.names(code) };
        if is_own_file(&file) != own {
            return;
        }
        for (name, value) in self.variables(frame, code) {
            if self.may_hold(value) && !self.is_token(value) {
                let origin = GcRoot::Local { function: function.clone(), name };
                roots.push(Root { node: value, origin });
            }
        }
    }

    /// Adds the variables of the program's functions that an exception has ended which nobody caught: the
    /// interpreter keeps the last one.
    fn uncaught(&mut self, roots: &mut Vec<Root>) {
        let sys = self.modules().into_iter().find(|module| module.name == "sys");
        let of_sys = sys.map_or_else(Vec::new, |sys| self.items(sys.dict));
        let last = of_sys.into_iter().find(|&(k, _)| self.is_str(k) && self.text(k) == "last_traceback");
        let (mut next, mut found) = (last.map(|(_, traceback)| traceback), Vec::new());
        for _ in 0..MAX_FRAMES {
            let Some(traceback) = next.take() else { return };
            let Some(info) = self.types.of(traceback).filter(|i| i.kind == Kind::Traceback) else { return };
            found.clear();
            self.types.traverse(traceback, &info, &mut found);
            for &part in &found {
                match self.types.of(part).map(|info| info.kind) {
                    Some(Kind::Traceback) => next = Some(part),
                    Some(Kind::Frame) => {
                        let (frame, code) = self.frame_of(part);
                        self.locals_of(frame, code, true, roots);
                    }
                    _ => {}
                }
            }
        }
    }

    /// Returns the items of a tuple.
    pub fn tuple(&self, tuple: Node) -> Vec<Node> {
        if tuple == 0 {
            return Vec::new();
        }
        // SAFETY: a living tuple: so many items lie behind its head.
        unsafe {
            let length = word(tuple, VAR_SIZE) as usize;
            (0..length).map(|i| word(tuple, self.layout.tuple_items + 8 * i)).collect()
        }
    }

    /// Returns the names of all variables of a code object, in the order of their slots in a frame.
    pub fn variable_names(&self, code: Node) -> Vec<Node> {
        match self.layout.names {
            // SAFETY: a living code object; the tuples are never missing.
            Names::Three { variables, cells, free, .. } => unsafe {
                [variables, cells, free].iter().flat_map(|&at| self.tuple(word(code, at))).collect()
            },
            // SAFETY: a living code object; the tuple is never missing.
            Names::One { names, .. } => unsafe { self.tuple(word(code, names)) },
        }
    }

    /// Returns the names of a function's free variables, in the order of its closure.
    pub fn free_names(&self, code: Node) -> Vec<Node> {
        match self.layout.names {
            // SAFETY: a living code object.
            Names::Three { free, .. } => unsafe { self.tuple(word(code, free)) },
            // SAFETY: a living code object; the count is a 32-bit number.
            Names::One { free, .. } => unsafe {
                let count = word(code, free & !7) >> (8 * (free & 7)) & 0xffff_ffff;
                let mut names = self.variable_names(code);
                names.split_off(names.len().saturating_sub(count as usize))
            },
        }
    }

    pub fn is_function(&mut self, node: Node) -> bool {
        self.is_object(node) && self.types.of(node).is_some_and(|info| info.kind == Kind::Function)
    }

    /// Returns the name of a function, without those of what it is defined in.
    pub fn function_name(&mut self, node: Node) -> Option<String> {
        self.is_function(node).then(|| {
            // SAFETY: a living function, which keeps its code alive.
            let (_, name) = unsafe { self.cpython.names(word(node, self.layout.function_code)) };
            name.rsplit('.').next().unwrap_or(&name).to_owned()
        })
    }

    /// Returns the value of a variable of a function's closure.
    pub fn closure_variable(&mut self, function: Node, name: &str) -> Option<Node> {
        // SAFETY: a living function.
        let field = |at: usize| unsafe { word(function, at) };
        let names = self.free_names(field(self.layout.function_code));
        let at = names.into_iter().position(|known| self.is_str(known) && self.text(known) == name)?;
        self.content(*self.tuple(field(self.layout.function_closure)).get(at)?)
    }

    /// Returns what a cell has, or what is none itself.
    fn content(&mut self, node: Node) -> Option<Node> {
        let info = self.types.of(node)?;
        if info.kind != Kind::Cell {
            return Some(node);
        }
        let mut held = Vec::new();
        self.types.traverse(node, &info, &mut held);
        held.pop()
    }

    /// Returns (name, value) of the variables of a frame that have a value.
    pub fn variables(&self, frame: Node, code: Node) -> Vec<(String, Node)> {
        let Some(first) = self.cpython.layout.frame_variables else { return Vec::new() };
        let names = self.variable_names(code);
        let mut variables = Vec::new();
        for (i, name) in names.into_iter().enumerate() {
            // SAFETY: a frame has a slot for every name of its code; the slot is empty or holds an object.
            let slot = unsafe { word(frame, first + 8 * i) };
            let value = slot & !MARKS;
            if slot & MARKS != NUMBER && value != 0 && self.is_str(name) {
                variables.push((self.text(name), value));
            }
        }
        variables
    }
}
