//! Streams, events, captures and graphs.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::abi::pointers::{Addr, Handle};
use crate::abi::records::{Copy3D, HostNode, KernelNode, MemsetNode};

pub struct StreamState {
    pub context: Handle,
    pub device: i32,
    pub flags: u32,
    pub priority: i32,
    pub id: u64,
    /// The capture that the stream takes part in, and the nodes that its next node will depend on.
    pub capture: Option<u64>,
    pub tail: Vec<Handle>,
}

pub struct Event {
    pub context: Handle,
    pub flags: u32,
    /// When it was last recorded, which is when it completed.
    pub at_ns: Option<u64>,
    /// The capture that recorded it, and after which nodes.
    pub capture: Option<(u64, Vec<Handle>)>,
}

impl Event {
    pub fn new(context: Handle, flags: u32) -> Event {
        Event { context, flags, at_ns: None, capture: None }
    }
}

thread_local! {
    /// This thread's stream capture mode. It needs no destructor: frees arrive after those have run.
    pub static CAPTURE_MODE: Cell<i32> = const { Cell::new(0) };
}

pub struct Capture {
    pub graph: Handle,
    /// The stream it began in, which must end it.
    pub origin: Handle,
    pub mode: i32,
    pub thread: i32,
    pub valid: bool,
    /// Whether it goes into a graph that the program had already.
    pub into_existing: bool,
}

/// What a graph node does.
#[derive(Clone)]
pub enum Op {
    Kernel(KernelNode),
    Copy(Box<Copy3D>),
    Set(MemsetNode),
    Host(HostNode),
    Child(Handle),
    Empty,
    Wait(Handle),
    Record(Handle),
    Alloc(Addr),
    Free(Addr),
    /// A `CUgraphNodeType` without parameters that matter here.
    Other(i32),
}

// The program hands over the pointers in these records to be used on any thread.
// SAFETY: they are only ever passed back to the program, or to the program's own function.
unsafe impl Send for Op {}
// SAFETY: as above.
unsafe impl Sync for Op {}

impl Op {
    /// Returns its `CUgraphNodeType`.
    pub fn kind(&self) -> i32 {
        match self {
            Op::Kernel(_) => 0,
            Op::Copy(_) => 1,
            Op::Set(_) => 2,
            Op::Host(_) => 3,
            Op::Child(_) => 4,
            Op::Empty => 5,
            Op::Wait(_) => 6,
            Op::Record(_) => 7,
            Op::Alloc(_) => 10,
            Op::Free(_) => 11,
            Op::Other(kind) => *kind,
        }
    }
}

#[derive(Default, Clone)]
pub struct Graph {
    /// In the order they were made.
    pub nodes: BTreeMap<Handle, Op>,
    /// From the node before to the node after.
    pub edges: BTreeSet<(Handle, Handle)>,
    /// For a clone: the original's nodes and the clone's.
    pub cloned_from: BTreeMap<Handle, Handle>,
}

impl Graph {
    /// Returns the nodes in an order that respects the edges, or none if there is a cycle.
    pub fn order(&self) -> Option<Vec<Handle>> {
        let mut missing: BTreeMap<Handle, usize> = self.nodes.keys().map(|&n| (n, 0)).collect();
        for edge in &self.edges {
            *missing.get_mut(&edge.1)? += 1;
        }
        let mut ready: BTreeSet<Handle> = missing.iter().filter(|m| *m.1 == 0).map(|m| *m.0).collect();
        let mut order = Vec::with_capacity(self.nodes.len());
        while let Some(node) = ready.pop_first() {
            order.push(node);
            for &(_, next) in self.edges.range((node, 0)..=(node, usize::MAX)) {
                let count = missing.get_mut(&next)?;
                *count -= 1;
                if *count == 0 {
                    ready.insert(next);
                }
            }
        }
        (order.len() == self.nodes.len()).then_some(order)
    }

    pub fn has_memory_nodes(&self) -> bool {
        self.nodes.values().any(|op| matches!(op, Op::Alloc(_) | Op::Free(_)))
    }
}

/// Returns the addresses that allocation nodes among `ops` stand for.
pub fn allocations<'a>(ops: impl IntoIterator<Item = &'a Op>) -> Vec<Addr> {
    ops.into_iter().filter_map(|op| if let Op::Alloc(at) = op { Some(*at) } else { None }).collect()
}

/// An executable graph.
pub struct Exec {
    pub ops: Arc<Vec<Op>>,
    /// How many nodes its graph had: an update must have as many.
    pub node_count: usize,
    pub flags: u64,
}
