//! Streams, events, capture, and the work in streams: copies, memsets, launches, stream-ordered memory.

pub mod capture;
pub mod copy;
pub mod copy3d;
pub mod events;
pub mod graph_exec;
pub mod launch;
pub mod memset;
pub mod operations;
pub mod pool_async;
pub mod streams;
