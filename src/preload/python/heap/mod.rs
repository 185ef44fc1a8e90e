//! The interpreter's objects as a graph to be searched, with the GIL held. Nothing of the program's own is
//! run: an object holds what its type's `tp_traverse` visits, as for the cyclic collector; names are read
//! from dicts and structures. No reference is taken, no object is made.
//!
//! Python's objects cannot change or go away while the GIL is held, so they are read directly. C++ objects
//! can (see `natives`).

mod bounds;
mod contexts;
mod evaluation_stacks;
mod labels;
mod natives;
mod objects;
mod roots;
mod sources;
mod unreachable;
mod verify;

use std::time::{Duration, Instant};

use crate::python::api::{Functions, ObjectApi};
use crate::python::heap::natives::containers::Containers;
use crate::python::heap::natives::torch::{Graph, MemoryClass};
use crate::python::heap::natives::{HANDLES, Handles, Item, Object};
use crate::python::heap::objects::{Address, Info, Kind, TypeTable};
use crate::python::interpreter::{self, Cpython, Interpreter};
use crate::python::layout::ObjectLayout;
use crate::python::memory::{self, word};
use crate::python::thread_frames;
use leaktrace_core::holders::assignments::Assignments;
use leaktrace_core::holders::{HeapGraph, Node, Nodes, Root, Step};
use leaktrace_core::int_map::IntMap;

/// The objects of this process, for one search.
pub struct Heap<'a> {
    python: &'static Interpreter,
    functions: &'static Functions,
    api: &'static ObjectApi,
    cpython: &'static Cpython,
    layout: ObjectLayout,
    types: TypeTable,
    graph: Graph,
    /// As the rows of [`HANDLES`].
    handles: [Box<dyn Handles>; HANDLES.len()],
    containers: Containers,
    blocks: &'a Nodes,
    /// The lowest and the highest of `blocks`.
    range: (u64, u64),
    /// Dicts of modules: they are names, not holders.
    namespaces: Nodes,
    /// Classes, and whether a package brought them.
    packaged: IntMap<u64, bool>,
    /// Contexts of autograd functions written in Python that are alive; gathered when first needed.
    contexts: Option<Nodes>,
    /// Every object that is alive and that the collector knows; gathered when first needed.
    alive: Option<Nodes>,
    saw_tensors: bool,
    /// The dicts of what allocators know their blocks by.
    records: Nodes,
    /// Which functions have addresses on their stacks; read when first needed.
    stacks: Option<IntMap<u64, String>>,
    /// What the places of collections show that were looked at.
    rooms: IntMap<Node, Option<(u64, u64)>>,
    /// What the source of the program's own modules says of its variables; read when first needed.
    assignments: Option<Assignments>,
    limits: Option<Assignments>,
    limit: Limit,
}

/// How long a search may take: in processor time, and by the clock where others need the processor too.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    work: Duration,
    until: Instant,
}

/// How many times its processor time a search may take by the clock: with as many busy threads to each processor,
/// everything takes so much longer.
const PATIENCE: u32 = 20;
/// The longest that one may take by the clock. Tests wait for it, however busy their machine is.
const LONGEST: Duration = Duration::from_secs(if cfg!(debug_assertions) { 200 } else { 30 });

impl Limit {
    pub fn new(budget: Duration) -> Limit {
        Limit { work: thread_time() + budget, until: Instant::now() + LONGEST.min(budget * PATIENCE) }
    }

    fn is_over(self) -> bool {
        thread_time() >= self.work || Instant::now() >= self.until
    }
}

/// Returns the processor time that this thread has used.
fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` has room for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Why nothing can be searched here; `None`: it can. With the GIL held.
pub fn obstacle(python: &Interpreter) -> Option<String> {
    let Some(cpython) = thread_frames::verify(python) else {
        return Some("the interpreter is not understood".into());
    };
    if cpython.layout.is_free_threaded() {
        return Some("the interpreter is free-threaded".into());
    }
    if !memory::may_copy() {
        return Some("process_vm_readv is forbidden here".into());
    }
    let layout = verify::layout(python, cpython);
    layout.is_none().then(|| format!("the objects of CPython 3.{} are not understood", cpython.minor))
}

impl<'a> Heap<'a> {
    /// Makes the heap ready for a search for `blocks` within a limit.
    ///
    /// # Safety
    /// The GIL is held as long as this lives.
    pub unsafe fn new(blocks: &'a Nodes, limit: Limit) -> Option<Heap<'a>> {
        let python = interpreter::get()?;
        let cpython = thread_frames::verify(python)?;
        let layout = verify::layout(python, cpython)?;
        let api = python.api.objects.as_ref()?;
        let range = (blocks.keys().copied().min().unwrap_or(0), blocks.keys().copied().max().unwrap_or(0));
        let mut heap = Heap {
            python,
            functions: &python.api.functions,
            api,
            cpython,
            layout,
            types: TypeTable::new(api.types),
            graph: Graph::default(),
            handles: HANDLES.map(|of| (of.finder)()),
            containers: Containers::default(),
            blocks,
            range,
            namespaces: Nodes::default(),
            packaged: IntMap::default(),
            contexts: None,
            alive: None,
            saw_tensors: false,
            records: Nodes::default(),
            stacks: None,
            rooms: IntMap::default(),
            assignments: None,
            limits: None,
            limit,
        };
        heap.learn_namespaces();
        Some(heap)
    }

    /// Returns whether a node on a path is a Python object: neither one of C++ nor a block, of which nothing may be read.
    fn is_object(&self, node: Node) -> bool {
        !self.graph.met.contains_key(&node) && !self.blocks.contains_key(&node)
    }

    /// Returns the text of a `str`.
    fn text(&self, object: Node) -> String {
        // SAFETY: called only for objects that are `str`, alive under the GIL.
        unsafe { self.cpython.text(object) }
    }

    /// Returns whether an object may hold others, or is the address of a block.
    fn may_hold(&mut self, object: Node) -> bool {
        self.types.may_hold(object) || self.address_in(object).is_some()
    }

    /// Returns the block whose address an object is that holds no other object.
    fn address_in(&mut self, object: Node) -> Option<Node> {
        let info = self.types.info(object);
        let is_block = |heap: &Self, word: &u64| {
            (heap.range.0..=heap.range.1).contains(word) && heap.blocks.contains_key(word)
        };
        match info.address {
            Address::Never => None,
            Address::Number => {
                objects::address(object, self.cpython.minor).filter(|word| is_block(self, word))
            }
            Address::Word => {
                objects::words(object, 2, info.words).into_iter().find(|word| is_block(self, word))
            }
        }
    }

    /// Finds what an object of Python's holds.
    fn objects(&mut self, holder: u32, node: Node, work: &mut Work, found: &mut Vec<(u32, Node)>) {
        let Some(info) = self.types.of(node) else {
            let info = self.types.info(node);
            match info.kind {
                Kind::Container => work.containers.push((holder, objects::words(node, 2, info.words))),
                _ => found.extend(self.address_in(node).map(|block| (holder, block))),
            }
            return;
        };
        if info.kind == Kind::Module || self.namespaces.contains_key(&node) {
            return;
        }
        if info.kind == Kind::Record {
            self.tables(node, &info, work);
            return;
        }
        work.children.clear();
        self.types.traverse(node, &info, &mut work.children);
        for &child in &work.children {
            if self.blocks.contains_key(&child) || self.may_hold(child) {
                found.push((holder, child));
            }
        }
        match info.kind {
            Kind::Tensor => {
                work.saw_tensors = true;
                work.candidates.extend(tensor_words(node, &info).map(|w| (holder, w)));
            }
            Kind::Other | Kind::Array if info.words > 2 => {
                // An object that owns memory by its bare address, as those of CuPy and `ctypes` do.
                for at in 2..info.words.min(32) {
                    // SAFETY: a word of the fixed part of a living object.
                    let word = unsafe { word(node, at * 8) };
                    if (self.range.0..=self.range.1).contains(&word) && self.blocks.contains_key(&word) {
                        found.push((holder, word));
                    }
                }
                if info.is_graph_node {
                    work.nodes.extend(
                        objects::words(node, 2, 3)
                            .into_iter()
                            .filter(|w| memory::is_plausible(*w))
                            .map(|w| (holder, w)),
                    );
                }
            }
            Kind::Handle(row) => work.handles[row].push((holder, objects::words(node, 2, info.words))),
            Kind::Context => work.bodies.push((holder, node, objects::words(node, 2, info.words))),
            _ => {}
        }
    }

    /// Remembers the dicts of what an allocator knows its blocks by.
    fn tables(&mut self, node: Node, info: &Info, work: &mut Work) {
        work.children.clear();
        self.types.traverse(node, info, &mut work.children);
        for &child in &work.children {
            if self.types.of(child).is_some_and(|info| info.kind == Kind::Dict) {
                self.records.insert(child, ());
            }
        }
    }

    /// Finds what C++ objects hold, and which of them Python's objects hold.
    fn natives(&mut self, work: &mut Work, graphs: bool, found: &mut Vec<(u32, Node)>) {
        let addresses: Vec<u64> = work.candidates.iter().map(|&(_, word)| word).collect();
        let classes = self.graph.classify(&addresses);
        let tensors = work.candidates.iter().zip(classes).filter(|(_, class)| *class == MemoryClass::Tensor);
        work.tensors.extend(tensors.map(|(item, _)| *item));
        self.graph.tensors(&work.tensors, graphs, self.blocks, found);
        for (handles, objects) in self.handles.iter_mut().zip(&work.handles).filter(|(_, o)| !o.is_empty()) {
            handles.find(objects, self.blocks, found);
        }
        self.kept(&work.containers, found);
        if !graphs {
            return;
        }
        // Nodes that Python's objects hold.
        let addresses: Vec<u64> = work.nodes.iter().map(|&(_, word)| word).collect();
        for (&(holder, node), class) in work.nodes.iter().zip(self.graph.classify(&addresses)) {
            if matches!(class, MemoryClass::Node(_)) {
                self.graph.met.insert(node, class);
                found.push((holder, node));
            }
        }
        let mut words = Vec::new();
        let mut hooks = self.graph.nodes(&work.graph, found, &mut words);
        // Of a context only what it has saved: the nodes it refers to are those that hold it.
        let mut saved = Vec::new();
        self.graph.contexts(&work.bodies, &mut saved);
        found.extend(saved.into_iter().filter(|(_, node)| !self.graph.is_node(*node)));
        if !hooks.is_empty() {
            let alive = self.alive();
            hooks.retain(|(_, word)| alive.contains_key(word));
            found.append(&mut hooks);
        }
        if !words.is_empty() {
            let contexts = self.contexts();
            words.retain(|(_, _, word)| contexts.contains_key(word));
            words.retain(|&(_, node, context)| self.is_of_node(context, node));
            found.extend(words.into_iter().map(|(holder, _, context)| (holder, context)));
        }
    }

    /// Finds what containers keep: no classes or modules, which lead to all there is.
    fn kept(&mut self, containers: &[Object], found: &mut Vec<Item>) {
        if containers.is_empty() {
            return;
        }
        let mut finder = std::mem::take(&mut self.containers);
        let mut kept = Vec::new();
        finder.find(containers, self.alive(), &mut kept);
        self.containers = finder;
        kept.retain(|&(_, object)| !matches!(self.types.info(object).kind, Kind::Type | Kind::Module));
        found.append(&mut kept);
    }

    /// Returns whether the context of an autograd function is that of this node: each refers to the other. A word
    /// of the node alone may be a stale one.
    fn is_of_node(&mut self, context: Node, node: Node) -> bool {
        self.types.of(context).is_some_and(|info| objects::words(context, 2, info.words).contains(&node))
    }
}

/// Returns the words of a tensor's Python object one of which is the C++ tensor: the first one behind its head; before PyTorch
/// 2.10 another comes between them, which says who owns it.
fn tensor_words(node: Node, info: &Info) -> impl Iterator<Item = u64> {
    objects::words(node, 2, info.words.min(4)).into_iter().filter(|w| memory::is_plausible(*w))
}

/// What is gathered of a batch of holders, so that the kernel is asked once for all of it.
#[derive(Default)]
struct Work {
    children: Vec<Node>,
    saw_tensors: bool,
    candidates: Vec<Item>,
    tensors: Vec<Item>,
    nodes: Vec<Item>,
    graph: Vec<Item>,
    bodies: Vec<(u32, Node, Vec<u64>)>,
    handles: [Vec<Object>; HANDLES.len()],
    containers: Vec<Object>,
}

impl HeapGraph for Heap<'_> {
    fn references_from(&mut self, holders: &[Node], graphs: bool, found: &mut Vec<(u32, Node)>) {
        let mut work = Work::default();
        for (i, &node) in (0u32..).zip(holders) {
            match self.graph.met.get(&node) {
                Some(MemoryClass::Tensor) => work.tensors.push((i, node)),
                Some(_) => work.graph.push((i, node)),
                // A block that is not searched for this time is no object all the same.
                None if self.blocks.contains_key(&node) => {}
                None => self.objects(i, node, &mut work, found),
            }
        }
        self.natives(&mut work, graphs, found);
        self.saw_tensors |= work.saw_tensors;
    }

    fn roots(&mut self, rank: usize) -> Option<Vec<Root>> {
        self.roots_of(rank)
    }

    fn roots_by_life(&mut self) -> Vec<Vec<Root>> {
        self.roots_in_layers()
    }

    fn steps(&mut self, way: &[Node]) -> Vec<Step> {
        self.labels(way)
    }

    fn is_collection(&mut self, holder: Option<Node>, node: Node) -> bool {
        let own = holder.is_some_and(|h| self.is_object(h) && self.keeps_attributes_in(h, node));
        !own && self.is_object(node) && self.types.of(node).is_some_and(|info| info.kind.is_collection())
    }

    fn is_namespace(&mut self, node: Node) -> bool {
        self.is_object(node)
            && self.types.of(node).is_some_and(|info| info.kind == Kind::Dict)
            && self.has_builtins(node)
    }

    fn is_of_package(&mut self, holder: Option<Node>, node: Node) -> bool {
        let has_packaged_class = |heap: &mut Self, node| {
            heap.is_object(node)
                && heap.types.of(node).is_some_and(|info| matches!(info.kind, Kind::Other | Kind::Array))
                && heap.has_packaged_class(node)
        };
        has_packaged_class(self, node)
            || holder.is_some_and(|h| has_packaged_class(self, h) && self.keeps_attributes_in(h, node))
    }

    fn bound(&mut self, holder: Option<Node>, node: Node) -> Option<(u64, u64)> {
        self.bound_of(holder, node)
    }

    fn keys(&mut self, node: Node) -> Option<Nodes> {
        let info = self.is_object(node).then(|| self.types.of(node)).flatten();
        info.filter(|info| info.kind == Kind::Dict)?;
        Some(self.items(node).into_iter().map(|(key, _)| (key, ())).collect())
    }

    fn length(&mut self, node: Node) -> Option<u64> {
        self.length_of(node)
    }

    fn number(&mut self, object: Option<Node>, path: &[String]) -> Option<u64> {
        self.number_of(object, path)
    }

    fn function(&mut self, node: Node) -> Option<String> {
        self.function_name(node)
    }

    fn first(&mut self, node: Node) -> Option<Node> {
        self.first_of(node)
    }

    fn native(&mut self, node: Node) -> Option<Node> {
        let info = self.is_object(node).then(|| self.types.of(node)).flatten();
        let info = info.filter(|info| info.kind == Kind::Tensor)?;
        let words: Vec<u64> = tensor_words(node, &info).collect();
        let classes = self.graph.classify(&words);
        words.into_iter().zip(classes).find(|(_, class)| *class == MemoryClass::Tensor).map(|(word, _)| word)
    }

    fn is_native(&mut self, node: Node) -> bool {
        self.graph.met.contains_key(&node)
    }

    fn may_hold_itself(&mut self, node: Node) -> bool {
        let of = |kind| matches!(kind, Kind::Handle(row) if HANDLES[row].may_hold_itself);
        self.has_graph(node) || self.types.of(node).is_some_and(|info| of(info.kind))
    }

    fn has_graph(&mut self, node: Node) -> bool {
        match self.graph.met.get(&node) {
            Some(class) => *class == MemoryClass::Tensor,
            None => {
                !self.blocks.contains_key(&node)
                    && self
                        .types
                        .of(node)
                        .is_some_and(|i| matches!(i.kind, Kind::Tensor | Kind::Context) || i.is_graph_node)
            }
        }
    }

    fn unreachable_objects(&mut self, reached: &dyn Fn(Node) -> bool) -> Option<Vec<(Node, i64)>> {
        self.unreached(reached)
    }

    fn references(&mut self, holder: Node, found: &mut Vec<Node>) {
        if let Some(info) = self.types.of(holder) {
            self.types.traverse(holder, &info, found);
        }
    }

    fn type_name(&mut self, node: Node) -> String {
        match self.graph.met.contains_key(&node) {
            true => self.graph.name(node).to_owned(),
            false => self.types.name(node),
        }
    }

    fn name_foreign(&mut self, node: Node) -> Option<String> {
        // The interpreter's own state refers to it.
        if self.is_context(node) {
            return Some("contextvars".to_owned());
        }
        let function = self.loop_of(node)?;
        Some(format!("the iterator of a loop in {function}() → {}", self.types.name(node)))
    }

    fn assignments(&mut self) -> Option<&Assignments> {
        Some(self.read_assignments())
    }

    fn limits(&mut self) -> Option<&Assignments> {
        Some(self.read_limits())
    }

    fn sort(&mut self, node: Node) -> u64 {
        match self.graph.met.get(&node) {
            Some(MemoryClass::Tensor) => 1,
            Some(_) => 2,
            None if self.blocks.contains_key(&node) => 0,
            None => self.types.number(node),
        }
    }

    fn is_late(&self) -> bool {
        self.limit.is_over()
    }
}
