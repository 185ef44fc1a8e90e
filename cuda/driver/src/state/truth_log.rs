//! The truth log (`SIMGPU_LOG`): one line per allocation that begins or ends, the tests' independent oracle.
//!
//! `<ns monotonic> <tid> <+|-> <api> <0xADDR-or-handle> <bytes> <device>`, where the bytes are those requested
//! and the device is -1 for pinned host memory. One `write(2)` per line to an appending file, under the
//! driver's lock: the order is total, and what is written survives any kind of death.

use std::fs::File;
use std::io::Write;

#[derive(Default)]
pub struct TruthLog {
    file: Option<File>,
}

impl TruthLog {
    /// Opens the file that `SIMGPU_LOG` names; `%p` in it stands for the process id.
    pub fn from_env() -> TruthLog {
        let Some(path) = std::env::var_os("SIMGPU_LOG").filter(|p| !p.is_empty()) else {
            return TruthLog::default();
        };
        let path = path.to_string_lossy().replace("%p", &std::process::id().to_string());
        let file = File::options().append(true).create(true).open(path);
        TruthLog { file: file.inspect_err(|e| eprintln!("simgpu: cannot open SIMGPU_LOG: {e}")).ok() }
    }

    /// Writes a line: `sign` is `+` or `-`, `what` an address or a handle.
    pub fn write(&mut self, sign: char, api: &str, what: u64, bytes: u64, device: i32) {
        let Some(file) = &mut self.file else { return };
        // SAFETY: takes nothing and cannot fail. (glibc has a function for it from 2.30 on only.)
        let tid = unsafe { libc::syscall(libc::SYS_gettid) };
        let mut text = [0u8; 192];
        let mut left = &mut text[..];
        let _ = writeln!(left, "{} {tid} {sign} {api} {what:#x} {bytes} {device}", now_ns());
        let unused = left.len();
        let _ = file.write(&text[..text.len() - unused]);
    }
}

pub fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a record that lives through the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
