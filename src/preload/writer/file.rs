//! The growing file under a recording: creates it, maps it chunk by chunk, hands out words of it.
//!
//! Space is allocated on the disk before it is touched, so that a full disk is an error here and never a
//! SIGBUS in the program. Chunks are never unmapped while the process lives: a thread may be writing.

use std::ffi::{CStr, CString};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering::*};

use crate::lock::{Mutex, Rank};
use crate::writer::signals::with_signals_blocked;
use leaktrace_core::format::file_layout::SEGMENT;

/// Bytes by which the file grows and which are mapped at once.
const CHUNK: usize = 32 * SEGMENT;
const PER_CHUNK: u32 = (CHUNK / SEGMENT) as u32;
/// 64 GiB of recording at most; `LEAKTRACE_EVENTS=all` on a long run stops there and says so.
const MAX_CHUNKS: usize = 16 * 1024;
/// The numbers that our descriptor is given: beyond those that programs count on (the lowest free one, 0 to 2
/// after a `close`).
const DESCRIPTORS: [RawFd; 3] = [512, 64, 3];

static CHUNKS: [AtomicPtr<u8>; MAX_CHUNKS] = [const { AtomicPtr::new(std::ptr::null_mut()) }; MAX_CHUNKS];
static MAPPED: AtomicU32 = AtomicU32::new(0);
static FD: AtomicI32 = AtomicI32::new(-1);
/// The file's identity: the program may close our descriptor, and its number may come to mean a file of the
/// program's own.
static DEVICE: AtomicU64 = AtomicU64::new(0);
static INODE: AtomicU64 = AtomicU64::new(0);
/// The file's path, to open it anew then.
pub static PATH: Mutex<Option<CString>> = Mutex::new(Rank::File, None);

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Creates (or empties) the file and maps its first chunk. `Err` is the errno; `EWOULDBLOCK`: another process
/// records into it; `EINVAL`: it is no plain file; or what `may_overwrite` says of the first bytes of a file
/// that stands there.
pub fn create(path: &CStr, may_overwrite: impl Fn(&[u8]) -> Result<(), i32>) -> Result<(), i32> {
    with_signals_blocked(|| {
        if let Some(status) = status_at(path) {
            // Not opened to find out: that alone may do something (a pipe, a tape).
            plain(&status)?;
        }
        let fd = open(path, libc::O_CREAT)?;
        // Emptied only once it is known to be a plain file that no living process records into (the lock says
        // so, for as long as that process lives). Where there are no locks, it is not known.
        let emptied = status_of(fd).ok_or_else(errno).and_then(|status| {
            plain(&status)?;
            // SAFETY: `fd` is open.
            if unsafe { libc::flock(fd, libc::LOCK_EX | libc::LOCK_NB) } != 0 && errno() == libc::EWOULDBLOCK
            {
                return Err(libc::EWOULDBLOCK);
            }
            let mut head = [0; 64];
            // SAFETY: a buffer of that length.
            let read = unsafe { libc::pread(fd, head.as_mut_ptr().cast(), head.len(), 0) };
            if read > 0 {
                may_overwrite(&head[..read as usize])?;
            }
            // SAFETY: `fd` is open.
            if unsafe { libc::ftruncate(fd, 0) } != 0 {
                return Err(errno());
            }
            Ok(status)
        });
        let status = match emptied {
            Ok(status) => status,
            Err(error) => {
                close(fd);
                return Err(error);
            }
        };
        DEVICE.store(status.st_dev, Relaxed);
        INODE.store(status.st_ino, Relaxed);
        *PATH.lock().ok_or(libc::EDEADLK)? = Some(path.to_owned());
        MAPPED.store(0, Relaxed);
        FD.store(fd, Release);
        grow().inspect_err(|_| {
            // What never began is nothing to be found later.
            if status_at(path).is_some_and(|s| is_ours(&s)) {
                // SAFETY: a NUL-terminated path.
                unsafe { libc::unlink(path.as_ptr()) };
            }
            forget();
        })
    })
}

/// Opens a file for reading and writing, by a descriptor out of the program's way.
fn open(path: &CStr, flags: i32) -> Result<RawFd, i32> {
    let flags = flags | libc::O_RDWR | libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NOCTTY | libc::O_NONBLOCK;
    // SAFETY: a NUL-terminated path and plain flags; the descriptor is ours.
    let fd = unsafe { libc::open(path.as_ptr(), flags, 0o644) };
    if fd < 0 {
        return Err(errno());
    }
    for number in DESCRIPTORS {
        // SAFETY: makes another descriptor of an open one.
        let moved = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, number) };
        if moved >= 0 {
            close(fd);
            return Ok(moved);
        }
    }
    if fd > 2 {
        return Ok(fd);
    }
    // The last free ones are the standard three: the program's, though it closed them.
    close(fd);
    Err(libc::EMFILE)
}

fn close(fd: RawFd) {
    // SAFETY: callers have just opened it, or know that it is still what they opened.
    unsafe { libc::close(fd) };
}

fn status_of(fd: RawFd) -> Option<libc::stat> {
    let mut status = std::mem::MaybeUninit::uninit();
    // SAFETY: written by the call, if it succeeds; any number may be asked about.
    (unsafe { libc::fstat(fd, status.as_mut_ptr()) } == 0).then(|| unsafe { status.assume_init() })
}

fn status_at(path: &CStr) -> Option<libc::stat> {
    let mut status = std::mem::MaybeUninit::uninit();
    // SAFETY: as above.
    (unsafe { libc::lstat(path.as_ptr(), status.as_mut_ptr()) } == 0).then(|| unsafe { status.assume_init() })
}

fn plain(status: &libc::stat) -> Result<(), i32> {
    match status.st_mode & libc::S_IFMT {
        libc::S_IFREG => Ok(()),
        libc::S_IFDIR => Err(libc::EISDIR),
        libc::S_IFLNK => Err(libc::ELOOP),
        _ => Err(libc::EINVAL),
    }
}

fn is_ours(status: &libc::stat) -> bool {
    (status.st_dev, status.st_ino) == (DEVICE.load(Relaxed), INODE.load(Relaxed))
}

/// Returns a descriptor of our file: the one we have, or a new one if the program closed that.
fn descriptor() -> Result<RawFd, i32> {
    let fd = FD.load(Acquire);
    if fd >= 0 && status_of(fd).is_some_and(|s| is_ours(&s)) {
        return Ok(fd);
    }
    FD.store(-1, Release);
    let path = PATH.lock().ok_or(libc::EDEADLK)?;
    let fd = open(path.as_deref().ok_or(libc::EBADF)?, 0)?;
    if status_of(fd).is_some_and(|s| is_ours(&s)) {
        FD.store(fd, Release);
        return Ok(fd);
    }
    // Another file stands there now.
    close(fd);
    Err(libc::ESTALE)
}

/// Maps one more chunk. Callers hold the lock of the segment pool. `Err` is the errno.
pub fn grow() -> Result<(), i32> {
    with_signals_blocked(|| {
        let chunk = MAPPED.load(Relaxed) as usize;
        if chunk >= MAX_CHUNKS {
            return Err(libc::EFBIG);
        }
        let fd = descriptor()?;
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
        reserve(fd, offset)?;
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
    })
}

/// Allocates the disk space of a chunk.
fn reserve(fd: RawFd, offset: usize) -> Result<(), i32> {
    // SAFETY: `fd` is our open file; the range is within off_t.
    match unsafe { libc::posix_fallocate(fd, offset as libc::off_t, CHUNK as libc::off_t) } {
        0 => return Ok(()),
        // Not supported here (a sandbox, an odd file system): writing zeros does it too.
        libc::ENOSYS | libc::EPERM | libc::EACCES | libc::EINVAL | libc::EOPNOTSUPP => {}
        error => return Err(error),
    }
    static ZEROS: [u8; 4096] = [0; 4096];
    let mut at = offset;
    while at < offset + CHUNK {
        // SAFETY: the bytes of a constant.
        let written = unsafe { libc::pwrite(fd, ZEROS.as_ptr().cast(), ZEROS.len(), at as libc::off_t) };
        match written {
            1.. => at += written as usize,
            0 => return Err(libc::ENOSPC),
            _ => return Err(errno()),
        }
    }
    Ok(())
}

/// Returns the number of segments mapped, the header included.
pub fn segments() -> u32 {
    MAPPED.load(Acquire) * PER_CHUNK
}

/// Returns the start of a segment; `None` if it is not mapped.
#[inline]
pub fn base(segment: u32) -> Option<*mut u8> {
    let chunk = CHUNKS.get((segment / PER_CHUNK) as usize)?.load(Acquire);
    if chunk.is_null() {
        return None;
    }
    // SAFETY: the chunk is mapped for its whole length and the segment lies inside it.
    Some(unsafe { chunk.add((segment % PER_CHUNK) as usize * SEGMENT) })
}

/// Maps the pages of a segment at once: one by one, at the first event on each, they cost several times as
/// much. Kernels before 5.14 cannot, and so pay that.
pub fn populate(segment: u32) {
    if let Some(base) = base(segment) {
        // SAFETY: a segment is mapped; nothing in it changes.
        unsafe { libc::madvise(base.cast(), SEGMENT, libc::MADV_POPULATE_WRITE) };
    }
}

/// Returns a word of a segment as an atomic; `None` if the segment is not mapped.
pub fn word(segment: u32, offset: usize) -> Option<&'static AtomicU64> {
    let base = base(segment)?;
    debug_assert!(offset.is_multiple_of(8) && offset < SEGMENT);
    // SAFETY: mapped, 8-aligned, and mapped for as long as this process writes the recording (see the
    // caption).
    Some(unsafe { &*base.add(offset).cast::<AtomicU64>() })
}

/// Takes a segment's pages out of this process's memory. The file has them; whoever touches them gets them
/// back.
pub fn evict_pages(segment: u32) {
    if let Some(base) = base(segment) {
        // SAFETY: whole pages of a shared mapping of our own: nothing that was written there is lost.
        unsafe { libc::madvise(base.cast(), SEGMENT, libc::MADV_DONTNEED) };
    }
}

/// Unmaps and closes the parent's file, in a forked child, so that nothing here can write to it again.
pub fn forget() {
    for chunk in &CHUNKS[..MAPPED.swap(0, AcqRel) as usize] {
        let base = chunk.swap(std::ptr::null_mut(), AcqRel);
        if !base.is_null() {
            // SAFETY: our own mapping; in a child there is only this thread, and its cursor is void
            // (generation).
            unsafe { libc::munmap(base.cast(), CHUNK) };
        }
    }
    let fd = FD.swap(-1, AcqRel);
    // Only if the number still means our file.
    if fd >= 0 && status_of(fd).is_some_and(|s| is_ours(&s)) {
        close(fd);
    }
}
