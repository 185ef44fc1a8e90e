//! A plugin's table of functions, and how they are asked: each takes one structure, which begins with its size, and
//! returns an error or null. Fields and functions are only ever added at the end. It knows no blocks.

use std::ffi::c_void;

/// The structure that a function takes, as words.
pub type Arguments = *mut u64;

pub type Entry = unsafe extern "C-unwind" fn(Arguments) -> *mut c_void;

/// The place of a function in the table.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Slot(pub usize);

/// The places that matter, of the public header `pjrt_c_api.h`: the same in versions 0.81 to 0.116.
pub mod slot {
    use super::Slot;

    pub const ERROR_DESTROY: Slot = Slot(0);
    pub const ERROR_MESSAGE: Slot = Slot(1);
    pub const ERROR_CODE: Slot = Slot(2);
    pub const COMPILE: Slot = Slot(20);
    pub const BUFFER_FROM_HOST: Slot = Slot(22);
    pub const DESCRIPTION_ID: Slot = Slot(23);
    pub const DESCRIPTION_KIND: Slot = Slot(26);
    pub const DEVICE_DESCRIPTION: Slot = Slot(29);
    pub const DEVICE_HARDWARE_ID: Slot = Slot(31);
    pub const DEVICE_DEFAULT_MEMORY: Slot = Slot(33);
    pub const DEVICE_MEMORY_STATS: Slot = Slot(34);
    pub const EXECUTABLE_DESTROY: Slot = Slot(40);
    pub const EXECUTABLE_NAME: Slot = Slot(41);
    pub const EXECUTABLE_OUTPUTS: Slot = Slot(44);
    pub const EXECUTABLE_CODE_BYTES: Slot = Slot(45);
    pub const EXECUTABLE_UNLOADED: Slot = Slot(50);
    pub const EXECUTABLE_OF: Slot = Slot(51);
    pub const EXECUTABLE_DEVICES: Slot = Slot(52);
    pub const EXECUTABLE_DELETE: Slot = Slot(53);
    pub const EXECUTE: Slot = Slot(55);
    pub const DESERIALIZE: Slot = Slot(56);
    pub const BUFFER_DESTROY: Slot = Slot(58);
    pub const BUFFER_BYTES: Slot = Slot(64);
    pub const BUFFER_DEVICE: Slot = Slot(65);
    pub const BUFFER_MEMORY: Slot = Slot(66);
    pub const BUFFER_DELETE: Slot = Slot(67);
    pub const BUFFER_IS_DELETED: Slot = Slot(68);
    pub const COPY_TO_DEVICE: Slot = Slot(69);
    pub const BUFFER_TO_HOST: Slot = Slot(70);
    pub const BUFFER_IS_ON_HOST: Slot = Slot(71);
    pub const BUFFER_ADDRESS: Slot = Slot(73);
    pub const BUFFER_SHARED: Slot = Slot(74);
    pub const COPY_TO_MEMORY: Slot = Slot(92);
    pub const BUFFERS_FOR_TRANSFER: Slot = Slot(103);
    pub const RETRIEVE_BUFFER: Slot = Slot(104);
    pub const UNINITIALIZED_BUFFER: Slot = Slot(112);
    pub const DONATE: Slot = Slot(125);
    pub const LOAD: Slot = Slot(129);
    pub const BITCAST: Slot = Slot(131);
}

/// Words before the first function: the table's size, its extensions, and its version in three.
const HEAD: usize = 5;
/// The version of the interface that this file knows.
const MAJOR: u32 = 0;
/// The size of the structures that we pass: eight words, more than the functions we call want. A plugin refuses one that is
/// shorter than its own version's, and takes a longer one.
const SIZE: u64 = 64;
/// The largest table that is taken for one.
const LARGEST: usize = 1 << 14;

/// `PJRT_Error_Code_RESOURCE_EXHAUSTED`
const RESOURCE_EXHAUSTED: u32 = 8;

/// Returns whether an error's code, which is the lower half of this word, says that memory ran out.
pub fn is_exhausted(code: u64) -> bool {
    code as u32 == RESOURCE_EXHAUSTED
}

/// A plugin's own table.
#[derive(Clone, Copy)]
pub struct Table(*const u64);

impl Table {
    /// # Safety
    /// A plugin's table is at that address, and stays there.
    pub unsafe fn at(address: *const u64) -> Table {
        Table(address)
    }

    /// Returns a copy of a table in which some functions are others, which lives for ever; `None` for a table of an
    /// interface that is not known. A function that the plugin does not have stays absent.
    ///
    /// # Safety
    /// A plugin's table is at that address, and stays there.
    pub unsafe fn copy(own: *const u64, others: &[(Slot, Entry)]) -> Option<*mut u64> {
        // SAFETY: the caller's word; every table begins with its size, extensions and version.
        let (bytes, version) = unsafe { (*own as usize, *own.add(HEAD - 1)) };
        let words = bytes / 8;
        if !(HEAD..LARGEST).contains(&words) || version as u32 != MAJOR {
            return None;
        }
        // SAFETY: the table is as long as it says.
        let mut copy = unsafe { std::slice::from_raw_parts(own, bytes.div_ceil(8).min(words)) }.to_vec();
        for (slot, entry) in others {
            if let Some(word) = copy.get_mut(HEAD + slot.0).filter(|word| **word != 0) {
                *word = (*entry as *const c_void).expose_provenance() as u64;
            }
        }
        Some(copy.leak().as_mut_ptr())
    }

    fn entry(self, slot: Slot) -> Option<Entry> {
        // SAFETY: a table, which is as long as it says.
        let word = unsafe {
            match HEAD + slot.0 < *self.0 as usize / 8 {
                true => *self.0.add(HEAD + slot.0),
                false => 0,
            }
        };
        // SAFETY: null, or a function of this signature, as all in the table are.
        unsafe {
            std::mem::transmute::<*const c_void, Option<Entry>>(std::ptr::with_exposed_provenance(
                word as usize,
            ))
        }
    }

    /// Calls a function; null where there is none, which nobody was given.
    ///
    /// # Safety
    /// The arguments are those of this function.
    #[inline(always)]
    pub unsafe fn call(self, slot: Slot, arguments: Arguments) -> *mut c_void {
        // SAFETY: the caller's word.
        self.entry(slot).map_or(std::ptr::null_mut(), |entry| unsafe { entry(arguments) })
    }

    /// Asks one thing of an object: the word behind it.
    pub fn ask(self, slot: Slot, object: u64) -> Option<u64> {
        self.answers(slot, object).map(|words| words[3])
    }

    /// Asks for a list of an object, and returns the first of it.
    pub fn ask_first(self, slot: Slot, object: u64) -> Option<u64> {
        let words = self.answers(slot, object)?;
        let list = std::ptr::with_exposed_provenance::<u64>(words[3] as usize);
        // SAFETY: the functions that give a list give where it lies, and its length; it lives as long as the object.
        unsafe { (!list.is_null() && words[4] > 0).then(|| *list) }
    }

    /// Returns the structure of a function that is asked something of an object, with its answers.
    #[inline(always)]
    fn answers(self, slot: Slot, object: u64) -> Option<[u64; 8]> {
        self.entry(slot)?;
        let mut arguments = [SIZE, 0, object, 0, 0, 0, 0, 0];
        // SAFETY: the functions that are asked take the object and give the answers, in a structure that is longer than any
        // version wants it. An error that it provokes is ours to end.
        unsafe {
            let error = self.call(slot, arguments.as_mut_ptr());
            if !error.is_null() {
                self.end_error(error);
                return None;
            }
        }
        Some(arguments)
    }

    /// Returns whether a buffer's memory is no longer its own.
    pub fn is_deleted(self, buffer: u64) -> bool {
        self.ask(slot::BUFFER_IS_DELETED, buffer).is_some_and(|answer| answer as u8 != 0)
    }

    /// Ends a handle that the plugin gave us.
    pub fn end_executable(self, executable: u64) {
        let mut arguments = [SIZE, 0, executable, 0, 0, 0, 0, 0];
        // SAFETY: a handle of this plugin that is nobody else's.
        let error = unsafe { self.call(slot::EXECUTABLE_DESTROY, arguments.as_mut_ptr()) };
        if !error.is_null() {
            self.end_error(error);
        }
    }

    fn end_error(self, error: *mut c_void) {
        let mut arguments = [SIZE, 0, error.expose_provenance() as u64, 0, 0, 0, 0, 0];
        // SAFETY: an error of this plugin that is nobody else's.
        unsafe { self.call(slot::ERROR_DESTROY, arguments.as_mut_ptr()) };
    }

    /// Returns what was asked for, if an error says that memory ran out. The error stays the caller's.
    pub fn exhausted(self, error: *mut c_void) -> Option<Request> {
        let error = error.expose_provenance() as u64;
        if !is_exhausted(self.ask(slot::ERROR_CODE, error)?) {
            return None;
        }
        Some(self.text(slot::ERROR_MESSAGE, error).map_or_else(Request::default, |text| Request::of(&text)))
    }

    /// Asks for a text of an object, which lives as long as the object.
    pub fn text(self, slot: Slot, object: u64) -> Option<String> {
        self.entry(slot)?;
        let mut arguments = [SIZE, 0, object, 0, 0, 0, 0, 0];
        // SAFETY: the functions that give a text take the object, then the text and its length, and no more than this.
        let text = unsafe {
            let error = self.call(slot, arguments.as_mut_ptr());
            if !error.is_null() && slot.0 != slot::ERROR_MESSAGE.0 {
                self.end_error(error);
                return None;
            }
            let text = std::ptr::with_exposed_provenance::<u8>(arguments[3] as usize);
            (!text.is_null()).then(|| std::slice::from_raw_parts(text, arguments[4] as usize))?
        };
        Some(String::from_utf8_lossy(text).into_owned())
    }

    /// Asks how many bytes of a device are in use.
    pub fn memory_in_use(self, device: u64) -> Option<u64> {
        self.memory_stats(device).map(|stats| stats[3])
    }

    /// Asks how many bytes a device can give.
    pub fn memory_limit(self, device: u64) -> Option<u64> {
        // The limit, and whether it is known.
        const LIMIT: usize = 10;
        let stats = self.memory_stats(device)?;
        (stats[LIMIT + 1] as u8 != 0).then_some(stats[LIMIT])
    }

    /// Asks for the `PJRT_Device_MemoryStats_Args` of a device, with room for fields to come.
    fn memory_stats(self, device: u64) -> Option<[u64; 64]> {
        let mut arguments = [0; 64];
        (arguments[0], arguments[2]) = (size_of_val(&arguments) as u64, device);
        self.entry(slot::DEVICE_MEMORY_STATS)?;
        // SAFETY: the device, then the answers.
        let error = unsafe { self.call(slot::DEVICE_MEMORY_STATS, arguments.as_mut_ptr()) };
        if !error.is_null() {
            self.end_error(error);
            return None;
        }
        Some(arguments)
    }
}

/// What memory ran out for, as far as XLA's words say it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// 0: they do not say. To within a hundredth where they say it in larger units.
    pub bytes: u64,
    pub device: Option<u8>,
}

impl Request {
    /// Returns whether it may be what a block of this size was asked for with.
    pub fn may_be_for(&self, bytes: u64) -> bool {
        self.bytes > 0 && self.bytes.abs_diff(bytes) <= bytes / 100
    }

    /// Reads `trying to allocate 4096 bytes`, `32.00GiB (34359738368B) on device ordinal 0`, `to allocate 16.00GiB.`
    fn of(message: &str) -> Request {
        let bytes_before = |end: usize| {
            let digits = message[..end].trim_end_matches(|c: char| c.is_ascii_digit()).len();
            message[digits..end].parse().ok()
        };
        let in_units = || {
            let text = message.split_once("to allocate ").map_or("", |(_, after)| after);
            let number = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
            let shift = ["KiB", "MiB", "GiB", "TiB"].iter().position(|unit| number.starts_with(unit))?;
            let figure: f64 = text[..text.len() - number.len()].parse().ok()?;
            Some((figure * (1u64 << (10 * (shift + 1))) as f64) as u64)
        };
        let ordinal = message.split_once("device ordinal ").map_or("", |(_, after)| after);
        Request {
            bytes: [" bytes", "B)"]
                .iter()
                .find_map(|unit| bytes_before(message.find(unit)?))
                .or_else(in_units)
                .unwrap_or(0),
            device: ordinal
                .split(|c: char| !c.is_ascii_digit())
                .next()
                .and_then(|digits| digits.parse().ok()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Request;

    #[test]
    fn what_was_asked_for_is_read() {
        for (message, bytes, device) in [
            (
                "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 34359738368 bytes.",
                34359738368,
                None,
            ),
            (
                "Failed to allocate request for 32.00GiB (34359738368B) on device ordinal 13",
                34359738368,
                Some(13),
            ),
            ("Out of memory while trying to allocate 16.50GiB. [executable_name='jit_f']", 33 << 29, None),
            ("Error allocating device buffer", 0, None),
            ("on device ordinal ", 0, None),
            ("", 0, None),
        ] {
            assert_eq!(Request::of(message), Request { bytes, device }, "{message}");
        }
    }
}
