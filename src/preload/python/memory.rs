//! Reads of the process's own memory, in two ways: directly, where an object is known to be alive, and by the
//! kernel, where an address may be wrong, which then is "not there" and no crash. Knows nothing of what lies
//! there.

use std::ptr;

use crate::machine;

/// Reads a `T` that lies `offset` bytes behind `base`.
///
/// # Safety
/// There is one.
#[inline(always)]
pub unsafe fn read<T: Copy>(base: *const u8, offset: usize) -> T {
    // SAFETY: the caller's word; unaligned, because the offset may be anything.
    unsafe { base.add(offset).cast::<T>().read_unaligned() }
}

/// Reads the word that lies `offset` bytes behind the address `base`.
///
/// # Safety
/// There is one.
#[inline(always)]
pub unsafe fn word(base: u64, offset: usize) -> u64 {
    // SAFETY: the caller's word.
    unsafe { read(ptr::with_exposed_provenance(base as usize), offset) }
}

/// The kernel's limit of ranges in one call.
const RANGES: usize = 1024;

/// True if a word may be an object's address.
pub fn is_plausible(word: u64) -> bool {
    word & 7 == 0 && (0x1_0000..machine::ADDRESS_END).contains(&word)
}

/// Copies of some ranges of memory; all zero where one could not be read.
#[derive(Default)]
pub struct Copies {
    words: Vec<u64>,
    /// Where each range's words begin, and one more.
    begins: Vec<usize>,
}

impl Copies {
    /// Returns the words of the range of an index.
    pub fn get(&self, i: usize) -> &[u64] {
        match (self.begins.get(i), self.begins.get(i + 1)) {
            (Some(&begin), Some(&end)) => &self.words[begin..end],
            _ => &[],
        }
    }

    /// Returns the words of all ranges, one after the other.
    pub fn all(&self) -> &[u64] {
        &self.words
    }
}

/// Has the kernel copy ranges, each an address and a number of words.
pub fn copy(ranges: &[(u64, usize)]) -> Copies {
    let mut begins = Vec::with_capacity(ranges.len() + 1);
    let mut total = 0;
    for &(_, words) in ranges {
        begins.push(total);
        total += words;
    }
    begins.push(total);
    let mut words = vec![0u64; total];
    let mut at = 0;
    while at < ranges.len() {
        let end = ranges.len().min(at + RANGES);
        let remote: Vec<libc::iovec> = ranges[at..end]
            .iter()
            .map(|&(address, words)| libc::iovec {
                iov_base: ptr::without_provenance_mut(address as usize),
                iov_len: words * 8,
            })
            .collect();
        let copied = begins[at] + kernel_copy(&mut words[begins[at]..begins[end]], &remote).unwrap_or(0) / 8;
        // The first range that was not copied whole is not there; go on behind it.
        match (at..end).find(|&i| begins[i + 1] > copied) {
            Some(failed) => {
                words[begins[failed]..begins[failed + 1]].fill(0);
                at = failed + 1;
            }
            None => at = end,
        }
    }
    Copies { words, begins }
}

/// Returns how many bytes the kernel copied; `Err` is the errno.
fn kernel_copy(into: &mut [u64], ranges: &[libc::iovec]) -> Result<usize, i32> {
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: size_of_val(into) };
    // SAFETY: the kernel writes into `into` only, as much as it holds; the ranges it checks itself.
    let copied = unsafe {
        libc::process_vm_readv(libc::getpid(), &local, 1, ranges.as_ptr(), ranges.len() as libc::c_ulong, 0)
    };
    // SAFETY: the calling thread's errno.
    usize::try_from(copied).map_err(|_| unsafe { *libc::__errno_location() })
}

/// Copies the pages of `bytes` bytes from an address on; what cannot be read is zero.
pub fn copy_pages(start: u64, bytes: u64) -> Copies {
    const PAGE: u64 = 4096;
    let (mut ranges, mut at) = (Vec::new(), start);
    while at < start + bytes {
        let end = ((at | (PAGE - 1)) + 1).min(start + bytes);
        ranges.push((at, ((end - at) / 8) as usize));
        at = end;
    }
    copy(&ranges)
}

/// True if the kernel lets a process copy its own memory here.
pub fn may_copy() -> bool {
    let word = 0x5eed_u64;
    copy(&[(ptr::from_ref(&word).addr() as u64, 1)]).get(0) == [word]
}

/// There is no memory at an address.
#[derive(Debug)]
pub struct Unmapped;

/// Reads a word at an address that may be wrong. Where the kernel may not be asked (a sandbox) it is read
/// directly.
///
/// # Safety
/// In a sandbox, the address is that of a word.
pub unsafe fn checked_word(address: usize) -> Result<usize, Unmapped> {
    match copy_word(address) {
        Ok(word) => word.ok_or(Unmapped),
        // SAFETY: the caller's word.
        Err(_) => Ok(unsafe { read(ptr::with_exposed_provenance(address), 0) }),
    }
}

/// Reads a word at an address that may be wrong; there is none where the kernel may not be asked.
pub fn kernel_word(address: usize) -> Result<usize, Unmapped> {
    copy_word(address).ok().flatten().ok_or(Unmapped)
}

/// Has the kernel read a word; `None` if there is no memory, `Err` if it refuses to look.
fn copy_word(address: usize) -> Result<Option<usize>, i32> {
    let mut word = [0u64];
    let range = libc::iovec { iov_base: ptr::without_provenance_mut(address), iov_len: size_of::<u64>() };
    match kernel_copy(&mut word, &[range]) {
        Ok(8) => Ok(Some(word[0] as usize)),
        Ok(_) | Err(libc::EFAULT) => Ok(None),
        Err(why) => Err(why),
    }
}

/// Copies a C string, as far as it can be read.
pub fn c_string(address: u64) -> String {
    let copied = copy(&[(address & !7, 32)]);
    let mut words = copied.get(0).to_vec();
    if words.iter().all(|w| *w == 0) {
        // A mapping may end within those words.
        words = (0..16).flat_map(|i| copy(&[((address & !7) + 8 * i, 1)]).get(0).to_vec()).collect();
    }
    let bytes = words.iter().flat_map(|w| w.to_le_bytes()).skip((address & 7) as usize);
    String::from_utf8_lossy(&bytes.take_while(|b| *b != 0).collect::<Vec<u8>>()).into_owned()
}
