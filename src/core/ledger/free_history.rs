//! The latest frees of driver allocations, kept because a free is recorded before the real call: where that
//! fails, a `FreeFailed` follows and the free is undone.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::allocation::Allocation;

/// Frees that can still be undone. The undo follows its free on the same thread; only other threads come in
/// between, but with more threads than cores that may be all of them for many turns (64 on 2 cores: thousands
/// of events).
const MAX_KNOWN: usize = 16_384;
/// Frees of unknown addresses that can still be undone. They are rare, so the turns in between may be any
/// number.
const MAX_UNKNOWN: usize = 4096;

/// What a free did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FreeOutcome {
    /// It ended the allocation.
    Ended(Allocation),
    /// It dropped one of several references.
    Dereferenced,
    /// The address was not known; the free is counted under this memory class.
    Unknown(u8),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Free {
    seq: u64,
    handle: bool,
    address: u64,
    outcome: FreeOutcome,
}

/// The latest frees, in two lists so that neither kind pushes out the other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FreeHistory {
    known: VecDeque<Free>,
    unknown: VecDeque<Free>,
}

impl FreeHistory {
    pub fn push(&mut self, seq: u64, handle: bool, address: u64, outcome: FreeOutcome) {
        let (list, most) = match outcome {
            FreeOutcome::Unknown(_) => (&mut self.unknown, MAX_UNKNOWN),
            _ => (&mut self.known, MAX_KNOWN),
        };
        if list.len() >= most {
            list.pop_front();
        }
        list.push_back(Free { seq, handle, address, outcome });
    }

    /// Takes out the latest free of an address.
    pub fn take(&mut self, handle: bool, address: u64) -> Option<FreeOutcome> {
        let latest = |list: &VecDeque<Free>| {
            let at = list.iter().rposition(|f| f.handle == handle && f.address == address)?;
            list.get(at).map(|f| (f.seq, at))
        };
        let (known, unknown) = (latest(&self.known), latest(&self.unknown));
        let seq = |found: Option<(u64, usize)>| found.map(|(seq, _)| seq);
        let free = if seq(unknown) > seq(known) {
            self.unknown.remove(unknown?.1)
        } else {
            self.known.remove(known?.1)
        };
        free.map(|f| f.outcome)
    }
}
