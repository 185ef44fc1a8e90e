//! The device code a program brought along. A fat binary is loaded into the driver at the first use of
//! anything in it, as with lazy loading; kernels and variables are found there by name.

use crate::abi::{DevPtr, Handle};
use crate::driver::D;
use crate::error::Code;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::ffi::{c_char, c_void};
use std::ptr::null_mut;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering::*};

pub struct FatBinary {
    image: *const c_void,
    /// The driver's library, once loaded. The lock makes the load happen once.
    library: Mutex<usize>,
}

/// A kernel or a variable: where it comes from, its name there, and what the driver found.
struct Symbol {
    binary: usize,
    name: usize,
    bytes: usize,
    found: AtomicUsize,
}

type Table = LazyLock<RwLock<HashMap<usize, Symbol>>>;
static KERNELS: Table = LazyLock::new(Default::default);
static VARIABLES: Table = LazyLock::new(Default::default);

/// Registers a fat binary, which is part of the program's image and stays as long as it does.
pub fn register(image: *const c_void) -> *mut FatBinary {
    Box::into_raw(Box::new(FatBinary { image, library: Mutex::new(0) }))
}

pub fn add_kernel(binary: *mut FatBinary, host: *const c_void, name: *const c_char) {
    add(&KERNELS, binary, host, name, 0);
}

pub fn add_variable(binary: *mut FatBinary, host: *const c_void, name: *const c_char, bytes: usize) {
    add(&VARIABLES, binary, host, name, bytes);
}

fn add(table: &Table, binary: *mut FatBinary, host: *const c_void, name: *const c_char, bytes: usize) {
    let (binary, name) = (binary.expose_provenance(), name.expose_provenance());
    let symbol = Symbol { binary, name, bytes, found: AtomicUsize::new(0) };
    table.write().insert(host.addr(), symbol);
}

/// Returns the driver's handle of a kernel, given the address of its host stub. An address that was never
/// registered is taken for a handle that was handed out before.
pub unsafe fn kernel(host: *const c_void) -> Result<Handle, Code> {
    if host.is_null() {
        return Err(Code::INVALID_DEVICE_FUNCTION);
    }
    let kernels = KERNELS.read();
    let Some(symbol) = kernels.get(&host.addr()) else { return Ok(host.cast_mut()) };
    let found = symbol.found.load(Acquire);
    if found != 0 {
        return Ok(std::ptr::with_exposed_provenance_mut(found));
    }
    let mut kernel = null_mut();
    D.library_kernel(&mut kernel, library(symbol)?, std::ptr::with_exposed_provenance(symbol.name))
        .map_err(|_| Code::INVALID_DEVICE_FUNCTION)?;
    symbol.found.store(kernel.expose_provenance(), Release);
    Ok(kernel)
}

/// Returns the address and size of a device variable.
pub unsafe fn variable(host: *const c_void) -> Result<(DevPtr, usize), Code> {
    const INVALID_SYMBOL: Code = Code(13);
    let variables = VARIABLES.read();
    let symbol = variables.get(&host.addr()).ok_or(INVALID_SYMBOL)?;
    let found = symbol.found.load(Acquire);
    if found != 0 {
        return Ok((found as DevPtr, symbol.bytes));
    }
    let (mut at, mut bytes) = (0, 0);
    D.library_global(&mut at, &mut bytes, library(symbol)?, std::ptr::with_exposed_provenance(symbol.name))
        .map_err(|_| INVALID_SYMBOL)?;
    symbol.found.store(at as usize, Release);
    Ok((at, symbol.bytes))
}

unsafe fn library(symbol: &Symbol) -> Result<Handle, Code> {
    let binary: *const FatBinary = std::ptr::with_exposed_provenance(symbol.binary);
    let Some(binary) = binary.as_ref() else { return Err(Code::INVALID_DEVICE_FUNCTION) };
    let mut loaded = binary.library.lock();
    if *loaded == 0 {
        let mut library = null_mut();
        let none: Handle = null_mut();
        D.library_load(&mut library, binary.image, none, none, 0, none, none, 0)?;
        *loaded = library.expose_provenance();
    }
    Ok(std::ptr::with_exposed_provenance_mut(*loaded))
}
