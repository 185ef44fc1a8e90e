//! The layout of the file: the words of the header and of a segment. Little-endian, 8-byte aligned.
//!
//! ```text
//! header (segment 0)                          every other segment
//!   0  magic "LTRACE\r\n"                       0  use: 0 free, 1 events, 2 tables, 3 checkpoint part
//!   8  version │ segment size (u32 each)        8  events: first sequence number that may stand here
//!  16  pid     │ end: 0 running, 1 clean           checkpoint: generation
//!  24  began, ns since 1970                    16  bytes used, stored after them (tables, checkpoint)
//!  32  segments in the file                        events: once whole and taken in, else 0
//!  40  checkpoint: generation, stored last     24  CRC-32 of the used bytes (events that 16 tells of, checkpoint)
//!  48  checkpoint: its first segment           32  checkpoint: next part's segment, 0 = last
//!  56  events dropped (no room for them)       40  –
//!  64  ended, ns after it began                64  payload
//!  72  first sequence number after `exec` was called, 0 = never
//!  80  1 << 32 │ the status it exited with, 0 = not known
//! ```
//!
//! Two checkpoints never share a segment: a new one is written whole, then words 48 and 40 name it.

/// First eight bytes of a recording. The line end catches transfers in text mode.
pub const MAGIC: [u8; 8] = *b"LTRACE\r\n";
/// Version of this layout and of everything inside it.
pub const VERSION: u32 = 1;
/// Bytes per segment.
pub const SEGMENT: usize = 128 * 1024;
/// Offset of a segment's payload.
pub const PAYLOAD: usize = 64;
/// Payload bytes of a segment.
pub const ROOM: usize = SEGMENT - PAYLOAD;
/// Bytes in front of each table entry: length (u32), CRC-32 of the entry (u32).
pub const ENTRY_HEAD: usize = 8;

/// Header offsets.
pub mod header {
    pub const VERSION: usize = 8;
    pub const SEGMENT_SIZE: usize = 12;
    pub const PID: usize = 16;
    pub const END: usize = 20;
    pub const BEGAN: usize = 24;
    pub const SEGMENTS: usize = 32;
    pub const GENERATION: usize = 40;
    pub const CHECKPOINT: usize = 48;
    pub const DROPPED: usize = 56;
    pub const ENDED: usize = 64;
    pub const REPLACED: usize = 72;
    pub const EXIT: usize = 80;
}

/// The bit of the header's exit word that says that the status is known.
pub const EXITED: u64 = 1 << 32;

/// Segment offsets.
pub mod segment {
    pub const USE: usize = 0;
    pub const FIRST: usize = 8;
    pub const USED: usize = 16;
    pub const CRC: usize = 24;
    pub const NEXT: usize = 32;
}

/// What a segment holds.
pub mod usage {
    pub const FREE: u64 = 0;
    pub const EVENTS: u64 = 1;
    pub const TABLES: u64 = 2;
    pub const CHECKPOINT: u64 = 3;
}
