//! The buffers that are alive, and what is known of executables: asked of the plugin once, outside of the lock.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use super::table::{Request, Table, slot};
use super::training::{Input, Training};
use crate::coverage_gaps;
use crate::hooks::devices;
use crate::lock::{FrequentGuard, Mutex, Rank};
use leaktrace_core::format::event::{MAX_SIZE, NO_DEVICE};
use leaktrace_core::int_map::{IntHasher, IntMap, int_map};

/// A buffer's memory on a device.
#[derive(Clone, Copy)]
pub struct Block {
    pub bytes: u64,
    pub device: u8,
    /// Its number among all that was remembered; 0 before that.
    number: u32,
}

impl Block {
    /// Returns its number among all that was remembered.
    pub fn number(self) -> u32 {
        self.number
    }
}

/// What an executable gives: one for each device and output, the devices' one after the other; `None` is no block.
pub type Outputs = Arc<[Option<Block>]>;

/// What is known of an executable that was called.
struct Executable {
    /// The number of outputs for each device.
    count: usize,
    outputs: Outputs,
    /// The function that it is, for these shapes, and whether that trains, when it is known.
    function: u64,
    trains: Option<bool>,
    calls: u32,
    /// Whether one of its outputs is so large that memory may run out for it.
    large: bool,
    /// Whether one of its inputs was seen to be donated to it.
    donates: bool,
    /// Its output, where it has but one, which is small, and it is known whether it trains.
    single: Option<Block>,
}

/// The code of an executable: the device that it is for, of several the first, and what its compiler says it takes there.
#[derive(Clone, Copy)]
pub struct Program {
    pub device: u8,
    pub bytes: u64,
}

impl Executable {
    /// Whether the next call may have an input donated to it, as far as it is looked at.
    #[inline(always)]
    fn may_donate(&self) -> bool {
        self.donates || self.calls < CALLS_LOOKED_AT || self.calls.is_multiple_of(CALLS_BETWEEN)
    }
}

/// What a call of an executable has made.
pub struct Made {
    /// At its first call. It was compiled right before, on a thread that has no Python.
    pub program: Option<Program>,
    /// The number of the first of its outputs, if one is so large that memory may run out for it.
    pub first: Option<u32>,
    pub count: usize,
    pub outputs: Outputs,
    pub trains: bool,
    /// Whether inputs may have been donated.
    pub may_donate: bool,
}

/// What an executable does with its inputs was settled when it was compiled: after so many calls that donated none, only
/// one in so many is looked at. What a call might donate all the same ends with its handle.
const CALLS_LOOKED_AT: u32 = 16;
const CALLS_BETWEEN: u32 = 64;

/// What memory may run out for, in bytes: what is smaller is not told of where it is only promised.
const LARGE: u64 = 1 << 16;

/// The buffers that are alive, by their handles.
struct Live {
    /// The latest, by the last bits of their numbers: a loop mostly gives up what it made a call or two ago, and no table
    /// has to be changed for that. 0 in place of a handle: none.
    recent: [(u64, Block); RECENT],
    others: IntMap<u64, Block>,
}

/// How many are looked for one by one. A power of two.
const RECENT: usize = 4;

pub struct Buffers {
    live: Live,
    /// Buffers that were remembered so far.
    count: u32,
    /// By their handles.
    executables: IntMap<u64, Executable>,
    /// By a hash of their names.
    functions: IntMap<u64, Training>,
    /// By the handles of a device and a memory: the device's number, or [`NO_DEVICE`] where the memory is the host's.
    places: IntMap<(u64, u64), u8>,
}

/// Functions of which it is known whether they train; others count as if they did not.
const MAX_FUNCTIONS: usize = 1 << 14;

pub static BUFFERS: Mutex<Buffers> = Mutex::new(Rank::Buffers, Buffers::new());

/// How long a thread waits for them: the one that has them may have been ended in the middle of it.
const PATIENCE: Duration = Duration::from_secs(1);

/// Takes the buffers. Every call takes them twice, so no signal is blocked for it.
#[inline(always)]
fn buffers() -> Option<FrequentGuard<'static, Buffers>> {
    BUFFERS.try_lock_frequent(PATIENCE, forget_torn)
}

#[cold]
#[inline(never)]
fn forget_torn(buffers: &mut Buffers) {
    std::mem::forget(std::mem::replace(buffers, Buffers::new()));
    coverage_gaps::report("ends of arrays that were alive at a jump out of a signal handler");
}

impl Live {
    const fn new() -> Live {
        Live { recent: [(0, Block { bytes: 0, device: 0, number: 0 }); RECENT], others: int_map() }
    }

    #[inline(always)]
    fn insert(&mut self, buffer: u64, block: Block) {
        let place = &mut self.recent[block.number as usize % RECENT];
        let (older, its) = std::mem::replace(place, (buffer, block));
        if older != 0 {
            self.insert_among_others(older, its);
        }
    }

    #[inline(never)]
    fn insert_among_others(&mut self, buffer: u64, block: Block) {
        self.others.insert(buffer, block);
    }

    #[inline(always)]
    fn remove(&mut self, buffer: u64) -> Option<Block> {
        match self.recent.iter_mut().find(|(recent, _)| *recent == buffer && buffer != 0) {
            Some((recent, block)) => {
                *recent = 0;
                Some(*block)
            }
            None => self.remove_from_others(buffer),
        }
    }

    #[inline(never)]
    fn remove_from_others(&mut self, buffer: u64) -> Option<Block> {
        self.others.remove(&buffer)
    }

    fn get(&self, buffer: u64) -> Option<&Block> {
        let recent = self.recent.iter().find(|(recent, _)| *recent == buffer && buffer != 0);
        recent.map(|(_, block)| block).or_else(|| self.others.get(&buffer))
    }

    fn all(&self) -> impl Iterator<Item = (u64, Block)> {
        let recent = self.recent.iter().copied().filter(|(buffer, _)| *buffer != 0);
        recent.chain(self.others.iter().map(|(buffer, block)| (*buffer, *block)))
    }
}

impl Buffers {
    const fn new() -> Buffers {
        Buffers {
            live: Live::new(),
            count: 0,
            executables: int_map(),
            functions: int_map(),
            places: int_map(),
        }
    }

    #[inline(always)]
    fn remember(&mut self, buffer: u64, block: Block) {
        self.count = self.count.wrapping_add(1);
        self.live.insert(buffer, Block { number: self.count, ..block });
    }
}

/// Remembers a buffer; `false` where that cannot be, or there is nothing to remember.
pub fn remember(buffer: u64, block: Block) -> bool {
    match buffers() {
        Some(mut buffers) => {
            buffers.remember(buffer, block);
            true
        }
        None => false,
    }
}

/// Forgets a buffer and returns what it had, if it was remembered.
#[inline(always)]
pub fn forget(buffer: u64) -> Option<Block> {
    buffers()?.live.remove(buffer)
}

/// Forgets the buffer that came last of those for which memory may have run out, and returns it: if more is alive on its
/// device than the plugin has in use, by so much at least.
pub fn forget_promised(table: Table, request: &Request) -> Option<(u64, Block)> {
    let (buffer, block, place) = {
        let buffers = self::buffers()?;
        let may_be = |block: &Block| {
            request.may_be_for(block.bytes) && request.device.is_none_or(|device| device == block.device)
        };
        let of = buffers.live.all().filter(|(_, block)| may_be(block));
        let (buffer, block) = of.max_by_key(|(_, block)| block.number)?;
        let ((place, _), _) = buffers.places.iter().find(|(_, number)| **number == block.device)?;
        (buffer, block, *place)
    };
    // What is in use was rounded up, each block by itself.
    let rounded = live_bytes(block.device).saturating_add(block.bytes / 100);
    let promised = rounded >= table.memory_in_use(place)?.saturating_add(block.bytes);
    promised.then(|| forget(buffer))?.map(|block| (buffer, block))
}

/// Returns what is alive on a device.
pub fn live_bytes(device: u8) -> u64 {
    let Some(buffers) = self::buffers() else { return 0 };
    buffers
        .live
        .all()
        .map(|(_, block)| block)
        .filter(|block| block.device == device)
        .map(|block| block.bytes)
        .sum()
}

/// Returns the device that has a buffer, of those that are alive.
pub fn device_of(buffer: u64) -> Option<u8> {
    buffers()?.live.get(buffer).map(|block| block.device)
}

/// Asks what memory a buffer has; `None` if it has none on a device.
pub fn ask(table: Table, buffer: u64) -> Option<Block> {
    if buffer == 0 {
        return None;
    }
    let bytes = table.ask(slot::BUFFER_BYTES, buffer).filter(|&bytes| bytes != 0)?;
    let device = table.ask(slot::BUFFER_DEVICE, buffer)?;
    let memory = table.ask(slot::BUFFER_MEMORY, buffer).unwrap_or(0);
    Some(Block { bytes, device: number(table, device, memory)?, number: 0 })
}

/// Asks for the number of a device, and has it described; `None` where the memory is the host's. By default (0) it is
/// the device's own.
pub fn number(table: Table, device: u64, memory: u64) -> Option<u8> {
    let known = buffers()?.places.get(&(device, memory)).copied();
    let number = known.unwrap_or_else(|| {
        let number = place(table, device, memory);
        devices::seen_by_framework(number, || describe(table, device));
        if let Some(mut buffers) = self::buffers() {
            buffers.places.insert((device, memory), number);
        }
        number
    });
    (number != NO_DEVICE).then_some(number)
}

/// Asks for the number of a device; [`NO_DEVICE`] where the memory is another than it has by default.
fn place(table: Table, device: u64, memory: u64) -> u8 {
    let default = table.ask(slot::DEVICE_DEFAULT_MEMORY, device);
    if default.is_some_and(|default| memory != 0 && default != memory) {
        return NO_DEVICE;
    }
    let described = || table.ask(slot::DESCRIPTION_ID, table.ask(slot::DEVICE_DESCRIPTION, device)?);
    let number = |answer: Option<u64>| answer.and_then(|word| u8::try_from(word as i32).ok());
    // A device that is no hardware has no number of that kind.
    let known = number(table.ask(slot::DEVICE_HARDWARE_ID, device)).or_else(|| number(described()));
    known.filter(|&known| known != NO_DEVICE).unwrap_or(0)
}

/// Asks for the kind of a device, and its memory's size; 0 where that is not known.
fn describe(table: Table, device: u64) -> Option<(String, u64)> {
    let kind = table.text(slot::DESCRIPTION_KIND, table.ask(slot::DEVICE_DESCRIPTION, device)?)?;
    Some((kind, table.memory_limit(device).unwrap_or(0)))
}

/// Remembers the output of a call of an executable for one device that gives but one, small block, as most calls do; returns
/// it, and whether it trains. `None`: it is another one, or a call that is looked at more closely, and nothing was done.
#[inline(always)]
pub fn remember_output(executable: u64, handle: impl FnOnce() -> u64) -> Option<(u64, Block, bool)> {
    let mut buffers = self::buffers()?;
    let known = buffers.executables.get_mut(&executable)?;
    let block = known.single?;
    let buffer = handle();
    if known.may_donate() || buffer == 0 {
        return None;
    }
    known.calls = known.calls.wrapping_add(1);
    let trains = known.trains == Some(true);
    buffers.remember(buffer, block);
    Some((buffer, block, trains))
}

/// Remembers what a call of an executable has made of its inputs on one device; `handles` gives the buffers, of so many
/// outputs for each device. What they are is asked at the first call, and at each one of an executable that `moves` from
/// device to device.
pub fn remember_outputs<I: Iterator<Item = u64>>(
    table: Table,
    executable: u64,
    devices: usize,
    moves: bool,
    inputs: &[u64],
    handles: impl Fn(usize) -> I,
) -> Option<Made> {
    let buffers = self::buffers()?;
    match buffers.executables.get(&executable) {
        Some(known) if !moves && known.outputs.len() == devices * known.count => {
            remember_made(buffers, executable, inputs, handles)
        }
        known => {
            let is_new = known.is_none();
            drop(buffers);
            let inner = table.ask(slot::EXECUTABLE_OF, executable)?;
            let program = is_new.then(|| program(table, executable, inner));
            let count = table.ask(slot::EXECUTABLE_OUTPUTS, inner).unwrap_or(0) as usize;
            let name = table.text(slot::EXECUTABLE_NAME, inner);
            let function = name.map_or(executable, |name| {
                let mut hasher = IntHasher::default();
                (name, inputs.len(), count).hash(&mut hasher);
                hasher.finish()
            });
            table.end_executable(inner);
            let outputs = handles(count).map(|buffer| ask(table, buffer)).collect::<Outputs>();
            let large = outputs.iter().flatten().any(|block| block.bytes >= LARGE);
            let mut buffers = self::buffers()?;
            buffers.executables.insert(
                executable,
                Executable {
                    count,
                    outputs,
                    function,
                    trains: None,
                    calls: 0,
                    large,
                    donates: false,
                    single: None,
                },
            );
            let made = remember_made(buffers, executable, inputs, handles)?;
            Some(Made { program, ..made })
        }
    }
}

/// Asks what the code of an executable is.
fn program(table: Table, executable: u64, inner: u64) -> Program {
    let device = table.ask_first(slot::EXECUTABLE_DEVICES, executable);
    let device = device.and_then(|device| number(table, device, 0)).unwrap_or(0);
    let bytes = table.ask(slot::EXECUTABLE_CODE_BYTES, inner).filter(|&bytes| bytes <= MAX_SIZE);
    Program { device, bytes: bytes.unwrap_or(0) }
}

/// Remembers what a call of an executable that is known has made.
fn remember_made<I: Iterator<Item = u64>>(
    mut buffers: FrequentGuard<'_, Buffers>,
    executable: u64,
    inputs: &[u64],
    handles: impl Fn(usize) -> I,
) -> Option<Made> {
    let buffers = &mut *buffers;
    let known = buffers.executables.get_mut(&executable)?;
    let (count, outputs) = (known.count, Arc::clone(&known.outputs));
    let (may_donate, large) = (known.may_donate(), known.large);
    known.calls = known.calls.wrapping_add(1);
    let trains = known.trains.unwrap_or_else(|| {
        if buffers.functions.len() >= MAX_FUNCTIONS {
            return false;
        }
        let input = |buffer: &u64| {
            let known = buffers.live.get(*buffer)?;
            Some(Input { number: known.number, bytes: known.bytes })
        };
        let inputs: Vec<Option<Input>> = inputs.iter().map(input).collect();
        let bytes: Vec<u64> = outputs.iter().take(count).flatten().map(|block| block.bytes).collect();
        let first = buffers.count.wrapping_add(1);
        let made = first..first.wrapping_add(outputs.iter().flatten().count() as u32);
        let training = buffers.functions.entry(known.function).or_default();
        let trains = training.call(&inputs, &bytes, made);
        known.trains = training.known();
        trains
    });
    if known.trains.is_some()
        && !large
        && let [single] = outputs[..]
    {
        known.single = single;
    }
    let first = large.then(|| buffers.count.wrapping_add(1));
    for (buffer, block) in handles(count).zip(outputs.iter()) {
        if let (Some(block), 1..) = (block, buffer) {
            buffers.remember(buffer, *block);
        }
    }
    Some(Made { program: None, first, count, outputs, trains, may_donate })
}

/// Takes in that an executable had an input donated to it.
pub fn donates(executable: u64) {
    if let Some(mut buffers) = self::buffers()
        && let Some(known) = buffers.executables.get_mut(&executable)
    {
        known.donates = true;
    }
}

/// Forgets an executable that ends; returns whether it was called.
pub fn forget_executable(executable: u64) -> bool {
    buffers().is_some_and(|mut buffers| buffers.executables.remove(&executable).is_some())
}

/// Forgets the parent's, in a forked child: its recording has none of them.
pub fn after_fork_child() {
    if let Some(mut buffers) = self::buffers() {
        buffers.live.recent = Live::new().recent;
        buffers.live.others.clear();
        buffers.executables.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_jump_has_left_half_written_is_forgotten() {
        let block = Block { bytes: 512, device: 0, number: 0 };
        assert!(remember(16, block) && device_of(16) == Some(0));
        std::mem::forget(buffers());
        assert!(BUFFERS.raw().is_own() && buffers().is_none());
        // SAFETY: nobody here goes on with them.
        unsafe { BUFFERS.raw().leave() };
        assert!(!BUFFERS.raw().is_own() && device_of(16).is_none());
        assert!(remember(16, block) && forget(16).is_some());
    }
}
