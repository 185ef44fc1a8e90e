//! This process's memory, read by the kernel, many places at once: a wrong address is "not there" and no crash.

use std::ptr;

/// The kernel's limit of places in one call.
const AT_ONCE: usize = 1024;
/// The highest address of a program's own.
const TOP: u64 = 1 << 47;

/// Whether a word may be an object's address.
pub fn is_plausible(word: u64) -> bool {
    word & 7 == 0 && (0x1_0000..TOP).contains(&word)
}

/// What stands at each of some places; all zero where it could not be read.
#[derive(Default)]
pub struct Seen {
    words: Vec<u64>,
    /// Where each place's words begin, and one more.
    begins: Vec<usize>,
}

impl Seen {
    pub fn get(&self, i: usize) -> &[u64] {
        match (self.begins.get(i), self.begins.get(i + 1)) {
            (Some(&begin), Some(&end)) => &self.words[begin..end],
            _ => &[],
        }
    }
}

/// Reads (address, words) each.
pub fn read(places: &[(u64, usize)]) -> Seen {
    let mut begins = Vec::with_capacity(places.len() + 1);
    let mut total = 0;
    for &(_, words) in places {
        begins.push(total);
        total += words;
    }
    begins.push(total);
    let mut words = vec![0u64; total];
    let mut at = 0;
    while at < places.len() {
        let end = places.len().min(at + AT_ONCE);
        let remote: Vec<libc::iovec> = places[at..end]
            .iter()
            .map(|&(address, words)| libc::iovec {
                iov_base: ptr::without_provenance_mut(address as usize),
                iov_len: words * 8,
            })
            .collect();
        let into = &mut words[begins[at]..begins[end]];
        let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: size_of_val(into) };
        // SAFETY: the kernel writes into `into` only, as much as it holds; the remote side it checks itself.
        let n = unsafe {
            libc::process_vm_readv(
                libc::getpid(),
                &local,
                1,
                remote.as_ptr(),
                remote.len() as libc::c_ulong,
                0,
            )
        };
        let got = begins[at] + usize::try_from(n).unwrap_or(0) / 8;
        // The first place that did not come whole is not there; go on behind it.
        match (at..end).find(|&i| begins[i + 1] > got) {
            Some(failed) => {
                words[begins[failed]..begins[failed + 1]].fill(0);
                at = failed + 1;
            }
            None => at = end,
        }
    }
    Seen { words, begins }
}

/// Whether the kernel allows it here at all.
pub fn is_allowed() -> bool {
    let word = 0x5eed_u64;
    read(&[(ptr::from_ref(&word).addr() as u64, 1)]).get(0) == [word]
}

/// A C string, as far as it is readable.
pub fn text(address: u64) -> String {
    let seen = read(&[(address & !7, 32)]);
    let mut words = seen.get(0).to_vec();
    if words.iter().all(|w| *w == 0) {
        // The end of a mapping may be nearer.
        words = (0..16).flat_map(|i| read(&[((address & !7) + 8 * i, 1)]).get(0).to_vec()).collect();
    }
    let bytes = words.iter().flat_map(|w| w.to_le_bytes()).skip((address & 7) as usize);
    String::from_utf8_lossy(&bytes.take_while(|b| *b != 0).collect::<Vec<u8>>()).into_owned()
}
