//! The interpreter's objects, as a world to be searched. With the GIL held, and nothing of the program's own is run: what an
//! object holds is what its type's `tp_traverse` shows, as the cyclic collector asks it; names are read from dicts and
//! structures. No reference is taken, no object is made.
//!
//! Python's objects cannot change or go away while the GIL is held, so they are read directly. C++ objects can (see `cpp`).

mod api;
mod cpp;
mod labels;
mod layout;
mod objects;
mod peek;
mod roots;
mod strays;

use std::time::{Duration, Instant};

use crate::python::all_frames;
use crate::python::all_frames::Interpreter;
use crate::python::heap::api::Api;
use crate::python::heap::cpp::Cpp;
use crate::python::heap::cpp::MemoryClass;
use crate::python::heap::layout::DEQUE_MAXLEN;
use crate::python::heap::layout::LRU_CACHE;
use crate::python::heap::layout::LRU_MAXSIZE;
use crate::python::heap::layout::Layout;
use crate::python::heap::layout::SIZE;
use crate::python::heap::objects::Kind;
use crate::python::heap::objects::Types;
use leaktrace_core::holders::{Node, Nodes, Root, Step, World};

/// The objects of this process, for one search.
pub struct Heap<'a> {
    api: &'static Api,
    interpreter: Interpreter,
    layout: Layout,
    types: Types,
    cpp: Cpp,
    blocks: &'a Nodes,
    /// The lowest and the highest of `blocks`.
    range: (u64, u64),
    /// Dicts of modules: they are names, not holders.
    namespaces: Nodes,
    /// Contexts of autograd functions written in Python that are alive; gathered when first needed.
    contexts: Option<Nodes>,
    saw_tensors: bool,
    limit: Limit,
}

/// How long a search may take: so much of a processor's time, and not much longer by the clock where others need the processor.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    work: Duration,
    until: Instant,
}

/// By the clock a search may take so many times its work.
const PATIENCE: u32 = 4;

impl Limit {
    pub fn new(budget: Duration) -> Limit {
        Limit { work: thread_time() + budget, until: Instant::now() + budget * PATIENCE }
    }

    fn is_over(self) -> bool {
        thread_time() >= self.work || Instant::now() >= self.until
    }
}

/// The processor's time that this thread has used.
fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes a time.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Looks up what is needed, once. Not for the inside of a hook.
pub fn arm() {
    api::arm();
}

/// True if this thread holds the GIL of the main interpreter, now.
pub fn has_gil() -> bool {
    api::get().is_some_and(Api::has_gil)
}

/// Why nothing can be searched here; `None`: it can. With the GIL held.
pub fn obstacle() -> Option<String> {
    let Some(interpreter) = all_frames::interpreter() else {
        return Some("the interpreter is not understood".into());
    };
    if layout::choose(interpreter.minor()).is_none() {
        return Some(format!("the objects of CPython 3.{} are not understood", interpreter.minor()));
    }
    (!peek::is_allowed()).then(|| "process_vm_readv is forbidden here".into())
}

impl<'a> Heap<'a> {
    /// For a search for `blocks` within some limit.
    ///
    /// # Safety
    /// The GIL is held as long as this lives.
    pub unsafe fn new(blocks: &'a Nodes, limit: Limit) -> Option<Heap<'a>> {
        let interpreter = all_frames::interpreter()?;
        let layout = layout::choose(interpreter.minor())?;
        let api = api::get()?;
        let range = (blocks.keys().copied().min().unwrap_or(0), blocks.keys().copied().max().unwrap_or(0));
        let mut heap = Heap {
            api,
            interpreter,
            layout,
            types: Types::new(api),
            cpp: Cpp::default(),
            blocks,
            range,
            namespaces: Nodes::default(),
            contexts: None,
            saw_tensors: false,
            limit,
        };
        heap.learn_namespaces();
        Some(heap)
    }

    fn text(&self, object: Node) -> String {
        // SAFETY: asked only for objects that are `str`, alive under the GIL.
        unsafe { self.interpreter.text(object) }
    }

    /// What Python's object holds.
    fn objects(&mut self, holder: u32, node: Node, work: &mut Work, found: &mut Vec<(u32, Node)>) {
        let Some(info) = self.types.of(node) else { return };
        if info.kind == Kind::Module || self.namespaces.contains_key(&node) {
            return;
        }
        work.children.clear();
        self.types.traverse(node, &info, &mut work.children);
        for &child in &work.children {
            if self.blocks.contains_key(&child) || self.types.may_hold(child) {
                found.push((holder, child));
            }
        }
        match info.kind {
            // The tensor itself is the first word behind the head of its Python object; before 2.10 one comes between that
            // says whose it is.
            Kind::Tensor => {
                work.saw_tensors = true;
                let words = objects::words(node, 2, info.words.min(4));
                work.candidates
                    .extend(words.into_iter().filter(|w| peek::is_plausible(*w)).map(|w| (holder, w)));
            }
            Kind::Other if info.words > 2 => {
                // Memory that is owned by its bare address, as CuPy and `ctypes` do.
                for at in 2..info.words.min(32) {
                    // SAFETY: a word of the fixed part of a living object.
                    let word = unsafe { objects::word(node, at * 8) };
                    if (self.range.0..=self.range.1).contains(&word) && self.blocks.contains_key(&word) {
                        found.push((holder, word));
                    }
                }
                if info.is_graph_node {
                    work.nodes.extend(
                        objects::words(node, 2, 3)
                            .into_iter()
                            .filter(|w| peek::is_plausible(*w))
                            .map(|w| (holder, w)),
                    );
                }
            }
            Kind::Context => work.bodies.push((holder, node, objects::words(node, 2, info.words))),
            _ => {}
        }
    }

    /// Whatever is C++ of it.
    fn natives(&mut self, work: &mut Work, graphs: bool, found: &mut Vec<(u32, Node)>) {
        let addresses: Vec<u64> = work.candidates.iter().map(|&(_, word)| word).collect();
        let classes = self.cpp.classify(&addresses);
        let tensors = work.candidates.iter().zip(classes).filter(|(_, class)| *class == MemoryClass::Tensor);
        work.tensors.extend(tensors.map(|(item, _)| *item));
        self.cpp.tensors(&work.tensors, graphs, self.blocks, found);
        if !graphs {
            return;
        }
        // A node that Python holds as such.
        let addresses: Vec<u64> = work.nodes.iter().map(|&(_, word)| word).collect();
        for (&(holder, node), class) in work.nodes.iter().zip(self.cpp.classify(&addresses)) {
            if matches!(class, MemoryClass::Node(_)) {
                self.cpp.met.insert(node, class);
                found.push((holder, node));
            }
        }
        let mut words = Vec::new();
        self.cpp.nodes(&work.graph, found, &mut words);
        // Of a context only what it has saved: the nodes it knows are those that hold it.
        let mut saved = Vec::new();
        self.cpp.contexts(&work.bodies, &mut saved);
        found.extend(saved.into_iter().filter(|(_, node)| !self.cpp.is_node(*node)));
        if !words.is_empty() {
            let contexts = self.contexts();
            let owned = words.into_iter().filter(|(_, word)| contexts.contains_key(word));
            found.extend(owned);
        }
    }
}

/// What is gathered of a batch before the kernel is asked for all of it at once.
#[derive(Default)]
struct Work {
    children: Vec<Node>,
    saw_tensors: bool,
    candidates: Vec<cpp::Item>,
    tensors: Vec<cpp::Item>,
    nodes: Vec<cpp::Item>,
    graph: Vec<cpp::Item>,
    bodies: Vec<(u32, Node, Vec<u64>)>,
}

impl World for Heap<'_> {
    fn held(&mut self, holders: &[Node], graphs: bool, found: &mut Vec<(u32, Node)>) {
        let mut work = Work::default();
        for (i, &node) in (0u32..).zip(holders) {
            match self.cpp.met.get(&node) {
                Some(MemoryClass::Tensor) => work.tensors.push((i, node)),
                Some(_) => work.graph.push((i, node)),
                None => self.objects(i, node, &mut work, found),
            }
        }
        self.natives(&mut work, graphs, found);
        self.saw_tensors |= work.saw_tensors;
    }

    fn roots(&mut self, rank: usize) -> Option<Vec<Root>> {
        self.roots_of(rank)
    }

    fn steps(&mut self, way: &[Node]) -> Vec<Step> {
        self.labels(way)
    }

    fn is_collection(&mut self, holder: Option<Node>, node: Node) -> bool {
        let own = holder.is_some_and(|h| !self.cpp.met.contains_key(&h) && self.keeps_attributes_in(h, node));
        !own && !self.cpp.met.contains_key(&node)
            && self.types.of(node).is_some_and(|info| info.kind.is_collection())
    }

    fn bound(&mut self, node: Node) -> Option<(u64, u64)> {
        if self.cpp.met.contains_key(&node) || self.blocks.contains_key(&node) {
            return None;
        }
        let info = self.types.of(node)?;
        let (entries, most) = match info.kind {
            Kind::Deque => (node, objects::word_of(node, DEQUE_MAXLEN, &info)?),
            Kind::Lru => {
                // What the collector sees in it is an object; whatever else stands there need not be.
                let (cache, mut held) = (objects::word_of(node, LRU_CACHE, &info)?, Vec::new());
                self.types.traverse(node, &info, &mut held);
                let is_dict = held.contains(&cache) && self.types.of(cache)?.kind == Kind::Dict;
                (cache, objects::word_of(node, LRU_MAXSIZE, &info).filter(|_| is_dict)?)
            }
            _ => return None,
        };
        // SAFETY: a living deque, or the dict of a living cache: its length.
        let now = unsafe { objects::word(entries, SIZE) };
        // Without a bound it says -1.
        (most <= i64::MAX as u64 && now <= most.saturating_add(1)).then_some((now, most))
    }

    fn has_graph(&mut self, node: Node) -> bool {
        match self.cpp.met.get(&node) {
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

    fn strays(&mut self, reached: &dyn Fn(Node) -> bool) -> Option<Vec<(Node, i64)>> {
        self.unreached(reached)
    }

    fn references(&mut self, holder: Node, found: &mut Vec<Node>) {
        if let Some(info) = self.types.of(holder) {
            self.types.traverse(holder, &info, found);
        }
    }

    fn type_name(&mut self, node: Node) -> String {
        match self.cpp.met.contains_key(&node) {
            true => self.cpp.name(node).to_owned(),
            false => self.types.name(node),
        }
    }

    fn sort(&mut self, node: Node) -> u64 {
        match self.cpp.met.get(&node) {
            Some(MemoryClass::Tensor) => 1,
            Some(_) => 2,
            None => self.types.number(node),
        }
    }

    fn is_late(&self) -> bool {
        self.limit.is_over()
    }
}
