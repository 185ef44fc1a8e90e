//! Graphs with memory in them: an allocation node has its address from the beginning, but its memory only from a launch on.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::Ledger;
use super::keys::Map;
use crate::format::event::{Event, EventKind, MemoryClass};

/// Plans kept; a program that makes more without launching them finds its launches at the launching line.
const MAX_PLANS: usize = 65_536;

/// An allocation that a graph will make: whose line it was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Plan {
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

/// Every graph that was made executable, and what is known of its nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Graphs {
    /// By address.
    #[serde(with = "super::keys::listed")]
    plans: Map<Plan>,
    #[serde(with = "super::keys::listed")]
    execs: Map<Vec<Node>>,
    /// Each `GraphNode` whose `GraphExec` must have the next sequence number, and its own.
    half_nodes: Vec<(u64, Node)>,
}

impl Ledger {
    pub(super) fn plan(&mut self, e: &Event) {
        if self.graphs.plans.len() >= MAX_PLANS {
            self.graphs.plans.clear();
        }
        self.graphs.plans.insert(e.address, Plan { stack: e.stack, entry_point: e.entry_point });
    }

    pub(super) fn graph_node(&mut self, e: &Event) {
        let node = Node { address: e.address, bytes: e.size, device: e.device, frees: e.context == 1 };
        if self.graphs.half_nodes.len() >= super::MAX_HALVES {
            self.graphs.half_nodes.remove(0);
        }
        self.graphs.half_nodes.push((e.seq, node));
    }

    pub(super) fn graph_exec(&mut self, e: &Event) {
        if let Some(at) = self.graphs.half_nodes.iter().position(|half| half.0.wrapping_add(1) == e.seq) {
            let (_, node) = self.graphs.half_nodes.remove(at);
            self.graphs.execs.entry(e.address).or_default().push(node);
        }
    }

    pub(super) fn graph_end(&mut self, e: &Event) {
        self.graphs.execs.remove(&e.address);
    }

    /// What is allocated and freed in the same launch was never there, as far as a boundary can see.
    pub(super) fn graph_launch(&mut self, e: &Event) {
        let Some(nodes) = self.graphs.execs.get(&e.address).cloned() else { return };
        let addresses = |frees: bool| -> BTreeSet<u64> {
            nodes.iter().filter(|n| n.frees == frees).map(|n| n.address).collect()
        };
        let (allocated, freed) = (addresses(false), addresses(true));
        for node in &nodes {
            let free = Event {
                address: node.address,
                class: MemoryClass::Graph as u8,
                ..Event::new(EventKind::Free)
            };
            if node.frees && !allocated.contains(&node.address) {
                self.free(&free);
            }
            if node.frees || freed.contains(&node.address) {
                continue;
            }
            // Launched again with its memory still out: it may do so only if it frees that itself first.
            if self.driver.is_alive(node.address) {
                self.free(&free);
            }
            let plan = self.graphs.plans.get(&node.address);
            let (stack, entry_point) = plan.map_or((e.stack, e.entry_point), |p| (p.stack, p.entry_point));
            self.alloc(&Event {
                address: node.address,
                size: node.bytes,
                device: node.device,
                context: e.context,
                class: MemoryClass::Graph as u8,
                stack,
                entry_point,
                ..Event::new(EventKind::Alloc)
            });
        }
    }
}
