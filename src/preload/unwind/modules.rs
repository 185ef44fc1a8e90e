//! Ids of the objects that native frames lie in. Knows what the recording says of an object; the answers are
//! the loader's.

use std::collections::BTreeMap;

use crate::hash::content;
use crate::loader::address::{Extent, describe, locate};
use crate::loader::link_map;
use crate::lock::{Mutex, Rank};
use crate::numbering::Numbering;
use leaktrace_core::format::entry::{Frame, TableEntry};

pub struct Modules {
    /// By start; no two overlap.
    known: BTreeMap<u64, (Extent, u32)>,
    contents: Numbering,
    /// The loader's generation that `known` belongs to: after an unload another file may lie at an old address,
    /// even if the loader's record of that got the same memory.
    generation: u64,
}

pub static MODULES: Mutex<Modules> =
    Mutex::new(Rank::Modules, Modules { known: BTreeMap::new(), contents: Numbering::new(), generation: 0 });
/// Returns the frame of a return address.
pub fn frame(pc: u64) -> Frame {
    // The call lies before the address it returns to, which may be the next function, or the next module.
    let Some(extent) = locate(pc.wrapping_sub(1)) else { return Frame::Address(pc) };
    let Ok(offset) = u32::try_from(pc.wrapping_sub(extent.bias)) else { return Frame::Address(pc) };
    match number(extent) {
        Some(module) => Frame::Native { module, offset },
        None => Frame::Address(pc),
    }
}

/// Returns the id of a module; `None` if it could not be written.
fn number(extent: Extent) -> Option<u32> {
    let generation = link_map::generation();
    {
        let mut modules = MODULES.lock()?;
        if modules.generation != generation {
            modules.known.clear();
            modules.generation = generation;
        }
        if let Some(&(known, id)) = modules.known.get(&extent.start)
            && known == extent
        {
            return Some(id);
        }
    }
    let (path, build_id) = describe(&extent);
    let Extent { start, end, bias, .. } = extent;
    let key =
        content(&[&start.to_le_bytes(), &end.to_le_bytes(), &bias.to_le_bytes(), &build_id, path.as_bytes()]);
    let mut modules = MODULES.lock()?;
    let bytes = path.len() + build_id.len() + 32;
    let entry = |id| TableEntry::Module { id, start, end, bias, build_id: &build_id, path: &path };
    let id = modules.contents.id(key, bytes, entry).ok()?;
    // What lay here before is gone.
    while let Some((&before, (other, _))) = modules.known.range(..end).next_back()
        && start < other.end
    {
        modules.known.remove(&before);
    }
    modules.known.insert(start, (extent, id));
    Some(id)
}

/// In a forked child, whose recording names no module yet.
pub fn after_fork_child() {
    let Some(mut modules) = MODULES.lock() else { return };
    modules.known.clear();
    modules.contents.clear();
}
