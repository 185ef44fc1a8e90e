//! The growing file under a recording: creates it, maps it chunk by chunk, hands out words of it.
//!
//! The file is one that this process has made itself, under a name that nothing had (`O_EXCL`): nothing that
//! stands anywhere is opened for writing, and no file of another's is ever mapped.
//!
//! Space is allocated on the disk before it is touched, so that a full disk is an error here. The first chunk
//! gets its space piece by piece: a process with a few events leaves a small file. Chunks are never unmapped
//! while the process lives: a thread may be writing. What happens where the file is cut off under the mapping
//! is told in `fault`.

use std::ffi::{CStr, CString};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering::*};

use crate::lock::{Mutex, Rank};
use crate::machine::LARGEST_PAGE;
use crate::writer::fault;
use crate::writer::signals::with_signals_blocked;
use leaktrace_core::format::file_layout::SEGMENT;

/// Bytes by which the file grows and which are mapped at once.
const CHUNK: usize = 32 * SEGMENT;
const PER_CHUNK: u32 = (CHUNK / SEGMENT) as u32;
/// 64 GiB of recording at most; `LEAKTRACE_EVENTS=all` on a long run stops there and says so.
const MAX_CHUNKS: usize = 16 * 1024;
/// The numbers that our descriptor is given: beyond those that programs count on (the lowest free one, 0 to 2
/// after a `close`). Where neither is allowed it is closed again each time: a program may need all that it has.
const DESCRIPTORS: [RawFd; 2] = [512, 64];

static CHUNKS: [AtomicPtr<u8>; MAX_CHUNKS] = [const { AtomicPtr::new(std::ptr::null_mut()) }; MAX_CHUNKS];
static MAPPED: AtomicU32 = AtomicU32::new(0);
static FD: AtomicI32 = AtomicI32::new(-1);
/// The file's identity: the program may close our descriptor, and its number may come to mean a file of the
/// program's own.
static DEVICE: AtomicU64 = AtomicU64::new(0);
static INODE: AtomicU64 = AtomicU64::new(0);
/// The length that the file has at least, unless somebody else cut it off.
static LENGTH: AtomicU64 = AtomicU64::new(0);
/// The file's path, to open it anew then.
pub static PATH: Mutex<Option<CString>> = Mutex::new(Rank::File, None);

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// The bytes of the header that have space from the beginning, and those of any segment in the first chunk: whole
/// pages, since a page that is written to needs space for all of it.
const HEADER_SPACE: usize = LARGEST_PAGE;
pub const FIRST_SPACE: usize = if LARGEST_PAGE > 32 * 1024 { LARGEST_PAGE } else { 32 * 1024 };

/// Creates the file and maps its first chunk. Returns whether its space is still to be allocated, piece by
/// piece. `Err` is the errno; `EEXIST`: a plain file has that name; `EINVAL`, `EISDIR`, `ELOOP`: what has it is
/// none.
pub fn create(path: &CStr) -> Result<bool, i32> {
    with_signals_blocked(|| {
        let fd =
            open(path, libc::O_CREAT | libc::O_EXCL).map_err(|error| match (error, status_at(path)) {
                (libc::EEXIST, Some(status)) => plain(&status).err().unwrap_or(libc::EEXIST),
                (error, _) => error,
            })?;
        let begun = status_of(fd).ok_or_else(errno).and_then(|status| {
            plain(&status)?;
            DEVICE.store(status.st_dev, Relaxed);
            INODE.store(status.st_ino, Relaxed);
            *PATH.lock().ok_or(libc::EDEADLK)? = Some(path.to_owned());
            MAPPED.store(0, Relaxed);
            LENGTH.store(0, Relaxed);
            allowed(CHUNK)?;
            let lean = match allocate(fd, 0, HEADER_SPACE) {
                Ok(()) => true,
                Err(error) if is_unsupported(error) => false,
                Err(error) => return Err(error),
            };
            if lean {
                set_length(fd, CHUNK)?
            } else {
                reserve(fd, 0)?
            }
            map(fd, 0)?;
            keep(fd);
            Ok(lean)
        });
        begun.inspect_err(|_| {
            discard();
            close(fd);
        })
    })
}

/// Removes the file, in which nothing was recorded.
pub fn discard() {
    let path = PATH.lock().and_then(|path| path.clone());
    if let Some(path) = path.filter(|path| status_at(path).is_some_and(|s| is_ours(&s))) {
        // SAFETY: a NUL-terminated path.
        unsafe { libc::unlink(path.as_ptr()) };
    }
    forget(false);
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
    if flags & libc::O_EXCL != 0 {
        // SAFETY: a NUL-terminated path, of a file that was made a moment ago.
        unsafe { libc::unlink(path.as_ptr()) };
    }
    Err(libc::EMFILE)
}

/// Keeps a descriptor for the next time, if it is out of the program's way.
fn keep(fd: RawFd) {
    if DESCRIPTORS.iter().any(|&number| fd >= number) {
        FD.store(fd, Release);
    } else {
        close(fd);
    }
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

/// Returns whether the file is shorter than it was made.
fn is_shorter(status: &libc::stat) -> bool {
    (status.st_size as u64) < LENGTH.load(Relaxed)
}

/// Returns whether somebody else cut the file off, as far as our descriptor shows.
pub fn is_cut_off() -> bool {
    status_of(FD.load(Acquire)).is_some_and(|status| is_ours(&status) && is_shorter(&status))
}

/// Returns a descriptor of our file: the one we have, or a new one if the program closed that. Ends the tracing
/// if the file was cut off: what is written behind the cut would be all that is left of it.
fn descriptor() -> Result<RawFd, i32> {
    let fd = FD.load(Acquire);
    match status_of(fd).filter(|status| fd >= 0 && is_ours(status)) {
        Some(status) if is_shorter(&status) => {
            fault::lost();
            return Err(libc::ESTALE);
        }
        Some(_) => return Ok(fd),
        None => FD.store(-1, Release),
    }
    let path = PATH.lock().ok_or(libc::EDEADLK)?;
    let path = path.as_deref().ok_or(libc::EBADF)?;
    // Not opened to find out.
    if !status_at(path).is_some_and(|s| is_ours(&s)) {
        return Err(libc::ESTALE);
    }
    let fd = open(path, 0)?;
    if status_of(fd).is_some_and(|s| is_ours(&s) && !is_shorter(&s)) {
        return Ok(fd);
    }
    // Another file stands there now.
    close(fd);
    Err(libc::ESTALE)
}

/// Has something done with a descriptor of our file.
fn with_descriptor<R>(done: impl FnOnce(RawFd) -> Result<R, i32>) -> Result<R, i32> {
    let fd = descriptor()?;
    let result = done(fd);
    keep(fd);
    result
}

/// Allocates the first bytes of a segment of the first chunk. Callers hold the lock of the segment pool.
pub fn reserve_first_bytes(segment: u32) -> Result<(), i32> {
    reserve_mapped(segment as usize * SEGMENT, FIRST_SPACE)
}

/// Allocates all of the first chunk, which keeps what was written there. Callers hold the lock of the segment
/// pool.
pub fn reserve_first_chunk() -> Result<(), i32> {
    reserve_mapped(0, CHUNK)
}

/// Allocates the space of a range of the first chunk.
fn reserve_mapped(offset: usize, length: usize) -> Result<(), i32> {
    with_signals_blocked(|| {
        let reserved = with_descriptor(|fd| {
            allocate(fd, offset, length)?;
            // It was made shorter when it had ended: it goes on.
            if LENGTH.load(Relaxed) < CHUNK as u64 { set_length(fd, CHUNK) } else { Ok(()) }
        });
        // The program has closed ours, and has no other left. Touching the pages does it too.
        if !matches!(reserved, Err(libc::EMFILE | libc::ENFILE)) {
            return reserved;
        }
        let base = CHUNKS[0].load(Acquire);
        // SAFETY: whole pages inside the first chunk, if that is mapped; nothing in them changes.
        let touched = !base.is_null()
            && unsafe { libc::madvise(base.add(offset).cast(), length, libc::MADV_POPULATE_WRITE) == 0 };
        if touched { Ok(()) } else { Err(libc::EMFILE) }
    })
}

/// Cuts off what has no disk space and will have none, since the recording has ended. Callers hold the lock of
/// the segment pool.
pub fn shorten(segments: u32) {
    with_signals_blocked(|| {
        let _ = with_descriptor(|fd| set_length(fd, segments as usize * SEGMENT));
    });
}

/// Maps one more chunk. Callers hold the lock of the segment pool. `Err` is the errno.
pub fn grow() -> Result<(), i32> {
    with_signals_blocked(|| {
        let chunk = MAPPED.load(Relaxed) as usize;
        if chunk >= MAX_CHUNKS {
            return Err(libc::EFBIG);
        }
        allowed((chunk + 1) * CHUNK)?;
        with_descriptor(|fd| {
            reserve(fd, chunk * CHUNK)?;
            map(fd, chunk)
        })
    })
}

/// Returns whether the file may be as long as this: growing past RLIMIT_FSIZE would raise SIGXFSZ in the
/// program.
fn allowed(length: usize) -> Result<(), i32> {
    // SAFETY: `limit` is written by getrlimit before it is read.
    let allowed = unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) != 0 || limit.rlim_cur >= length as u64
    };
    if allowed { Ok(()) } else { Err(libc::EFBIG) }
}

/// Maps a chunk, whether it has its space yet or not.
fn map(fd: RawFd, chunk: usize) -> Result<(), i32> {
    // SAFETY: a fresh mapping of our own file at an address of the kernel's choice.
    let base = unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let offset = (chunk * CHUNK) as libc::off_t;
        libc::mmap(std::ptr::null_mut(), CHUNK, protection, libc::MAP_SHARED, fd, offset)
    };
    if base == libc::MAP_FAILED {
        return Err(errno());
    }
    CHUNKS[chunk].store(base.cast(), Release);
    MAPPED.store(chunk as u32 + 1, Release);
    Ok(())
}

/// Puts memory of nobody's in the place of the mapped chunk in which an address lies. `false`: it lies in none.
/// Called by the handler of a fault.
pub fn replace_chunk(address: usize) -> bool {
    CHUNKS[..MAPPED.load(Acquire) as usize].iter().any(|chunk| {
        let base = chunk.load(Acquire);
        if base.is_null() || !(base as usize..base as usize + CHUNK).contains(&address) {
            return false;
        }
        // SAFETY: a chunk of our own, which somebody has cut off.
        unsafe { replace(base) }
    })
}

/// Puts memory of nobody's in the place of a chunk.
///
/// # Safety
/// `base` is a mapped chunk of our own, in which nothing but events and tables of ours lie; whoever writes there
/// at this moment goes on with the new memory.
unsafe fn replace(base: *mut u8) -> bool {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    // SAFETY: the caller's word.
    unsafe { libc::mmap(base.cast(), CHUNK, protection, kind, -1, 0) != libc::MAP_FAILED }
}

/// Allocates disk space for a range, which keeps what it holds.
fn allocate(fd: RawFd, offset: usize, length: usize) -> Result<(), i32> {
    loop {
        // SAFETY: `fd` is our open file; the range is within off_t. Not the C library's function of that name:
        // where the file system cannot, that one writes into blocks that other threads write to.
        if unsafe { libc::fallocate(fd, 0, offset as libc::off_t, length as libc::off_t) } == 0 {
            LENGTH.fetch_max((offset + length) as u64, Relaxed);
            return Ok(());
        }
        if errno() != libc::EINTR {
            return Err(errno());
        }
    }
}

/// Makes the file so long, without space for it.
fn set_length(fd: RawFd, length: usize) -> Result<(), i32> {
    // SAFETY: `fd` is our open file.
    if unsafe { libc::ftruncate(fd, length as libc::off_t) } != 0 {
        return Err(errno());
    }
    LENGTH.store(length as u64, Relaxed);
    Ok(())
}

/// Not supported here: a sandbox, an odd file system.
fn is_unsupported(error: i32) -> bool {
    matches!(error, libc::ENOSYS | libc::EPERM | libc::EACCES | libc::EINVAL | libc::EOPNOTSUPP)
}

/// Allocates the disk space of a chunk that nobody has written to yet.
fn reserve(fd: RawFd, offset: usize) -> Result<(), i32> {
    match allocate(fd, offset, CHUNK) {
        // Writing zeros does it too.
        Err(error) if is_unsupported(error) => {}
        done => return done,
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
    LENGTH.fetch_max((offset + CHUNK) as u64, Relaxed);
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
pub fn forget(in_use: bool) {
    for chunk in &CHUNKS[..MAPPED.swap(0, AcqRel) as usize] {
        let base = chunk.swap(std::ptr::null_mut(), AcqRel);
        if !base.is_null() {
            // SAFETY: our own mapping; in a child there is only this thread, and its cursor is void
            // (generation).
            unsafe {
                if in_use {
                    replace(base);
                } else {
                    libc::munmap(base.cast(), CHUNK);
                }
            }
        }
    }
    let fd = FD.swap(-1, AcqRel);
    // Only if the number still means our file.
    if fd >= 0 && status_of(fd).is_some_and(|s| is_ours(&s)) {
        close(fd);
    }
}
