//! `cuGetProcAddress`: the documented rule for choosing among the functions of one name.
//!
//! It answers the newest version not above the requested one. A caller that asks for the per-thread default
//! stream gets the `_ptsz` or `_ptds` form where a function has one, and never its plain form. Names are asked
//! for without their suffix.
//!
//! CUDA 12's form succeeds whatever it finds: a null address and the status say that there is nothing. CUDA 11's
//! form fails then, and leaves the caller's pointer as it was.

use std::ffi::{c_char, c_void};

use crate::abi::names::base;
use crate::abi::pointers::{In, Out};
use crate::abi::status::*;
use crate::answers::*;
use crate::device::{contexts::*, devices::*, green::*, primary::*};
use crate::graph::{graphs::*, nodes::*};
use crate::memory::{
    array::*, external::*, graph_memory::*, host::*, ipc::*, linear::*, mipmap::*, multicast::*, pointer::*,
    pools::*, shared_handles::*, shared_pools::*, sparse::*, virtual_memory::*,
};
use crate::module::{functions::*, libraries::*, linker::*, modules::*, occupancy::*, textures::*};
use crate::stream::{
    capture::*, copy::*, copy3d::*, events::*, graph_exec::*, launch::*, memset::*, operations::*,
    pool_async::*, streams::*,
};

struct Row {
    /// The exported name, suffixes and all.
    symbol: &'static str,
    /// The CUDA version that introduced it.
    version: i32,
    address: *const c_void,
}

// SAFETY: a row is constant; its address is a function's.
unsafe impl Sync for Row {}

impl Row {
    fn per_thread(&self) -> bool {
        self.symbol.ends_with("_ptsz") || self.symbol.ends_with("_ptds")
    }

    fn base(&self) -> &'static str {
        base(self.symbol)
    }
}

macro_rules! rows {
    ($($version:literal: $($symbol:ident)*;)*) => {
        &[
            $($(Row { symbol: stringify!($symbol), version: $version, address: $symbol as *const c_void },)*)*
        ]
    };
}
static ROWS: &[Row] = driver_functions!(rows);

const FOUND: i32 = 0;
const UNKNOWN_NAME: i32 = 1;
const VERSION_TOO_LOW: i32 = 2;
const PER_THREAD_STREAM: u64 = 2;

/// Returns the address, or which of the two failures it is.
fn find(name: &str, version: i32, flags: u64) -> Result<*const c_void, i32> {
    let forms = || ROWS.iter().filter(|row| row.base() == name);
    let own_stream = flags & PER_THREAD_STREAM != 0 && forms().any(Row::per_thread);
    let fit = forms().filter(|row| row.per_thread() == own_stream && row.version <= version);
    match fit.max_by_key(|row| row.version) {
        Some(row) => Ok(row.address),
        None if forms().next().is_some() => Err(VERSION_TOO_LOW),
        None => Err(UNKNOWN_NAME),
    }
}

/// Returns the flags for a program built with the per-thread default stream, where none means its own.
fn per_thread_flags(flags: u64) -> u64 {
    if flags == 0 { PER_THREAD_STREAM } else { flags }
}

/// Looks a name up; the inner error is which of the two failures it is.
fn look(
    name: In<c_char>,
    out: Out<*const c_void>,
    version: i32,
    flags: u64,
) -> Res<Result<*const c_void, i32>> {
    if out.is_null() || flags > 3 {
        return Err(INVALID_VALUE);
    }
    Ok(find(&name.text()?, version, flags))
}

fn get(name: In<c_char>, out: Out<*const c_void>, version: i32, flags: u64) -> Res {
    out.put(look(name, out, version, flags)?.map_err(|_| NOT_FOUND)?)
}

fn get_v2(name: In<c_char>, out: Out<*const c_void>, version: i32, flags: u64, status: Out<i32>) -> Res {
    let found = look(name, out, version, flags)?;
    status.put_opt(found.err().unwrap_or(FOUND));
    out.put(found.unwrap_or(std::ptr::null()))
}

driver_api! {
    /// Is CUDA 12's form. `status` may be null.
    fn cuGetProcAddress_v2(; name: In<c_char>, out: Out<*const c_void>, version: i32, flags: u64, status:
        Out<i32>) {
        get_v2(name, out, version, flags, status)
    }

    /// Is CUDA 11.3's form, without a status.
    fn cuGetProcAddress(; name: In<c_char>, out: Out<*const c_void>, version: i32, flags: u64) {
        get(name, out, version, flags)
    }

    fn cuGetProcAddress_v2_ptsz(; name: In<c_char>, out: Out<*const c_void>, version: i32, flags: u64,
        status: Out<i32>) {
        get_v2(name, out, version, per_thread_flags(flags), status)
    }

    fn cuGetProcAddress_ptsz(; name: In<c_char>, out: Out<*const c_void>, version: i32, flags: u64) {
        get(name, out, version, per_thread_flags(flags))
    }
}

#[cfg(test)]
mod tests {
    use super::{ROWS, Row};

    #[test]
    fn no_two_rows_are_the_same_choice() {
        let all: Vec<&Row> = ROWS.iter().collect();
        for (i, a) in all.iter().enumerate() {
            for b in &all[..i] {
                let same = a.base() == b.base() && a.version == b.version && a.per_thread() == b.per_thread();
                assert!(!same, "{} and {} at {}", a.symbol, b.symbol, a.version);
            }
        }
    }

    #[test]
    fn a_later_suffix_is_a_later_version() {
        let all: Vec<&Row> = ROWS.iter().collect();
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
