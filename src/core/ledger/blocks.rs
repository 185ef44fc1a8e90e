//! The blocks of caching allocators that are alive, by address. It must not know of the driver.

use serde::{Deserialize, Serialize};

use super::annotations::Annotations;
use super::block_table::{Block, BlockTable};
use super::sites::Layer;
use super::totals::{Books, Removal, SCALAR, Space};
use crate::format::event::Event;

/// All blocks that are alive.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Blocks {
    live: BlockTable,
}

impl Blocks {
    /// Adds the block that the event tells of.
    #[inline]
    pub fn alloc(&mut self, books: &mut Books, e: &Event) {
        let site = books.site_of(e.stack, Layer::Block, e.device, e.entry_point);
        let block = Block { bytes: e.size, site, birth: books.birth() };
        let device = books.born_in(Layer::Block, site, e.size);
        if let Some(d) = books.devices.get_mut(device) {
            d.block_event(e.seq);
        }
        books.note_birth(Space::Block, e.address);
        books.lately.allocated(site, e.size, books.newborn.len());
        if let Some(old) = self.live.insert(e.address, block) {
            books.missed_free();
            books.removed(old.site, old.birth, old.bytes, Removal::Displaced);
        }
    }

    /// Removes the block that the event tells of; false if none was known there.
    #[inline]
    pub fn free(&mut self, books: &mut Books, annotations: &mut Annotations, e: &Event) -> bool {
        let Some(b) = self.live.remove(e.address) else {
            books.unknown_block_free(e.device, e.size);
            books.device(e.device).block_event(e.seq);
            return false;
        };
        let collected = e.context == 1;
        if collected && books.exit.is_none() {
            annotations.collected(books.completed.saturating_add(1), books.last_ns);
        }
        let how = Removal::Freed { collected, given_on: e.context == 2, address: e.address };
        let device = books.removed_in(Layer::Block, b.site, b.birth, b.bytes, how);
        if let Some(d) = books.devices.get_mut(device) {
            d.block_event(e.seq);
        }
        true
    }

    /// Moves a block born in step `from` to step `to`.
    pub fn move_birth(&mut self, address: u64, from: u32, to: u32) {
        if let Some(block) = self.live.get(address).filter(|b| b.birth == from) {
            self.live.insert(address, Block { birth: to, ..block });
        }
    }

    /// Takes in that so many bytes from this address were copied to the host: a block of an earlier step, if that is most
    /// of it.
    pub fn copied_to_host(&self, books: &mut Books, e: &Event) {
        let is_most = |bytes: u64| e.size.saturating_mul(2).saturating_add(SCALAR) > bytes;
        if let Some(block) = self.get(e.address).filter(|b| b.birth < books.birth() && is_most(b.bytes)) {
            books.lately.copied_to_host(e.address, block.site, block.bytes);
        }
    }

    #[inline]
    pub fn get(&self, address: u64) -> Option<Block> {
        self.live.get(address)
    }

    /// Returns every block with its address, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, Block)> {
        self.live.iter()
    }

    pub fn len(&self) -> usize {
        self.live.len()
    }
}
