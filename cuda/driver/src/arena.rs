//! A device's memory: one lazily backed range of addresses over one nameless shared file.
//!
//! The file is sparse, so tens of GiB cost nothing until they are touched; freed blocks are punched out of it. That
//! it is a file is what lets another process open a block (`ipc`) and a physical handle be mapped anywhere (`vmm`).

use crate::space::Space;

pub const SMALL: u64 = 512;
pub const LARGE: u64 = 2 << 20;
/// Small blocks are cut from chunks of this size, so that large ones stay aligned.
const CHUNK: u64 = 8 << 20;
/// Freed blocks below this keep their pages.
const WORTH_PUNCHING: u64 = 64 << 10;
pub const PAGE: u64 = 4096;

pub struct Arena {
    pub base: u64,
    pub file: i32,
    large: Space,
    small: Space,
}

/// What a block of `bytes` costs: 512 B steps, from 1 MiB up 2 MiB steps.
pub fn rounded(bytes: u64) -> Option<u64> {
    let step = if bytes < 1 << 20 { SMALL } else { LARGE };
    bytes.max(1).checked_next_multiple_of(step)
}

impl Arena {
    /// Twice the capacity and 1 GiB, or half and half again until the range can be had.
    pub fn new(capacity: u64) -> Option<Arena> {
        let mut bytes = (capacity.saturating_mul(2).saturating_add(1 << 30)).next_multiple_of(LARGE);
        while bytes >= LARGE {
            if let Some((base, file)) = reserve(bytes) {
                let start = base.next_multiple_of(LARGE);
                let mut large = Space::new();
                large.give(start, (base + bytes + LARGE - start) / LARGE * LARGE);
                return Some(Arena { base, file, large, small: Space::new() });
            }
            bytes = (bytes / 2).next_multiple_of(LARGE);
            if bytes == LARGE {
                break;
            }
        }
        None
    }

    /// `bytes` as `rounded` gave them.
    pub fn take(&mut self, bytes: u64) -> Option<u64> {
        if bytes.is_multiple_of(LARGE) {
            return self.large.take(bytes);
        }
        self.small.take(bytes).or_else(|| {
            let chunk = self.large.take(CHUNK)?;
            self.small.give(chunk, CHUNK);
            self.small.take(bytes)
        })
    }

    pub fn give(&mut self, at: u64, bytes: u64) {
        if bytes >= WORTH_PUNCHING {
            discard(at, bytes);
        }
        if bytes.is_multiple_of(LARGE) { self.large.give(at, bytes) } else { self.small.give(at, bytes) }
    }

    pub fn offset(&self, at: u64) -> i64 {
        (at - self.base) as i64
    }
}

fn reserve(bytes: u64) -> Option<(u64, i32)> {
    let room = bytes + LARGE;
    let file = shared_file(room);
    let base = match file {
        Some(file) => map(0, room, RW, file, 0),
        None => map(0, room, RW, -1, 0),
    };
    let Some(base) = base else {
        if let Some(file) = file {
            close(file);
        }
        return None;
    };
    // SAFETY: the range was mapped just now.
    unsafe { libc::madvise(base as *mut _, room as usize, libc::MADV_NOHUGEPAGE) };
    Some((base, file.unwrap_or(-1)))
}

/// A sparse nameless file of `bytes`.
pub fn shared_file(bytes: u64) -> Option<i32> {
    // SAFETY: a NUL-terminated name.
    let file = unsafe { libc::memfd_create(c"simgpu".as_ptr(), libc::MFD_CLOEXEC) };
    if file < 0 {
        return None;
    }
    // SAFETY: a descriptor of ours.
    if unsafe { libc::ftruncate(file, bytes as i64) } == 0 {
        return Some(file);
    }
    close(file);
    None
}

pub fn close(file: i32) {
    // SAFETY: callers pass descriptors of ours.
    unsafe { libc::close(file) };
}

pub const RW: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// Maps `bytes` of a file (or of nothing, for -1) where the kernel likes, or exactly at `at` when that is not 0.
pub fn map(at: u64, bytes: u64, protection: i32, file: i32, offset: i64) -> Option<u64> {
    let kind = if file < 0 { libc::MAP_PRIVATE | libc::MAP_ANONYMOUS } else { libc::MAP_SHARED };
    let fixed = if at == 0 { 0 } else { libc::MAP_FIXED };
    let flags = kind | fixed | libc::MAP_NORESERVE;
    // SAFETY: a fixed mapping is only asked for inside a range that this driver has reserved.
    let got = unsafe { libc::mmap(at as *mut _, bytes as usize, protection, flags, file, offset) };
    (got != libc::MAP_FAILED).then_some(got as u64)
}

pub fn unmap(at: u64, bytes: u64) {
    // SAFETY: callers pass ranges that they mapped and that nobody uses any more.
    unsafe { libc::munmap(at as *mut _, bytes as usize) };
}

/// Gives the pages inside a range of ours back; they read as zero afterwards.
pub fn discard(at: u64, bytes: u64) -> bool {
    let start = at.next_multiple_of(PAGE);
    let end = (at + bytes) / PAGE * PAGE;
    if end <= start {
        return true;
    }
    let range = (start as *mut libc::c_void, (end - start) as usize);
    // SAFETY: whole pages of a range that is mapped by this driver.
    unsafe {
        libc::madvise(range.0, range.1, libc::MADV_REMOVE) == 0
            || libc::madvise(range.0, range.1, libc::MADV_DONTNEED) == 0
    }
}
