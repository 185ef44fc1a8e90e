//! Graphs with memory in them: an allocation node has its address from the beginning, but its memory only
//! from a launch on.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::driver::Driver;
use super::totals::{Books, MAX_HALVES};
use crate::format::event::{Event, EventKind, MemoryClass};
use crate::int_map::IntMap;

/// Allocation nodes kept. Of a program that makes more without launching them, launches are booked on the
/// line that launched.
const MAX_ALLOC_NODES: usize = 65_536;

/// Where an allocation node was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct AllocNode {
    stack: u32,
    entry_point: u16,
}

/// What an executable graph does to an address.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Node {
    address: u64,
    bytes: u64,
    device: u8,
    frees: bool,
}

/// The executable graphs, and what is known of their nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Graphs {
    /// By address.
    #[serde(with = "crate::int_map::as_list")]
    alloc_nodes: IntMap<u64, AllocNode>,
    #[serde(with = "crate::int_map::as_list")]
    execs: IntMap<u64, Vec<Node>>,
    /// Each `GraphNode` whose `GraphExec` must have the next sequence number: its own, and the node.
    half_nodes: Vec<(u64, Node)>,
}

impl Graphs {
    pub fn alloc_node(&mut self, e: &Event) {
        if self.alloc_nodes.len() >= MAX_ALLOC_NODES {
            self.alloc_nodes.clear();
        }
        self.alloc_nodes.insert(e.address, AllocNode { stack: e.stack, entry_point: e.entry_point });
    }

    /// Keeps a node until its executable graph comes.
    pub fn node(&mut self, e: &Event) {
        let node = Node { address: e.address, bytes: e.size, device: e.device, frees: e.context == 1 };
        if self.half_nodes.len() >= MAX_HALVES {
            self.half_nodes.remove(0);
        }
        self.half_nodes.push((e.seq, node));
    }

    pub fn exec(&mut self, e: &Event) {
        if let Some(at) = self.half_nodes.iter().position(|half| half.0.wrapping_add(1) == e.seq) {
            let (_, node) = self.half_nodes.remove(at);
            self.execs.entry(e.address).or_default().push(node);
        }
    }

    pub fn end(&mut self, e: &Event) {
        self.execs.remove(&e.address);
    }

    /// Allocates and frees what a launch does. What is allocated and freed in the same launch was never
    /// there, as far as a boundary can see.
    pub fn launch(&self, driver: &mut Driver, books: &mut Books, e: &Event) {
        let Some(nodes) = self.execs.get(&e.address) else { return };
        let addresses = |frees: bool| -> BTreeSet<u64> {
            nodes.iter().filter(|n| n.frees == frees).map(|n| n.address).collect()
        };
        let (allocated, freed) = (addresses(false), addresses(true));
        for node in nodes {
            let class = MemoryClass::Graph as u8;
            let free = Event { address: node.address, class, ..Event::new(EventKind::Free) };
            if node.frees && !allocated.contains(&node.address) {
                driver.free(books, &free);
            }
            if node.frees || freed.contains(&node.address) {
                continue;
            }
            // Launched again with its memory still out: it may do so only if it frees that itself first.
            if driver.is_alive(node.address) {
                driver.free(books, &free);
            }
            let made = self.alloc_nodes.get(&node.address);
            let (stack, entry_point) = made.map_or((e.stack, e.entry_point), |n| (n.stack, n.entry_point));
            let alloc = Event {
                address: node.address,
                size: node.bytes,
                device: node.device,
                context: e.context,
                class,
                stack,
                entry_point,
                ..Event::new(EventKind::Alloc)
            };
            driver.alloc(books, &alloc);
        }
    }
}
