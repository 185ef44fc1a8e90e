//! Calls that fail because `SIMGPU_FAIL` says so.

use crate::support::*;

const RULES: &str = "cuMemAlloc:2,cuMemFree_v2:1-2,cuMemAllocAsync:3,cuMemHostRegister:2,cuMemFreeAsync_ptsz:1,\
                     cuMemCreate:*,cuGetProcAddress:1";

#[test]
fn the_call_that_is_named_fails_and_does_nothing() {
    alone("faults::the_call_that_is_named_fails_and_does_nothing", &[("SIMGPU_FAIL", RULES)], || {
        context();
        let mut word = 0x5a5a_5a5au64;
        let first = result("cuMemAlloc_v2", &[512]);
        assert_eq!(call("cuMemAlloc_v2", &[at(&mut word), 512]), OUT_OF_MEMORY);
        assert_eq!((word, used()), (0x5a5a_5a5a, 512), "nothing was done");
        let third = result("cuMemAlloc_v2", &[512]);
        assert_eq!(call("cuMemFree_v2", &[first]), INVALID_VALUE);
        assert_eq!(call("cuMemFree_v2", &[third]), INVALID_VALUE);
        assert_eq!(used(), 1024, "both are still there");
        ok("cuMemFree_v2", &[first]);
        ok("cuMemFree_v2", &[third]);
        let mut props = crate::memory::props();
        for _ in 0..3 {
            assert_eq!(call("cuMemCreate", &[at(&mut word), 2 * MIB, at(&mut props), 0]), OUT_OF_MEMORY);
        }
        let name = c"cuInit".as_ptr() as u64;
        assert_eq!(call("cuGetProcAddress_v2", &[name, at(&mut word), 12000, 0, 0]), NOT_FOUND);
        ok("cuGetProcAddress", &[name, at(&mut word), 11030, 0]);
    });
}

#[test]
fn variants_are_counted_together_and_inner_calls_not() {
    alone("faults::variants_are_counted_together_and_inner_calls_not", &[("SIMGPU_FAIL", RULES)], || {
        context();
        let mut word = 0u64;
        let first = result("cuMemAllocAsync", &[512, 0]);
        // The per-thread form calls the plain one inside.
        let second = result("cuMemAllocAsync_ptsz", &[512, 0]);
        assert_eq!(call("cuMemAllocAsync", &[at(&mut word), 512, 0]), OUT_OF_MEMORY);
        ok("cuMemFreeAsync", &[first, 0]);
        assert_eq!(call("cuMemFreeAsync_ptsz", &[second, 0]), INVALID_VALUE, "that very variant's first");
        ok("cuMemFreeAsync_ptsz", &[second, 0]);
        let mut mine = [0u8; 64];
        ok("cuMemHostRegister", &[at(&mut mine), 8, 0]);
        assert_eq!(call("cuMemHostRegister_v2", &[at(&mut mine) + 32, 8, 0]), OUT_OF_MEMORY);
    });
}

#[test]
fn an_unreadable_value_is_reported_and_ignored() {
    if std::env::var_os("SIMGPU_FAIL").is_some() {
        context();
        result("cuMemAlloc_v2", &[512]);
        return;
    }
    let mut run = child("faults::an_unreadable_value_is_reported_and_ignored");
    let output = run.env("SIMGPU_FAIL", "cuMemAlloc:1,cuNoSuch:1").output().unwrap();
    assert!(output.status.success());
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.starts_with("simgpu: SIMGPU_FAIL=\"cuMemAlloc:1,cuNoSuch:1\" is ignored"), "{stderr}");
}
