//! How an object holds another, as a step of a reference path. Asked only along the few paths that are
//! reported.

use crate::python::heap::Heap;
use crate::python::heap::objects::{Kind, bases, c_text, is_element};
use crate::python::layout::Attributes;
use crate::python::memory::word;
use crate::python::offsets::*;
use crate::python::packages;
use leaktrace_core::holders::{Node, Step};

/// Longer keys are not written out.
const LONGEST: usize = 60;
/// What `register_hook` was given, or `saved_tensors_hooks`.
const HOOKS: &str = "its hooks";
/// What a tape has of the operations within it; and where the object that a program knows as one has that, twice over.
const RECORDED: &str = "what it recorded";
const OWN_TAPE: &str = "_tape";
/// The type of what `itertools.tee` keeps things in.
const TEE: &str = "_tee_dataobject";
/// Attributes of an object that are looked through for one by name.
const MOST_ATTRIBUTES: u64 = 256;

fn is_own_tape(step: &Step) -> bool {
    matches!(step, Step::Attribute(name) if name == OWN_TAPE)
}

/// Returns the class of a living object, and its bases.
fn classes_of(object: Node) -> impl Iterator<Item = Node> {
    // SAFETY: a living object: its type.
    bases(unsafe { word(object, OB_TYPE) }).into_iter()
}

/// Returns whether a class was made in Python.
fn is_of_heap(class: Node) -> bool {
    // SAFETY: a living type: its flags.
    unsafe { word(class, TYPE_FLAGS) & FLAG_HEAP_TYPE != 0 }
}

/// Returns whether an object has slots, by a class that was made in Python.
fn has_slots(object: Node) -> bool {
    // SAFETY: a living type: its table of members.
    classes_of(object).any(|class| is_of_heap(class) && unsafe { word(class, TYPE_MEMBERS) } != 0)
}

impl Heap<'_> {
    /// Returns the steps of a path, each from a holder to what it holds.
    pub fn labels(&mut self, path: &[Node]) -> Vec<Step> {
        let mut steps: Vec<Step> = Vec::new();
        // A dict that is an instance's, a class's or a function's: its keys are attributes.
        let mut attributes = 0;
        // A dict of a thread-local object that has a dict of attributes for each thread.
        let mut threads = 0;
        // A dict of a function's defaults: the step before has named the key.
        let mut arguments = 0;
        // What holds the tuple that comes next: the names of a function's free variables, or of its
        // arguments.
        let mut names: Option<(Node, Vec<Step>)> = None;
        for (i, pair) in path.windows(2).enumerate() {
            let (holder, held) = (pair[0], pair[1]);
            if let Some((tuple, of)) = names.take().filter(|(tuple, _)| *tuple == holder) {
                let at = self.tuple(tuple).iter().position(|&o| o == held);
                steps.push(at.and_then(|at| of.get(at).cloned()).unwrap_or(Step::Through));
                continue;
            }
            if self.blocks.contains_key(&held) {
                steps.push(Step::Through);
                continue;
            }
            if self.graph.met.contains_key(&holder) || self.graph.met.contains_key(&held) {
                steps.push(self.native_label(holder, held));
                continue;
            }
            let Some(info) = self.types.of(holder) else {
                let is_tape = self.types.info(holder).kind == Kind::Container;
                if is_tape {
                    let own = |step: &&mut Step| **step == Step::Through || is_own_tape(step);
                    steps.iter_mut().rev().take_while(own).for_each(|step| *step = Step::Through);
                }
                steps.push(if is_tape { Step::Named(RECORDED.into()) } else { Step::Through });
                continue;
            };
            if holder == arguments {
                steps.push(Step::Through);
                continue;
            }
            if holder == threads {
                attributes = held;
                steps.push(Step::Through);
                continue;
            }
            if info.is_thread_local {
                threads = held;
                steps.push(Step::Through);
                continue;
            }
            if holder == attributes
                && let Some(name) = self.key_of(holder, held).filter(|&k| self.is_str(k))
            {
                steps.push(Step::Attribute(self.text(name)));
                continue;
            }
            if let Some(dict) = self.attribute_dict(holder).filter(|d| *d == held) {
                attributes = dict;
                steps.push(Step::Through);
                continue;
            }
            let step = match info.kind {
                Kind::Function => self.function_label(holder, held, path.get(i + 2).copied(), &mut names),
                Kind::Type if self.dict_of_type(holder) == held => {
                    attributes = held;
                    Some(Step::Through)
                }
                Kind::Dict => self.dict_label(holder, held),
                Kind::List => self.index(holder, held, true).map(Step::Index),
                Kind::Tuple => self
                    .index(holder, held, false)
                    .map(|at| self.field(holder, at).map_or(Step::Index(at), Step::Field)),
                Kind::Set | Kind::Deque => Some(Step::Element),
                Kind::Array if is_element(holder, held) => Some(Step::Element),
                Kind::Cell => Some(Step::Through),
                Kind::Frame => self.frame_label(holder, held),
                Kind::Generator => self.generator_label(holder, held),
                Kind::Traceback => Some(self.traceback_label(i.checked_sub(1).map(|before| path[before]))),
                Kind::Exception => self.exception_label(holder, held),
                Kind::Method => self.method_label(holder, held),
                _ => None,
            };
            let step = step.or_else(|| self.instance_label(holder, info.flags, held));
            if info.kind == Kind::Function && matches!(step, Some(Step::Default(_))) {
                arguments = held;
            }
            steps.push(step.unwrap_or_else(|| self.any_label(holder, held)));
        }
        steps
    }

    fn native_label(&mut self, holder: Node, held: Node) -> Step {
        let from_node = self.graph.is_node(holder);
        if self.graph.is_node(held) {
            let name = self.graph.name(held).to_owned();
            return if from_node { Step::Next(name) } else { Step::Graph(name) };
        }
        match (from_node, self.graph.met.contains_key(&held)) {
            (true, true) => Step::Saved,
            // A node of a function written in Python: its context is what a reader knows it by.
            (true, false) if self.types_say_context(held) => Step::Next(self.types.name(held)),
            (true, false) => Step::Named(HOOKS.into()),
            (false, true) if self.types_say_context(holder) => Step::Saved,
            (false, true) if self.graph.parts.contains_key(&held) => Step::Through,
            _ => Step::Gradient,
        }
    }

    fn types_say_context(&mut self, holder: Node) -> bool {
        !self.graph.met.contains_key(&holder)
            && self.types.of(holder).is_some_and(|info| info.kind == Kind::Context)
    }

    /// True if a dict is the one in which an object keeps its own attributes.
    pub fn keeps_attributes_in(&mut self, object: Node, dict: Node) -> bool {
        match self.types.of(object).map(|info| info.kind) {
            Some(Kind::Type) => self.dict_of_type(object) == dict,
            Some(_) => self.attribute_dict(object) == Some(dict),
            None => false,
        }
    }

    /// Returns the dict of an object's attributes, if it has one now.
    fn attribute_dict(&self, object: Node) -> Option<Node> {
        // SAFETY: a living object and its type; it has the words that the type's flags promise.
        unsafe {
            let of = word(object, OB_TYPE);
            let flags = word(of, TYPE_FLAGS);
            if flags & FLAG_TYPE != 0 {
                return None;
            }
            let dict = if self.layout.attributes != Attributes::Dict && flags & FLAG_MANAGED_DICT != 0 {
                match word(object - 24, 0) {
                    tagged if self.layout.attributes == Attributes::Tagged && tagged & 1 == 1 => 0,
                    dict => dict,
                }
            } else {
                let mut at = word(of, TYPE_DICTOFFSET) as i64;
                if at < 0 {
                    let items = (word(object, VAR_SIZE) as i64).unsigned_abs();
                    let size = word(of, TYPE_BASICSIZE) + items * word(of, TYPE_ITEMSIZE);
                    at += size.next_multiple_of(8) as i64;
                }
                if at <= 0 || at > 1 << 20 {
                    return None;
                }
                word(object, at as usize)
            };
            (dict != 0).then_some(dict)
        }
    }

    /// Returns an attribute's value, by the object or the dict of its attributes.
    pub fn attribute(&mut self, of: Node, name: &str) -> Option<Node> {
        let info = self.types.of(of)?;
        let (own, is_dict) = (self.attribute_dict(of), info.kind == Kind::Dict);
        if let Some(found) = own.or(is_dict.then_some(of)).and_then(|dict| self.item(dict, name)) {
            return Some(found);
        }
        // Dicts with attributes of their own are asked for these first.
        if is_dict && own.is_some() {
            return self.item(of, name);
        }
        let is_managed = info.flags & FLAG_MANAGED_DICT != 0 && own.is_none();
        if is_dict || !(is_managed || has_slots(of)) {
            return None;
        }
        let mut held = Vec::new();
        self.types.traverse(of, &info, &mut held);
        let wanted = Step::Attribute(name.to_owned());
        held.into_iter().find(|&held| self.instance_label(of, info.flags, held).as_ref() == Some(&wanted))
    }

    /// Returns what an object's class, or one of its bases, has by that name.
    pub fn attribute_of_class(&mut self, of: Node, name: &str) -> Option<Node> {
        let own = classes_of(of).filter(|&class| is_of_heap(class));
        let dicts: Vec<Node> = own.map(|class| self.dict_of_type(class)).filter(|&dict| dict != 0).collect();
        dicts.into_iter().find_map(|dict| self.item(dict, name))
    }

    /// Returns what a dict has under a name, if it has no more entries than an object has attributes.
    pub fn item(&mut self, dict: Node, name: &str) -> Option<Node> {
        self.types.of(dict).filter(|info| info.kind == Kind::Dict)?;
        // SAFETY: a living dict: its length.
        if unsafe { word(dict, VAR_SIZE) } > MOST_ATTRIBUTES {
            return None;
        }
        let has_name = |key: Node| self.is_str(key) && self.text(key) == name;
        self.items(dict).into_iter().find(|&(key, _)| has_name(key)).map(|(_, value)| value)
    }

    fn dict_of_type(&self, of: Node) -> Node {
        // SAFETY: a living type.
        unsafe { word(of, TYPE_DICT) }
    }

    /// A traceback that somebody keeps without its exception is said to be one.
    fn traceback_label(&mut self, holder: Option<Node>) -> Step {
        let object = holder.filter(|h| !self.graph.met.contains_key(h));
        let kind = object.and_then(|h| self.types.of(h)).map(|info| info.kind);
        match kind {
            Some(Kind::Exception | Kind::Traceback) => Step::Through,
            _ => Step::Attribute("tb_frame".into()),
        }
    }

    /// Returns whether a dict was the globals of executed code, which adds this name.
    pub fn has_builtins(&self, dict: Node) -> bool {
        self.items(dict).iter().any(|&(key, _)| self.is_str(key) && self.text(key) == "__builtins__")
    }

    /// Returns whether the class of an object is a package's, by the file of the module that one of its methods is in.
    pub fn has_packaged_class(&mut self, object: Node) -> bool {
        let class = self.types.number(object);
        if let Some(&known) = self.packaged.get(&class) {
            return known;
        }
        let methods = self.items(self.dict_of_type(class)).into_iter().map(|(_, value)| value);
        let method =
            methods.into_iter().find(|&m| self.types.of(m).is_some_and(|i| i.kind == Kind::Function));
        let packaged =
            method.and_then(|m| self.file_of(m)).is_some_and(|f| packages::ownership().is_packaged(&f));
        self.packaged.insert(class, packaged);
        packaged
    }

    /// Returns the file of the module whose variables a function sees.
    fn file_of(&mut self, function: Node) -> Option<String> {
        let mut held = Vec::new();
        let info = self.types.of(function)?;
        self.types.traverse(function, &info, &mut held);
        let all = held
            .into_iter()
            .filter(|&h| self.types.of(h).is_some_and(|i| i.kind == Kind::Dict))
            .collect::<Vec<_>>();
        let mut entries = all.into_iter().flat_map(|dict| self.items(dict));
        let (_, file) = entries
            .find(|&(key, value)| self.is_str(key) && self.is_str(value) && self.text(key) == "__file__")?;
        Some(self.text(file))
    }

    /// Returns the key under which a dict holds an object.
    fn key_of(&self, dict: Node, held: Node) -> Option<Node> {
        self.items(dict).into_iter().find(|&(_, v)| v == held).map(|(k, _)| k)
    }

    fn dict_label(&mut self, dict: Node, held: Node) -> Option<Step> {
        for (key, value) in self.items(dict) {
            if value == held {
                return Some(Step::Key(self.written(key)));
            }
            if key == held {
                return Some(Step::AsKey);
            }
        }
        None
    }

    /// Returns a key as a program would write it; one that is no text, number or member of an enumeration by its type.
    fn written(&mut self, key: Node) -> String {
        if self.is_str(key) {
            return format!("'{}'", self.short_text(key));
        }
        if let Some(n) = self.small_number(key) {
            return n.to_string();
        }
        match self.attribute(key, "_name_").filter(|&name| self.is_str(name)) {
            Some(member) => format!("{}.{}", self.types.name(key), self.short_text(member)),
            None => format!("<{}>", self.types.name(key)),
        }
    }

    /// Returns a text in one line, and no more of it than a path has room for.
    fn short_text(&self, text: Node) -> String {
        let text: String = self.text(text).chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        match text.char_indices().nth(LONGEST) {
            Some((at, _)) => format!("{}…", &text[..at]),
            None => text,
        }
    }

    /// Returns the value of an `int` of one digit.
    fn small_number(&self, object: Node) -> Option<i64> {
        if !self.is_exactly(object, c"PyLong_Type") {
            return None;
        }
        // SAFETY: an `int`: its size and sign, then its digits of 30 bits.
        let (size, digit) = unsafe { (word(object, VAR_SIZE), word(object, INT_DIGITS) as u32) };
        let digit = i64::from(digit & 0x3fff_ffff);
        if self.cpython.minor >= 12 {
            // The lower three bits are sign and flag, the rest counts the digits.
            return (size >> 3 <= 1).then_some(if size & 3 == 2 {
                -digit
            } else if size & 3 == 1 {
                0
            } else {
                digit
            });
        }
        match size as i64 {
            0 => Some(0),
            1 => Some(digit),
            -1 => Some(-digit),
            _ => None,
        }
    }

    fn index(&self, sequence: Node, held: Node, is_list: bool) -> Option<usize> {
        if !is_list {
            return self.tuple(sequence).iter().position(|&o| o == held);
        }
        // SAFETY: a living list: so many items lie where it says.
        unsafe {
            let (length, items) = (word(sequence, VAR_SIZE) as usize, word(sequence, LIST_ITEMS));
            (0..length).find(|&i| word(items, 8 * i) == held)
        }
    }

    /// Returns the name of a named tuple's field, of which its class has a tuple (`_fields`).
    fn field(&mut self, tuple: Node, at: usize) -> Option<String> {
        let is_of_heap = |of: &Node| {
            // SAFETY: a living type: its flags.
            unsafe { word(*of, TYPE_FLAGS) & FLAG_HEAP_TYPE != 0 }
        };
        let class = self.types.number(tuple);
        // Types that are no program's have nothing of the kind, and may keep their dict elsewhere.
        let classes: Vec<Node> = bases(class).into_iter().take_while(is_of_heap).collect();
        let fields = classes.into_iter().find_map(|of| self.item(self.dict_of_type(of), "_fields"))?;
        self.types.of(fields).filter(|info| info.kind == Kind::Tuple)?;
        let name = self.tuple(fields).get(at).copied().filter(|&name| self.is_str(name))?;
        Some(self.text(name))
    }

    fn function_label(
        &mut self,
        function: Node,
        held: Node,
        next: Option<Node>,
        names: &mut Option<(Node, Vec<Step>)>,
    ) -> Option<Step> {
        let layout = self.layout;
        // SAFETY: a living function.
        let field = |at: usize| unsafe { word(function, at) };
        let code = field(layout.function_code);
        if held == field(layout.function_closure) {
            let free = self.free_names(code).into_iter().map(|n| Step::Closure(self.text(n)));
            *names = Some((held, free.collect()));
            return Some(Step::Through);
        }
        if held == field(layout.function_defaults) {
            // SAFETY: the code object of a living function; a 32-bit number.
            let arguments = unsafe {
                word(code, layout.code_argcount & !7) >> (8 * (layout.code_argcount & 7)) & 0xffff_ffff
            } as usize;
            let count = self.tuple(held).len();
            let all = self.variable_names(code);
            let of = all.iter().take(arguments).skip(arguments.saturating_sub(count));
            *names = Some((held, of.map(|&n| Step::Default(self.text(n))).collect()));
            return Some(Step::Through);
        }
        if held == field(layout.function_kwdefaults) {
            let key = next.and_then(|value| self.key_of(held, value)).filter(|&k| self.is_str(k));
            return Some(Step::Default(key.map_or_else(String::new, |k| self.text(k))));
        }
        None
    }

    fn frame_label(&mut self, object: Node, held: Node) -> Option<Step> {
        let (frame, code) = self.frame_of(object);
        self.local(frame, code, held)
    }

    /// Returns the frame of a frame object, and its code.
    pub fn frame_of(&self, object: Node) -> (Node, Node) {
        // SAFETY: a living frame object; it leads to its frame, or is it.
        unsafe {
            if self.cpython.frames_are_objects() {
                (object, word(object, OLD_FRAME_CODE))
            } else {
                let frame = word(object, FRAME_OBJECT_FRAME);
                (frame, self.cpython.code_of(frame))
            }
        }
    }

    fn generator_label(&mut self, generator: Node, held: Node) -> Option<Step> {
        let Some(at) = self.layout.generator_frame else {
            // Up to 3.10 it holds its frame as an object.
            return Some(Step::Through);
        };
        let frame = generator + at as u64;
        // SAFETY: a living generator, and its frame inside it.
        let code = unsafe { self.cpython.code_of(frame) };
        self.local(frame, code, held)
    }

    fn local(&mut self, frame: Node, code: Node, held: Node) -> Option<Step> {
        if !self.is_exactly(code, c"PyCode_Type") {
            return None;
        }
        // SAFETY: a frame keeps its code alive.
        let (_, function) = unsafe { self.cpython.names(code) };
        let (name, _) = self.variables(frame, code).into_iter().find(|(_, value)| *value == held)?;
        Some(Step::Local { function, name })
    }

    fn exception_label(&self, exception: Node, held: Node) -> Option<Step> {
        let layout = &self.layout;
        // SAFETY: a living exception.
        let field = |at: usize| unsafe { word(exception, at) };
        [
            (layout.exception_traceback, "__traceback__"),
            (layout.exception_context, "__context__"),
            (layout.exception_cause, "__cause__"),
        ]
        .into_iter()
        .find(|&(at, _)| field(at) == held)
        .map(|(_, name)| Step::Attribute(name.into()))
    }

    fn method_label(&self, method: Node, held: Node) -> Option<Step> {
        // SAFETY: a living bound method.
        let field = |at: usize| unsafe { word(method, at) };
        [(METHOD_SELF, "__self__"), (METHOD_FUNCTION, "__func__")]
            .into_iter()
            .find(|&(at, _)| field(at) == held)
            .map(|(_, name)| Step::Attribute(name.into()))
    }

    /// Returns the step to an attribute that is kept without a dict: among values whose names the class has,
    /// or in a slot.
    fn instance_label(&self, object: Node, flags: u64, held: Node) -> Option<Step> {
        self.shared_label(object, flags, held).or_else(|| self.slot_label(object, held))
    }

    fn shared_label(&self, object: Node, flags: u64, held: Node) -> Option<Step> {
        let keys_at = self.layout.shared_keys?;
        if flags & FLAG_MANAGED_DICT == 0 || flags & FLAG_TYPE != 0 {
            return None;
        }
        // SAFETY: an instance of a class that says its instances keep values so: the words are there and lead
        // to values, and the class has as many names as there are values.
        unsafe {
            let of = word(object, OB_TYPE);
            let values = match self.layout.attributes {
                Attributes::Dict => return None,
                Attributes::Before => word(object - 32, 0),
                Attributes::Tagged => match word(object - 24, 0) {
                    tagged if tagged & 1 == 1 => tagged + 1,
                    _ => 0,
                },
                Attributes::Inside if flags & FLAG_INLINE_VALUES != 0 => {
                    let values = object + word(of, TYPE_BASICSIZE);
                    // Its fourth byte says whether they count.
                    if word(values, 0) >> 24 & 0xff == 0 { 0 } else { values + 8 }
                }
                Attributes::Inside => 0,
            };
            let keys = word(of, keys_at);
            if values == 0 || keys == 0 {
                return None;
            }
            let head = word(keys, 8);
            let kind = (head >> (8 * (KEYS_KIND - 8))) as u8;
            let index = (head >> (8 * (KEYS_LOG2_INDEX_BYTES - 8))) as u8;
            if kind != SPLIT || index > 20 {
                return None;
            }
            let entries = keys + KEYS_INDICES as u64 + (1 << index);
            let count = word(keys, KEYS_ENTRIES).min(256) as usize;
            let at = (0..count).find(|&i| word(values, 8 * i) == held)?;
            let name = word(entries, 16 * at);
            self.is_str(name).then(|| Step::Attribute(self.text(name)))
        }
    }

    /// Returns the step to an object in a `__slots__` slot, by the members that the types declare.
    fn slot_label(&self, object: Node, held: Node) -> Option<Step> {
        // SAFETY: a living object: its types, and their tables of members, which end with a nameless one.
        unsafe {
            let of = word(object, OB_TYPE);
            let size = word(of, TYPE_BASICSIZE);
            for base in bases(of) {
                let mut member = word(base, TYPE_MEMBERS);
                while member != 0 && word(member, 0) != 0 {
                    let at = word(member, MEMBER_OFFSET);
                    if at.is_multiple_of(8) && at < size && word(object, at as usize) == held {
                        return Some(Step::Attribute(c_text(word(member, 0))));
                    }
                    member += MEMBER_SIZE as u64;
                }
            }
        }
        None
    }

    fn any_label(&mut self, holder: Node, held: Node) -> Step {
        // SAFETY: living objects.
        if unsafe { word(holder, OB_TYPE) } == held {
            return Step::Attribute("__class__".into());
        }
        let held_kind = self.types.of(held).map(|info| info.kind);
        let tensor = self.types.of(holder).is_some_and(|info| info.kind == Kind::Tensor);
        if tensor && held_kind == Some(Kind::Context) {
            return Step::Graph(self.types.name(held));
        }
        // The dict of a tensor's attributes is told before: this one has what `register_hook` was given.
        if tensor && held_kind == Some(Kind::Dict) {
            return Step::Named(HOOKS.into());
        }
        match self.types.name(holder).as_str() {
            // The list in which it keeps what it has handed out.
            "cycle" if held_kind == Some(Kind::List) => Step::Named("itertools.cycle".into()),
            // Objects of its own, in a row, that have what one of its iterators has not reached.
            "_tee" if self.types.name(held) == TEE => Step::Named("itertools.tee".into()),
            TEE if self.types.name(held) == TEE => Step::Through,
            TEE => Step::Element,
            // An entry of the cache: of a result and its key.
            "_lru_list_elem" => Step::Through,
            "Context" if self.is_context(holder) => Step::Through,
            "hamt" => Step::Through,
            name if name.starts_with("hamt_") => self.context_label(holder, held),
            // Its coroutine and its callbacks are other things.
            "Task" | "Future"
                if matches!(held_kind, Some(Kind::Tensor | Kind::Tuple | Kind::Dict | Kind::Handle(_))) =>
            {
                Step::Attribute("result()".into())
            }
            "ContextVar" => Step::Named("its default".into()),
            "_lru_cache_wrapper" => match held_kind {
                Some(Kind::Dict) => Step::Named("lru_cache".into()),
                _ => Step::Named("lru_cache's results".into()),
            },
            _ => Step::Named(self.types.name(held)),
        }
    }
}
