//! Failures on demand (`SIMGPU_FAIL=API:N,…`): the Nth call of an entry point fails and does nothing else.
//!
//! `API` is an exported name (`cuMemAlloc_v2`) or one without suffixes (`cuMemAlloc`: every variant of it,
//! counted together). `API:N` is one call, counted from 1 in this process, `API:N-M` a range, `API:*` every
//! one. A call that the driver makes inside itself is part of the program's and not counted.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use crate::abi::names::{base, is_function};
use crate::abi::status::*;

struct Rule {
    api: String,
    first: u64,
    last: u64,
    calls: AtomicU64,
}

impl Rule {
    fn read(text: &str) -> Option<Rule> {
        let (api, which) = text.trim().split_once(':')?;
        let (first, last) = match which.split_once('-') {
            _ if which == "*" => (1, u64::MAX),
            Some((first, last)) => (first.parse().ok()?, last.parse().ok()?),
            None => {
                let only = which.parse().ok()?;
                (only, only)
            }
        };
        let sound = is_function(api) && first > 0 && first <= last;
        sound.then(|| Rule { api: api.to_owned(), first, last, calls: AtomicU64::new(0) })
    }

    fn list(text: &str) -> Option<Vec<Rule>> {
        text.split(',').map(Rule::read).collect()
    }

    fn is_of(&self, symbol: &str) -> bool {
        self.api == symbol || self.api == base(symbol)
    }
}

fn from_env() -> Vec<Rule> {
    let Ok(text) = std::env::var("SIMGPU_FAIL") else { return Vec::new() };
    let rules = if text.trim().is_empty() { Some(Vec::new()) } else { Rule::list(&text) };
    rules.unwrap_or_else(|| {
        eprintln!(
            "simgpu: SIMGPU_FAIL={text:?} is ignored: it takes FUNCTION:N, :N-M or :*, separated by commas"
        );
        Vec::new()
    })
}

static RULES: OnceLock<Vec<Rule>> = OnceLock::new();
static PHASE: AtomicU8 = AtomicU8::new(UNREAD);
const UNREAD: u8 = 0;
const OFF: u8 = 1;
const ON: u8 = 2;

thread_local! {
    // No destructor: frees arrive after those have run.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// A call that the program makes, for as long as it lasts.
pub struct Call {
    outermost: bool,
}

impl Drop for Call {
    #[inline(always)]
    fn drop(&mut self) {
        if self.outermost {
            INSIDE.set(false);
        }
    }
}

/// Counts a call at the head of an entry point, or makes it fail.
#[inline(always)]
pub fn call(symbol: &'static str) -> Result<Call, Status> {
    if PHASE.load(Relaxed) == OFF { Ok(Call { outermost: false }) } else { counted(symbol) }
}

#[cold]
fn counted(symbol: &'static str) -> Result<Call, Status> {
    let rules = RULES.get_or_init(from_env);
    PHASE.store(if rules.is_empty() { OFF } else { ON }, Relaxed);
    if rules.is_empty() || INSIDE.get() {
        return Ok(Call { outermost: false });
    }
    let mut fails = false;
    for rule in rules.iter().filter(|r| r.is_of(symbol)) {
        let number = rule.calls.fetch_add(1, Relaxed) + 1;
        fails |= (rule.first..=rule.last).contains(&number);
    }
    if fails {
        return Err(error_of(base(symbol)));
    }
    INSIDE.set(true);
    Ok(Call { outermost: true })
}

/// A documented error of the function: what is not here makes, frees, maps or asks, and says why it cannot by
/// its name.
fn error_of(base: &str) -> Status {
    let has = |part: &str| base.contains(part);
    match base {
        "cuInit" => NO_DEVICE,
        "cuGetProcAddress" => NOT_FOUND,
        "cuGetExportTable" => NOT_SUPPORTED,
        "cuImportExternalMemory" => OPERATING_SYSTEM,
        "cuIpcOpenMemHandle" => MAP_FAILED,
        "cuDevicePrimaryCtxRetain"
        | "cuMemAddressReserve"
        | "cuMemHostRegister"
        | "cuGraphInstantiate"
        | "cuGraphClone"
        | "cuGraphLaunch"
        | "cuMemPoolImportPointer"
        | "cuMemPoolImportFromShareableHandle"
        | "cuMemPoolExportToShareableHandle"
        | "cuMemPoolExportPointer"
        | "cuIpcGetMemHandle" => OUT_OF_MEMORY,
        _ if has("NodeGet") || has("Destroy") && !has("Array") && !has("External") => INVALID_VALUE,
        _ if has("Alloc") && !has("Allocation") || has("Create") || has("Load") || has("GraphAdd") => {
            OUT_OF_MEMORY
        }
        _ if has("ArrayDestroy") || has("External") || has("Event") || has("Stream") => INVALID_HANDLE,
        _ if base.starts_with("cuCtx") => INVALID_CONTEXT,
        _ if base.starts_with("cuLaunch") => LAUNCH_OUT_OF_RESOURCES,
        _ if base.starts_with("cuDevice") => INVALID_DEVICE,
        _ => INVALID_VALUE,
    }
}

#[cfg(test)]
mod tests {
    use super::{Rule, error_of};
    use crate::abi::status::*;

    #[test]
    fn rules_are_read_or_refused() {
        let read = |text| Rule::list(text).map(|l| l.iter().map(|r| (r.first, r.last)).collect::<Vec<_>>());
        assert_eq!(
            read("cuMemAlloc:3, cuMemFree_v2:2-4,cuMemCreate:*"),
            Some(vec![(3, 3), (2, 4), (1, u64::MAX)])
        );
        for bad in
            ["cuMemAlloc", "cuMemAlloc:0", "cuMemAlloc:4-2", "cuMemAlloc:x", "cuNoSuch:1", "cuMemAlloc:1,,"]
        {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn errors_are_of_the_functions_own() {
        let of = |name, status| assert_eq!(error_of(name), status, "{name}");
        for makes in
            ["cuMemAlloc", "cuMemAllocPitch", "cuMemHostAlloc", "cuMemAllocFromPoolAsync", "cuMemCreate"]
        {
            of(makes, OUT_OF_MEMORY);
        }
        for makes in
            ["cuGraphAddMemAllocNode", "cuArray3DCreate", "cuCtxCreate", "cuModuleLoadData", "cuMemAllocHost"]
        {
            of(makes, OUT_OF_MEMORY);
        }
        for ends in ["cuMemFree", "cuMemFreeAsync", "cuMemFreeHost", "cuMemUnmap", "cuMemMap", "cuMemRelease"]
        {
            of(ends, INVALID_VALUE);
        }
        for other in ["cuCtxDestroy", "cuMemPoolDestroy", "cuMemGetAllocationGranularity", "cuMemGetInfo"] {
            of(other, INVALID_VALUE);
        }
        of("cuGraphMemAllocNodeGetParams", INVALID_VALUE);
        of("cuArrayDestroy", INVALID_HANDLE);
        of("cuMipmappedArrayDestroy", INVALID_HANDLE);
        of("cuDestroyExternalMemory", INVALID_HANDLE);
        of("cuCtxSetCurrent", INVALID_CONTEXT);
    }
}
