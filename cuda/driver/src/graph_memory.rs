//! The memory that graphs' allocation nodes stand for.

use crate::abi::Addr;
use crate::arena::rounded;
use crate::blocks::{Block, Kind};
use crate::error::*;
use crate::params::{AllocNode, Location, PoolProps};
use crate::state::{Core, Here};

/// The memory of an allocation node: an address for as long as a graph may use it, bytes only while it is live.
pub struct GraphMemory {
    bytes: u64,
    at: Here,
    owners: u32,
}

impl GraphMemory {
    /// The node's parameters, as the program would read them back.
    pub fn params(&self, at: Addr) -> AllocNode {
        let location = Location { kind: 1, id: self.at.device };
        let pool = PoolProps {
            kind: 1,
            handle_types: 0,
            location,
            windows: 0,
            most: 0,
            usage: 0,
            reserved: [0; 54],
        };
        AllocNode { pool, access: 0, access_count: 0, bytes: self.bytes as usize, at }
    }
}

impl Core {
    /// An address for an allocation node; nothing is charged yet.
    pub fn reserve_graph_memory(&mut self, bytes: u64, at: Here) -> Res<Addr> {
        let size = rounded(bytes).ok_or(OUT_OF_MEMORY)?;
        let address = self.device(at.device)?.arena.take(size).ok_or(OUT_OF_MEMORY)?;
        self.graph_memory.insert(address, GraphMemory { bytes, at, owners: 1 });
        Ok(address)
    }

    pub fn own_graph_memory(&mut self, at: Addr) {
        if let Some(memory) = self.graph_memory.get_mut(&at) {
            memory.owners += 1;
        }
    }

    pub fn disown_graph_memory(&mut self, at: Addr) {
        if let Some(memory) = self.graph_memory.get_mut(&at) {
            memory.owners -= 1;
            self.return_graph_memory(at);
        }
    }

    /// Gives the address back once no graph can use it and its memory has ended.
    fn return_graph_memory(&mut self, at: Addr) {
        let live = self.blocks.contains_key(&at);
        if let Some(memory) = self.graph_memory.get(&at).filter(|m| m.owners == 0 && !live) {
            let (device, size) = (memory.at.device, rounded(memory.bytes).unwrap_or(0));
            self.graph_memory.remove(&at);
            if let Ok(device) = self.device(device) {
                device.arena.give(at, size);
            }
        }
    }

    /// A launch reaches an allocation node.
    pub fn begin_graph_memory(&mut self, at: Addr) -> Res {
        let memory = self.graph_memory.get(&at).ok_or(INVALID_VALUE)?;
        let (bytes, place) = (memory.bytes, memory.at);
        let size = rounded(bytes).ok_or(OUT_OF_MEMORY)?;
        self.charge(place.device, size)?;
        let used = &mut self.device(place.device)?.graph_used;
        used.0 += size;
        used.1 = used.1.max(used.0);
        self.begin("cuGraphLaunch", at, Block::new(Kind::Graph, bytes, size, place));
        Ok(())
    }

    /// Its block has ended, by a free node or any other free.
    pub fn graph_block_ended(&mut self, at: Addr) {
        let Some(memory) = self.graph_memory.get(&at) else { return };
        let (device, size) = (memory.at.device, rounded(memory.bytes).unwrap_or(0));
        if let Ok(device) = self.device(device) {
            device.used -= size;
            device.graph_used.0 -= size;
        }
        crate::arena::discard(at, size);
        self.return_graph_memory(at);
    }
}
