//! Every object that the cyclic collector knows, and those among them that no root reaches.
//!
//! From 3.12 on the interpreter shows them itself. Before, they are in circular lists, one per generation of the collector.

use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;

use crate::python::api::Object;
use crate::python::gc::{GENERATION, GENERATIONS};
use crate::python::heap::Heap;
use crate::python::heap::objects::Kind;
use crate::python::memory::{is_plausible, word};
use crate::python::offsets::OB_REFCNT;
use leaktrace_core::holders::{Node, Nodes};

/// From the head of an object in a ring to the object.
const HEAD: u64 = 16;

impl Heap<'_> {
    /// Returns every collected object, in no order.
    fn everything(&self) -> Option<Vec<Node>> {
        unsafe extern "C" fn visit(object: Object, all: *mut c_void) -> c_int {
            // SAFETY: the vector handed over below. The interpreter goes on while it gets a 1.
            unsafe { (*all.cast::<Vec<Node>>()).push(object.expose_provenance() as u64) };
            1
        }
        let mut all: Vec<Node> = Vec::new();
        if let Some(show) = self.api.visit_objects {
            // SAFETY: with the GIL held; `visit` makes and frees no object.
            unsafe { show(visit, (&raw mut all).cast()) };
            return Some(all);
        }
        let heads = self.rings()?;
        for generation in 0..GENERATIONS {
            let head = heads + (generation * GENERATION) as u64;
            // SAFETY: the head of a ring of objects, found to be one; with the GIL held and no collection
            // under way the rings are whole, and each word leads to the next object's head.
            unsafe {
                let mut at = word(head, 0);
                while at != head && at != 0 {
                    all.push(at + HEAD);
                    at = word(at, 0);
                }
            }
        }
        Some(all)
    }

    /// Returns the address of the first generation's head, unless a collection takes the rings apart.
    fn rings(&self) -> Option<u64> {
        crate::python::gc::find(self.python);
        let first = self.cpython.generations.load(Ordering::Acquire) as u64;
        // SAFETY: the collector's state, found by its shape, and the ring that each of its heads begins.
        let is_whole = |head: u64| unsafe {
            let next = word(head, 0);
            is_plausible(next) && word(next, 8) & !3 == head
        };
        // SAFETY: a part of the collector's state; an `int`.
        let idle = first != 0
            && unsafe { word(first, self.cpython.layout.collector.after_generations) } as u32 & 1 == 0;
        let whole = |first| (0..GENERATIONS).all(|i| is_whole(first + (i * GENERATION) as u64));
        (idle && whole(first)).then_some(first)
    }

    /// Returns the objects that are not `reached`, with their reference counts.
    pub fn unreached(&mut self, reached: &dyn Fn(Node) -> bool) -> Option<Vec<(Node, i64)>> {
        // Where tensors cannot be read, nothing may be said to hold their memory.
        if self.saw_tensors && !self.graph.knows_storages() {
            return None;
        }
        let all = self.everything()?;
        let mut strays = Vec::new();
        for object in all {
            if reached(object) || self.namespaces.contains_key(&object) {
                continue;
            }
            if self.records.contains_key(&object)
                || self.types.of(object).is_none_or(|info| matches!(info.kind, Kind::Module | Kind::Record))
            {
                continue;
            }
            // SAFETY: an object that is alive; from 3.12 on the count is the lower half of the word, and
            // before nobody has so many references that the upper half mattered.
            let count = unsafe { word(object, OB_REFCNT) } as u32;
            strays.push((object, i64::from(count)));
        }
        Some(strays)
    }

    /// Returns the living contexts of autograd functions written in Python.
    pub fn contexts(&mut self) -> &Nodes {
        if self.contexts.is_none() {
            let mut contexts = Nodes::default();
            for object in self.everything().unwrap_or_default() {
                if self.types.of(object).is_some_and(|info| info.kind == Kind::Context) {
                    contexts.insert(object, ());
                }
            }
            self.contexts = Some(contexts);
        }
        self.contexts.get_or_insert_default()
    }

    /// Returns every living object that the collector knows.
    pub fn alive(&mut self) -> &Nodes {
        if self.alive.is_none() {
            let all = self.everything().unwrap_or_default();
            self.alive = Some(all.into_iter().map(|object| (object, ())).collect());
        }
        self.alive.get_or_insert_default()
    }
}
