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
        assert_eq!((used(), live(block)), (2 * MIB, false), "reserved for the next launch");
        ok("cuGraphLaunch", &[exec, stream]);
        assert_eq!((used(), live(block)), (2 * MIB, true), "at the same address again");
        let mut word = 0u64;
        assert_eq!(
            call("cuGraphInstantiateWithFlags", &[at(&mut word), graph, 0]),
            INVALID_VALUE,
            "only one"
        );
        assert_eq!(call("cuGraphClone", &[at(&mut word), graph]), INVALID_VALUE, "has memory");
        ok("cuGraphExecDestroy", &[exec]);
        ok("cuGraphDestroy", &[graph]);
        ok("cuMemFree_v2", &[block]);
        ok("cuDeviceGraphMemTrim", &[0]);
        assert_eq!(used(), 0);
    });
}

/// Is it in a live block?
fn live(address: u64) -> bool {
    let mut base = 0u64;
    call("cuMemGetAddressRange_v2", &[at(&mut base), 0, address]) == 0
}

/// A `CUDA_MEM_ALLOC_NODE_PARAMS` for device 0.
fn node_params(bytes: u64) -> [u64; 15] {
    let mut params = [0; 15];
    (params[0], params[1], params[13]) = (1, 1, bytes);
    params
}

#[test]
fn memory_nodes_allocate_and_free_at_launch() {
    alone("graphs::memory_nodes_allocate_and_free_at_launch", &[("SIMGPU_MEM", "64M")], || {
        context();
        let attribute = |which| {
            let mut value = 9u64;
            ok("cuDeviceGetGraphMemAttribute", &[0, which, at(&mut value)]);
            value
        };
        let all = || [attribute(0), attribute(1), attribute(2), attribute(3)];
        let graph = result("cuGraphCreate", &[0]);
        let (mut a, mut b) = (node_params(4 * MIB), node_params(8 * MIB));
        let mut first = result("cuGraphAddMemAllocNode", &[graph, 0, 0, at(&mut a)]);
        let mut second = result("cuGraphAddMemAllocNode", &[graph, at(&mut first), 1, at(&mut b)]);
        let freeing = result("cuGraphAddMemFreeNode", &[graph, at(&mut second), 1, a[14]]);
        let mut word = 0u64;
        assert_eq!(
            call("cuGraphAddMemFreeNode", &[at(&mut word), graph, 0, 0, a[14]]),
            INVALID_VALUE,
            "twice"
        );
        let linear = result("cuMemAlloc_v2", &[512]);
        assert_eq!(call("cuGraphAddMemFreeNode", &[at(&mut word), graph, 0, 0, linear]), INVALID_VALUE);
        assert_eq!(call("cuGraphDestroyNode", &[first]), INVALID_VALUE, "documented for graphs with memory");
        ok("cuMemFree_v2", &[linear]);
        let kind = |node| {
            let mut kind = 99i32;
            ok("cuGraphNodeGetType", &[node, at(&mut kind)]);
            kind
        };
        assert_eq!((kind(first), kind(freeing)), (10, 11));
        let mut read = [0u64; 15];
        ok("cuGraphMemAllocNodeGetParams", &[second, at(&mut read)]);
        assert_eq!(read, b);
        ok("cuGraphMemFreeNodeGetParams", &[freeing, at(&mut word)]);
        assert_eq!(word, a[14]);
        let exec = result("cuGraphInstantiateWithFlags", &[graph, 0]);
        assert_eq!((used(), all()), (0, [0; 4]), "nothing before the launch");
        ok("cuGraphLaunch", &[exec, 0]);
        assert_eq!(all(), [8 * MIB, 12 * MIB, 12 * MIB, 12 * MIB]);
        assert_eq!((used(), live(a[14]), live(b[14])), (12 * MIB, false, true));
        ok("cuMemFreeAsync", &[b[14], 0]);
        assert_eq!((used(), attribute(0)), (12 * MIB, 0));
        let mut zero = 0u64;
        ok("cuDeviceSetGraphMemAttribute", &[0, 1, at(&mut zero)]);
        ok("cuDeviceGraphMemTrim", &[0]);
        assert_eq!((used(), all()), (0, [0, 0, 0, 12 * MIB]));
        let most = result("cuMemAlloc_v2", &[54 * MIB]);
        assert_eq!(call("cuGraphLaunch", &[exec, 0]), OUT_OF_MEMORY);
        assert_eq!((live(a[14]), attribute(0)), (false, 0), "a launch that fails leaves nothing");
        ok("cuMemFree_v2", &[most]);
        ok("cuGraphLaunch", &[exec, 0]);
        ok("cuMemFree_v2", &[b[14]]);
        let most = result("cuMemAlloc_v2", &[64 * MIB]);
        assert_ne!(most, 0, "what graphs only keep is given up before memory runs out");
    });
}

#[test]
fn a_child_is_a_copy() {
    alone("graphs::a_child_is_a_copy", &[], || {
        context();
        let (inner, graph) = (result("cuGraphCreate", &[0]), result("cuGraphCreate", &[0]));
        let original = result("cuGraphAddEmptyNode", &[inner, 0, 0]);
        let node = result("cuGraphAddChildGraphNode", &[graph, 0, 0, inner]);
        let mut copy = 0u64;
        ok("cuGraphChildGraphNodeGetGraph", &[node, at(&mut copy)]);
        let (mut inside, mut count) = (0u64, 1u64);
        ok("cuGraphGetNodes", &[copy, at(&mut inside), at(&mut count)]);
        assert_eq!(count, 1);
        assert!(copy != inner && inside != original, "its nodes are its own");
        ok("cuGraphDestroyNode", &[original]);
        ok("cuGraphGetNodes", &[copy, 0, at(&mut count)]);
        assert_eq!(count, 1);
        let mut params = node_params(512);
        result("cuGraphAddMemAllocNode", &[inner, 0, 0, at(&mut params)]);
        let mut word = 0u64;
        assert_eq!(call("cuGraphAddChildGraphNode", &[at(&mut word), graph, 0, 0, inner]), INVALID_VALUE);
    });
}

#[test]
fn a_destroyed_stream_takes_its_capture_along() {
    alone("graphs::a_destroyed_stream_takes_its_capture_along", &[], || {
        context();
        let stream = result("cuStreamCreate", &[0]);
        ok("cuStreamBeginCapture_v2", &[stream, 0]);
        result("cuMemAllocAsync", &[512, stream]);
        ok("cuStreamDestroy_v2", &[stream]);
        ok("cuCtxSynchronize", &[]);
        let stream = result("cuStreamCreate", &[0]);
        ok("cuStreamBeginCapture_v2", &[stream, 0]);
        let plain = result("cuMemAlloc_v2", &[512]);
        assert_eq!(call("cuMemFreeAsync", &[plain, stream]), INVALID_VALUE, "not a graph's");
        let (mut status, mut id, mut graph) = (0i32, 0u64, 0u64);
        ok("cuStreamGetCaptureInfo", &[stream, at(&mut status), at(&mut id)]);
        assert_eq!(status, 1);
        let (mut again, mut nodes, mut count) = (0u64, 0u64, 9u64);
        let rest = [at(&mut again), at(&mut graph), at(&mut nodes), at(&mut count)];
        ok("cuStreamGetCaptureInfo_v2", &[stream, at(&mut status), rest[0], rest[1], rest[2], rest[3]]);
        assert_eq!((again, count), (id, 0));
        let mut captured = 0u64;
        ok("cuStreamEndCapture", &[stream, at(&mut captured)]);
        assert_eq!(captured, graph);
        ok("cuStreamGetCaptureInfo_v2", &[stream, at(&mut status), 0, 0, 0, 0]);
        assert_eq!(status, 0);
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
        ok("cuDeviceGraphMemTrim", &[0]);
        assert_eq!(used(), 0, "allocated and freed within");
    });
}

#[test]
fn synchronising_and_asking_a_pool_spoil_a_capture() {
    alone("graphs::synchronising_and_asking_a_pool_spoil_a_capture", &[], || {
        context();
        let stream = result("cuStreamCreate", &[0]);
        let (pool, mut value) = (result("cuDeviceGetDefaultMemPool", &[0]), 0u64);
        for (mode, refused) in [(0, true), (1, true), (2, false)] {
            ok("cuStreamBeginCapture_v2", &[stream, mode]);
            let expected = if refused { (900, 901) } else { (0, 0) };
            let asked = call("cuMemPoolGetAttribute", &[pool, 5, at(&mut value)]);
            let mut graph = 0u64;
            assert_eq!(
                (asked, call("cuStreamEndCapture", &[stream, at(&mut graph)])),
                expected,
                "mode {mode}"
            );
        }
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
