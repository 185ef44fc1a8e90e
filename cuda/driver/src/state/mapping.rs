//! Pages and files of the host's, which simulated memory is made of.

use crate::abi::pointers::Addr;
use crate::abi::status::*;

pub const PAGE: u64 = 4096;

/// Makes a sparse nameless file of `bytes`.
pub fn shared_file(bytes: u64) -> Option<i32> {
    // SAFETY: a NUL-terminated name.
    let file = unsafe { libc::memfd_create(c"simgpu".as_ptr(), libc::MFD_CLOEXEC) };
    if file < 0 {
        return None;
    }
    // SAFETY: a descriptor that was opened just now.
    if unsafe { libc::ftruncate(file, bytes as i64) } == 0 {
        return Some(file);
    }
    close(file);
    None
}

pub fn close(file: i32) {
    // SAFETY: callers pass descriptors that they own.
    unsafe { libc::close(file) };
}

pub const RW: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// Maps `bytes` of a file (or of nothing, for -1) where the kernel likes, or exactly at `at` when that is not
/// 0.
pub fn map(at: u64, bytes: u64, protection: i32, file: i32, offset: i64) -> Option<u64> {
    let kind = if file < 0 { libc::MAP_PRIVATE | libc::MAP_ANONYMOUS } else { libc::MAP_SHARED };
    let fixed = if at == 0 { 0 } else { libc::MAP_FIXED };
    let flags = kind | fixed | libc::MAP_NORESERVE;
    // SAFETY: a fixed mapping is only requested for inside a range that this driver has reserved.
    let got = unsafe { libc::mmap(at as *mut _, bytes as usize, protection, flags, file, offset) };
    (got != libc::MAP_FAILED).then_some(got as u64)
}

pub fn unmap(at: u64, bytes: u64) {
    // SAFETY: callers pass ranges that they mapped and that nobody uses any more.
    unsafe { libc::munmap(at as *mut _, bytes as usize) };
}

/// Discards the whole pages inside a range; they read as zero afterwards.
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

/// Maps the pages of a file that hold a range of it. Returns where they are, and how far into them the range
/// starts.
pub fn map_within(file: i32, offset: u64, bytes: u64) -> Res<(Addr, u64)> {
    let skip = offset % PAGE;
    let start = map(0, (skip + bytes).next_multiple_of(PAGE), RW, file, (offset - skip) as i64);
    Ok((start.ok_or(OUT_OF_MEMORY)?, skip))
}

/// Returns a file's inode and size.
pub fn identity(file: i32) -> Option<(u64, u64)> {
    // SAFETY: all zeroes is a valid record, and it lives through the call.
    let mut record: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: as above; a bad descriptor is an error, not a fault.
    let ok = unsafe { libc::fstat(file, &mut record) } == 0;
    ok.then_some((record.st_ino, record.st_size as u64))
}

pub fn duplicate(file: i32) -> Res<i32> {
    // SAFETY: a bad descriptor is an error, not a fault.
    let copy = unsafe { libc::fcntl(file, libc::F_DUPFD_CLOEXEC, 0) };
    if copy < 0 { Err(INVALID_VALUE) } else { Ok(copy) }
}

/// A file descriptor that is closed when nothing holds it any more.
pub struct OwnedFile(pub i32);

impl Drop for OwnedFile {
    fn drop(&mut self) {
        close(self.0);
    }
}
