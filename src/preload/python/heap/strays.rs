//! Every object that the cyclic collector knows.
//!
//! From 3.12 on the interpreter shows them itself. Before, they hang in rings whose heads lie in the interpreter's state; those
//! are recognised by the word behind the three heads, which is the address of the first.

use std::ffi::{c_int, c_void};

use crate::python::heap::Heap;
use crate::python::heap::objects::Kind;
use crate::python::heap::objects::word;
use crate::python::heap::peek;
use leaktrace_core::holders::{Node, Nodes};

/// Words of the interpreter's state that are looked through for the heads of the rings.
const STATE: usize = 64 << 10;
const GENERATIONS: usize = 3;
/// `struct gc_generation`, and what comes behind three of them: the first one's address, the permanent generation, three
/// records of figures, and whether a collection is under way.
const GENERATION: usize = 24;
const COLLECTING: usize = 3 * GENERATION + 8 + GENERATION + 3 * 24;
/// From the head of an object in a ring to the object.
const HEAD: u64 = 16;

impl Heap<'_> {
    /// Every collected object, in no order.
    fn everything(&self) -> Option<Vec<Node>> {
        unsafe extern "C" fn visit(object: *mut c_void, all: *mut c_void) -> c_int {
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
            // SAFETY: the head of a ring of objects, found to be one; with the GIL held and no collection under way the
            // rings are whole, and each word leads to the next object's head.
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

    /// The address of the first generation's head.
    fn rings(&self) -> Option<u64> {
        // SAFETY: asked with the GIL held.
        let state = unsafe { (self.api.interpreter)() }.addr() as u64;
        [state, self.api.runtime].into_iter().find_map(|base| {
            for page in 0..STATE / 512 {
                let begin = base + page as u64 * 4096;
                let seen = peek::read(&[(begin, 512 + GENERATIONS * 3 + 1)]);
                let words = seen.get(0);
                for i in 0..512 {
                    let head = begin + 8 * i as u64;
                    if words[i + GENERATIONS * 3] == head && is_ring(head) {
                        return Some(head);
                    }
                }
            }
            None
        })
    }

    /// What `reached` does not know, with reference counts.
    pub(crate) fn unreached(&mut self, reached: &dyn Fn(Node) -> bool) -> Option<Vec<(Node, i64)>> {
        // Who cannot read a tensor must not say that nothing holds its memory.
        if self.saw_tensors && !self.cpp.knows_storages() {
            return None;
        }
        let all = self.everything()?;
        let mut strays = Vec::new();
        for object in all {
            if reached(object) || self.namespaces.contains_key(&object) {
                continue;
            }
            if self.types.of(object).is_none_or(|info| info.kind == Kind::Module) {
                continue;
            }
            // SAFETY: an object that is alive; from 3.12 on the count is the lower half of the word, and before nobody has
            // so many references that the upper half mattered.
            let count = unsafe { word(object, crate::python::heap::layout::REFERENCES) } as u32;
            strays.push((object, i64::from(count)));
        }
        Some(strays)
    }

    /// The living contexts of autograd functions written in Python.
    pub(crate) fn contexts(&mut self) -> &Nodes {
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
}

/// Whether three rings begin here, and nobody is taking them apart.
fn is_ring(head: u64) -> bool {
    let word = |address: u64| peek::read(&[(address, 1)]).get(0)[0];
    let whole = (0..GENERATIONS as u64).all(|i| {
        let head = head + i * GENERATION as u64;
        let next = word(head);
        peek::is_plausible(next) && word(next + 8) & !3 == head
    });
    whole && word((head + COLLECTING as u64) & !7) as u32 & 1 == 0
}
