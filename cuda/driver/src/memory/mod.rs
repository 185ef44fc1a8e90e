//! Memory: what is charged for it, how it begins and ends, and the calls of each of its families.

pub mod accounting;
pub mod array;
pub mod blocks;
pub mod external;
pub mod graph_memory;
pub mod host;
pub mod ipc;
pub mod linear;
pub mod mipmap;
pub mod multicast;
pub mod physical;
pub mod pointer;
pub mod pools;
pub mod shared_handles;
pub mod shared_pools;
pub mod sparse;
pub mod virtual_memory;
