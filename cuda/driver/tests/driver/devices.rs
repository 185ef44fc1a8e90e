//! Initialisation, devices, contexts, and the lookup of functions.

use std::ffi::CString;

use crate::support::*;

#[test]
fn nothing_works_before_init() {
    alone("devices::nothing_works_before_init", &[], || {
        let mut word = 0u64;
        assert_eq!(call("cuDeviceGetCount", &[at(&mut word)]), NOT_INITIALIZED);
        assert_eq!(call("cuMemAlloc_v2", &[at(&mut word), 64]), NOT_INITIALIZED);
        assert_eq!(result("cuDriverGetVersion", &[]), 13000, "the version needs no init");
        assert_eq!(call("cuInit", &[7]), INVALID_VALUE);
        ok("cuInit", &[0]);
        assert_eq!(result("cuDeviceGetCount", &[]), 1);
        assert_eq!(call("cuDeviceGet", &[at(&mut word), 1]), INVALID_DEVICE);
        assert_eq!(call("cuMemAlloc_v2", &[at(&mut word), 64]), INVALID_CONTEXT, "no context yet");
        assert_eq!(call("cuGetExportTable", &[at(&mut word), 0]), 801);
    });
}

#[test]
fn settings_shape_the_devices() {
    let settings = [
        ("SIMGPU_DEVICES", "3"),
        ("CUDA_VISIBLE_DEVICES", "2,0"),
        ("SIMGPU_MEM", "1.5G"),
        ("SIMGPU_CC", "90"),
    ];
    alone("devices::settings_shape_the_devices", &settings, || {
        ok("cuInit", &[0]);
        assert_eq!(result("cuDeviceGetCount", &[]), 2);
        assert_eq!(result("cuDeviceTotalMem_v2", &[1]), 3 * GIB / 2);
        assert_eq!(result("cuDeviceGetAttribute", &[75, 0]), 9);
        assert_eq!(result("cuDeviceGetAttribute", &[33, 0]), 3, "the bus of physical device 2");
        let mut name = [0u8; 8];
        ok("cuDeviceGetName", &[at(&mut name), 8, 0]);
        assert_eq!(&name, b"Simulat\0", "cut to fit");
    });
}

#[test]
fn no_visible_device_is_an_error() {
    alone("devices::no_visible_device_is_an_error", &[("CUDA_VISIBLE_DEVICES", "-1")], || {
        assert_eq!(call("cuInit", &[0]), NO_DEVICE);
    });
}

#[test]
fn contexts_stack_and_end() {
    alone("devices::contexts_stack_and_end", &[], || {
        let first = context();
        let second = result("cuCtxCreate_v2", &[0, 0]);
        assert_ne!(first, second);
        assert_eq!(result("cuCtxGetCurrent", &[]), second);
        let address = result("cuMemAlloc_v2", &[5 * MIB]);
        assert_eq!(used(), 6 * MIB);
        ok("cuCtxDestroy_v2", &[second]);
        assert_eq!(result("cuCtxGetCurrent", &[]), first, "destroying pops");
        assert_eq!(used(), 0, "what the context owned ended with it");
        assert_eq!(call("cuMemFree_v2", &[address]), INVALID_VALUE);
        assert_eq!(call("cuCtxSetCurrent", &[second]), INVALID_CONTEXT);
        assert_eq!(result("cuCtxPopCurrent_v2", &[]), first);
        assert_eq!(call("cuCtxSynchronize", &[]), INVALID_CONTEXT);
        assert_eq!(call("cuStreamSynchronize", &[0x1234]), INVALID_HANDLE);
    });
}

#[test]
fn primary_contexts_are_counted() {
    alone("devices::primary_contexts_are_counted", &[], || {
        ok("cuInit", &[0]);
        let (mut flags, mut active) = (0u32, 9u32);
        let primary = result("cuDevicePrimaryCtxRetain", &[0]);
        assert_eq!(result("cuDevicePrimaryCtxRetain", &[0]), primary);
        ok("cuCtxSetCurrent", &[primary]);
        result("cuMemAlloc_v2", &[512]);
        ok("cuDevicePrimaryCtxRelease_v2", &[0]);
        assert_eq!(used(), 512, "one reference is left");
        ok("cuDevicePrimaryCtxRelease_v2", &[0]);
        ok("cuDevicePrimaryCtxGetState", &[0, at(&mut flags), at(&mut active)]);
        assert_eq!(active, 0);
        assert_eq!(call("cuCtxSynchronize", &[]), CONTEXT_IS_DESTROYED);
        assert_eq!(call("cuDevicePrimaryCtxRelease_v2", &[0]), INVALID_CONTEXT);
        assert_eq!(result("cuDevicePrimaryCtxRetain", &[0]), primary);
        assert_eq!(used(), 0, "the last release ended its memory");
    });
}

#[test]
fn green_contexts_are_contexts() {
    alone("devices::green_contexts_are_contexts", &[], || {
        let own = context();
        // CUdevResource: the kind at 0, the number of processors at 96.
        let (mut all, mut parts, mut rest) = ([0u32; 36], [[0u32; 36]; 4], [0u32; 36]);
        ok("cuDeviceGetDevResource", &[0, at(&mut all), 1]);
        assert_eq!((all[0], all[24]), (1, 108));
        let mut groups = 0u32;
        ok("cuDevSmResourceSplitByCount", &[0, at(&mut groups), at(&mut all), 0, 0, 15]);
        assert_eq!(groups, 6, "of 16 each");
        groups = 4;
        let list = [at(&mut parts), at(&mut groups), at(&mut all), at(&mut rest), 0, 15];
        ok("cuDevSmResourceSplitByCount", &list);
        assert_eq!((groups, parts[3][24], rest[24]), (4, 16, 44));
        let share = result("cuDevResourceGenerateDesc", &[at(&mut parts), 2]);
        let mut word = 0u64;
        assert_eq!(
            call("cuGreenCtxCreate", &[at(&mut word), share, 0, 0]),
            INVALID_VALUE,
            "the flag is required"
        );
        let green = result("cuGreenCtxCreate", &[share, 0, 1]);
        ok("cuGreenCtxGetDevResource", &[green, at(&mut all), 1]);
        assert_eq!(all[24], 32);
        let current = result("cuCtxFromGreenCtx", &[green]);
        let (mut flags, mut active) = (0u32, 0u32);
        ok("cuDevicePrimaryCtxGetState", &[0, at(&mut flags), at(&mut active)]);
        assert_eq!(active, 1, "it retains the primary context");
        let stream = result("cuGreenCtxStreamCreate", &[green, 1, 0]);
        ok("cuStreamGetGreenCtx", &[stream, at(&mut word)]);
        assert_eq!(word, green);
        ok("cuCtxPushCurrent_v2", &[current]);
        let block = result("cuMemAlloc_v2", &[512]);
        assert_eq!(result("cuMemAllocAsync", &[512, stream]) & 511, 0);
        ok("cuCtxPopCurrent_v2", &[0]);
        assert_eq!(call("cuCtxDestroy_v2", &[current]), INVALID_CONTEXT, "that is not how it ends");
        ok("cuGreenCtxDestroy", &[green]);
        ok("cuCtxSynchronize", &[]);
        assert_eq!((used(), result("cuCtxGetCurrent", &[])), (0, own));
        assert_eq!(call("cuMemFree_v2", &[block]), INVALID_VALUE, "it ended with its context");
        assert_eq!(call("cuGreenCtxDestroy", &[green]), INVALID_HANDLE);
        ok("cuDevicePrimaryCtxGetState", &[0, at(&mut flags), at(&mut active)]);
        assert_eq!(active, 0);
    });
}

#[test]
fn a_forked_child_has_no_driver() {
    alone("devices::a_forked_child_has_no_driver", &[], || {
        context();
        // SAFETY: the child calls the driver, which must touch no lock, and leaves at once.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let mut word = 0u64;
            let dead = call("cuInit", &[0]) == NOT_INITIALIZED
                && call("cuMemAlloc_v2", &[at(&mut word), 64]) == NOT_INITIALIZED
                && call("cuCtxGetCurrent", &[at(&mut word)]) == NOT_INITIALIZED;
            // SAFETY: nothing of the parent's may run here.
            unsafe { libc::_exit(if dead { 0 } else { 1 }) };
        }
        let mut status = -1;
        // SAFETY: our own child, and a place for its status.
        unsafe { libc::waitpid(pid, &mut status, 0) };
        assert_eq!(status, 0);
        result("cuMemAlloc_v2", &[64]);
    });
}

/// What a lookup answers: code, address, status.
fn lookup(name: &str, version: u64, flags: u64) -> (i32, u64, i32) {
    let name = CString::new(name).unwrap();
    let (mut address, mut status) = (0xbadu64, -1i32);
    let code = call(
        "cuGetProcAddress_v2",
        &[name.as_ptr() as u64, at(&mut address), version, flags, at(&mut status)],
    );
    (code, address, status)
}

/// What a real driver (550.163, CUDA 12.4) answers, as far as it knows the version: name, version, flags, and
/// the export it hands out, or the status with which it hands out nothing.
const ANSWERS: &[(&str, u64, u64, Result<&str, i32>)] = &[
    ("cuInit", 2000, 0, Ok("cuInit")),
    ("cuMemAlloc", 3020, 0, Ok("cuMemAlloc_v2")),
    ("cuMemAlloc", 13000, 2, Ok("cuMemAlloc_v2")),
    ("cuGetProcAddress", 11030, 0, Ok("cuGetProcAddress")),
    ("cuGetProcAddress", 11999, 0, Ok("cuGetProcAddress")),
    ("cuGetProcAddress", 12000, 0, Ok("cuGetProcAddress_v2")),
    ("cuLaunchKernel", 13000, 0, Ok("cuLaunchKernel")),
    ("cuLaunchKernel", 13000, 1, Ok("cuLaunchKernel")),
    ("cuLaunchKernel", 13000, 2, Ok("cuLaunchKernel_ptsz")),
    ("cuLaunchKernel", 6000, 0, Ok("cuLaunchKernel")),
    ("cuMemcpyHtoD", 7000, 2, Ok("cuMemcpyHtoD_v2_ptds")),
    ("cuMemAllocAsync", 11020, 2, Ok("cuMemAllocAsync_ptsz")),
    ("cuStreamGetCaptureInfo", 10010, 0, Ok("cuStreamGetCaptureInfo")),
    ("cuStreamGetCaptureInfo", 12000, 0, Ok("cuStreamGetCaptureInfo_v2")),
    ("cuStreamGetCaptureInfo", 13000, 2, Ok("cuStreamGetCaptureInfo_v3_ptsz")),
    // The headers' macros of CUDA 12 rename it; the look-up does not.
    ("cuGraphInstantiate", 10000, 0, Ok("cuGraphInstantiate")),
    ("cuGraphInstantiate", 11000, 0, Ok("cuGraphInstantiate_v2")),
    ("cuGraphInstantiate", 12000, 0, Ok("cuGraphInstantiate_v2")),
    ("cuGraphInstantiate", 13000, 0, Ok("cuGraphInstantiate_v2")),
    ("cuGraphInstantiateWithFlags", 11040, 0, Ok("cuGraphInstantiateWithFlags")),
    // Who asks for the per-thread default stream never gets a function of the other one.
    ("cuLaunchKernel", 6000, 2, Err(TOO_OLD)),
    ("cuMemcpyHtoD", 3020, 2, Err(TOO_OLD)),
    ("cuStreamWaitEvent", 3020, 2, Err(TOO_OLD)),
    ("cuMemAllocAsync", 11010, 0, Err(TOO_OLD)),
    ("", 13000, 0, Err(UNKNOWN)),
    ("cuMemAllocNoSuch", 13000, 0, Err(UNKNOWN)),
    ("cuMemAlloc_v2", 13000, 0, Err(UNKNOWN)),
];
const UNKNOWN: i32 = 1;
const TOO_OLD: i32 = 2;

#[test]
fn look_ups_answer_as_a_real_driver_does() {
    alone("devices::look_ups_answer_as_a_real_driver_does", &[], || {
        for &(name, version, flags, answer) in ANSWERS {
            let (address, status) = match answer {
                Ok(export) => (symbol(export) as u64, 0),
                Err(status) => (0, status),
            };
            assert_eq!(lookup(name, version, flags), (0, address, status), "{name:?} {version} {flags}");
            // The form without a status fails instead, and leaves the pointer alone.
            let text = CString::new(name).unwrap();
            let mut found = 0xbadu64;
            let code = call("cuGetProcAddress", &[text.as_ptr() as u64, at(&mut found), version, flags]);
            let wanted = if answer.is_ok() { (0, address) } else { (NOT_FOUND, 0xbad) };
            assert_eq!((code, found), wanted, "{name:?} {version} {flags} by the form without a status");
        }
    });
}

#[test]
fn a_null_status_is_allowed_and_v1_has_none() {
    alone("devices::a_null_status_is_allowed_and_v1_has_none", &[], || {
        let mut address = 0xbadu64;
        let name = c"cuMemFree".as_ptr() as u64;
        ok("cuGetProcAddress_v2", &[name, at(&mut address), 12000, 0, 0]);
        assert_eq!(address, symbol("cuMemFree_v2") as u64);
        let empty = c"".as_ptr() as u64;
        ok("cuGetProcAddress_v2", &[empty, at(&mut address), 0, 0, 0]);
        assert_eq!(address, 0);
        let mut guard = 77u64;
        ok("cuGetProcAddress", &[name, at(&mut address), 11030, 0, at(&mut guard)]);
        assert_eq!((address, guard), (symbol("cuMemFree_v2") as u64, 77), "v1 writes no status");
        let launch = c"cuLaunchKernel".as_ptr() as u64;
        ok("cuGetProcAddress_v2_ptsz", &[launch, at(&mut address), 12000, 0, 0]);
        assert_eq!(address, symbol("cuLaunchKernel_ptsz") as u64);
        ok("cuGetProcAddress_ptsz", &[launch, at(&mut address), 12000, 1]);
        assert_eq!(address, symbol("cuLaunchKernel") as u64);
    });
}

#[test]
fn old_pointer_widths_are_not_exported() {
    for name in ["cuMemAlloc", "cuMemFree", "cuMemcpyHtoD", "cuMemGetInfo", "cuDeviceTotalMem", "cuCtxCreate"]
    {
        assert!(symbol(name).is_null(), "{name} is another function in a real driver");
    }
}

/// Returns every function in the driver's table.
fn functions() -> Vec<&'static str> {
    let table = include_str!("../../src/abi/names.rs").split("$then! {").nth(1).expect("the table");
    let words = table.split("};").next().expect("its end").split_whitespace();
    words.map(|word| word.trim_end_matches(';')).filter(|word| word.starts_with("cu")).collect()
}

#[test]
fn every_function_is_exported_and_has_its_own_address() {
    let names = functions();
    assert!(names.len() > 450, "{}", names.len());
    let mut seen = std::collections::BTreeMap::new();
    for name in names {
        let address = symbol(name) as usize;
        assert_ne!(address, 0, "{name} is exported");
        if let Some(other) = seen.insert(address, name) {
            panic!("{name} and {other} are one function: a hook could not tell them apart");
        }
    }
}
