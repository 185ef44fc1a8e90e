//! The truth log: every allocation's beginning and end, as asked for, whatever happens to the process.

use std::path::PathBuf;

use crate::memory::props;
use crate::support::*;

/// A log of this test's own; `%p` is in its name.
fn log(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("simgpu-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// The lines without time and thread: sign, api, what, bytes, device.
fn lines(dir: &PathBuf) -> Vec<String> {
    let files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|f| f.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "one process wrote: {files:?}");
    let name = files[0].file_name().unwrap().to_string_lossy().into_owned();
    assert!(name.strip_prefix("log-").unwrap().parse::<u32>().is_ok(), "{name}: %p is the pid");
    let text = std::fs::read_to_string(&files[0]).unwrap();
    let mut last = 0;
    let cut = |line: &str| {
        let (time, rest) = line.split_once(' ').unwrap();
        let time: u64 = time.parse().unwrap();
        assert!(time >= last, "in order");
        last = time;
        rest.split_once(' ').unwrap().1.to_owned()
    };
    let lines = text.lines().map(cut).collect();
    let _ = std::fs::remove_dir_all(dir);
    lines
}

/// The lines without addresses.
fn shapes(lines: &[String]) -> Vec<String> {
    let words =
        |l: &String| l.split(' ').filter(|w| !w.starts_with("0x")).map(str::to_owned).collect::<Vec<_>>();
    lines.iter().map(|l| words(l).join(" ")).collect()
}

#[test]
fn every_family_is_written() {
    let dir = log("families");
    let file = dir.join("log-%p");
    alone("truth::every_family_is_written", &[("SIMGPU_LOG", file.to_str().unwrap())], || {
        let device = context();
        let linear = result("cuMemAlloc_v2", &[1000]);
        let mut pitched = [0u64; 2];
        let pitch = at(&mut pitched[1]);
        ok("cuMemAllocPitch_v2", &[at(&mut pitched[0]), pitch, 100, 3, 4]);
        let host = result("cuMemHostAlloc", &[77, 0]);
        let managed = result("cuMemAllocManaged", &[444, 1]);
        let mut pool_props = [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0u64];
        let pool = result("cuMemPoolCreate", &[at(&mut pool_props)]);
        let from_pool = result("cuMemAllocFromPoolAsync", &[55, pool, 0]);
        let mut shape = [10u64, 10, 0, 0x20 | 1 << 32, 0];
        let array = result("cuArray3DCreate_v2", &[at(&mut shape)]);
        let mipmap = result("cuMipmappedArrayCreate", &[at(&mut shape), 2]);
        let level = result("cuMipmappedArrayGetLevel", &[mipmap, 1]);
        assert_ne!(level, 0);
        let block = result("cuMemAllocAsync", &[33, 0]);
        let mut props = props();
        let range = result("cuMemAddressReserve", &[2 * MIB, 0, 0, 0]);
        let handle = result("cuMemCreate", &[2 * MIB, at(&mut props), 0]);
        ok("cuMemMap", &[range, 2 * MIB, 0, handle, 0]);
        ok("cuMemRelease", &[handle]);
        ok("cuMemUnmap", &[range, 2 * MIB]);
        ok("cuMemFree_v2", &[block]);
        ok("cuMemPoolDestroy", &[pool]);
        ok("cuMemFreeAsync", &[from_pool, 0]);
        ok("cuArrayDestroy", &[array]);
        ok("cuMipmappedArrayDestroy", &[mipmap]);
        ok("cuMemFree_v2", &[managed]);
        ok("cuMemFreeHost", &[host]);
        call("cuMemFree_v2", &[linear + 1]);
        ok("cuMemFree_v2", &[linear]);
        ok("cuCtxDestroy_v2", &[device]);
        println!("addresses {linear:#x} {:#x} {host:#x} {block:#x} {handle:#x}", pitched[0]);
    });
    if std::env::var_os("SIMGPU_LOG").is_some() {
        return; // the child
    }
    let lines = lines(&dir);
    assert_eq!(
        shapes(&lines),
        [
            "+ cuMemAlloc_v2 1000 0",
            "+ cuMemAllocPitch_v2 1536 0",
            "+ cuMemHostAlloc 77 -1",
            "+ cuMemAllocManaged 444 0",
            "+ cuMemAllocFromPoolAsync 55 0",
            "+ cuArray3DCreate_v2 400 0",
            "+ cuMipmappedArrayCreate 500 0",
            "+ cuMemAllocAsync 33 0",
            "+ cuMemCreate 2097152 0",
            "- cuMemUnmap 2097152 0",
            "- cuMemFree_v2 33 0",
            "- cuMemFreeAsync 55 0",
            "- cuArrayDestroy 400 0",
            "- cuMipmappedArrayDestroy 500 0",
            "- cuMemFree_v2 444 0",
            "- cuMemFreeHost 77 -1",
            "- cuMemFree_v2 1000 0",
            "- implicit 1536 0",
        ]
    );
    let address = |line: &String| line.split(' ').nth(2).unwrap().to_owned();
    for (begin, end) in [(0, 16), (1, 17), (2, 15), (3, 14), (4, 11), (5, 12), (6, 13), (7, 10), (8, 9)] {
        assert_eq!(address(&lines[begin]), address(&lines[end]));
    }
}

#[test]
fn graph_memory_is_written_from_launch_to_free() {
    let dir = log("graph");
    let file = dir.join("log-%p");
    let settings = [("SIMGPU_LOG", file.to_str().unwrap())];
    alone("truth::graph_memory_is_written_from_launch_to_free", &settings, || {
        context();
        let stream = result("cuStreamCreate", &[1]);
        ok("cuStreamBeginCapture_v2", &[stream, 2]);
        let kept = result("cuMemAllocAsync", &[700, stream]);
        let within = result("cuMemAllocAsync", &[800, stream]);
        ok("cuMemFreeAsync", &[within, stream]);
        let mut graph = 0u64;
        ok("cuStreamEndCapture", &[stream, at(&mut graph)]);
        let exec = result("cuGraphInstantiateWithFlags", &[graph, 1]);
        ok("cuGraphLaunch", &[exec, stream]);
        ok("cuGraphLaunch", &[exec, stream]);
        ok("cuGraphExecDestroy", &[exec]);
        ok("cuGraphDestroy", &[graph]);
        ok("cuMemFreeAsync", &[kept, stream]);
        ok("cuDeviceGraphMemTrim", &[0]);
    });
    if std::env::var_os("SIMGPU_LOG").is_none() {
        let launch = ["+ cuGraphLaunch 700 0", "+ cuGraphLaunch 800 0", "- cuGraphLaunch 800 0"];
        let expected: Vec<&str> = launch
            .into_iter()
            .chain(["- cuGraphLaunch 700 0"])
            .chain(launch)
            .chain(["- cuMemFreeAsync 700 0"])
            .collect();
        assert_eq!(shapes(&lines(&dir)), expected);
    }
}

#[test]
fn what_the_process_does_not_own_is_not_written() {
    let dir = log("foreign");
    let file = dir.join("log-%p");
    let settings = [("SIMGPU_LOG", file.to_str().unwrap())];
    alone("truth::what_the_process_does_not_own_is_not_written", &settings, || {
        context();
        // The program's own memory, registered; and code with a variable.
        let mut mine = [0u8; 4096];
        ok("cuMemHostRegister_v2", &[at(&mut mine), 4096, 0]);
        ok("cuMemHostUnregister", &[at(&mut mine)]);
        let module = result("cuModuleLoadData", &[mine.as_ptr() as u64]);
        let (mut variable, mut bytes) = (0u64, 0u64);
        ok("cuModuleGetGlobal_v2", &[at(&mut variable), at(&mut bytes), module, c"v".as_ptr() as u64]);
        ok("cuModuleUnload", &[module]);
        // A block opened as another process's would be.
        let block = result("cuMemAlloc_v2", &[4096]);
        let mut handle = [0u64; 8];
        ok("cuIpcGetMemHandle", &[at(&mut handle), block]);
        let (code, opened) = crate::sharing::open(crate::sharing::Ipc(handle));
        assert_eq!(code, 0);
        ok("cuIpcCloseMemHandle", &[opened]);
        ok("cuMemFree_v2", &[block]);
        // Memory of another API's, a multicast object, and a block opened through its pool.
        let mut import = [0u64; 13];
        (import[0], import[1], import[3]) = (1, crate::sharing::file(MIB) as u64, MIB);
        let external = result("cuImportExternalMemory", &[at(&mut import)]);
        let mut range = [0u64; 11];
        range[1] = MIB;
        let buffer = result("cuExternalMemoryGetMappedBuffer", &[external, at(&mut range)]);
        ok("cuMemFree_v2", &[buffer]);
        ok("cuDestroyExternalMemory", &[external]);
        let object = result("cuMulticastCreate", &[at(&mut [1, 2 * MIB, 1, 0])]);
        ok("cuMemRelease", &[object]);
        let pool = result("cuMemPoolCreate", &[at(&mut [1 | 1 << 32, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0u64])]);
        let block = result("cuMemAllocFromPoolAsync", &[5000, pool, 0]);
        let mut descriptor = -1i32;
        ok("cuMemPoolExportToShareableHandle", &[at(&mut descriptor), pool, 1, 0]);
        let theirs = result("cuMemPoolImportFromShareableHandle", &[descriptor as u64, 1, 0]);
        let mut data = [0u64; 8];
        ok("cuMemPoolExportPointer", &[at(&mut data), block]);
        let opened = result("cuMemPoolImportPointer", &[theirs, at(&mut data)]);
        ok("cuMemFreeAsync", &[opened, 0]);
        ok("cuMemFreeAsync", &[block, 0]);
        // Its own physical memory, imported again: the same memory.
        let mut props = props();
        let physical = result("cuMemCreate", &[2 * MIB, at(&mut props), 0]);
        let mut descriptor = -1i32;
        ok("cuMemExportToShareableHandle", &[at(&mut descriptor), physical, 1, 0]);
        let imported = result("cuMemImportFromShareableHandle", &[descriptor as u64, 1]);
        ok("cuMemRelease", &[physical]);
        ok("cuMemRelease", &[imported]);
    });
    if std::env::var_os("SIMGPU_LOG").is_none() {
        assert_eq!(
            shapes(&lines(&dir)),
            [
                "+ cuMemAlloc_v2 4096 0",
                "- cuMemFree_v2 4096 0",
                "+ cuMemAllocFromPoolAsync 5000 0",
                "- cuMemFreeAsync 5000 0",
                "+ cuMemCreate 2097152 0",
                "- cuMemRelease 2097152 0"
            ]
        );
    }
}

#[test]
fn it_survives_a_kill() {
    let dir = log("kill");
    if std::env::var_os("SIMGPU_LOG").is_some() {
        context();
        result("cuMemAlloc_v2", &[4242]);
        // SAFETY: kills this process, as meant.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    }
    let mut killed = child("truth::it_survives_a_kill");
    let status = killed.env("SIMGPU_LOG", dir.join("log-%p")).output().unwrap().status;
    assert!(!status.success());
    let lines = lines(&dir);
    assert_eq!(lines.len(), 1);
    assert!(lines[0].starts_with("+ cuMemAlloc_v2 0x") && lines[0].ends_with(" 4242 0"), "{}", lines[0]);
}

#[test]
fn failures_are_not_allocations() {
    let dir = log("failures");
    let file = dir.join("log-%p");
    let settings = [("SIMGPU_LOG", file.to_str().unwrap()), ("SIMGPU_MEM", "1M")];
    alone("truth::failures_are_not_allocations", &settings, || {
        context();
        let mut word = 0u64;
        assert_eq!(call("cuMemAlloc_v2", &[at(&mut word), GIB]), OUT_OF_MEMORY);
        assert_eq!(call("cuMemFree_v2", &[0x1000]), INVALID_VALUE);
    });
    if std::env::var_os("SIMGPU_LOG").is_none() {
        assert!(lines(&dir).is_empty());
    }
}
