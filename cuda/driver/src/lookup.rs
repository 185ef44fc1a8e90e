//! `cuGetProcAddress`: one table of rows, and the documented rule for choosing among them.
//!
//! The newest version not above the requested one; `_ptsz` and `_ptds` rows only for callers that ask for the
//! per-thread default stream, who prefer them. Names are asked for without their suffix.

use std::ffi::{c_char, c_void};

use crate::abi::{In, Out};
use crate::error::*;
use crate::exec::cuGraphInstantiateWithFlags;
use crate::lookup_memory::MEMORY;
use crate::lookup_work::WORK;

pub struct Row {
    /// The exported name, suffixes and all.
    pub symbol: &'static str,
    /// The CUDA version that introduced it.
    pub version: i32,
    pub address: *const c_void,
}

// SAFETY: a row is constant; its address is a function's.
unsafe impl Sync for Row {}

/// `version: symbols;` lines → rows.
macro_rules! rows {
    ($($version:literal: $($symbol:ident)*;)*) => {
        &[$($($crate::lookup::Row {
            symbol: stringify!($symbol),
            version: $version,
            address: $symbol as *const std::ffi::c_void,
        },)*)*]
    };
}
pub(crate) use rows;

const OWN: &[Row] = &[
    Row { symbol: "cuGetProcAddress", version: 11030, address: cuGetProcAddress as *const c_void },
    Row { symbol: "cuGetProcAddress_v2", version: 12000, address: cuGetProcAddress_v2 as *const c_void },
    // From CUDA 12 on the plain name means the form with flags.
    Row {
        symbol: "cuGraphInstantiate",
        version: 12000,
        address: cuGraphInstantiateWithFlags as *const c_void,
    },
];

static TABLES: [&[Row]; 3] = [OWN, MEMORY, WORK];

impl Row {
    fn per_thread(&self) -> bool {
        self.symbol.ends_with("_ptsz") || self.symbol.ends_with("_ptds")
    }

    fn base(&self) -> &'static str {
        base(self.symbol)
    }
}

/// A function's name without its suffixes.
pub fn base(symbol: &str) -> &str {
    let name = symbol.trim_end_matches("_ptsz").trim_end_matches("_ptds");
    match name.rsplit_once("_v") {
        Some((base, version)) if version.len() == 1 => base,
        _ => name,
    }
}

/// Is it an exported function's name, or the base of one?
pub fn is_function(name: &str) -> bool {
    TABLES.iter().flat_map(|t| t.iter()).any(|row| row.symbol == name || row.base() == name)
}

const FOUND: i32 = 0;
const UNKNOWN_NAME: i32 = 1;
const VERSION_TOO_LOW: i32 = 2;
const PER_THREAD_STREAM: u64 = 2;

/// The address, or which of the two failures it is.
fn find(name: &str, version: i32, flags: u64) -> Result<*const c_void, i32> {
    let named = || TABLES.iter().flat_map(|t| t.iter()).filter(|row| row.base() == name);
    let admitted =
        |row: &&Row| row.version <= version && (!row.per_thread() || flags & PER_THREAD_STREAM != 0);
    match named().filter(admitted).max_by_key(|row| (row.version, row.per_thread())) {
        Some(row) => Ok(row.address),
        None if named().next().is_some() => Err(VERSION_TOO_LOW),
        None => Err(UNKNOWN_NAME),
    }
}

/// CUDA 12's form. `status` may be null.
#[unsafe(no_mangle)]
pub extern "C" fn cuGetProcAddress_v2(
    name: In<c_char>,
    out: Out<*const c_void>,
    version: i32,
    flags: u64,
    status: Out<i32>,
) -> Status {
    distinct!(cuGetProcAddress_v2);
    let run = || {
        if out.is_null() || flags > 3 {
            return Err(INVALID_VALUE);
        }
        match find(&name.text()?, version, flags) {
            Ok(address) => {
                status.put_opt(FOUND);
                out.put(address)
            }
            Err(why) => {
                status.put_opt(why);
                out.put(std::ptr::null())?;
                Err(NOT_FOUND)
            }
        }
    };
    Status::from(run())
}

/// CUDA 11.3's form.
#[unsafe(no_mangle)]
pub extern "C" fn cuGetProcAddress(
    name: In<c_char>,
    out: Out<*const c_void>,
    version: i32,
    flags: u64,
) -> Status {
    distinct!(cuGetProcAddress);
    cuGetProcAddress_v2(name, out, version, flags, Out::NONE)
}

/// For programs compiled with the per-thread default stream: no flags means theirs.
fn own_stream(flags: u64) -> u64 {
    if flags == 0 { PER_THREAD_STREAM } else { flags }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGetProcAddress_v2_ptsz(
    name: In<c_char>,
    out: Out<*const c_void>,
    version: i32,
    flags: u64,
    status: Out<i32>,
) -> Status {
    distinct!(cuGetProcAddress_v2_ptsz);
    cuGetProcAddress_v2(name, out, version, own_stream(flags), status)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGetProcAddress_ptsz(
    name: In<c_char>,
    out: Out<*const c_void>,
    version: i32,
    flags: u64,
) -> Status {
    distinct!(cuGetProcAddress_ptsz);
    cuGetProcAddress_v2(name, out, version, own_stream(flags), Out::NONE)
}

#[cfg(test)]
mod tests {
    use super::{Row, TABLES};

    #[test]
    fn no_two_rows_are_the_same_choice() {
        let all: Vec<&Row> = TABLES.iter().flat_map(|t| t.iter()).collect();
        for (i, a) in all.iter().enumerate() {
            for b in &all[..i] {
                let same = a.base() == b.base() && a.version == b.version && a.per_thread() == b.per_thread();
                assert!(!same, "{} and {} at {}", a.symbol, b.symbol, a.version);
            }
        }
    }

    #[test]
    fn a_later_suffix_is_a_later_version() {
        let renamed = |row: &&Row| row.symbol == "cuGraphInstantiate" && row.version == 12000;
        let all: Vec<&Row> = TABLES.iter().flat_map(|t| t.iter()).filter(|row| !renamed(row)).collect();
        let plain = |row: &Row| row.symbol.trim_end_matches("_ptsz").trim_end_matches("_ptds").to_owned();
        for a in &all {
            for b in &all {
                let comparable = a.base() == b.base() && a.per_thread() == b.per_thread();
                if comparable && plain(a) < plain(b) {
                    assert!(
                        a.version < b.version,
                        "{} {} and {} {}",
                        a.symbol,
                        a.version,
                        b.symbol,
                        b.version
                    );
                }
            }
        }
    }
}
