//! Collections that can have so many entries and no more: what the heap shows of it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};

use crate::python::heap::Heap;
use crate::python::heap::natives::torch;
use crate::python::heap::objects::{self, Kind};
use crate::python::memory::word;
use crate::python::offsets::{
    DEQUE_MAXLEN, FLAG_LONG, LIST_ALLOCATED, LIST_ITEMS, LRU_CACHE, LRU_MAXSIZE, VAR_SIZE,
};
use leaktrace_core::holders::{HeapGraph, Node};

/// The least empty places of a collection that make it one of a fixed length, and the share of its length, 1 in so many.
const MIN_ROOM: usize = 4;
const ROOM_SHARE: usize = 32;

/// Attributes of an object that name a collection of its, and the most entries that it lets that have: of `queue` and
/// `asyncio`, and of cachetools.
const LIMITS: [[&str; 2]; 3] =
    [["queue", "maxsize"], ["_queue", "_maxsize"], ["_Cache__data", "_Cache__maxsize"]];

/// The type of the queue of an executor's work, among others, which has its entries in a list.
const QUEUE: &str = "SimpleQueue";

/// Collections that were found to have a fixed length: address and length of the latest. One at that address of that length
/// is the same still, however few of its places are empty by now; one of another length grows.
static FIXED: [[AtomicU64; 2]; 32] = [const { [const { AtomicU64::new(0) }; 2] }; 32];
static NEXT_FIXED: AtomicUsize = AtomicUsize::new(0);

/// Returns whether a collection that was found to have a fixed length has it still; `None` if it was not found before. Under
/// the GIL, as what follows.
fn is_fixed(collection: Node, length: usize) -> Option<bool> {
    let known = FIXED.iter().find(|[node, _]| node.load(Relaxed) == collection)?;
    Some(known[1].load(Relaxed) == length as u64)
}

fn note_fixed(collection: Node, length: usize) {
    let [node, of] = &FIXED[NEXT_FIXED.fetch_add(1, Relaxed) % FIXED.len()];
    node.store(collection, Relaxed);
    of.store(length as u64, Relaxed);
}

impl Heap<'_> {
    /// Returns how many entries a collection has, and how many it can ever have.
    pub fn bound_of(&mut self, holder: Option<Node>, node: Node) -> Option<(u64, u64)> {
        if !self.is_object(node) {
            return None;
        }
        let info = self.types.of(node)?;
        // It leaves empty places where something was taken out.
        let is_queue =
            |heap: &mut Self, holder| heap.is_object(holder) && heap.types.name(holder).ends_with(QUEUE);
        let (entries, most) = match info.kind {
            Kind::List if holder.is_some_and(|holder| is_queue(self, holder)) => return None,
            Kind::List => return self.limit_of(holder, node).or_else(|| self.room(node, info.kind)),
            Kind::Array => return self.room(node, info.kind),
            Kind::Dict => {
                let limit = self.limit_of(holder, node).or_else(|| self.room_of_state(holder?, node));
                let own = holder.is_some_and(|h| self.keeps_attributes_in(h, node));
                return limit.or_else(|| if own { None } else { self.room(node, info.kind) });
            }
            Kind::Deque => {
                let limit = self.limit_of(holder, node);
                if limit.is_some() {
                    return limit;
                }
                (node, objects::word_of(node, DEQUE_MAXLEN, &info)?)
            }
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

    /// Returns how many entries a list, tuple, dict or deque has.
    pub fn length_of(&mut self, node: Node) -> Option<u64> {
        let info = self.is_object(node).then(|| self.types.of(node)).flatten()?;
        // SAFETY: a living collection that has its length there.
        matches!(info.kind, Kind::List | Kind::Tuple | Kind::Dict | Kind::Deque)
            .then(|| unsafe { word(node, VAR_SIZE) })
    }

    /// Returns the first entry of a list.
    pub fn first_of(&mut self, node: Node) -> Option<Node> {
        let length = self.length_of(node).filter(|&length| length > 0);
        length.and(self.types.of(node)).filter(|info| info.kind == Kind::List)?;
        // SAFETY: a living list that has an entry.
        Some(unsafe { word(word(node, LIST_ITEMS), 0) })
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

    /// Returns how many entries a collection has that the object which has it limits, and the limit.
    fn limit_of(&mut self, holder: Option<Node>, collection: Node) -> Option<(u64, u64)> {
        let holder = holder?;
        let limited = |[name, limit]: [&str; 2]| {
            let found = self.attribute(holder, name) == Some(collection);
            self.attribute(holder, limit).filter(|_| found)
        };
        let limit = LIMITS.into_iter().find_map(limited)?;
        let most = self.value_of(limit).filter(|&most| most > 0)?;
        // SAFETY: a living list, dict or deque: its length.
        let now = unsafe { word(collection, VAR_SIZE) };
        (now <= most).then_some((now, most))
    }

    /// Returns the value of a number below 2³⁰ that is not negative.
    fn value_of(&mut self, number: Node) -> Option<u64> {
        let is_number = self.types.info(number).flags & FLAG_LONG != 0;
        if is_number { objects::small_number(number, self.cpython.minor) } else { None }
    }

    /// Returns the number that attributes of attributes of an object lead to, the first a variable of the closure if it is a
    /// function; without one, of a variable of the program's modules, or of its functions that are running.
    pub fn number_of(&mut self, object: Option<Node>, path: &[String]) -> Option<u64> {
        let name = path.first()?;
        let (first, attributes) = match object {
            Some(function) if self.is_function(function) => {
                (self.closure_variable(function, name)?, &path[1..])
            }
            Some(object) => (object, path),
            None => (self.variable(name).or_else(|| self.local_variable(name))?, &path[1..]),
        };
        let attribute = |of, name: &String| {
            let is_object = self.is_object(of);
            is_object.then(|| self.attribute(of, name).or_else(|| self.attribute_of_class(of, name)))?
        };
        let number = attributes.iter().try_fold(first, attribute)?;
        self.value_of(number)
    }

    /// Returns how many places of a collection are filled, and how many it has, if they show that these are all.
    fn room(&mut self, node: Node, kind: Kind) -> Option<(u64, u64)> {
        if let Some(known) = self.rooms.get(&node) {
            return *known;
        }
        let (filled, exact) = self.places(node, kind);
        let room = room_of(node, &filled, exact);
        self.rooms.insert(node, room);
        room
    }

    /// Returns which places of a collection are filled, and whether it was made with exactly so many.
    fn places(&mut self, node: Node, kind: Kind) -> (Vec<bool>, bool) {
        // SAFETY: a living collection; a list's items lie where it says.
        let at = |address: Node, offset: usize| unsafe { word(address, offset) };
        let (held, exact): (Vec<Node>, bool) = match kind {
            Kind::List => {
                let (length, items) = (at(node, VAR_SIZE) as usize, at(node, LIST_ITEMS));
                // One that was appended to has places to spare, but for a few lengths.
                let exact = at(node, LIST_ALLOCATED) as usize == length;
                ((0..length).map(|i| at(items, 8 * i)).collect(), exact)
            }
            Kind::Array => (objects::elements(node).into_iter().flatten().collect(), true),
            // A module's has its names.
            _ if self.is_namespace(node) => (Vec::new(), false),
            _ => (self.items(node).into_iter().map(|(_, value)| value).collect(), false),
        };
        let filled: Vec<bool> = held.iter().map(|&object| self.is_filled(object)).collect();
        // Places that were made to be filled have one thing for nothing. Settings have numbers of their own.
        let mut empty = held.iter().zip(&filled).filter(|(_, filled)| !**filled).map(|(object, _)| *object);
        let first = empty.next();
        if empty.all(|object| Some(object) == first) { (filled, exact) } else { (Vec::new(), false) }
    }

    /// Returns whether a place has something, and not what stands for nothing: `None`, or a number.
    fn is_filled(&mut self, object: Node) -> bool {
        object != 0
            && object != self.python.api.none_address()
            && self.types.info(object).flags & FLAG_LONG == 0
    }
}

/// Returns the entries and the length of a collection that was made with all its places, and is being filled: from the
/// front, or here and there, as a ring buffer is that not every step writes to. `exact`: nothing was appended to it.
fn room_of(collection: Node, filled: &[bool], exact: bool) -> Option<(u64, u64)> {
    let length = filled.len();
    let enough = |room: usize| room >= MIN_ROOM.max(length / ROOM_SHARE);
    let last = filled.iter().rposition(|&filled| filled)?;
    let first = filled.iter().position(|&filled| filled)?;
    let inside = filled[first..=last].iter().filter(|&&filled| !filled).count();
    let from_front = first <= 1 && inside == 0 && enough(length - 1 - last);
    let here_and_there = exact && enough(length - 1 - last + inside + first);
    let known = is_fixed(collection, length);
    if known.is_none() && (from_front || here_and_there) {
        note_fixed(collection, length);
    }
    let entries = last + 1 - first - inside;
    known.unwrap_or(from_front || here_and_there).then_some((entries as u64, length as u64))
}
