//! The truth log (`SIMGPU_LOG`): one line per allocation that begins or ends, the tests' independent oracle.
//!
//! `<ns monotonic> <tid> <+|-> <api> <0xADDR-or-handle> <bytes> <device>`: bytes as asked for, device -1 for pinned
//! host. One `write(2)` per line to an appending file, under the driver's lock: the order is total, and what is
//! written survives any kind of death.

use std::io::Write;
use std::os::unix::ffi::OsStringExt;

pub struct Truth {
    file: i32,
}

impl Truth {
    pub const OFF: Truth = Truth { file: -1 };

    pub fn from_env() -> Truth {
        let Some(path) = std::env::var_os("SIMGPU_LOG").filter(|p| !p.is_empty()) else { return Truth::OFF };
        let bytes = path.into_vec();
        let pid = std::process::id().to_string();
        let mut path = Vec::new();
        let mut rest = bytes.as_slice();
        while let [first, tail @ ..] = rest {
            match tail {
                [b'p', after @ ..] if *first == b'%' => {
                    path.extend_from_slice(pid.as_bytes());
                    rest = after;
                }
                _ => {
                    path.push(*first);
                    rest = tail;
                }
            }
        }
        path.push(0);
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC;
        // SAFETY: a NUL-terminated path; the mode goes with O_CREAT.
        let file = unsafe { libc::open(path.as_ptr().cast(), flags, 0o644) };
        if file < 0 {
            eprintln!("simgpu: cannot open SIMGPU_LOG: {}", std::io::Error::last_os_error());
        }
        Truth { file }
    }

    pub fn line(&self, sign: char, api: &str, what: u64, bytes: u64, device: i32) {
        if self.file < 0 {
            return;
        }
        let mut text = [0u8; 192];
        let mut left = &mut text[..];
        // SAFETY: takes nothing and cannot fail. (glibc has a function for it from 2.30 on only.)
        let tid = unsafe { libc::syscall(libc::SYS_gettid) };
        let _ = writeln!(left, "{} {tid} {sign} {api} {what:#x} {bytes} {device}", now_ns());
        let unused = left.len();
        // SAFETY: the written part of a buffer that lives through the call.
        unsafe { libc::write(self.file, text.as_ptr().cast(), text.len() - unused) };
    }
}

pub fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid place for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
