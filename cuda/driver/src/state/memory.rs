//! Memory of every kind: blocks by address, and what stands behind a handle.

use crate::abi::pointers::{Addr, Handle};
use crate::abi::records::{AllocationProps, Array3D};
use crate::abi::status::*;
use crate::state::device::Owner;
use crate::state::mapping::OwnedFile;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Device,
    Managed,
    /// From a pool.
    Pool(Handle),
    /// From a graph's allocation node; the address belongs to the node.
    Graph,
    Pinned,
    /// The program's own memory, page-locked.
    Registered,
    /// A mapping of a physical handle; the address belongs to a reservation.
    Map(u64),
    /// Another process's block, opened so many times; `skip` bytes into this process's mapping of it.
    Ipc {
        opened: u32,
        skip: u64,
        inode: u64,
        offset: u64,
    },
    /// Memory imported as a file or from another process's pool; `skip` bytes into this process's mapping of
    /// it.
    Foreign {
        skip: u64,
        from_pool: bool,
    },
    /// A module's variable: part of the code, not an allocation.
    Global,
}

impl Kind {
    pub fn on_host(self) -> bool {
        matches!(self, Kind::Pinned | Kind::Registered)
    }

    /// Returns whether the host may read and write it without a call.
    pub fn shared_with_host(self) -> bool {
        self.on_host() || self == Kind::Managed
    }

    /// Returns whether it is an allocation of this process's, which the truth log names.
    pub fn is_logged(self) -> bool {
        matches!(self, Kind::Device | Kind::Managed | Kind::Pool(_) | Kind::Graph | Kind::Pinned)
    }
}

/// A live range of addresses.
pub struct Block {
    pub kind: Kind,
    pub requested: u64,
    pub size: u64,
    pub device: i32,
    pub context: Handle,
    pub id: u64,
    pub flags: u32,
    pub sync_operations: bool,
}

impl Block {
    pub fn new(kind: Kind, requested: u64, size: u64, owner: Owner) -> Block {
        let Owner { context, device } = owner;
        Block { kind, requested, size, device, context, id: 0, flags: 0, sync_operations: false }
    }

    /// Returns the device the truth log names: none for host memory.
    pub fn logged_device(&self) -> i32 {
        if self.kind.on_host() { -1 } else { self.device }
    }
}

/// A physical handle of virtual memory management, or a multicast object.
pub struct Physical {
    pub bytes: u64,
    pub props: AllocationProps,
    /// Where it lies in its device's arena, unless it has a file of its own.
    pub at: Addr,
    pub file: i32,
    pub references: u32,
    pub maps: u32,
    /// Whether it is charged and logged: not another process's, nor a multicast object.
    pub charged: bool,
    pub multicast: Option<Multicast>,
}

/// `CU_MEM_LOCATION_TYPE_DEVICE`
pub const ON_DEVICE: i32 = 1;

impl Physical {
    /// Makes one that stands for no memory of this process's.
    pub fn uncharged(bytes: u64, props: AllocationProps) -> Physical {
        Physical { bytes, props, at: 0, file: -1, references: 1, maps: 0, charged: false, multicast: None }
    }

    pub fn device(&self) -> i32 {
        if self.props.location.kind == ON_DEVICE { self.props.location.id } else { -1 }
    }
}

/// A team of devices, and the memory of each that is bound to the object.
pub struct Multicast {
    pub team: usize,
    pub devices: Vec<i32>,
    pub bindings: Vec<Binding>,
}

pub struct Binding {
    pub device: i32,
    pub offset: u64,
    pub bytes: u64,
    /// The physical handle that it keeps, unless the memory is of another kind.
    pub physical: Option<u64>,
}

/// A memory pool. Only what it has reserved is charged to the device.
#[derive(Default)]
pub struct Pool {
    pub device: i32,
    pub destroyed: bool,
    /// The kinds of handle it may be shared by.
    pub handle_types: i32,
    /// The file of another process's pool, and its inode: nothing is allocated from such a pool, but single
    /// blocks of it are opened.
    pub imported: Option<(OwnedFile, u64)>,
    pub used: u64,
    pub used_high: u64,
    pub reserved: u64,
    pub reserved_high: u64,
    pub threshold: u64,
    /// The three reuse policies.
    pub reuse: [i32; 3],
    /// Peers that may access it.
    pub access: Vec<(i32, i32)>,
}

impl Pool {
    pub fn new(device: i32) -> Pool {
        Pool { device, reuse: [1; 3], ..Pool::default() }
    }

    /// Refuses an imported pool.
    pub fn local(&self) -> Res<&Pool> {
        if self.imported.is_none() { Ok(self) } else { Err(INVALID_VALUE) }
    }
}

/// The memory of a graph's allocation node: an address for as long as a graph may use it, bytes only while it
/// is live.
pub struct GraphMemory {
    pub bytes: u64,
    pub owner: Owner,
    /// The graphs, executable or not, that hold its node.
    pub references: u32,
}

pub struct Array {
    pub shape: Array3D,
    /// Bytes per element.
    pub element: usize,
    pub bytes: u64,
    pub at: Addr,
    pub device: i32,
    pub context: Handle,
    /// The mipmapped array that it is a level of; such a level owns nothing.
    pub level_of: Handle,
}

impl Array {
    pub fn row_bytes(&self) -> usize {
        self.shape.width * self.element
    }
}

pub struct Mipmap {
    pub levels: Vec<Handle>,
    pub bytes: u64,
    pub at: Addr,
    pub device: i32,
    pub context: Handle,
    /// How far it lies into the first page of a mapping that is no memory of the device's: of an external
    /// file, or of nothing.
    pub foreign: Option<u64>,
}

/// The array or mipmap, the level, and which tile of it.
pub type Tile = (Handle, u32, [u32; 4]);

/// Memory that another API made.
pub struct External {
    pub file: OwnedFile,
    pub bytes: u64,
    pub context: Handle,
}
