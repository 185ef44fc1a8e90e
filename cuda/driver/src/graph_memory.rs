//! The memory that graphs' allocation nodes stand for.
//!
//! What a graph's block leaves when it ends stays reserved for graphs, charged to the device, until it is trimmed.

use crate::abi::{Addr, In, Out};
use crate::arena::rounded;
use crate::blocks::{Block, Kind};
use crate::error::*;
use crate::params::{AllocNode, Location, PoolProps};
use crate::state::{Core, Here, with};

/// The memory of an allocation node: an address for as long as a graph may use it, bytes only while it is live.
pub struct GraphMemory {
    bytes: u64,
    at: Here,
    owners: u32,
}

/// A device's memory for graphs: what live blocks use, and what is charged for them.
#[derive(Default)]
pub struct GraphPool {
    used: u64,
    used_high: u64,
    reserved: u64,
    reserved_high: u64,
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

    /// May a graph free it, or hold the node that makes it?
    pub fn is_graph_memory(&self, at: Addr) -> bool {
        self.graph_memory.contains_key(&at)
    }

    /// Documented: only one executable graph of a graph with memory nodes may exist.
    pub fn is_instantiated(&self, at: Addr) -> bool {
        self.graph_memory.get(&at).is_some_and(|m| m.owners > 1)
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
        let pool = &self.device(place.device)?.graph_pool;
        let lacking = (pool.used + size).saturating_sub(pool.reserved);
        self.charge(place.device, lacking)?;
        // Charging may have trimmed this pool; then what it gave up is lacking too.
        let pool = &mut self.device(place.device)?.graph_pool;
        let gone = (pool.used + size).saturating_sub(pool.reserved + lacking);
        self.charge(place.device, gone).inspect_err(|_| self.uncharge(place.device, lacking))?;
        let pool = &mut self.device(place.device)?.graph_pool;
        pool.reserved += lacking + gone;
        pool.used += size;
        pool.reserved_high = pool.reserved_high.max(pool.reserved);
        pool.used_high = pool.used_high.max(pool.used);
        self.begin("cuGraphLaunch", at, Block::new(Kind::Graph, bytes, size, place));
        Ok(())
    }

    /// Its block has ended, by a free node or any other free.
    pub fn graph_block_ended(&mut self, at: Addr) {
        let Some(memory) = self.graph_memory.get(&at) else { return };
        let (device, size) = (memory.at.device, rounded(memory.bytes).unwrap_or(0));
        if let Ok(device) = self.device(device) {
            device.graph_pool.used -= size;
        }
        crate::arena::discard(at, size);
        self.return_graph_memory(at);
    }

    /// Gives back what is reserved for graphs and not in use.
    pub fn trim_graph_memory(&mut self, device: i32) -> Res {
        let pool = &mut self.device(device)?.graph_pool;
        let unused = pool.reserved - pool.used;
        pool.reserved = pool.used;
        self.uncharge(device, unused);
        Ok(())
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGraphMemTrim(device: i32) -> Status {
    distinct!(cuDeviceGraphMemTrim);
    with(|core| core.trim_graph_memory(device))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetGraphMemAttribute(device: i32, attribute: i32, out: Out<u64>) -> Status {
    distinct!(cuDeviceGetGraphMemAttribute);
    with(|core| {
        let pool = &core.device(device)?.graph_pool;
        match attribute {
            0 => out.put(pool.used),
            1 => out.put(pool.used_high),
            2 => out.put(pool.reserved),
            3 => out.put(pool.reserved_high),
            _ => Err(INVALID_VALUE),
        }
    })
}

/// A high mark can only be reset.
#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceSetGraphMemAttribute(device: i32, attribute: i32, value: In<u64>) -> Status {
    distinct!(cuDeviceSetGraphMemAttribute);
    with(|core| {
        let pool = &mut core.device(device)?.graph_pool;
        match attribute {
            1 | 3 if value.get()? != 0 => return Err(INVALID_VALUE),
            1 => pool.used_high = pool.used,
            3 => pool.reserved_high = pool.reserved,
            _ => return Err(INVALID_VALUE),
        }
        Ok(())
    })
}
