//! One allocation of the driver's, and where it lies.

use serde::{Deserialize, Serialize};

use crate::format::event::MemoryClass;

/// A driver allocation that is alive: a segment of a caching allocator, or one that no caching allocator cuts
/// up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Allocation {
    pub bytes: u64,
    pub site: u32,
    pub birth: u32,
    pub context: u8,
    /// Code of its [`MemoryClass`].
    pub class: u8,
    pub segment: bool,
    /// References to it, and mappings of a handle. It ends when both are gone.
    pub refs: u32,
    pub maps: u32,
}

/// Where a segment lies, or a part of one that was mapped by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    pub start: u64,
    pub end: u64,
    pub site: u32,
    pub birth: u32,
    pub mapped: bool,
}

impl Allocation {
    pub fn extent(&self, start: u64, end: u64, mapped: bool) -> Extent {
        Extent { start, end, site: self.site, birth: self.birth, mapped }
    }

    /// True if it came out of a pool of the driver's.
    pub fn is_pooled(&self) -> bool {
        MemoryClass::from_code(self.class).is_some_and(MemoryClass::is_pooled)
    }

    /// True if it ends with its context. Physical memory, own or imported, belongs to no context.
    pub fn ends_with_context(&self) -> bool {
        !matches!(
            MemoryClass::from_code(self.class),
            Some(MemoryClass::Physical | MemoryClass::ExternalHandle)
        )
    }
}
