//! What was allocated after the last step and is still there at the end: by site, and in how many turns. It must not know
//! whether that is a leak.

use serde::{Deserialize, Serialize};

use super::blocks::Blocks;
use super::totals::{Books, Space};
use crate::int_map::{IntMap, int_map};

/// The blocks of one site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gathered {
    pub site: u32,
    pub blocks: u64,
    pub bytes: u64,
    /// How often some of them came after others of any site that were freed since: what is set up at once comes in one turn.
    pub turns: u32,
}

/// Returns the blocks born since the last boundary that are alive, by site.
pub fn gathered(books: &Books, blocks: &Blocks) -> Vec<Gathered> {
    let birth = books.birth();
    let mut latest: IntMap<u64, ()> = int_map();
    let mut of_site: IntMap<u32, (Gathered, u64)> = int_map();
    let mut freed = 0u64;
    // From the latest on: of the blocks that an address had one after the other only the last can be alive.
    for &(_, address) in books.newborn.iter().rev().filter(|(space, _)| *space == Space::Block) {
        let is_latest = latest.insert(address, ()).is_none();
        let Some(block) = blocks.get(address).filter(|block| is_latest && block.birth == birth) else {
            freed += 1;
            continue;
        };
        let none = Gathered { site: block.site, blocks: 0, bytes: 0, turns: 0 };
        let (sum, freed_then) = of_site.entry(block.site).or_insert((none, u64::MAX));
        sum.blocks += 1;
        sum.bytes = sum.bytes.saturating_add(block.bytes);
        sum.turns += u32::from(*freed_then != freed);
        *freed_then = freed;
    }
    let mut all: Vec<Gathered> = of_site.into_values().map(|(sum, _)| sum).collect();
    all.sort_unstable_by_key(|sum| sum.site);
    all
}
