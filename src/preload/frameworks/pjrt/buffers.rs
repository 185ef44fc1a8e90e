//! The buffers that are alive, and what is known of executables: asked of the plugin once, outside of the lock.

use std::sync::Arc;

use super::table::{Table, slot};
use crate::hooks::devices;
use crate::lock::{Mutex, MutexGuard, Rank};
use leaktrace_core::format::event::NO_DEVICE;
use leaktrace_core::int_map::{IntMap, int_map};

/// A buffer's memory on a device.
#[derive(Clone, Copy)]
pub struct Block {
    pub bytes: u64,
    pub device: u8,
}

/// What an executable gives: one for each device and output, the devices' one after the other; `None` is no block.
pub type Outputs = Arc<[Option<Block>]>;

pub struct Buffers {
    /// By their handles.
    live: IntMap<u64, Block>,
    /// By their handles: the number of outputs for each device, and what they are, of executables that were called.
    executables: IntMap<u64, (usize, Outputs)>,
    /// By the handles of a device and a memory: the device's number, or [`NO_DEVICE`] where the memory is the host's.
    places: IntMap<(u64, u64), u8>,
}

pub static BUFFERS: Mutex<Buffers> =
    Mutex::new(Rank::Buffers, Buffers { live: int_map(), executables: int_map(), places: int_map() });

/// Remembers a buffer; `false` where that cannot be, or there is nothing to remember.
pub fn remember(buffer: u64, block: Block) -> bool {
    match BUFFERS.lock() {
        Some(mut buffers) => {
            buffers.live.insert(buffer, block);
            true
        }
        None => false,
    }
}

/// Forgets a buffer and returns what it had, if it was remembered.
pub fn forget(buffer: u64) -> Option<Block> {
    BUFFERS.lock()?.live.remove(&buffer)
}

/// Returns what is alive on a device.
pub fn live_bytes(device: u8) -> u64 {
    let Some(buffers) = BUFFERS.lock() else { return 0 };
    buffers.live.values().filter(|block| block.device == device).map(|block| block.bytes).sum()
}

/// Returns the device that has a buffer, of those that are alive.
pub fn device_of(buffer: u64) -> Option<u8> {
    BUFFERS.lock()?.live.get(&buffer).map(|block| block.device)
}

/// Asks what memory a buffer has; `None` if it has none on a device.
pub fn ask(table: Table, buffer: u64) -> Option<Block> {
    if buffer == 0 {
        return None;
    }
    let bytes = table.ask(slot::BUFFER_BYTES, buffer).filter(|&bytes| bytes != 0)?;
    let device = table.ask(slot::BUFFER_DEVICE, buffer)?;
    let memory = table.ask(slot::BUFFER_MEMORY, buffer).unwrap_or(0);
    Some(Block { bytes, device: number(table, device, memory)? })
}

/// Asks for the number of a device, and has it described; `None` where the memory is the host's. By default (0) it is
/// the device's own.
pub fn number(table: Table, device: u64, memory: u64) -> Option<u8> {
    let known = BUFFERS.lock()?.places.get(&(device, memory)).copied();
    let number = known.unwrap_or_else(|| {
        let number = place(table, device, memory);
        devices::seen_by_framework(number, || describe(table, device));
        if let Some(mut buffers) = BUFFERS.lock() {
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

/// Remembers what a call of an executable has made; `handles` gives the buffers, of so many outputs for each device. What
/// they are is asked at the first call, and at each one of an executable that `moves` from device to device.
pub fn remember_outputs<I: Iterator<Item = u64>>(
    table: Table,
    executable: u64,
    devices: usize,
    moves: bool,
    handles: impl Fn(usize) -> I,
) -> Option<(usize, Outputs)> {
    let remember = |mut buffers: MutexGuard<'_, Buffers>, (count, outputs): (usize, Outputs)| {
        for (buffer, block) in handles(count).zip(outputs.iter()) {
            if let (Some(block), 1..) = (block, buffer) {
                buffers.live.insert(buffer, *block);
            }
        }
        (count, outputs)
    };
    let buffers = BUFFERS.lock()?;
    match buffers.executables.get(&executable).cloned() {
        Some(known) if !moves && known.1.len() == devices * known.0 => Some(remember(buffers, known)),
        _ => {
            drop(buffers);
            let inner = table.ask(slot::EXECUTABLE_OF, executable)?;
            let count = table.ask(slot::EXECUTABLE_OUTPUTS, inner).unwrap_or(0) as usize;
            table.end_executable(inner);
            let asked = (count, handles(count).map(|buffer| ask(table, buffer)).collect::<Outputs>());
            let mut buffers = BUFFERS.lock()?;
            buffers.executables.insert(executable, asked.clone());
            Some(remember(buffers, asked))
        }
    }
}

/// Forgets an executable that ends.
pub fn forget_executable(executable: u64) {
    if let Some(mut buffers) = BUFFERS.lock() {
        buffers.executables.remove(&executable);
    }
}

/// Forgets the parent's, in a forked child: its recording has none of them.
pub fn after_fork_child() {
    if let Some(mut buffers) = BUFFERS.lock() {
        buffers.live.clear();
    }
}
