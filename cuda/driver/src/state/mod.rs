//! The driver's state: what each object is, the one lock, and how objects are found. It holds data and names
//! no function of the API.

pub mod arena;
pub mod attributes;
pub mod code;
pub mod config;
pub mod device;
pub mod driver;
pub mod free_ranges;
pub mod host_writes;
pub mod lookup;
pub mod mapping;
pub mod memory;
pub mod truth_log;
pub mod work;
