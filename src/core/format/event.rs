//! Events: 32-byte records, one per thing that happened, drawn bit by bit. Knows no file.
//!
//! ```text
//!        63            56 55             48 47                             0
//! word 0 │ sequence number (dense over all threads, from 1; 0 = not written) │  ← stored last: the commit word
//! word 1 │ address: pointer, handle, or a figure (see the kind)              │
//! word 2 │     kind      │     device      │ size in bytes                  │
//!        63                     32 31             24 23      16 15          0
//! word 3 │ stack id               │    context      │  class   │  entry point│
//! ```

/// Size of one record in bytes.
pub const RECORD: usize = 32;

/// `device` of an event that belongs to none (pinned host memory, boundaries).
pub const NO_DEVICE: u8 = 0xff;

/// The largest size an event can carry: 2⁴⁸ − 1 bytes.
pub const MAX_SIZE: u64 = (1 << 48) - 1;

macro_rules! codes {
    ($(#[$m:meta])* $name:ident { $($(#[$v:meta])* $variant:ident = $code:literal,)+ }) => {
        $(#[$m])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum $name { $($(#[$v])* $variant = $code,)+ }

        impl $name {
            /// Returns the variant of a code; `None` for a code this version does not know.
            pub const fn from_code(code: u8) -> Option<Self> {
                match code { $($code => Some(Self::$variant),)+ _ => None }
            }
        }
    };
}

codes! {
    /// What happened.
    EventKind {
        /// The caching allocator handed out a block: `address`, `size`, `device`, `stack`.
        BlockAlloc = 1,
        /// The caching allocator took a block back: `address`, `size`, `device`; `context` byte = 1 where the
        /// program's garbage collector was running, 2 where its memory was given on to another block.
        BlockFree = 2,
        /// The driver (or a runtime without a driver in sight) gave memory: `address` (pointer or handle),
        /// `size`, `device`, `stack`, `class`, `entry point`, `context`.
        Alloc = 3,
        /// Driver memory is about to be freed: `address`, `class` (the address space: see
        /// [`MemoryClass::is_handle`]), `entry point`.
        Free = 4,
        /// The free of `address` failed: the allocation lives on. Follows its `Free`.
        FreeFailed = 5,
        /// A virtual address range was reserved: `address`, `size`. Costs no memory.
        Reserve = 6,
        /// A virtual address range was freed: `address`, `size`.
        Unreserve = 7,
        /// A handle was mapped at `address` for `size` bytes. The next sequence number is its `MapHandle`.
        Map = 8,
        /// `address` = the handle of the preceding `Map`.
        MapHandle = 9,
        /// Every mapping inside `address..address+size` was removed.
        Unmap = 10,
        /// One more reference to a handle (`address`).
        Retain = 11,
        /// All memory of `context` on `device` ended (context destroyed, primary context reset).
        ContextEnd = 12,
        /// The totals that the caching allocator of `device` reported at its latest block event: `address` =
        /// allocated bytes, `size` = reserved bytes, `stack` = the low half of the latest sequence number
        /// then.
        AllocatorTotals = 13,
        /// The totals of all stream-ordered and graph pools of `device`: `size` = reserved bytes, `address` =
        /// used bytes.
        PoolTotals = 14,
        /// The driver's own report of `device`: `address` = free bytes, `size` = total bytes.
        MemInfo = 15,
        /// A step ended: `address` = nanoseconds since the recording began, `class` byte = [`StepSource`],
        /// `context` byte = 1 if this boundary supersedes the previous one (several optimizers in one
        /// iteration), `device` = the depth of the loop, of a loop's. A boundary that was
        /// [`super::backfilled`] has the sequence number 0, and `size` = the sequence number of the event
        /// behind it.
        StepEnd = 16,
        /// An allocation failed for want of memory: `size` = requested bytes, `address` = allocated bytes,
        /// `device`, `stack`.
        OutOfMemory = 17,
        /// The program is exiting cleanly; what is freed from here on is teardown. `address` as for
        /// `StepEnd`.
        Exit = 18,
        /// A named moment: `class` byte = [`AnnotationKind`], `stack` = label id (see `TableEntry::Label`; 0:
        /// none), `address` as for `StepEnd`.
        Annotation = 19,
        /// A call took memory without saying how much, or moved memory out of sight: `entry point`, `device`;
        /// `size` where the call names one.
        UntrackedCall = 20,
        /// A graph's allocation node was made: `address`, `size`, `stack`, `device`, `entry point`. Costs no
        /// memory yet.
        GraphAllocNode = 21,
        /// An executable graph has a node at `address`: `context` byte = 0 an allocation of `size` on
        /// `device`, 1 a free. The next sequence number is its `GraphExec`.
        GraphNode = 22,
        /// `address` = the executable graph of the preceding `GraphNode`.
        GraphExec = 23,
        /// The executable graph `address` was launched: its nodes happen. `stack`, `context`, `entry point`.
        GraphLaunch = 24,
        /// The executable graph `address` was destroyed; what it allocated lives on.
        GraphEnd = 25,
        /// A boundary of another step source, or of a loop at another depth, that ended no step. Fields as
        /// for `StepEnd`.
        AltBoundary = 26,
        /// A framework gave out memory at `address`: what that lies in is a segment. Of blocks whose own `address` is
        /// a handle.
        Segment = 27,
        /// Something ran that trains: of a framework without backward passes or optimizers that could be seen.
        Trained = 28,
        /// The recording begins in a process that was running: what is freed without having been allocated was there
        /// before. The first event.
        Attached = 29,
        /// The program copied `size` bytes from `address` to the host. Of blocks whose own `address` is a handle: from that.
        CopyToHost = 30,
    }
}

codes! {
    /// The kind of memory that a driver-level event is about.
    MemoryClass {
        /// `cuMemAlloc` and the like.
        Linear = 1,
        /// `cuMemAllocPitch`: size is pitch × height.
        Pitched = 2,
        /// `cuMemAllocManaged`.
        Managed = 3,
        /// Pinned host memory.
        Host = 4,
        /// Stream-ordered, from a pool.
        Async = 5,
        /// Physical memory by handle (`cuMemCreate`).
        Physical = 6,
        /// Arrays and mipmapped arrays, by handle.
        Array = 7,
        /// A handle to external memory (imported, multicast). One that is known already gains a reference.
        ExternalHandle = 8,
        /// A pointer to external memory (another process's, another interface's), counted like the handle.
        External = 9,
        /// The program's own memory, page-locked.
        Registered = 10,
        /// From a graph's allocation node.
        Graph = 11,
        /// A program that a framework compiled for a device, by handle. What it takes of the device's memory no call says.
        Code = 12,
    }
}

impl MemoryClass {
    /// Returns whether the address is a handle, not a pointer. The two are separate address spaces.
    pub const fn is_handle(self) -> bool {
        use MemoryClass::{Array, Code, ExternalHandle, Physical};
        matches!(self, Physical | Array | ExternalHandle | Code)
    }

    /// Returns whether this process did not allocate the memory: it counts apart.
    pub const fn is_external(self) -> bool {
        matches!(self, MemoryClass::ExternalHandle | MemoryClass::External | MemoryClass::Registered)
    }

    /// Returns whether the memory is on the host.
    pub const fn is_host(self) -> bool {
        matches!(self, MemoryClass::Host | MemoryClass::Registered)
    }

    /// Returns whether the memory is out of a pool of the driver's, all of which is charged to the device.
    pub const fn is_pooled(self) -> bool {
        matches!(self, MemoryClass::Async | MemoryClass::Graph)
    }
}

codes! {
    /// What showed that a step ended.
    StepSource {
        /// An optimizer's `step`.
        Optimizer = 1,
        /// An iteration of a loop of the program.
        Loop = 2,
        /// A backward pass.
        Backward = 3,
        /// A named range.
        Range = 4,
        /// `leaktrace_step`.
        Api = 5,
        /// An interval of time.
        Time = 6,
    }
}

codes! {
    /// What an annotation is of.
    AnnotationKind {
        /// A mark that the program set.
        User = 0,
        /// The end of a range that the program named.
        Range = 1,
        /// A garbage collection that freed memory. Never an event: it is known from the frees.
        Gc = 2,
        /// PyTorch's cache was emptied.
        EmptyCache = 3,
    }
}

impl AnnotationKind {
    /// Returns the name that reports use.
    pub const fn name(self) -> &'static str {
        match self {
            AnnotationKind::User => "user",
            AnnotationKind::Range => "range",
            AnnotationKind::Gc => "gc",
            AnnotationKind::EmptyCache => "empty-cache",
        }
    }
}

impl StepSource {
    /// Returns the name that reports and settings use.
    pub const fn name(self) -> &'static str {
        match self {
            StepSource::Optimizer => "optimizer",
            StepSource::Loop => "loop",
            StepSource::Backward => "backward",
            StepSource::Range => "range",
            StepSource::Api => "api",
            StepSource::Time => "time",
        }
    }
}

/// One event, unpacked. `kind`, `class` stay raw codes so that a record of a newer version can be passed
/// over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    pub seq: u64,
    pub address: u64,
    /// Bytes, at most [`MAX_SIZE`].
    pub size: u64,
    pub kind: u8,
    pub device: u8,
    pub stack: u32,
    pub context: u8,
    pub class: u8,
    pub entry_point: u16,
}

impl Event {
    /// Returns an event of `kind`; every other field is zero, and it has no device.
    pub const fn new(kind: EventKind) -> Event {
        Event {
            seq: 0,
            address: 0,
            size: 0,
            kind: kind as u8,
            device: NO_DEVICE,
            stack: 0,
            context: 0,
            class: 0,
            entry_point: 0,
        }
    }

    /// Returns the words of the record; word 0 is the sequence number.
    #[inline(always)]
    pub const fn pack(&self) -> [u64; 4] {
        let size = if self.size > MAX_SIZE { MAX_SIZE } else { self.size };
        [
            self.seq,
            self.address,
            (self.kind as u64) << 56 | (self.device as u64) << 48 | size,
            (self.stack as u64) << 32
                | (self.context as u64) << 24
                | (self.class as u64) << 16
                | self.entry_point as u64,
        ]
    }

    /// The inverse of [`Event::pack`].
    #[inline(always)]
    pub const fn unpack(w: [u64; 4]) -> Event {
        Event {
            seq: w[0],
            address: w[1],
            size: w[2] & MAX_SIZE,
            kind: (w[2] >> 56) as u8,
            device: (w[2] >> 48) as u8,
            stack: (w[3] >> 32) as u32,
            context: (w[3] >> 24) as u8,
            class: (w[3] >> 16) as u8,
            entry_point: w[3] as u16,
        }
    }
}
