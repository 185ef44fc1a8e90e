//! A table of blocks by address. A block takes sixteen bytes, so that looking one up touches one cache line, and the
//! table grows by a half, not to the double. It must not know what the numbers of a block mean.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::int_map::IntMap;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Block {
    pub bytes: u64,
    pub site: u32,
    /// The step in which it was born; `u32::MAX` is none.
    pub birth: u32,
}

const SITE_BITS: u32 = 20;
const BIRTH_BITS: u32 = 24;
/// Allocators align blocks to this at least; an address has 48 bits.
const ALIGNMENT: u64 = 16;
const MAX_ADDRESS: u64 = 1 << 48;
/// Stands for `u32::MAX`.
const NO_BIRTH: u32 = (1 << BIRTH_BITS) - 1;
const FIRST_SLOTS: usize = 2048;

/// A block with its address, packed. All zero: there is none.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// The address in units of [`ALIGNMENT`], above the site.
    key_and_site: u64,
    /// The bytes, above the birth.
    bytes_and_birth: u64,
}

impl Slot {
    /// `None` if a number is too large for its bits, or the address is not aligned.
    #[inline(always)]
    fn new(address: u64, block: Block) -> Option<Slot> {
        let birth = if block.birth == u32::MAX { NO_BIRTH } else { block.birth };
        let fits = block.site < 1 << SITE_BITS
            && block.bytes < 1 << (64 - BIRTH_BITS)
            && (birth < NO_BIRTH || block.birth == u32::MAX);
        Some(Slot {
            key_and_site: key_of(address).filter(|_| fits)? << SITE_BITS | u64::from(block.site),
            bytes_and_birth: block.bytes << BIRTH_BITS | u64::from(birth),
        })
    }

    #[inline(always)]
    fn is_empty(self) -> bool {
        self.key_and_site == 0
    }

    #[inline(always)]
    fn key(self) -> u64 {
        self.key_and_site >> SITE_BITS
    }

    #[inline(always)]
    fn block(self) -> Block {
        let birth = self.bytes_and_birth as u32 & NO_BIRTH;
        Block {
            bytes: self.bytes_and_birth >> BIRTH_BITS,
            site: self.key_and_site as u32 & ((1 << SITE_BITS) - 1),
            birth: if birth == NO_BIRTH { u32::MAX } else { birth },
        }
    }
}

/// Returns what slots know an address by; `None`: none of them can have it.
#[inline(always)]
fn key_of(address: u64) -> Option<u64> {
    let fits = address.wrapping_sub(1) < MAX_ADDRESS - 1 && address.is_multiple_of(ALIGNMENT);
    fits.then_some(address / ALIGNMENT)
}

/// Blocks by address: open addressing with linear probing, at most three quarters full.
#[derive(Clone, Debug, Default)]
pub struct BlockTable {
    slots: Vec<Slot>,
    /// Slots that are taken.
    taken: usize,
    /// The blocks that no slot can hold. Hardly any program has such.
    others: IntMap<u64, Block>,
}

impl BlockTable {
    pub fn len(&self) -> usize {
        self.taken + self.others.len()
    }

    #[inline]
    pub fn get(&self, address: u64) -> Option<Block> {
        match self.find(address) {
            Some(at) => Some(self.slots[at].block()),
            None => self.others.get(&address).copied(),
        }
    }

    /// Returns every block with its address, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, Block)> {
        let slots = self.slots.iter().filter(|slot| !slot.is_empty());
        let slots = slots.map(|slot| (slot.key() * ALIGNMENT, slot.block()));
        slots.chain(self.others.iter().map(|(&address, &block)| (address, block)))
    }

    /// Adds a block; returns the one that was at its address.
    #[inline]
    pub fn insert(&mut self, address: u64, block: Block) -> Option<Block> {
        let Some(slot) = Slot::new(address, block) else { return self.insert_other(address, block) };
        if self.taken >= self.slots.len() / 4 * 3 {
            self.grow(self.slots.len() / 2 * 3);
        }
        let mut at = self.home(slot.key());
        while let here = self.slots[at]
            && !here.is_empty()
        {
            if here.key() == slot.key() {
                self.slots[at] = slot;
                return Some(here.block());
            }
            at = self.after(at);
        }
        self.slots[at] = slot;
        self.taken += 1;
        if self.others.is_empty() { None } else { self.others.remove(&address) }
    }

    /// Removes the block at an address and returns it.
    #[inline]
    pub fn remove(&mut self, address: u64) -> Option<Block> {
        let Some(at) = self.find(address) else { return self.others.remove(&address) };
        let block = self.slots[at].block();
        self.vacate(at);
        Some(block)
    }

    /// Makes room for so many blocks in all.
    fn reserve(&mut self, blocks: usize) {
        let slots = blocks.saturating_mul(4) / 3 + 4;
        if slots > self.slots.len() {
            self.grow(slots);
        }
    }

    #[cold]
    fn insert_other(&mut self, address: u64, block: Block) -> Option<Block> {
        let old = self.remove(address);
        self.others.insert(address, block);
        old
    }

    /// Returns the slot in which a block is looked for first.
    #[inline(always)]
    fn home(&self, key: u64) -> usize {
        let mixed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((u128::from(mixed) * self.slots.len() as u128) >> 64) as usize
    }

    #[inline(always)]
    fn after(&self, at: usize) -> usize {
        if at + 1 < self.slots.len() { at + 1 } else { 0 }
    }

    /// Returns how many slots it is from one to another that is looked at later.
    #[inline(always)]
    fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.slots.len() - from }
    }

    #[inline(always)]
    fn find(&self, address: u64) -> Option<usize> {
        let key = key_of(address)?;
        let mut at = self.home(key);
        loop {
            let slot = *self.slots.get(at)?;
            if slot.key() == key {
                return Some(at);
            }
            if slot.is_empty() {
                return None;
            }
            at = self.after(at);
        }
    }

    /// Empties a slot. Blocks behind it move up, so that no gap comes between a block and its home.
    #[inline(always)]
    fn vacate(&mut self, mut gap: usize) {
        let mut at = self.after(gap);
        while let slot = self.slots[at]
            && !slot.is_empty()
        {
            if self.distance(self.home(slot.key()), at) >= self.distance(gap, at) {
                self.slots[gap] = slot;
                gap = at;
            }
            at = self.after(at);
        }
        self.slots[gap] = Slot::default();
        self.taken -= 1;
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, slots: usize) {
        let old = std::mem::replace(&mut self.slots, vec![Slot::default(); slots.max(FIRST_SLOTS)]);
        for slot in old.into_iter().filter(|slot| !slot.is_empty()) {
            let mut at = self.home(slot.key());
            while !self.slots[at].is_empty() {
                at = self.after(at);
            }
            self.slots[at] = slot;
        }
    }
}

impl PartialEq for BlockTable {
    fn eq(&self, other: &BlockTable) -> bool {
        self.len() == other.len() && self.iter().all(|(address, block)| other.get(address) == Some(block))
    }
}

/// As a list of addresses and blocks.
impl Serialize for BlockTable {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeSeq;
        let mut list = to.serialize_seq(Some(self.len()))?;
        self.iter().try_for_each(|entry| list.serialize_element(&entry))?;
        list.end()
    }
}

impl<'de> Deserialize<'de> for BlockTable {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<BlockTable, D::Error> {
        let list = Vec::<(u64, Block)>::deserialize(from)?;
        let mut table = BlockTable::default();
        table.reserve(list.len());
        for (address, block) in list {
            table.insert(address, block);
        }
        Ok(table)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// Numbers that look drawn at random, the same ones each time.
    fn numbers() -> impl FnMut(u64) -> u64 {
        let mut state = 7u64;
        move |below| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        }
    }

    fn check(table: &BlockTable, model: &HashMap<u64, Block>) {
        assert_eq!(table.len(), model.len());
        assert_eq!(table.iter().collect::<HashMap<_, _>>(), *model);
        assert!(model.iter().all(|(&address, &block)| table.get(address) == Some(block)));
    }

    #[test]
    fn it_is_a_map() {
        let mut number = numbers();
        // Few addresses, so that they meet again; some of them, and some of the other numbers, fit no slot.
        let odd = [0, 8, MAX_ADDRESS - ALIGNMENT, MAX_ADDRESS, u64::MAX];
        for places in [3u64, 700, 40_000] {
            let (mut table, mut model) = (BlockTable::default(), HashMap::new());
            for turn in 0..60_000 {
                let address = match number(50) {
                    0 => odd[number(odd.len() as u64) as usize],
                    _ => 0x7f00_0000_0000 + number(places) * 512,
                };
                // Now and then one that just fits, or does not.
                let mut one_of = |usual: u64, limit: u64| match number(40) {
                    0 => limit,
                    1 => limit - 1,
                    _ => number(usual),
                };
                let block = Block {
                    bytes: one_of(1 << 30, 1 << (64 - BIRTH_BITS)),
                    site: one_of(1000, 1 << SITE_BITS) as u32,
                    birth: if one_of(1000, 2) == 1 {
                        u32::MAX
                    } else {
                        one_of(1000, u64::from(NO_BIRTH)) as u32
                    },
                };
                // By turns it fills up and empties.
                if number(100) < if turn / 10_000 % 2 == 0 { 70 } else { 30 } {
                    assert_eq!(table.insert(address, block), model.insert(address, block));
                } else {
                    assert_eq!(table.remove(address), model.remove(&address));
                }
                if turn % 5000 == 0 {
                    check(&table, &model);
                }
            }
            check(&table, &model);
            let copy: BlockTable = postcard::from_bytes(&postcard::to_stdvec(&table).unwrap()).unwrap();
            assert_eq!(copy, table);
            check(&copy, &model);
            for address in model.keys().copied().collect::<Vec<_>>() {
                assert_eq!(table.remove(address), model.remove(&address));
            }
            check(&table, &model);
            assert!(table.slots.iter().all(|slot| slot.is_empty()));
        }
    }

    #[test]
    fn a_block_takes_few_bytes() {
        let mut table = BlockTable::default();
        let block = Block { bytes: 512, site: 1, birth: 1 };
        for n in 1..=1_000_000 {
            table.insert(n * 512, block);
            assert!(n < 2000 || table.slots.len() * size_of::<Slot>() <= n as usize * 33);
        }
    }
}
