//! What crosses the C border: the caller's pointers, the documented records, result codes, the functions'
//! names. It knows nothing of what the driver does.

pub mod faults;
#[macro_use]
pub mod names;
pub mod pointers;
pub mod records;
pub mod status;
