//! The driver's one state, its lock, and what every entry point checks first.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::{Mutex, MutexGuard};

use crate::abi::{Addr, Handle};
use crate::arena::Arena;
use crate::array::Array;
use crate::blocks::Block;
use crate::capture::Capture;
use crate::config::Config;
use crate::context::{Context, current};
use crate::error::{NO_DEVICE, NOT_INITIALIZED, OUT_OF_MEMORY, Res, Status};
use crate::event::Event;
use crate::exec::Exec;
use crate::external::External;
use crate::fresh::Fresh;
use crate::graph::Graph;
use crate::graph_memory::{GraphMemory, GraphPool};
use crate::green::Green;
use crate::mipmap::Mipmap;
use crate::module::{Kernel, Module};
use crate::pool::Pool;
use crate::primary::Primary;
use crate::sparse::Tile;
use crate::stream::StreamState;
use crate::truth::Truth;
use crate::vmm::Physical;

pub struct Device {
    pub arena: Arena,
    /// Physical number: the one before `CUDA_VISIBLE_DEVICES`.
    pub number: u32,
    /// Bytes charged.
    pub used: u64,
    pub primary: Primary,
    pub default_pool: Handle,
    pub pool: Handle,
    pub graph_pool: GraphPool,
}

pub struct Core {
    pub memory: u64,
    pub cc: (i32, i32),
    pub devices: Vec<Device>,
    pub truth: Truth,
    pub fresh: Fresh,
    pub launches: u64,
    last_handle: Handle,
    pub contexts: BTreeMap<Handle, Context>,
    pub blocks: BTreeMap<Addr, Block>,
    pub reservations: BTreeMap<Addr, u64>,
    pub physical: BTreeMap<u64, Physical>,
    pub pools: BTreeMap<Handle, Pool>,
    pub arrays: BTreeMap<Handle, Array>,
    pub mipmaps: BTreeMap<Handle, Mipmap>,
    /// What is mapped into arrays without memory.
    pub tiles: BTreeMap<Tile, u64>,
    pub externals: BTreeMap<Handle, External>,
    pub greens: BTreeMap<Handle, Green>,
    /// Resource descriptors: how many processors.
    pub shares_wanted: BTreeMap<Handle, u32>,
    pub streams: BTreeMap<Handle, StreamState>,
    pub captures: BTreeMap<u64, Capture>,
    pub events: BTreeMap<Handle, Event>,
    pub graphs: BTreeMap<Handle, Graph>,
    pub execs: BTreeMap<Handle, Exec>,
    pub graph_memory: BTreeMap<Addr, GraphMemory>,
    pub modules: BTreeMap<Handle, Module>,
    pub kernels: BTreeMap<Handle, Kernel>,
    /// Texture and surface objects, linker states, user objects: handles that only have to be told from wrong ones.
    pub objects: BTreeSet<u64>,
    pub peers: BTreeSet<(Handle, Handle)>,
}

impl Core {
    const fn new() -> Core {
        Core {
            memory: 0,
            cc: (8, 0),
            devices: Vec::new(),
            truth: Truth::OFF,
            fresh: Fresh::new(),
            launches: 0,
            last_handle: 0x5100_0000_0000,
            contexts: BTreeMap::new(),
            blocks: BTreeMap::new(),
            reservations: BTreeMap::new(),
            physical: BTreeMap::new(),
            pools: BTreeMap::new(),
            arrays: BTreeMap::new(),
            mipmaps: BTreeMap::new(),
            tiles: BTreeMap::new(),
            externals: BTreeMap::new(),
            greens: BTreeMap::new(),
            shares_wanted: BTreeMap::new(),
            streams: BTreeMap::new(),
            captures: BTreeMap::new(),
            events: BTreeMap::new(),
            graphs: BTreeMap::new(),
            execs: BTreeMap::new(),
            graph_memory: BTreeMap::new(),
            modules: BTreeMap::new(),
            kernels: BTreeMap::new(),
            objects: BTreeSet::new(),
            peers: BTreeSet::new(),
        }
    }

    /// A number never used before, of any kind of handle.
    pub fn handle(&mut self) -> Handle {
        self.last_handle += 0x10;
        self.last_handle
    }

    pub fn device(&mut self, device: i32) -> Res<&mut Device> {
        usize::try_from(device).ok().and_then(|d| self.devices.get_mut(d)).ok_or(crate::error::INVALID_DEVICE)
    }
}

/// Where a call runs: the current context and its device.
#[derive(Clone, Copy)]
pub struct Here {
    pub context: Handle,
    pub device: i32,
}

// Never destroyed: programs free memory from their static destructors.
static CORE: Mutex<Core> = Mutex::new(Core::new());
static PHASE: AtomicU8 = AtomicU8::new(NEW);
const NEW: u8 = 0;
const READY: u8 = 1;
/// A forked child of an initialised process: CUDA does not survive fork.
const DEAD: u8 = 2;

thread_local! {
    /// This thread's stream capture mode. It needs no destructor: frees arrive after those have run.
    pub static CAPTURE_MODE: Cell<i32> = const { Cell::new(0) };
}

extern "C" fn in_forked_child() {
    if PHASE.load(Ordering::Relaxed) == READY {
        PHASE.store(DEAD, Ordering::Relaxed);
    }
}

pub fn initialise() -> Res {
    match PHASE.load(Ordering::Acquire) {
        READY => return Ok(()),
        DEAD => return Err(NOT_INITIALIZED),
        _ => {}
    }
    let mut core = CORE.lock();
    if PHASE.load(Ordering::Acquire) == READY {
        return Ok(());
    }
    let config = Config::from_env();
    if config.visible.is_empty() {
        return Err(NO_DEVICE);
    }
    for (device, &number) in config.visible.iter().enumerate() {
        let arena = Arena::new(config.memory).ok_or(OUT_OF_MEMORY)?;
        let pool = core.handle();
        core.pools.insert(pool, Pool::new(device as i32));
        let primary = Primary::new(core.handle());
        core.devices.push(Device {
            arena,
            number,
            used: 0,
            primary,
            default_pool: pool,
            pool,
            graph_pool: GraphPool::default(),
        });
    }
    core.memory = config.memory;
    core.cc = config.cc;
    core.truth = Truth::from_env();
    // SAFETY: the handler only touches one atomic.
    unsafe { libc::pthread_atfork(None, None, Some(in_forked_child)) };
    PHASE.store(READY, Ordering::Release);
    Ok(())
}

/// The lock, once the driver is initialised. Nothing is touched in a forked child.
pub fn enter() -> Res<MutexGuard<'static, Core>> {
    if PHASE.load(Ordering::Acquire) != READY {
        return Err(NOT_INITIALIZED);
    }
    Ok(CORE.lock())
}

/// Runs `body` on the state.
pub fn with(body: impl FnOnce(&mut Core) -> Res) -> Status {
    enter().and_then(|mut core| body(&mut core)).into()
}

/// Runs `body` in the current context.
pub fn here(body: impl FnOnce(&mut Core, Here) -> Res) -> Status {
    let run = || {
        let mut core = enter()?;
        let here = current(&core)?;
        body(&mut core, here)
    };
    run().into()
}
