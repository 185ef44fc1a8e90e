//! XLA's plugins, by which JAX reaches a device: `GetPjrtApi` gives a table of C functions, and a copy of it is handed
//! out in which those that make or end buffers, or run out of memory, lead through here. Any other entry, and any
//! argument and error, is as the plugin has it.
//!
//! A buffer is known by its handle, not by its address: that would have to be waited for. What it has (bytes, device,
//! kind of memory) is asked of the plugin when it is made, and once for each output of an executable.
//!
//! Buffers in memory that is not the default one of their device are the host's, and no blocks.

mod buffers;
mod table;
mod training;

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};

use crate::analysis::{loop_steps, step_boundaries};
use crate::coverage_gaps;
use crate::frameworks::{is_recorded, poke_at_first};
use crate::hooks::{events, record};
use crate::lifecycle;
use crate::shield::shield;
use crate::state;
use buffers::Block;
pub use buffers::{BUFFERS, after_fork_child};
use table::{Arguments, Entry, Slot, Table, slot};

use leaktrace_core::format::event::{Event, EventKind};
use leaktrace_core::frameworks::JAX;
use leaktrace_core::steps::loops::Shown;

/// The symbol that a plugin gives its table by.
pub const SYMBOL: &CStr = c"GetPjrtApi";

/// The number that blocks of a plugin bear as their entry point.
const ALLOCATOR: u16 = JAX.number_of_allocator();

/// Plugins that can be told apart in one process. An argument does not say whose it is, so that each has functions of
/// its own.
const PLUGINS: usize = 8;

type GetApi = unsafe extern "C-unwind" fn() -> *const u64;

/// A plugin: its own function, its own table, and the copy that is handed out.
struct Plugin {
    get: AtomicPtr<c_void>,
    own: AtomicPtr<u64>,
    copy: AtomicPtr<u64>,
}

static KNOWN: [Plugin; PLUGINS] = [const {
    Plugin {
        get: AtomicPtr::new(std::ptr::null_mut()),
        own: AtomicPtr::new(std::ptr::null_mut()),
        copy: AtomicPtr::new(std::ptr::null_mut()),
    }
}; PLUGINS];

/// Returns what a look-up of [`SYMBOL`] that found `real` is to give: our function in front of it.
pub fn in_front_of(real: *mut c_void) -> *const c_void {
    const GET: [GetApi; PLUGINS] =
        [get::<0>, get::<1>, get::<2>, get::<3>, get::<4>, get::<5>, get::<6>, get::<7>];
    lifecycle::arm();
    if real.is_null() || state::get() == state::State::Off {
        return real;
    }
    let free = std::ptr::null_mut();
    let is_its = |plugin: &Plugin| match plugin.get.compare_exchange(free, real, AcqRel, Acquire) {
        Ok(_) => true,
        Err(taken) => taken == real,
    };
    match KNOWN.iter().position(is_its) {
        Some(at) => GET[at] as *const c_void,
        None => {
            shield(|| coverage_gaps::report("buffers of XLA plugins beyond the eighth"));
            real
        }
    }
}

/// `const PJRT_Api *GetPjrtApi()`
unsafe extern "C-unwind" fn get<const N: usize>() -> *const u64 {
    let plugin = &KNOWN[N];
    // SAFETY: the plugin's own function of that name and signature.
    let own = unsafe { std::mem::transmute::<*mut c_void, GetApi>(plugin.get.load(Acquire))() };
    if own.is_null() {
        return own;
    }
    let known = plugin.copy.load(Acquire);
    if !known.is_null() && plugin.own.load(Acquire).cast_const() == own {
        return known;
    }
    let mut given = own;
    // SAFETY: a plugin's table, which lives as long as the plugin.
    shield(|| match unsafe { Table::copy(own, &wrappers::<N>()) } {
        // Never freed: somebody may be calling through it, and there is one for each plugin that was loaded.
        Some(copy) => {
            plugin.own.store(own.cast_mut(), Release);
            plugin.copy.store(copy, Release);
            loop_steps::all_work_allocates();
            given = copy;
        }
        None => coverage_gaps::report("buffers of an XLA plugin with an interface that is not known"),
    });
    given
}

/// The entries that lead through here.
fn wrappers<const N: usize>() -> [(Slot, Entry); 20] {
    [
        (slot::BUFFER_FROM_HOST, made::<N, { slot::BUFFER_FROM_HOST.0 }, 14>),
        (slot::COPY_TO_DEVICE, made::<N, { slot::COPY_TO_DEVICE.0 }, 4>),
        (slot::COPY_TO_MEMORY, made::<N, { slot::COPY_TO_MEMORY.0 }, 4>),
        (slot::RETRIEVE_BUFFER, made::<N, { slot::RETRIEVE_BUFFER.0 }, 4>),
        (slot::UNINITIALIZED_BUFFER, made::<N, { slot::UNINITIALIZED_BUFFER.0 }, 9>),
        (slot::EXECUTE, execute::<N>),
        (slot::BUFFER_TO_HOST, copied_to_host::<N>),
        (slot::BUFFER_SHARED, shared::<N>),
        (slot::BUFFER_DELETE, end::<N, { slot::BUFFER_DELETE.0 }>),
        (slot::BUFFER_DESTROY, end::<N, { slot::BUFFER_DESTROY.0 }>),
        (slot::DONATE, moved::<N, { slot::DONATE.0 }, 5>),
        (slot::BITCAST, moved::<N, { slot::BITCAST.0 }, 7>),
        (slot::EXECUTABLE_UNLOADED, unloaded::<N, { slot::EXECUTABLE_UNLOADED.0 }>),
        (slot::EXECUTABLE_DELETE, unloaded::<N, { slot::EXECUTABLE_DELETE.0 }>),
        (slot::ERROR_CODE, asked::<N>),
        (slot::ERROR_DESTROY, error_gone::<N>),
        // They may run out of memory, too.
        (slot::COMPILE, pass::<N, { slot::COMPILE.0 }>),
        (slot::LOAD, pass::<N, { slot::LOAD.0 }>),
        (slot::DESERIALIZE, pass::<N, { slot::DESERIALIZE.0 }>),
        (slot::BUFFERS_FOR_TRANSFER, pass::<N, { slot::BUFFERS_FOR_TRANSFER.0 }>),
    ]
}

/// The plugin's own table.
fn own<const N: usize>() -> Table {
    // SAFETY: stored by `get` before anybody was given a function of ours.
    unsafe { Table::at(KNOWN[N].own.load(Acquire)) }
}

/// Calls the plugin's entry with the caller's arguments, and notes memory that ran out in it.
#[inline(always)]
unsafe fn call(table: Table, slot: usize, arguments: Arguments) -> *mut c_void {
    // SAFETY: the caller's own arguments, for the entry that it called.
    let error = unsafe { table.call(Slot(slot), arguments) };
    if !error.is_null() {
        // SAFETY: the arguments are the caller's until we return.
        unsafe { failed(table, error, Slot(slot), arguments) };
    }
    error
}

/// An entry that makes nothing and ends nothing.
unsafe extern "C-unwind" fn pass<const N: usize, const SLOT: usize>(arguments: Arguments) -> *mut c_void {
    // SAFETY: as the caller has it.
    unsafe { call(own::<N>(), SLOT, arguments) }
}

/// An entry that gives a buffer, in the word `AT` of its arguments.
unsafe extern "C-unwind" fn made<const N: usize, const SLOT: usize, const AT: usize>(
    arguments: Arguments,
) -> *mut c_void {
    let table = own::<N>();
    // SAFETY: as the caller has it; after a success its arguments have the buffer.
    unsafe {
        let error = call(table, SLOT, arguments);
        if error.is_null() {
            let buffer = *arguments.add(AT);
            shield(|| {
                if buffer != 0
                    && is_recorded()
                    && let Some(block) = buffers::ask(table, buffer)
                    && buffers::remember(buffer, block)
                {
                    born(table, buffer, block, ALLOCATOR, None);
                }
            });
        }
        error
    }
}

/// An entry that ends its buffer's memory: before it, since the handle may be another's at once.
unsafe extern "C-unwind" fn end<const N: usize, const SLOT: usize>(arguments: Arguments) -> *mut c_void {
    // SAFETY: as the caller has it: the buffer is the third word.
    unsafe {
        buffer_ends(*arguments.add(2));
        own::<N>().call(Slot(SLOT), arguments)
    }
}

/// The same, for every plugin and both entries.
#[inline(never)]
#[unsafe(link_section = ".text.leaktrace")]
fn buffer_ends(buffer: u64) {
    shield(|| {
        ended(buffer, record::block_free);
    });
}

/// An entry that gives a buffer's memory to another one, which it gives in the word `AT` of its arguments.
unsafe extern "C-unwind" fn moved<const N: usize, const SLOT: usize, const AT: usize>(
    arguments: Arguments,
) -> *mut c_void {
    // SAFETY: as the caller has it: the buffer is the third word, and after a success there is the other.
    unsafe {
        let before = *arguments.add(2);
        let table = own::<N>();
        let error = call(table, SLOT, arguments);
        if error.is_null() {
            let after = *arguments.add(AT);
            shield(|| {
                if let Some(block) = ended(before, record::block_given_on)
                    && after != 0
                    && buffers::remember(after, block)
                {
                    born(table, after, block, ALLOCATOR, None);
                }
            });
        }
        error
    }
}

/// `PJRT_LoadedExecutable_Execute`: makes its outputs, and ends the inputs that were donated to it.
unsafe extern "C-unwind" fn execute<const N: usize>(arguments: Arguments) -> *mut c_void {
    let table = own::<N>();
    // SAFETY: as the caller has it.
    let error = unsafe { call(table, slot::EXECUTE.0, arguments) };
    if error.is_null() {
        // SAFETY: the call succeeded, so that its arguments are as documented.
        unsafe { executed(table, arguments) };
    }
    error
}

/// Takes in what a call of an executable has made and ended. What most calls need is a small and straight piece of code,
/// since the framework leaves none of ours in the processor's caches.
///
/// # Safety
/// The arguments are those of a call that succeeded.
#[inline(never)]
#[unsafe(link_section = ".text.leaktrace")]
unsafe fn executed(table: Table, arguments: Arguments) {
    shield(|| {
        if !is_recorded() {
            return;
        }
        // SAFETY: the caller's word, and the documented fields.
        unsafe {
            let (executable, devices, outputs) =
                (*arguments.add(2), *arguments.add(5), lists(*arguments.add(7)));
            if devices == 1
                && !outputs.is_null()
                && !names_device(arguments)
                && let Some((buffer, block, trains)) = buffers::remember_output(executable, || **outputs)
            {
                born(table, buffer, block, ALLOCATOR, None);
                if trains {
                    record::trained();
                }
            } else {
                executed_otherwise(table, arguments);
            }
        }
    });
}

/// Whether a call is for one device that is named.
///
/// # Safety
/// The arguments are those of a call.
#[inline(always)]
unsafe fn names_device(arguments: Arguments) -> bool {
    // SAFETY: the documented field, where the structure has it.
    unsafe { *arguments > 9 * 8 && *arguments.add(9) != 0 }
}

/// # Safety
/// As for [`executed`].
#[inline(never)]
unsafe fn executed_otherwise(table: Table, arguments: Arguments) {
    // SAFETY: the documented fields: the executable, lists of arguments and of outputs for each device.
    let (executable, devices, count, inputs, outputs) = unsafe {
        (
            *arguments.add(2),
            *arguments.add(5) as usize,
            *arguments.add(6) as usize,
            lists(*arguments.add(4)),
            lists(*arguments.add(7)),
        )
    };
    // SAFETY: as above.
    let moves = unsafe { names_device(arguments) };
    // SAFETY: a list of so many buffers for each device.
    let inputs_of = |device: usize| unsafe {
        let list = if inputs.is_null() { std::ptr::null() } else { *inputs.add(device) };
        if list.is_null() { &[][..] } else { std::slice::from_raw_parts(list, count) }
    };
    let outputs_of = |count: usize| {
        // SAFETY: a list of so many buffers for each device, which the call has filled.
        (0..devices).flat_map(move |d| (0..count).map(move |o| unsafe { *(*outputs.add(d)).add(o) }))
    };
    // Before the inputs are forgotten.
    let made = (!outputs.is_null() && devices > 0)
        .then(|| buffers::remember_outputs(table, executable, devices, moves, inputs_of(0), outputs_of))
        .flatten();
    if made.as_ref().is_none_or(|made| made.may_donate) {
        let mut donated = false;
        for &buffer in (0..devices).flat_map(inputs_of).filter(|&&buffer| table.is_deleted(buffer)) {
            // Its memory is an output's now.
            ended(buffer, record::block_given_on);
            donated = true;
        }
        if donated {
            buffers::donates(executable);
        }
    }
    let Some(made) = made else { return };
    if let Some(program) = made.program {
        record::program(ALLOCATOR, program.device, executable, program.bytes);
    }
    let mut stack = None;
    for (at, (buffer, block)) in outputs_of(made.count).zip(made.outputs.iter()).enumerate() {
        if let (Some(block), 1..) = (block, buffer) {
            // Where there is but one, it needs no number of its own.
            let output = (made.count > 1).then(|| JAX.output(at % made.count)).flatten();
            stack = born(table, buffer, *block, output.unwrap_or(ALLOCATOR), stack);
        }
    }
    // Behind the outputs: the first of them may show that a step begins.
    if made.trains {
        record::trained();
    }
    if let (Some(first), Some(stack)) = (made.first, stack) {
        CALLERS.remember(first, stack);
    }
}

/// The stacks of the latest calls with large outputs, by the number of the first buffer that each made.
struct Callers([AtomicU64; 64]);

static CALLERS: Callers = Callers([const { AtomicU64::new(0) }; 64]);
static CALLS: AtomicU32 = AtomicU32::new(0);
/// How many calls there were when it was told last that memory had run out.
static TOLD: AtomicU32 = AtomicU32::new(u32::MAX);

impl Callers {
    fn remember(&self, first: u32, stack: u32) {
        let at = CALLS.fetch_add(1, Relaxed) as usize % self.0.len();
        self.0[at].store(u64::from(first) << 32 | u64::from(stack), Relaxed);
    }

    /// Returns the stack of the call that made the buffer with this number, if it was one of these.
    fn stack_of(&self, number: u32) -> Option<u32> {
        let calls = self.0.iter().map(|call| call.load(Relaxed)).filter(|&call| call != 0);
        calls.filter(|call| (call >> 32) as u32 <= number).max().map(|call| call as u32)
    }
}

fn lists(address: u64) -> *const *const u64 {
    std::ptr::with_exposed_provenance(address as usize)
}

/// `PJRT_Buffer_ToHostBuffer`: copies the buffer in the third word; where the caller gives no memory for it, in the fifth
/// word, it only asks how much is needed.
unsafe extern "C-unwind" fn copied_to_host<const N: usize>(arguments: Arguments) -> *mut c_void {
    // SAFETY: as the caller has it.
    unsafe {
        let (buffer, to, bytes) = (*arguments.add(2), *arguments.add(4), *arguments.add(5));
        if to != 0 && state::is_recording() {
            shield(|| copied(buffer, bytes));
        }
        own::<N>().call(slot::BUFFER_TO_HOST, arguments)
    }
}

/// `PJRT_Buffer_IncreaseExternalReferenceCount`: where the buffer is the host's memory anyway, its user does without a copy.
unsafe extern "C-unwind" fn shared<const N: usize>(arguments: Arguments) -> *mut c_void {
    let table = own::<N>();
    // SAFETY: as the caller has it: the buffer is the third word.
    unsafe {
        let buffer = *arguments.add(2);
        shield(|| {
            if !state::is_recording() {
                return;
            }
            let is_on_host =
                table.ask(slot::BUFFER_IS_ON_HOST, buffer).is_some_and(|answer| answer as u8 != 0);
            if let Some(bytes) = table.ask(slot::BUFFER_BYTES, buffer).filter(|_| is_on_host) {
                copied(buffer, bytes);
            }
        });
        table.call(slot::BUFFER_SHARED, arguments)
    }
}

/// Records that the program reads so many bytes of a buffer on the host. What reads may allocate nothing: that a loop was left
/// before it may show by this alone.
fn copied(buffer: u64, bytes: u64) {
    if loop_steps::is_enabled() {
        loop_steps::gives_work(Shown::Copy);
    }
    record::copy_to_host(buffer, bytes);
}

/// An entry that ends a compiled program: before it, since another may have the handle at once.
unsafe extern "C-unwind" fn unloaded<const N: usize, const SLOT: usize>(arguments: Arguments) -> *mut c_void {
    // SAFETY: as the caller has it: the program is the third word.
    unsafe {
        let program = *arguments.add(2);
        shield(|| {
            if buffers::forget_executable(program) {
                record::program_end(ALLOCATOR, program);
            }
        });
        own::<N>().call(Slot(SLOT), arguments)
    }
}

/// Records a buffer that was made, and is remembered, by the number that it bears; one that the call which made it has
/// made beside others has the `stack` of the first. Returns its stack.
#[inline(always)]
fn born(table: Table, buffer: u64, block: Block, number: u16, stack: Option<u32>) -> Option<u32> {
    note_segment(table, buffer);
    let stack = match stack {
        Some(stack) => {
            record::block_alloc_beside(stack, number, block.device, buffer, block.bytes);
            Some(stack)
        }
        None => record::block_alloc(number, block.device, buffer, block.bytes),
    };
    poke_at_first();
    stack
}

/// Buffers whose address is asked for after the driver has given memory.
const ASKED: u32 = 16;

/// Records that what a buffer lies in is a segment, for the first ones after the driver gave memory: it may be the
/// plugin's pool that has grown. To know an address may take until the buffer is there, so the others are not asked.
#[inline]
fn note_segment(table: Table, buffer: u64) {
    #[unsafe(link_section = ".data.leaktrace")]
    static SEEN: AtomicU32 = AtomicU32::new(0);
    #[unsafe(link_section = ".data.leaktrace")]
    static LEFT: AtomicU32 = AtomicU32::new(0);
    let given = events::times_given();
    if SEEN.load(Relaxed) != given {
        SEEN.store(given, Relaxed);
        LEFT.store(ASKED, Relaxed);
    }
    // Of two threads that find one left, one takes it.
    if LEFT.load(Relaxed) > 0 && LEFT.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok() {
        append_segment(table, buffer);
    }
}

#[cold]
#[inline(never)]
fn append_segment(table: Table, buffer: u64) {
    if let Some(address) = table.ask(slot::BUFFER_ADDRESS, buffer) {
        events::append(&Event { address, ..Event::new(EventKind::Segment) });
    }
}

/// Records that a buffer's memory ended, if it was recorded, in one way or the other; returns what it had.
#[inline(always)]
fn ended(buffer: u64, record: impl FnOnce(u8, u64, u64)) -> Option<Block> {
    let block = buffers::forget(buffer)?;
    record(block.device, buffer, block.bytes);
    Some(block)
}

/// The error that was looked at last, by its handle.
static LOOKED_AT: AtomicU64 = AtomicU64::new(0);

/// `PJRT_Error_GetCode`: that memory ran out for what a call has promised already, is known when somebody asks what the
/// error is that came of it.
unsafe extern "C-unwind" fn asked<const N: usize>(arguments: Arguments) -> *mut c_void {
    let table = own::<N>();
    // SAFETY: as the caller has it: the error is the third word, and the code the one behind it.
    unsafe {
        let own_error = table.call(slot::ERROR_CODE, arguments);
        let error = *arguments.add(2);
        if own_error.is_null()
            && table::is_exhausted(*arguments.add(3))
            && LOOKED_AT.swap(error, AcqRel) != error
        {
            shield(|| failed_late(table, std::ptr::with_exposed_provenance_mut(error as usize)));
        }
        own_error
    }
}

/// `PJRT_Error_Destroy`: another one may come to have its handle.
unsafe extern "C-unwind" fn error_gone<const N: usize>(arguments: Arguments) -> *mut c_void {
    // SAFETY: as the caller has it: the error is the third word.
    unsafe {
        let _ = LOOKED_AT.compare_exchange(*arguments.add(2), 0, AcqRel, Relaxed);
        own::<N>().call(slot::ERROR_DESTROY, arguments)
    }
}

/// Records that memory ran out for a buffer that was promised, and is none.
fn failed_late(table: Table, error: *mut c_void) {
    if !state::is_recording() {
        return;
    }
    let Some(request) = table.exhausted(error) else { return };
    let promised = buffers::forget_promised(table, &request);
    let calls = CALLS.load(Relaxed);
    let is_told = TOLD.swap(calls, Relaxed) == calls;
    match promised {
        Some((buffer, block)) => record::block_free(block.device, buffer, block.bytes),
        // One failure is several errors: one for each buffer, and for who waits for it.
        None if is_told => return,
        None => {}
    }
    let block = promised.map(|(_, block)| block);
    let device = request.device.or(block.map(|block| block.device)).unwrap_or(0);
    let bytes = block.map_or(request.bytes, |block| block.bytes);
    let stack = block.and_then(|block| CALLERS.stack_of(block.number()));
    record::out_of_memory_at(stack, device, bytes, buffers::live_bytes(device));
    step_boundaries::out_of_memory();
}

/// Records that memory ran out, if that is what an error says.
///
/// # Safety
/// The arguments are those of the call of `slot` that gave the error.
#[cold]
#[inline(never)]
unsafe fn failed(table: Table, error: *mut c_void, slot: Slot, arguments: Arguments) {
    // SAFETY: the caller's word.
    shield(|| unsafe { take_failure_in(table, error, slot, arguments) });
}

/// # Safety
/// As for [`failed`].
unsafe fn take_failure_in(table: Table, error: *mut c_void, slot: Slot, arguments: Arguments) {
    if state::is_recording()
        && let Some(request) = table.exhausted(error)
    {
        LOOKED_AT.store(error.expose_provenance() as u64, Release);
        // SAFETY: the caller's word.
        let device =
            request.device.or_else(|| unsafe { device_of_call(table, slot, arguments) }).unwrap_or(0);
        record::out_of_memory(device, request.bytes, buffers::live_bytes(device));
        step_boundaries::out_of_memory();
    }
}

/// Returns the device that a call was for, which the error need not say; of several the first.
///
/// # Safety
/// The arguments are those of a call of `slot`.
unsafe fn device_of_call(table: Table, slot: Slot, arguments: Arguments) -> Option<u8> {
    // SAFETY: the caller's word, and the documented fields; an executable's list of arguments is as long as it says.
    unsafe {
        let named = |at: usize| buffers::number(table, *arguments.add(at), 0);
        match slot {
            slot::BUFFER_FROM_HOST => named(10),
            slot::UNINITIALIZED_BUFFER => named(7),
            slot::COPY_TO_DEVICE => named(3),
            slot::EXECUTE if *arguments.add(5) != 0 && *arguments.add(6) != 0 => {
                let inputs = lists(*arguments.add(4));
                (!inputs.is_null()).then(|| buffers::device_of(**inputs))?
            }
            _ => None,
        }
    }
}
