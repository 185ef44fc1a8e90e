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

/// The primary contexts we hold, by device.
static PRIMARY: [AtomicPtr<std::ffi::c_void>; DEVICES] = [const { AtomicPtr::new(null_mut()) }; DEVICES];

pub fn plain() -> Outcome {
    Ok(())
}

/// The driver initialised, once per process; its verdict stands.
pub fn init() -> Outcome {
    static ONCE: Once = Once::new();
    static VERDICT: AtomicI32 = AtomicI32::new(0);
    if !ONCE.is_completed() {
        ONCE.call_once(|| {
            // SAFETY: takes a flag word that must be 0.
            if let Err(code) = unsafe { D.init(0) } {
                VERDICT.store(code.0, Release);
            }
        });
    }
    match VERDICT.load(Acquire) {
        0 => Ok(()),
        code => Err(Code(code)),
    }
}

/// The driver initialised and some context current: one the program made so, or else the primary context
/// of the thread's device.
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

/// The primary context of a device, retained at its first use.
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

/// After a reset nothing is held for the device any more.
pub fn forget(device: i32) {
    if let Some(slot) = usize::try_from(device).ok().and_then(|at| PRIMARY.get(at)) {
        slot.store(null_mut(), Release);
    }
}

pub fn choose(device: i32) {
    DEVICE.set(device);
}

/// The device of the current context, or the one the thread would get.
pub fn current_device() -> i32 {
    let (mut context, mut device) = (null_mut(), 0);
    // SAFETY: out-parameters of our own.
    let known =
        unsafe { D.ctx_get(&mut context).is_ok() && !context.is_null() && D.ctx_device(&mut device).is_ok() };
    if known { device } else { DEVICE.get() }
}

/// A device number of the caller's, checked.
pub fn valid(device: i32) -> Outcome {
    let mut count = 0;
    // SAFETY: an out-parameter of our own.
    unsafe { D.device_count(&mut count)? };
    if (0..count).contains(&device) { Ok(()) } else { Err(Code::INVALID_DEVICE) }
}
