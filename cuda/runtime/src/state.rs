//! What a thread needs before a call: an initialised driver, a current context.

use crate::abi::Handle;
use crate::driver::D;
use crate::error::{Code, Outcome};
use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering::*};

const DEVICES: usize = 64;

thread_local! {
    /// The device this thread asked for; it decides only for a thread that has no context yet.
    static DEVICE: Cell<i32> = const { Cell::new(0) };
}

/// The primary contexts that this runtime has retained, by device.
static PRIMARY: [AtomicPtr<std::ffi::c_void>; DEVICES] = [const { AtomicPtr::new(null_mut()) }; DEVICES];

pub fn plain() -> Outcome {
    Ok(())
}

/// Initialises the driver, once per process; the first result stands.
pub fn init() -> Outcome {
    static ONCE: Once = Once::new();
    static RESULT: AtomicI32 = AtomicI32::new(0);
    if !ONCE.is_completed() {
        ONCE.call_once(|| {
            // SAFETY: takes a flag word that must be 0.
            if let Err(code) = unsafe { D.init(0) } {
                RESULT.store(code.0, Release);
            }
        });
    }
    match RESULT.load(Acquire) {
        0 => Ok(()),
        code => Err(Code(code)),
    }
}

/// Initialises the driver and makes some context current: the one that the program chose, or else the primary
/// context of the thread's device.
pub fn device() -> Outcome {
    init()?;
    let mut current: Handle = null_mut();
    // SAFETY: an out-parameter of our own.
    unsafe { D.ctx_get(&mut current)? };
    if !current.is_null() {
        return Ok(());
    }
    make_current(DEVICE.get())
}

pub fn make_current(device: i32) -> Outcome {
    let context = primary(device)?;
    // SAFETY: a context the driver gave us.
    unsafe { D.ctx_set(context) }
}

/// Returns the primary context of a device, which is retained at its first use.
pub fn primary(device: i32) -> Result<Handle, Code> {
    let Some(slot) = usize::try_from(device).ok().and_then(|at| PRIMARY.get(at)) else {
        return Err(Code::INVALID_DEVICE);
    };
    let held = slot.load(Acquire);
    if !held.is_null() {
        return Ok(held);
    }
    let mut context: Handle = null_mut();
    // SAFETY: an out-parameter of our own. Two threads may both retain: one reference too many, never too
    // few.
    unsafe { D.primary_retain(&mut context, device)? };
    slot.store(context, Release);
    Ok(context)
}

/// Forgets the primary context of a device that was reset.
pub fn forget(device: i32) {
    if let Some(slot) = usize::try_from(device).ok().and_then(|at| PRIMARY.get(at)) {
        slot.store(null_mut(), Release);
    }
}

pub fn choose(device: i32) {
    DEVICE.set(device);
}

/// Returns the device of the current context, or the one that the thread would get.
pub fn current_device() -> i32 {
    let (mut context, mut device) = (null_mut(), 0);
    // SAFETY: out-parameters of our own.
    let known =
        unsafe { D.ctx_get(&mut context).is_ok() && !context.is_null() && D.ctx_device(&mut device).is_ok() };
    if known { device } else { DEVICE.get() }
}

/// Checks a device number that the caller passed.
pub fn valid(device: i32) -> Outcome {
    let mut count = 0;
    // SAFETY: an out-parameter of our own.
    unsafe { D.device_count(&mut count)? };
    if (0..count).contains(&device) { Ok(()) } else { Err(Code::INVALID_DEVICE) }
}
