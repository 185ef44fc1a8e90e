//! Calls that take memory without saying how much, counted by entry point.

use serde::{Deserialize, Serialize};

/// The calls of one entry point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UntrackedCalls {
    pub entry_point: u16,
    pub calls: u64,
    /// The sum of the sizes, of calls that name one.
    pub bytes: u64,
}

/// The calls of every entry point, by its number.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Untracked(Vec<UntrackedCalls>);

impl Untracked {
    pub fn count(&mut self, entry_point: u16, bytes: u64) {
        match self.0.binary_search_by_key(&entry_point, |u| u.entry_point) {
            Ok(at) => {
                let u = &mut self.0[at];
                u.calls = u.calls.wrapping_add(1);
                u.bytes = u.bytes.wrapping_add(bytes);
            }
            Err(at) => self.0.insert(at, UntrackedCalls { entry_point, calls: 1, bytes }),
        }
    }

    pub fn all(&self) -> &[UntrackedCalls] {
        &self.0
    }
}
