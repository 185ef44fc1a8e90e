//! The driver as we know it: where its functions lie, and the few cheap questions we ask it ourselves.
//!
//! Nothing is asked while a stream capture is under way: capture forbids most calls. And no question changes
//! anything: a reference to a context, held for a moment, could make one that the program has just ended, or
//! end one in its place.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU8, Ordering::*};

use cudarc::driver::sys::{CUcontext, CUgraph, CUgraphNode, CUmemoryPool, CUstream};
use leaktrace_core::format::event::NO_DEVICE;

use crate::hooks::entry_points::{ENTRY_POINTS, Library};
use crate::hooks::{Status, events};
use crate::loader::link_map;
use crate::loader::object::{LinkMap, Version};

/// A function of the driver that we call ourselves.
struct Question {
    symbol: &'static CStr,
    address: AtomicPtr<c_void>,
}

macro_rules! questions {
    ($($name:ident $symbol:literal;)+) => {
        $(static $name: Question =
            Question { symbol: $symbol, address: AtomicPtr::new(std::ptr::null_mut()) };)+
        static QUESTIONS: &[&Question] = &[$(&$name),+];
    };
}

questions! {
    CTX_GET_DEVICE c"cuCtxGetDevice";
    CTX_GET_CURRENT c"cuCtxGetCurrent";
    PRIMARY_STATE c"cuDevicePrimaryCtxGetState";
    DEVICE_NAME c"cuDeviceGetName";
    DEVICE_TOTAL c"cuDeviceTotalMem_v2";
    MEM_INFO c"cuMemGetInfo_v2";
    DEVICE_POOL c"cuDeviceGetMemPool";
    DEFAULT_POOL c"cuDeviceGetDefaultMemPool";
    POOL_ATTRIBUTE c"cuMemPoolGetAttribute";
    GRAPH_ATTRIBUTE c"cuDeviceGetGraphMemAttribute";
    PUSH_CONTEXT c"cuCtxPushCurrent_v2";
    POP_CONTEXT c"cuCtxPopCurrent_v2";
    GREEN_CONTEXT c"cuCtxFromGreenCtx";
    ADDRESS_RANGE c"cuMemGetAddressRange_v2";
    POINTER_ATTRIBUTE c"cuPointerGetAttribute";
    IS_CAPTURING c"cuStreamIsCapturing";
    GRAPH_NODES c"cuGraphGetNodes";
    NODE_TYPE c"cuGraphNodeGetType";
    ALLOC_NODE c"cuGraphMemAllocNodeGetParams";
    FREE_NODE c"cuGraphMemFreeNodeGetParams";
    CHILD_GRAPH c"cuGraphChildGraphNodeGetGraph";
}

/// Calls a question if the driver has it.
macro_rules! ask {
    ($question:ident, ($($arg:expr),*) as ($($type:ty),*)) => {{
        let address = $question.address.load(Acquire);
        // SAFETY: the address of the driver's function of that name, whose documented signature this is.
        (!address.is_null()).then(|| unsafe {
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> Status>(address)($($arg),*)
        })
    }};
}

/// Where the driver's exported functions lie, by entry point: the addresses tell what a look-up returned.
static EXPORTS: [AtomicPtr<c_void>; ENTRY_POINTS.len()] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; ENTRY_POINTS.len()];
static CAPTURES: AtomicI32 = AtomicI32::new(0);

/// Learns the driver's addresses from one of its functions. Not while the loaded objects are borrowed.
pub fn learn(function: *const c_void) {
    if CTX_GET_DEVICE.address.load(Acquire).is_null() {
        link_map::with_objects(|objects| objects.at(function).map(learn_exports));
    }
}

fn learn_exports(driver: &LinkMap) {
    for (entry, address) in ENTRY_POINTS.iter().zip(&EXPORTS) {
        if entry.library == Library::Driver
            && let Some(found) = driver.definition(entry.symbol, Version::Any)
        {
            address.store(found, Release);
        }
    }
    // The first question last: it is the one that says all are known.
    for question in QUESTIONS.iter().rev() {
        if let Some(found) = driver.definition(question.symbol, Version::Any) {
            question.address.store(found, Release);
        }
    }
}

/// The entry point that the driver exports at this address.
pub fn entry_point_at(address: *mut c_void) -> Option<usize> {
    EXPORTS.iter().position(|known| known.load(Acquire) == address).map(|i| i + 1)
}

/// Forgets a driver that was unloaded: it is asked nothing more, and another may come, elsewhere.
pub fn forget_unloaded() {
    let first = CTX_GET_DEVICE.address.load(Acquire);
    if first.is_null() || link_map::find_beside(first, CTX_GET_DEVICE.symbol) == Some(first) {
        return;
    }
    let questions = QUESTIONS.iter().map(|question| &question.address);
    for address in questions.chain(&EXPORTS).chain(&PRIMARY_CONTEXTS) {
        address.store(std::ptr::null_mut(), Release);
    }
}

/// The calling thread's device, and the number of its current context.
pub fn current() -> (u8, u8) {
    let mut device = -1i32;
    let mut context: CUcontext = std::ptr::null_mut();
    let known = ask!(CTX_GET_DEVICE, (&mut device) as (*mut i32)) == Some(0);
    let _ = ask!(CTX_GET_CURRENT, (&mut context) as (*mut CUcontext));
    (if known { device as u8 } else { NO_DEVICE }, context_number(context))
}

/// Living contexts by number. A number is given out anew once the end of its context was recorded.
static CONTEXTS: [AtomicPtr<c_void>; 255] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 255];
/// In place of a context that is being ended: the driver may give its address out again before that is
/// recorded.
const ENDING: *mut c_void = std::ptr::dangling_mut();

/// A context's number, from 1; 0 for none, or while 255 others are alive.
pub fn context_number(context: CUcontext) -> u8 {
    match known_context(context) {
        0 if !context.is_null() => {}
        number => return number,
    }
    for (i, known) in CONTEXTS.iter().enumerate() {
        match known.compare_exchange(std::ptr::null_mut(), context.cast(), AcqRel, Acquire) {
            Ok(_) => return i as u8 + 1,
            Err(taken) if taken == context.cast() => return i as u8 + 1,
            Err(_) => {}
        }
    }
    0
}

/// The number of a context that has one, else 0: nothing was allocated in it.
fn known_context(context: CUcontext) -> u8 {
    let same = |known: &AtomicPtr<c_void>| known.load(Acquire) == context.cast();
    let at = if context.is_null() { None } else { CONTEXTS.iter().position(same) };
    at.map_or(0, |i| i as u8 + 1)
}

/// A context that may be about to end.
pub struct Ending {
    pub number: u8,
    context: CUcontext,
}

/// Prepares for a call that ends a context if it succeeds. Whoever is given its address from now on gets
/// another number.
pub fn context_ends(context: CUcontext) -> Ending {
    let number = known_context(context);
    if number != 0 {
        CONTEXTS[usize::from(number) - 1].store(ENDING, Release);
    }
    Ending { number, context }
}

/// Settles a context's number after that call: whether it ended the context, and that was recorded.
pub fn context_ended(ending: Ending, ended: bool) {
    if ending.number != 0 {
        let left = if ended { std::ptr::null_mut() } else { ending.context.cast() };
        CONTEXTS[usize::from(ending.number) - 1].store(left, Release);
    }
}

/// The primary context of each device, as the program was given it.
static PRIMARY_CONTEXTS: [AtomicPtr<c_void>; 64] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 64];

/// Learns a device's primary context from the program's own reference.
pub fn learn_primary_context(device: i32, context: u64) {
    if let Some(known) = PRIMARY_CONTEXTS.get(device as usize) {
        known.store(context as *mut c_void, Release);
    }
}

/// A device's primary context; null if the program never had it.
fn primary_context(device: i32) -> CUcontext {
    let known = PRIMARY_CONTEXTS.get(device as usize);
    known.map_or(std::ptr::null_mut(), |context| context.load(Acquire).cast())
}

/// A device's primary context is about to end.
pub fn primary_context_ends(device: i32) -> Ending {
    context_ends(primary_context(device))
}

/// The program gives up a reference to a primary context. As long as there are others it is used on, under
/// its number.
pub fn primary_context_may_end(device: i32) -> Ending {
    let context = primary_context(device);
    Ending { number: known_context(context), context }
}

/// The context behind a green context is about to end.
pub fn green_context_ends(green: *mut c_void) -> Ending {
    let mut context: CUcontext = std::ptr::null_mut();
    match ask!(GREEN_CONTEXT, (&mut context, green) as (*mut CUcontext, *mut c_void)) {
        Some(0) => context_ends(context),
        _ => context_ends(std::ptr::null_mut()),
    }
}

/// True while a device's primary context is alive.
pub fn primary_context_active(device: i32) -> bool {
    let (mut flags, mut active) = (0u32, 0i32);
    ask!(PRIMARY_STATE, (device, &mut flags, &mut active) as (i32, *mut u32, *mut i32)) == Some(0)
        && active != 0
}

/// Name and total bytes of a device.
pub fn describe(device: u8) -> Option<(String, u64)> {
    let mut name = [0 as c_char; 128];
    let mut total = 0usize;
    let asked = ask!(DEVICE_NAME, (name.as_mut_ptr(), 127, i32::from(device)) as (*mut c_char, i32, i32));
    let _ = ask!(DEVICE_TOTAL, (&mut total, i32::from(device)) as (*mut usize, i32));
    // SAFETY: NUL-terminated: the last byte was never offered to the driver.
    (asked == Some(0))
        .then(|| (unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned(), total as u64))
}

/// Free and total bytes of a device, as the driver counts them: where one of its contexts is current, or its
/// primary context is active. A driver refuses a context that ends between the two calls.
pub fn memory_info(device: u8) -> Option<(u64, u64)> {
    let ask = || {
        let (mut free, mut total) = (0usize, 0usize);
        (ask!(MEM_INFO, (&mut free, &mut total) as (*mut usize, *mut usize)) == Some(0))
            .then_some((free as u64, total as u64))
    };
    if current().0 == device { ask() } else { in_primary_context(i32::from(device), ask) }
}

/// Asks where a device's primary context is current, if that is active.
fn in_primary_context<R>(device: i32, ask: impl FnOnce() -> Option<R>) -> Option<R> {
    let context = primary_context(device);
    if context.is_null()
        || !primary_context_active(device)
        || ask!(PUSH_CONTEXT, (context) as (CUcontext)) != Some(0)
    {
        return None;
    }
    let answer = ask();
    let mut popped: CUcontext = std::ptr::null_mut();
    let _ = ask!(POP_CONTEXT, (&mut popped) as (*mut CUcontext));
    answer
}

/// The device whose memory lies at `p`. Where the calling thread has no context, it is asked in one that the program has.
pub fn device_of(p: u64) -> Option<u8> {
    /// `CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL`
    const ORDINAL: u32 = 9;
    let ask = || {
        let mut device = -1i32;
        let out = (&raw mut device).cast();
        let asked = ask!(POINTER_ATTRIBUTE, (out, ORDINAL, p) as (*mut c_void, u32, u64));
        u8::try_from(device).ok().filter(|_| asked == Some(0))
    };
    if !may_ask() {
        return None;
    }
    ask().or_else(|| (0..PRIMARY_CONTEXTS.len() as i32).find_map(|device| in_primary_context(device, ask)))
}

/// Pools that the program made, and the device of each.
static POOLS: [(AtomicPtr<c_void>, AtomicU8); 256] =
    [const { (AtomicPtr::new(std::ptr::null_mut()), AtomicU8::new(NO_DEVICE)) }; 256];

/// Remembers a pool that was made on a device. `false`: there is no room for it.
pub fn pool_made(pool: usize, device: u8) -> bool {
    POOLS.iter().any(|(known, on)| {
        let free = known.compare_exchange(std::ptr::null_mut(), pool as *mut c_void, AcqRel, Acquire).is_ok();
        if free {
            on.store(device, Release);
        }
        free
    })
}

/// Forgets a pool that is being destroyed.
pub fn pool_gone(pool: CUmemoryPool) {
    for (known, _) in &POOLS {
        let _ = known.compare_exchange(pool.cast(), std::ptr::null_mut(), AcqRel, Acquire);
    }
}

/// The device of a pool that the program made.
pub fn pool_device(pool: CUmemoryPool) -> Option<u8> {
    let (_, on) = POOLS.iter().find(|(known, _)| known.load(Acquire) == pool.cast())?;
    Some(on.load(Acquire)).filter(|&device| device != NO_DEVICE)
}

/// Bytes reserved and used by all pools of a device: the stream-ordered ones and the graphs'.
pub fn pool_totals(device: u8) -> Option<(u64, u64)> {
    /// `CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT`, `CU_MEMPOOL_ATTR_USED_MEM_CURRENT`
    const POOL: [u32; 2] = [5, 7];
    /// `CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT`, `CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT`
    const GRAPH: [u32; 2] = [2, 0];
    type Pool = *mut c_void;
    let (mut standard, mut present): (Pool, Pool) = (std::ptr::null_mut(), std::ptr::null_mut());
    let _ = ask!(DEFAULT_POOL, (&mut standard, i32::from(device)) as (*mut Pool, i32));
    let _ = ask!(DEVICE_POOL, (&mut present, i32::from(device)) as (*mut Pool, i32));
    let of_pool = |pool: Pool, which: u32| {
        let mut value = 0u64;
        let asked = ask!(POOL_ATTRIBUTE, (pool, which, (&raw mut value).cast()) as (Pool, u32, Pool));
        if asked == Some(0) { value } else { 0 }
    };
    let of_graphs = |which: u32| {
        let mut value = 0u64;
        let out = (&raw mut value).cast();
        let asked = ask!(GRAPH_ATTRIBUTE, (i32::from(device), which, out) as (i32, u32, Pool));
        if asked == Some(0) { value } else { 0 }
    };
    let own = POOLS.iter().filter(|(_, on)| on.load(Acquire) == device).map(|(pool, _)| pool.load(Acquire));
    let (mut sums, mut asked) = ([of_graphs(GRAPH[0]), of_graphs(GRAPH[1])], 0);
    let mut seen = [std::ptr::null_mut(); 2];
    for pool in [standard, present].into_iter().chain(own) {
        if pool.is_null() || seen.contains(&pool) {
            continue;
        }
        if asked < seen.len() {
            seen[asked] = pool;
        }
        asked += 1;
        sums[0] = sums[0].saturating_add(of_pool(pool, POOL[0]));
        sums[1] = sums[1].saturating_add(of_pool(pool, POOL[1]));
    }
    (asked > 0).then_some((sums[0], sums[1]))
}

/// Bytes of the allocation that begins at `p`; 0 if the driver does not say.
pub fn extent(p: u64) -> u64 {
    let (mut base, mut bytes) = (0u64, 0usize);
    let asked = ask!(ADDRESS_RANGE, (&mut base, &mut bytes, p) as (*mut u64, *mut usize, u64));
    if asked == Some(0) { (base.saturating_add(bytes as u64)).saturating_sub(p) } else { 0 }
}

/// True if a stream is being captured.
pub fn is_capturing(stream: CUstream) -> bool {
    let mut status = 0u32;
    !may_ask()
        && events::reentrant(|| ask!(IS_CAPTURING, (stream, &mut status) as (CUstream, *mut u32))) == Some(0)
        && status != 0
}

/// The nodes of a graph.
pub fn graph_nodes(graph: CUgraph) -> Vec<CUgraphNode> {
    let mut count = 0usize;
    let none: *mut CUgraphNode = std::ptr::null_mut();
    let asked = ask!(GRAPH_NODES, (graph, none, &mut count) as (CUgraph, *mut CUgraphNode, *mut usize));
    if asked != Some(0) || count == 0 {
        return Vec::new();
    }
    let mut nodes: Vec<CUgraphNode> = vec![std::ptr::null_mut(); count];
    let asked =
        ask!(GRAPH_NODES, (graph, nodes.as_mut_ptr(), &mut count) as (CUgraph, *mut CUgraphNode, *mut usize));
    nodes.truncate(if asked == Some(0) { count } else { 0 });
    nodes
}

/// `CUgraphNodeType` of a node.
pub fn node_kind(node: CUgraphNode) -> Option<u32> {
    let mut kind = 0u32;
    (ask!(NODE_TYPE, (node, &mut kind) as (CUgraphNode, *mut u32)) == Some(0)).then_some(kind)
}

/// Fills a `CUDA_MEM_ALLOC_NODE_PARAMS`.
pub fn alloc_node(node: CUgraphNode, params: *mut c_void) -> bool {
    ask!(ALLOC_NODE, (node, params) as (CUgraphNode, *mut c_void)) == Some(0)
}

/// The address that a free node frees.
pub fn free_node(node: CUgraphNode) -> Option<u64> {
    let mut address = 0u64;
    (ask!(FREE_NODE, (node, &mut address) as (CUgraphNode, *mut u64)) == Some(0)).then_some(address)
}

/// The graph inside a node.
pub fn child_graph(node: CUgraphNode) -> Option<CUgraph> {
    let mut graph: CUgraph = std::ptr::null_mut();
    (ask!(CHILD_GRAPH, (node, &mut graph) as (CUgraphNode, *mut CUgraph)) == Some(0)).then_some(graph)
}

/// Counts a stream capture that begins.
pub fn capture_begins() {
    CAPTURES.fetch_add(1, AcqRel);
}

/// Counts a stream capture as ended.
pub fn capture_ends() {
    CAPTURES.fetch_sub(1, AcqRel);
}

/// True while the driver may be asked.
pub fn may_ask() -> bool {
    CAPTURES.load(Acquire) <= 0
}
