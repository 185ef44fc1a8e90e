//! The memory that graphs' allocation nodes stand for.
//!
//! What a graph's block leaves when it ends stays reserved for graphs, charged to the device, until it is
//! trimmed.

use crate::abi::pointers::{Addr, In, Out};
use crate::abi::records::{AllocNode, Location, PoolProps};
use crate::abi::status::*;
use crate::state::arena::rounded;
use crate::state::device::Owner;
use crate::state::driver::Driver;
use crate::state::mapping::discard;
use crate::state::memory::{Block, GraphMemory, Kind, ON_DEVICE};

impl Driver {
    /// Returns the parameters of an allocation node, as the program would read them back.
    pub fn allocation_params(&self, at: Addr) -> Res<AllocNode> {
        let memory = self.graph_memory.get(&at).ok_or(INVALID_VALUE)?;
        let location = Location { kind: ON_DEVICE, id: memory.owner.device };
        let pool = PoolProps {
            kind: 1,
            handle_types: 0,
            location,
            windows: 0,
            max_size: 0,
            usage: 0,
            reserved: [0; 54],
        };
        Ok(AllocNode { pool, access: 0, access_count: 0, bytes: memory.bytes as usize, at })
    }

    /// Reserves an address for an allocation node; nothing is charged yet.
    pub fn reserve_graph_memory(&mut self, bytes: u64, owner: Owner) -> Res<Addr> {
        let size = rounded(bytes).ok_or(OUT_OF_MEMORY)?;
        let address = self.device(owner.device)?.arena.allocate(size).ok_or(OUT_OF_MEMORY)?;
        self.graph_memory.insert(address, GraphMemory { bytes, owner, references: 1 });
        Ok(address)
    }

    /// Returns whether an address belongs to an allocation node.
    pub fn is_graph_memory(&self, at: Addr) -> bool {
        self.graph_memory.contains_key(&at)
    }

    /// Returns whether an executable graph holds the node: documented, only one of a graph with memory nodes
    /// may exist.
    pub fn is_instantiated(&self, at: Addr) -> bool {
        self.graph_memory.get(&at).is_some_and(|m| m.references > 1)
    }

    pub fn retain_graph_memory(&mut self, at: Addr) {
        if let Some(memory) = self.graph_memory.get_mut(&at) {
            memory.references += 1;
        }
    }

    pub fn release_graph_memory(&mut self, at: Addr) {
        if let Some(memory) = self.graph_memory.get_mut(&at) {
            memory.references -= 1;
            self.free_graph_range(at);
        }
    }

    /// Frees the address once no graph can use it and its block has ended.
    fn free_graph_range(&mut self, at: Addr) {
        let live = self.blocks.contains_key(&at);
        if let Some(memory) = self.graph_memory.get(&at).filter(|m| m.references == 0 && !live) {
            let (device, size) = (memory.owner.device, rounded(memory.bytes).unwrap_or(0));
            self.graph_memory.remove(&at);
            if let Ok(device) = self.device(device) {
                device.arena.free(at, size);
            }
        }
    }

    /// Starts the block of an allocation node that a launch has reached.
    pub fn start_graph_block(&mut self, at: Addr) -> Res {
        let memory = self.graph_memory.get(&at).ok_or(INVALID_VALUE)?;
        let (bytes, owner) = (memory.bytes, memory.owner);
        let size = rounded(bytes).ok_or(OUT_OF_MEMORY)?;
        let pool = &self.device(owner.device)?.graph_pool;
        let lacking = (pool.used + size).saturating_sub(pool.reserved);
        self.charge(owner.device, lacking)?;
        // Charging may have trimmed this pool; then what it gave up is lacking too.
        let pool = &mut self.device(owner.device)?.graph_pool;
        let gone = (pool.used + size).saturating_sub(pool.reserved + lacking);
        self.charge(owner.device, gone).inspect_err(|_| self.uncharge(owner.device, lacking))?;
        let pool = &mut self.device(owner.device)?.graph_pool;
        pool.reserved += lacking + gone;
        pool.used += size;
        pool.reserved_high = pool.reserved_high.max(pool.reserved);
        pool.used_high = pool.used_high.max(pool.used);
        self.add_block("cuGraphLaunch", at, Block::new(Kind::Graph, bytes, size, owner));
        Ok(())
    }

    /// Follows the end of a block, by a free node or any other free.
    pub fn end_graph_block(&mut self, at: Addr) {
        let Some(memory) = self.graph_memory.get(&at) else { return };
        let (device, size) = (memory.owner.device, rounded(memory.bytes).unwrap_or(0));
        if let Ok(device) = self.device(device) {
            device.graph_pool.used -= size;
        }
        discard(at, size);
        self.free_graph_range(at);
    }
}

driver_api! {
    fn cuDeviceGraphMemTrim(driver; device: i32) { driver.trim_graph_memory(device) }

    fn cuDeviceGetGraphMemAttribute(driver; device: i32, attribute: i32, out: Out<u64>) {
        let pool = &driver.device(device)?.graph_pool;
        match attribute {
            0 => out.put(pool.used),
            1 => out.put(pool.used_high),
            2 => out.put(pool.reserved),
            3 => out.put(pool.reserved_high),
            _ => Err(INVALID_VALUE),
        }
    }

    /// A high mark can only be reset.
    fn cuDeviceSetGraphMemAttribute(driver; device: i32, attribute: i32, value: In<u64>) {
        let pool = &mut driver.device(device)?.graph_pool;
        match attribute {
            1 | 3 if value.get()? != 0 => return Err(INVALID_VALUE),
            1 => pool.used_high = pool.used,
            3 => pool.reserved_high = pool.reserved,
            _ => return Err(INVALID_VALUE),
        }
        Ok(())
    }
}
