//! Streams, events, capture and graphs, as far as memory depends on them.

use crate::support::*;

#[test]
fn captured_memory_lives_from_launch_to_free() {
    alone("graphs::captured_memory_lives_from_launch_to_free", &[], || {
        context();
        let stream = result("cuStreamCreate", &[1]);
        assert_eq!(call("cuStreamBeginCapture_v2", &[0, 0]), 900, "the legacy stream cannot");
        ok("cuStreamBeginCapture_v2", &[stream, 0]);
        assert_eq!(call("cuStreamBeginCapture_v2", &[stream, 0]), ILLEGAL_STATE);
        let block = result("cuMemAllocAsync", &[MIB, stream]);
        ok("cuMemsetD8Async", &[block, 5, 64, stream]);
        assert_eq!(used(), 0, "nothing yet");
        let mut graph = 0u64;
        ok("cuStreamEndCapture", &[stream, at(&mut graph)]);
        let mut count = 0u64;
        ok("cuGraphGetNodes", &[graph, 0, at(&mut count)]);
        assert_eq!(count, 2);
        let exec = result("cuGraphInstantiateWithFlags", &[graph, 0]);
        assert_eq!(call("cuMemFree_v2", &[block]), INVALID_VALUE, "not live before the launch");
        ok("cuGraphLaunch", &[exec, stream]);
        assert_eq!(used(), 2 * MIB);
        let mut back = [0u8; 8];
        ok("cuMemcpyDtoH_v2", &[at(&mut back), block, 8]);
        assert_eq!(back, [5; 8], "the memset node ran");
        assert_eq!(call("cuGraphLaunch", &[exec, stream]), INVALID_VALUE, "its memory is still live");
        ok("cuMemFreeAsync", &[block, stream]);
        assert_eq!(used(), 0);
        ok("cuGraphLaunch", &[exec, stream]);
        assert_eq!(used(), 2 * MIB, "at the same address again");
        ok("cuGraphExecDestroy", &[exec]);
        ok("cuGraphDestroy", &[graph]);
        ok("cuMemFree_v2", &[block]);
        assert_eq!(used(), 0);
    });
}

#[test]
fn free_on_launch_frees() {
    alone("graphs::free_on_launch_frees", &[], || {
        context();
        let stream = result("cuStreamCreate", &[1]);
        ok("cuStreamBeginCapture_v2", &[stream, 2]);
        result("cuMemAllocAsync", &[MIB, stream]);
        let mut graph = 0u64;
        ok("cuStreamEndCapture", &[stream, at(&mut graph)]);
        let exec = result("cuGraphInstantiateWithFlags", &[graph, 1]);
        for _ in 0..3 {
            ok("cuGraphLaunch", &[exec, stream]);
            assert_eq!(used(), 2 * MIB);
        }
    });
}

#[test]
fn events_bring_streams_into_a_capture() {
    alone("graphs::events_bring_streams_into_a_capture", &[], || {
        context();
        let (main, side) = (result("cuStreamCreate", &[1]), result("cuStreamCreate", &[1]));
        let event = result("cuEventCreate", &[2]);
        let capturing = |stream| {
            let mut status = 9u32;
            ok("cuStreamIsCapturing", &[stream, at(&mut status)]);
            status
        };
        ok("cuStreamBeginCapture_v2", &[main, 0]);
        ok("cuEventRecord", &[event, main]);
        ok("cuStreamWaitEvent", &[side, event, 0]);
        assert_eq!((capturing(main), capturing(side)), (1, 1));
        let block = result("cuMemAllocAsync", &[512, side]);
        let mut graph = 0u64;
        assert_eq!(call("cuStreamEndCapture", &[side, at(&mut graph)]), 903, "not where it began");
        assert_eq!(call("cuStreamEndCapture", &[main, at(&mut graph)]), 904, "the side was not joined");
        assert_eq!((capturing(main), capturing(side)), (0, 0));
        assert_eq!(call("cuMemFree_v2", &[block]), INVALID_VALUE);

        ok("cuStreamBeginCapture_v2", &[main, 0]);
        ok("cuEventRecord", &[event, main]);
        ok("cuStreamWaitEvent", &[side, event, 0]);
        let block = result("cuMemAllocAsync", &[512, side]);
        ok("cuMemFreeAsync", &[block, side]);
        ok("cuEventRecord", &[event, side]);
        ok("cuStreamWaitEvent", &[main, event, 0]);
        ok("cuStreamEndCapture", &[main, at(&mut graph)]);
        let exec = result("cuGraphInstantiateWithFlags", &[graph, 0]);
        ok("cuGraphLaunch", &[exec, main]);
        ok("cuGraphLaunch", &[exec, main]);
        assert_eq!(used(), 0, "allocated and freed within");
    });
}

#[test]
fn synchronising_spoils_a_capture() {
    alone("graphs::synchronising_spoils_a_capture", &[], || {
        context();
        let stream = result("cuStreamCreate", &[0]);
        ok("cuStreamBeginCapture_v2", &[stream, 0]);
        assert_eq!(call("cuStreamSynchronize", &[stream]), 900);
        let mut graph = 7u64;
        assert_eq!(call("cuStreamEndCapture", &[stream, at(&mut graph)]), 901);
        assert_eq!(graph, 0);
        ok("cuStreamSynchronize", &[stream]);
    });
}

static RAN: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

extern "C" fn host_function(by: u64) {
    RAN.fetch_add(by as u32, std::sync::atomic::Ordering::Relaxed);
}

#[test]
fn host_functions_run_inline_and_at_each_launch() {
    alone("graphs::host_functions_run_inline_and_at_each_launch", &[], || {
        context();
        let ran = || RAN.load(std::sync::atomic::Ordering::Relaxed);
        let stream = result("cuStreamCreate", &[0]);
        let function = host_function as extern "C" fn(u64) as usize as u64;
        ok("cuLaunchHostFunc", &[stream, function, 1]);
        assert_eq!(ran(), 1);
        ok("cuStreamBeginCapture_v2", &[stream, 0]);
        ok("cuLaunchHostFunc", &[stream, function, 10]);
        let mut graph = 0u64;
        ok("cuStreamEndCapture", &[stream, at(&mut graph)]);
        assert_eq!(ran(), 1, "captured, not run");
        let exec = result("cuGraphInstantiateWithFlags", &[graph, 0]);
        ok("cuGraphLaunch", &[exec, stream]);
        ok("cuGraphLaunch", &[exec, stream]);
        assert_eq!(ran(), 21);
    });
}

#[test]
fn the_threads_own_stream_can_capture() {
    alone("graphs::the_threads_own_stream_can_capture", &[], || {
        context();
        ok("cuStreamBeginCapture_v2_ptsz", &[0, 0]);
        result("cuMemAllocAsync_ptsz", &[512, 0]);
        assert_eq!(used(), 0, "captured");
        let mut graph = 0u64;
        ok("cuStreamEndCapture_ptsz", &[0, at(&mut graph)]);
        assert_ne!(graph, 0);
    });
}
