//! The driver's one state, its lock, and what every entry point checks first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard};

use crate::abi::pointers::{Addr, Handle};
use crate::abi::status::*;
use crate::state::arena::Arena;
use crate::state::code::{Kernel, Module};
use crate::state::config::Config;
use crate::state::device::{Context, Device, GraphPool, Green, Owner, Primary};
use crate::state::host_writes::{FlagReads, HostWrites};
use crate::state::memory::{Array, Block, External, GraphMemory, Mipmap, Physical, Pool, Tile};
use crate::state::truth_log::TruthLog;
use crate::state::work::{Capture, Event, Exec, Graph, StreamState};

#[derive(Default)]
pub struct Driver {
    /// Bytes of memory per device.
    pub memory: u64,
    /// Compute capability, major and minor.
    pub cc: (i32, i32),
    pub devices: Vec<Device>,
    pub truth_log: TruthLog,
    pub host_writes: HostWrites,
    pub flag_reads: FlagReads,
    last_handle: Handle,
    pub contexts: BTreeMap<Handle, Context>,
    pub blocks: BTreeMap<Addr, Block>,
    pub reservations: BTreeMap<Addr, u64>,
    pub physical: BTreeMap<u64, Physical>,
    pub pools: BTreeMap<Handle, Pool>,
    pub arrays: BTreeMap<Handle, Array>,
    pub mipmaps: BTreeMap<Handle, Mipmap>,
    /// The physical handles that are mapped into sparse arrays.
    pub tiles: BTreeMap<Tile, u64>,
    pub externals: BTreeMap<Handle, External>,
    pub greens: BTreeMap<Handle, Green>,
    /// Resource descriptors: how many multiprocessors each stands for.
    pub resource_descriptors: BTreeMap<Handle, u32>,
    pub streams: BTreeMap<Handle, StreamState>,
    pub captures: BTreeMap<u64, Capture>,
    pub events: BTreeMap<Handle, Event>,
    pub graphs: BTreeMap<Handle, Graph>,
    pub execs: BTreeMap<Handle, Exec>,
    pub graph_memory: BTreeMap<Addr, GraphMemory>,
    pub modules: BTreeMap<Handle, Module>,
    pub kernels: BTreeMap<Handle, Kernel>,
    /// Texture and surface objects and linker states: handles that only have to be known to exist.
    pub objects: BTreeSet<u64>,
    pub peers: BTreeSet<(Handle, Handle)>,
}

impl Driver {
    fn new(config: Config) -> Res<Driver> {
        if config.visible.is_empty() {
            return Err(NO_DEVICE);
        }
        let mut driver = Driver {
            memory: config.memory,
            cc: config.cc,
            truth_log: TruthLog::from_env(),
            flag_reads: FlagReads::every(config.flag_period),
            last_handle: 0x5100_0000_0000,
            ..Driver::default()
        };
        for (device, &number) in config.visible.iter().enumerate() {
            let arena = Arena::new(config.memory).ok_or(OUT_OF_MEMORY)?;
            let pool = driver.new_handle();
            driver.pools.insert(pool, Pool::new(device as i32));
            let primary = Primary { handle: driver.new_handle(), references: 0, flags: 0 };
            let graph_pool = GraphPool::default();
            driver.devices.push(Device {
                arena,
                number,
                used: 0,
                primary,
                default_pool: pool,
                pool,
                graph_pool,
            });
        }
        Ok(driver)
    }

    /// Returns a number never used before, for any kind of handle.
    pub fn new_handle(&mut self) -> Handle {
        self.last_handle += 0x10;
        self.last_handle
    }

    /// Returns a number never used before, for what is told apart by an id.
    pub fn new_id(&mut self) -> u64 {
        self.new_handle() as u64 >> 4
    }
}

// Never destroyed: programs free memory from their static destructors.
static STATE: OnceLock<Mutex<Driver>> = OnceLock::new();
/// Whether this is a forked child of an initialised process: CUDA does not survive a fork.
static FORKED: AtomicBool = AtomicBool::new(false);

extern "C" fn in_forked_child() {
    FORKED.store(true, Relaxed);
}

/// Initialises the driver, once per process.
pub fn initialise() -> Res {
    static STARTING: Mutex<()> = Mutex::new(());
    if FORKED.load(Relaxed) {
        return Err(NOT_INITIALIZED);
    }
    if STATE.get().is_some() {
        return Ok(());
    }
    let _starting = STARTING.lock();
    if STATE.get().is_none() {
        let driver = Driver::new(Config::from_env())?;
        // SAFETY: the handler only touches one atomic.
        unsafe { libc::pthread_atfork(None, None, Some(in_forked_child)) };
        let _ = STATE.set(Mutex::new(driver));
    }
    Ok(())
}

/// Locks the state of an initialised driver. In a forked child nothing is touched.
pub fn lock() -> Res<MutexGuard<'static, Driver>> {
    match STATE.get() {
        Some(state) if !FORKED.load(Relaxed) => Ok(state.lock()),
        _ => Err(NOT_INITIALIZED),
    }
}

/// Runs `body` on the state.
pub fn with(body: impl FnOnce(&mut Driver) -> Res) -> Status {
    lock().and_then(|mut driver| body(&mut driver)).into()
}

/// Runs `body` on the state and in the current context.
pub fn with_current(body: impl FnOnce(&mut Driver, Owner) -> Res) -> Status {
    with(|driver| {
        let owner = driver.current()?;
        body(driver, owner)
    })
}
