//! Live ranges of memory, whatever made them: how they begin and end.

use crate::abi::pointers::{Addr, Handle};
use crate::abi::status::*;
use crate::state::arena::{LARGE, rounded};
use crate::state::device::Owner;
use crate::state::driver::Driver;
use crate::state::mapping::{PAGE, map_within, unmap};
use crate::state::memory::{Block, Kind};

/// The step of physical handles and their mappings.
pub const GRANULARITY: u64 = LARGE;

impl Driver {
    /// Allocates linear memory of any kind that is charged to a device.
    pub fn allocate(&mut self, api: &str, kind: Kind, requested: u64, owner: Owner) -> Res<Addr> {
        if requested == 0 {
            return Err(INVALID_VALUE);
        }
        let size = rounded(requested).ok_or(OUT_OF_MEMORY)?;
        let address = match kind {
            Kind::Pool(pool) => self.allocate_in_pool(pool, size)?,
            _ => self.allocate_range(owner.device, size)?,
        };
        self.add_block(api, address, Block::new(kind, requested, size, owner));
        Ok(address)
    }

    pub fn add_block(&mut self, api: &str, at: Addr, mut block: Block) {
        block.id = self.new_id();
        if block.kind.is_logged() {
            self.truth_log.write('+', api, at, block.requested, block.logged_device());
        }
        self.blocks.insert(at, block);
    }

    /// Ends a block and what stands behind it.
    pub fn end_block(&mut self, api: &str, at: Addr) -> Res {
        let block = self.blocks.remove(&at).ok_or(INVALID_VALUE)?;
        if block.kind.is_logged() {
            self.truth_log.write('-', api, at, block.requested, block.logged_device());
        }
        match block.kind {
            Kind::Device | Kind::Managed | Kind::Global => self.free_range(block.device, at, block.size),
            Kind::Pool(pool) => self.free_in_pool(pool, at, block.size),
            Kind::Graph => self.end_graph_block(at),
            Kind::Pinned => unmap(at, block.size),
            Kind::Registered => {}
            Kind::Map(physical) => self.end_mapping(api, at, block.size, physical),
            Kind::Ipc { skip, .. } | Kind::Foreign { skip, .. } => {
                unmap(at - skip, (skip + block.size).next_multiple_of(PAGE))
            }
        }
        Ok(())
    }

    /// Maps `bytes` of a file that somebody else made, as a block.
    pub fn map_foreign(
        &mut self,
        api: &str,
        file: i32,
        offset: u64,
        bytes: u64,
        from_pool: bool,
        owner: Owner,
    ) -> Res<Addr> {
        let (start, skip) = map_within(file, offset, bytes)?;
        let address = start + skip;
        self.add_block(api, address, Block::new(Kind::Foreign { skip, from_pool }, bytes, bytes, owner));
        Ok(address)
    }

    /// Ends every block that a context owns: all but mappings, whose reservations and handles are
    /// the process's.
    pub fn end_blocks_of(&mut self, context: Handle) {
        let mine = |b: &Block| b.context == context && !matches!(b.kind, Kind::Map(_));
        let all: Vec<Addr> = self.blocks.iter().filter(|(_, b)| mine(b)).map(|(&at, _)| at).collect();
        for at in all {
            let _ = self.end_block("implicit", at);
        }
    }
}
