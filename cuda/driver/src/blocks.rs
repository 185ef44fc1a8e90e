//! Every live range of memory, whatever made it, keyed by its address: how they begin, are found, and end.

use crate::abi::{Addr, Handle};
use crate::arena::{LARGE, PAGE, RW, map, rounded, unmap};
use crate::error::*;
use crate::state::{Core, Here};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Device,
    Managed,
    /// From a pool.
    Pool(Handle),
    /// From a graph's allocation node; the address belongs to the node.
    Graph,
    Pinned,
    /// The program's own memory, page-locked.
    Registered,
    /// A mapping of a physical handle; the address belongs to a reservation.
    Map(u64),
    /// Another process's block, opened so many times; `skip` bytes into our mapping of it.
    Ipc {
        opened: u32,
        skip: u64,
        inode: u64,
        offset: u64,
    },
    /// Another's memory, imported as a file or from another process's pool; `skip` bytes into our mapping of it.
    Foreign {
        skip: u64,
        from_pool: bool,
    },
    /// A module's variable: part of the code, not an allocation.
    Global,
}

impl Kind {
    pub fn on_host(self) -> bool {
        matches!(self, Kind::Pinned | Kind::Registered)
    }

    /// May the host read and write it behind the driver's back?
    pub fn shared_with_host(self) -> bool {
        self.on_host() || self == Kind::Managed
    }

    fn is_in_truth(self) -> bool {
        !matches!(
            self,
            Kind::Registered | Kind::Map(_) | Kind::Ipc { .. } | Kind::Foreign { .. } | Kind::Global
        )
    }
}

pub struct Block {
    pub kind: Kind,
    pub asked: u64,
    pub size: u64,
    pub device: i32,
    pub context: Handle,
    pub id: u64,
    pub flags: u32,
    pub sync_operations: bool,
}

impl Block {
    pub fn new(kind: Kind, asked: u64, size: u64, at: Here) -> Block {
        Block {
            kind,
            asked,
            size,
            device: at.device,
            context: at.context,
            id: 0,
            flags: 0,
            sync_operations: false,
        }
    }

    fn truth_device(&self) -> i32 {
        if self.kind.on_host() { -1 } else { self.device }
    }
}

impl Core {
    /// Counts bytes against the device; pools give back what they hold unused before this fails.
    pub fn charge(&mut self, device: i32, bytes: u64) -> Res {
        let limit = self.memory;
        let fits = |used: u64| used.checked_add(bytes).is_some_and(|sum| sum <= limit);
        if !fits(self.device(device)?.used) {
            self.empty_pools(device);
        }
        let device = self.device(device)?;
        if !fits(device.used) {
            return Err(OUT_OF_MEMORY);
        }
        device.used += bytes;
        Ok(())
    }

    pub fn uncharge(&mut self, device: i32, bytes: u64) {
        if let Ok(device) = self.device(device) {
            device.used -= bytes;
        }
    }

    /// Charges and places `size` rounded bytes.
    pub fn place(&mut self, device: i32, size: u64) -> Res<Addr> {
        self.charge(device, size)?;
        let at = self.device(device)?.arena.take(size);
        at.ok_or_else(|| {
            self.uncharge(device, size);
            OUT_OF_MEMORY
        })
    }

    pub fn displace(&mut self, device: i32, at: Addr, size: u64) {
        if let Ok(device) = self.device(device) {
            device.used -= size;
            device.arena.give(at, size);
        }
    }

    /// Linear memory of any kind that is charged to a device.
    pub fn allocate(&mut self, api: &str, kind: Kind, asked: u64, at: Here) -> Res<Addr> {
        if asked == 0 {
            return Err(INVALID_VALUE);
        }
        let size = rounded(asked).ok_or(OUT_OF_MEMORY)?;
        let address = match kind {
            Kind::Pool(pool) => self.place_in_pool(pool, size)?,
            _ => self.place(at.device, size)?,
        };
        self.begin(api, address, Block::new(kind, asked, size, at));
        Ok(address)
    }

    pub fn begin(&mut self, api: &str, at: Addr, mut block: Block) {
        block.id = self.handle() as u64 >> 4;
        if block.kind.is_in_truth() {
            self.truth.line('+', api, at, block.asked, block.truth_device());
        }
        self.blocks.insert(at, block);
    }

    /// Ends a block and whatever stands behind it.
    pub fn end(&mut self, api: &str, at: Addr) -> Res {
        let block = self.blocks.remove(&at).ok_or(INVALID_VALUE)?;
        if block.kind.is_in_truth() {
            self.truth.line('-', api, at, block.asked, block.truth_device());
        }
        match block.kind {
            Kind::Device | Kind::Managed | Kind::Global => self.displace(block.device, at, block.size),
            Kind::Pool(pool) => self.displace_in_pool(pool, at, block.size),
            Kind::Graph => self.graph_block_ended(at),
            Kind::Pinned => unmap(at, block.size),
            Kind::Registered => {}
            Kind::Map(physical) => self.mapping_ended(api, at, block.size, physical),
            Kind::Ipc { skip, .. } | Kind::Foreign { skip, .. } => {
                unmap(at - skip, (skip + block.size).next_multiple_of(PAGE))
            }
        }
        Ok(())
    }

    /// Maps `bytes` of another's file as a block of its own.
    pub fn begin_foreign(
        &mut self,
        api: &str,
        file: i32,
        offset: u64,
        bytes: u64,
        from_pool: bool,
        at: Here,
    ) -> Res<Addr> {
        let (start, skip) = map_within(file, offset, bytes)?;
        let address = start + skip;
        self.begin(api, address, Block::new(Kind::Foreign { skip, from_pool }, bytes, bytes, at));
        Ok(address)
    }

    /// The block an address lies in.
    pub fn find(&self, at: Addr) -> Option<(Addr, &Block)> {
        let (&start, block) = self.blocks.range(..=at).next_back()?;
        (at - start < block.asked).then_some((start, block))
    }

    pub fn find_mut(&mut self, at: Addr) -> Option<(Addr, &mut Block)> {
        let (&start, block) = self.blocks.range_mut(..=at).next_back()?;
        (at - start < block.asked).then_some((start, block))
    }

    /// Is every byte of the range in one live block, or in adjacent mappings?
    pub fn covered(&self, mut at: Addr, bytes: u64) -> bool {
        let Some(end) = at.checked_add(bytes) else { return false };
        let mut first = true;
        while at < end {
            let Some((&start, block)) = self.blocks.range(..=at).next_back() else { return false };
            let goes_on = first || matches!(block.kind, Kind::Map(_));
            if at - start >= block.size || !goes_on {
                return false;
            }
            at = start + block.size;
            first = false;
            if at < end && !matches!(block.kind, Kind::Map(_)) {
                return false;
            }
        }
        true
    }

    /// Is this memory that only kernels and copies write?
    pub fn is_device_only(&self, at: Addr) -> bool {
        self.blocks
            .range(..=at)
            .next_back()
            .is_some_and(|(start, b)| at - start < b.size && !b.kind.shared_with_host())
    }

    /// Ends every block that a context owns: all but mappings, whose reservations and handles are the process's.
    pub fn end_blocks_of(&mut self, context: Handle) {
        let mine = |b: &Block| b.context == context && !matches!(b.kind, Kind::Map(_));
        let all: Vec<Addr> = self.blocks.iter().filter(|(_, b)| mine(b)).map(|(&at, _)| at).collect();
        for at in all {
            let _ = self.end("implicit", at);
        }
    }
}

/// Maps the pages of a file that hold a range of it: where they are, and how far into them the range starts.
pub fn map_within(file: i32, offset: u64, bytes: u64) -> Res<(Addr, u64)> {
    let skip = offset % PAGE;
    let start = map(0, (skip + bytes).next_multiple_of(PAGE), RW, file, (offset - skip) as i64);
    Ok((start.ok_or(OUT_OF_MEMORY)?, skip))
}

/// The step of physical handles and their mappings.
pub const GRANULARITY: u64 = LARGE;
