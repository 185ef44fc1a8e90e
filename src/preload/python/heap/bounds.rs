//! Collections that can have so many entries and no more: what the heap shows of it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};

use crate::python::heap::Heap;
use crate::python::heap::natives::torch;
use crate::python::heap::objects::{self, Kind};
use crate::python::memory::word;
use crate::python::offsets::{DEQUE_MAXLEN, LIST_ALLOCATED, LIST_ITEMS, LRU_CACHE, LRU_MAXSIZE, VAR_SIZE};
use leaktrace_core::holders::{HeapGraph, Node};

/// The least empty places of a list that make it one of a fixed length, and the share of its length, 1 in so many.
const MIN_ROOM: usize = 4;
const ROOM_SHARE: usize = 32;

/// Lists that were found to have a fixed length: address and length of the latest. A list at that address of that length
/// is the same still, however few of its places are empty by now.
static FIXED: [[AtomicU64; 2]; 32] = [const { [const { AtomicU64::new(0) }; 2] }; 32];
static NEXT_FIXED: AtomicUsize = AtomicUsize::new(0);

/// Returns whether a list was found to have a fixed length, and has it still. Under the GIL, as what follows.
fn is_fixed(list: Node, length: usize) -> bool {
    FIXED.iter().any(|[node, of]| node.load(Relaxed) == list && of.load(Relaxed) == length as u64)
}

fn note_fixed(list: Node, length: usize) {
    let [node, of] = &FIXED[NEXT_FIXED.fetch_add(1, Relaxed) % FIXED.len()];
    node.store(list, Relaxed);
    of.store(length as u64, Relaxed);
}

impl Heap<'_> {
    /// Returns how many entries a collection has, and how many it can ever have.
    pub fn bound_of(&mut self, holder: Option<Node>, node: Node) -> Option<(u64, u64)> {
        if self.graph.met.contains_key(&node) || self.blocks.contains_key(&node) {
            return None;
        }
        let info = self.types.of(node)?;
        let (entries, most) = match info.kind {
            Kind::List => return self.room_of(node),
            Kind::Dict => return self.room_of_state(holder?, node),
            Kind::Deque => (node, objects::word_of(node, DEQUE_MAXLEN, &info)?),
            Kind::Lru => {
                // What it shows the collector is an object; any other word need not be.
                let (cache, mut held) = (objects::word_of(node, LRU_CACHE, &info)?, Vec::new());
                self.types.traverse(node, &info, &mut held);
                let is_dict = held.contains(&cache) && self.types.of(cache)?.kind == Kind::Dict;
                (cache, objects::word_of(node, LRU_MAXSIZE, &info).filter(|_| is_dict)?)
            }
            _ => return None,
        };
        // SAFETY: a living deque, or the dict of a living cache: its length.
        let now = unsafe { word(entries, VAR_SIZE) };
        // -1 stands for no bound.
        (most <= i64::MAX as u64 && now <= most.saturating_add(1)).then_some((now, most))
    }

    /// Returns for how many parameters an optimizer has states in this dict, and how many parameters it has. As long as
    /// these do not come anew themselves, the states cannot either.
    fn room_of_state(&mut self, optimizer: Node, states: Node) -> Option<(u64, u64)> {
        if self.attribute(optimizer, torch::STATES)? != states {
            return None;
        }
        let groups = self.attribute(optimizer, torch::GROUPS)?;
        let mut parameters = Vec::new();
        for group in self.list(groups)? {
            let of_group = self.item(group, torch::PARAMETERS)?;
            parameters.extend(self.list(of_group)?);
        }
        let mut held = Vec::new();
        self.references_from(&parameters, false, &mut held);
        let are_new = held.iter().any(|(_, node)| self.blocks.contains_key(node));
        let (now, most) = (self.items(states).len(), parameters.len());
        (!are_new && now <= most).then_some((now as u64, most as u64))
    }

    fn list(&mut self, list: Node) -> Option<Vec<Node>> {
        let info = self.types.of(list).filter(|info| info.kind == Kind::List)?;
        let mut entries = Vec::new();
        self.types.traverse(list, &info, &mut entries);
        Some(entries)
    }

    /// Returns the entries and the length of a list that was made with all its places, and is being filled: from
    /// the front, or here and there, as a ring buffer is that not every step writes to.
    fn room_of(&self, list: Node) -> Option<(u64, u64)> {
        let none = self.python.api.none_address();
        // SAFETY: a living list: so many items lie where it says, in so many places.
        let (length, items, places) = unsafe {
            (word(list, VAR_SIZE) as usize, word(list, LIST_ITEMS), word(list, LIST_ALLOCATED) as usize)
        };
        // SAFETY: as above; called for places below the length.
        let is_none = |i: usize| unsafe { word(items, 8 * i) } == none;
        let enough = |room: usize| room >= MIN_ROOM.max(length / ROOM_SHARE);
        let last = (0..length).rev().find(|&i| !is_none(i))?;
        let first = (0..=last).find(|&i| !is_none(i))?;
        let inside = (first..=last).filter(|&i| is_none(i)).count();
        let from_front = first <= 1 && inside == 0 && enough(length - 1 - last);
        // One that was appended to has places to spare, but for a few lengths.
        let here_and_there = places == length && enough(length - 1 - last + inside + first);
        let was_fixed = is_fixed(list, length);
        if !was_fixed && (from_front || here_and_there) {
            note_fixed(list, length);
        }
        let entries = last + 1 - first - inside;
        (was_fixed || from_front || here_and_there).then_some((entries as u64, length as u64))
    }
}
