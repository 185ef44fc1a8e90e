//! What the simulated NVML (`stubs/bodies/nvml.c`) is told of the machine: its physical devices, whatever
//! `CUDA_VISIBLE_DEVICES` hides. Asking initialises nothing, since programs ask NVML before they fork.
//!
//! This is no function of the vendor's; the real NVML asks the kernel.

use crate::abi::pointers::Out;
use crate::abi::status::Res;
use crate::device::devices::{VERSION, bus, uuid};
use crate::state::config::Config;
use crate::state::driver::lock;

/// One physical device. `stubs/bodies/nvml.c` has the same declaration.
#[repr(C)]
pub struct PhysicalDevice {
    /// Bytes of memory, and how many of them this process uses.
    memory: u64,
    used: u64,
    uuid: [u8; 16],
    bus: u32,
    /// Compute capability, major and minor.
    cc: [i32; 2],
    /// The version of the driver.
    version: i32,
}

/// Describes a device by its physical number, where there is one, and returns how many there are.
#[unsafe(no_mangle)]
pub extern "C" fn simgpu_physical_device(number: u32, out: Out<PhysicalDevice>) -> u32 {
    let config = Config::from_env();
    if number < config.present {
        out.put_opt(PhysicalDevice {
            memory: config.memory,
            used: used(number).unwrap_or(0),
            uuid: uuid(number),
            bus: bus(number),
            cc: [config.cc.0, config.cc.1],
            version: VERSION,
        });
    }
    config.present
}

/// Returns the bytes that this process uses of a device; an error where it has not initialised the driver.
fn used(number: u32) -> Res<u64> {
    Ok(lock()?.devices.iter().find(|device| device.number == number).map_or(0, |device| device.used))
}
