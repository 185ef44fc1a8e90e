//! The growing file under a recording: creates it, maps it chunk by chunk, hands out words of it.
//!
//! Space is allocated on the disk before it is touched, so that a full disk is an error here and never a SIGBUS in the
//! program. Chunks are never unmapped while the process lives: a thread may be writing.

use std::ffi::CStr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering::*};

use super::layout::SEGMENT;

/// Bytes by which the file grows and which are mapped at once.
const CHUNK: usize = 32 * SEGMENT;
const PER_CHUNK: u32 = (CHUNK / SEGMENT) as u32;
/// 64 GiB of recording at most; `LEAKTRACE_EVENTS=all` on a long run stops there and says so.
const MAX_CHUNKS: usize = 16 * 1024;

static CHUNKS: [AtomicPtr<u8>; MAX_CHUNKS] = [const { AtomicPtr::new(std::ptr::null_mut()) }; MAX_CHUNKS];
static MAPPED: AtomicU32 = AtomicU32::new(0);
static FD: AtomicI32 = AtomicI32::new(-1);

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Creates (or empties) the file and maps its first chunk. `Err` is the errno; `EWOULDBLOCK`: another process records
/// into it.
pub fn create(path: &CStr) -> Result<(), i32> {
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NOCTTY;
    // SAFETY: a NUL-terminated path and plain flags; the descriptor is ours.
    let fd = unsafe { libc::open(path.as_ptr(), flags, 0o644) };
    if fd < 0 {
        return Err(errno());
    }
    // SAFETY: `fd` is open; `stat` is written before it is read.
    let regular = unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        libc::fstat(fd, &mut stat) == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFREG
    };
    // Emptied only once it is known to be a plain file that no living process records into (the lock says so, for as
    // long as that process lives).
    // SAFETY: `fd` is open.
    let emptied = regular
        && unsafe { libc::flock(fd, libc::LOCK_EX | libc::LOCK_NB) == 0 && libc::ftruncate(fd, 0) == 0 };
    if !emptied {
        let error = if regular { errno() } else { libc::EINVAL };
        // SAFETY: `fd` is ours and not used again.
        unsafe { libc::close(fd) };
        return Err(error);
    }
    MAPPED.store(0, Relaxed);
    FD.store(fd, Release);
    grow().inspect_err(|_| forget())
}

/// Maps one more chunk. Not reentrant: callers hold the space lock. `Err` is the errno.
pub fn grow() -> Result<(), i32> {
    let fd = FD.load(Acquire);
    let chunk = MAPPED.load(Relaxed) as usize;
    if fd < 0 || chunk >= MAX_CHUNKS {
        return Err(libc::EFBIG);
    }
    let (offset, end) = (chunk * CHUNK, (chunk + 1) * CHUNK);
    // Growing past RLIMIT_FSIZE would raise SIGXFSZ in the program.
    // SAFETY: `limit` is written by getrlimit before it is read.
    let allowed = unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) != 0 || limit.rlim_cur >= end as u64
    };
    if !allowed {
        return Err(libc::EFBIG);
    }
    // SAFETY: `fd` is our open file; the range is within off_t.
    match unsafe { libc::posix_fallocate(fd, offset as libc::off_t, CHUNK as libc::off_t) } {
        0 => {}
        error => return Err(error),
    }
    // SAFETY: a fresh mapping of our own file at an address of the kernel's choice.
    let base = unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(std::ptr::null_mut(), CHUNK, protection, libc::MAP_SHARED, fd, offset as libc::off_t)
    };
    if base == libc::MAP_FAILED {
        return Err(errno());
    }
    CHUNKS[chunk].store(base.cast(), Release);
    MAPPED.store(chunk as u32 + 1, Release);
    Ok(())
}

/// Number of segments mapped, the header included.
pub fn segments() -> u32 {
    MAPPED.load(Acquire) * PER_CHUNK
}

/// Start of a segment; `None` if it is not mapped.
#[inline]
pub fn base(segment: u32) -> Option<*mut u8> {
    let chunk = CHUNKS.get((segment / PER_CHUNK) as usize)?.load(Acquire);
    if chunk.is_null() {
        return None;
    }
    // SAFETY: the chunk is mapped for its whole length and the segment lies inside it.
    Some(unsafe { chunk.add((segment % PER_CHUNK) as usize * SEGMENT) })
}

/// A word of a segment as an atomic; `None` if the segment is not mapped.
pub fn word(segment: u32, offset: usize) -> Option<&'static AtomicU64> {
    let base = base(segment)?;
    debug_assert!(offset.is_multiple_of(8) && offset < SEGMENT);
    // SAFETY: mapped, 8-aligned, and mapped for as long as this process writes the recording (see the caption).
    Some(unsafe { &*base.add(offset).cast::<AtomicU64>() })
}

/// In a forked child: lets go of the parent's file, so that nothing here can write to it again.
pub fn forget() {
    for chunk in &CHUNKS[..MAPPED.swap(0, AcqRel) as usize] {
        let base = chunk.swap(std::ptr::null_mut(), AcqRel);
        if !base.is_null() {
            // SAFETY: our own mapping; in a child there is only this thread, and its cursor is void (generation).
            unsafe { libc::munmap(base.cast(), CHUNK) };
        }
    }
    let fd = FD.swap(-1, AcqRel);
    if fd >= 0 {
        // SAFETY: our own descriptor.
        unsafe { libc::close(fd) };
    }
}
