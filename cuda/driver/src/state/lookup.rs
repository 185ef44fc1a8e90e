//! Objects by handle, and blocks by address.

use crate::abi::pointers::{Addr, Handle, LEGACY, PER_THREAD, Stream};
use crate::abi::status::*;
use crate::state::code::{Kernel, Module};
use crate::state::device::{Context, Device, Green, Owner, top};
use crate::state::driver::Driver;
use crate::state::memory::{Array, Block, Kind, Mipmap, Physical, Pool};
use crate::state::work::{Event, Exec, Graph};

/// Returns whether a stream handle names one of the default streams.
pub fn is_default(stream: Stream) -> bool {
    stream.0 == 0 || stream == LEGACY || stream == PER_THREAD
}

impl Driver {
    pub fn device(&mut self, device: i32) -> Res<&mut Device> {
        usize::try_from(device).ok().and_then(|d| self.devices.get_mut(d)).ok_or(INVALID_DEVICE)
    }

    /// Returns the calling thread's current context and its device.
    pub fn current(&self) -> Res<Owner> {
        let context = top();
        if context == 0 {
            return Err(INVALID_CONTEXT);
        }
        let device = self.contexts.get(&context).ok_or(CONTEXT_IS_DESTROYED)?.device;
        Ok(Owner { context, device })
    }

    /// Returns a context by its handle; null means the current one.
    pub fn context(&mut self, context: Handle) -> Res<&mut Context> {
        let context = if context == 0 { self.current()?.context } else { context };
        self.contexts.get_mut(&context).ok_or(INVALID_CONTEXT)
    }

    pub fn green(&self, green: Handle) -> Res<&Green> {
        self.greens.get(&green).ok_or(INVALID_HANDLE)
    }

    /// Returns the handle of the green context that a context belongs to.
    pub fn green_of(&self, context: Handle) -> Option<Handle> {
        self.greens.iter().find(|g| g.1.context == context).map(|g| *g.0)
    }

    /// Returns the context and device of a stream: the current ones for a default stream.
    pub fn stream_owner(&self, stream: Stream) -> Res<Owner> {
        if is_default(stream) {
            return self.current();
        }
        let state = self.streams.get(&stream.0).ok_or(INVALID_HANDLE)?;
        Ok(Owner { context: state.context, device: state.device })
    }

    pub fn event(&mut self, event: Handle) -> Res<&mut Event> {
        self.events.get_mut(&event).ok_or(INVALID_HANDLE)
    }

    pub fn graph(&mut self, graph: Handle) -> Res<&mut Graph> {
        self.graphs.get_mut(&graph).ok_or(INVALID_VALUE)
    }

    /// Returns the graph a node is in. (Node handles are unique in the process.)
    pub fn graph_of(&mut self, node: Handle) -> Res<&mut Graph> {
        self.graphs.values_mut().find(|g| g.nodes.contains_key(&node)).ok_or(INVALID_VALUE)
    }

    pub fn exec(&mut self, exec: Handle) -> Res<&mut Exec> {
        self.execs.get_mut(&exec).ok_or(INVALID_VALUE)
    }

    pub fn module(&self, module: Handle) -> Res<&Module> {
        self.modules.get(&module).ok_or(INVALID_HANDLE)
    }

    pub fn kernel(&self, function: Handle) -> Res<&Kernel> {
        self.kernels.get(&function).ok_or(INVALID_HANDLE)
    }

    pub fn array(&self, array: Handle) -> Res<&Array> {
        self.arrays.get(&array).ok_or(INVALID_HANDLE)
    }

    pub fn mipmap(&self, mipmap: Handle) -> Res<&Mipmap> {
        self.mipmaps.get(&mipmap).ok_or(INVALID_HANDLE)
    }

    /// Returns a pool that was not destroyed.
    pub fn pool(&mut self, pool: Handle) -> Res<&mut Pool> {
        self.pools.get_mut(&pool).filter(|p| !p.destroyed).ok_or(INVALID_VALUE)
    }

    /// Returns a physical handle that the program has not released.
    pub fn physical(&mut self, id: u64) -> Res<&mut Physical> {
        self.physical.get_mut(&id).filter(|p| p.references > 0).ok_or(INVALID_VALUE)
    }

    /// Returns the block an address lies in, and where it starts.
    pub fn find(&self, at: Addr) -> Option<(Addr, &Block)> {
        let (&start, block) = self.blocks.range(..=at).next_back()?;
        (at - start < block.requested).then_some((start, block))
    }

    pub fn find_mut(&mut self, at: Addr) -> Option<(Addr, &mut Block)> {
        let (&start, block) = self.blocks.range_mut(..=at).next_back()?;
        (at - start < block.requested).then_some((start, block))
    }

    /// Returns whether every byte of the range is in one live block, or in adjacent mappings.
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

    /// Returns whether only kernels and copies write the memory at an address.
    pub fn is_device_only(&self, at: Addr) -> bool {
        self.blocks
            .range(..=at)
            .next_back()
            .is_some_and(|(start, b)| at - start < b.size && !b.kind.shared_with_host())
    }
}
