//! Memory of every family: what is charged, what is refused, what the bytes are.

use crate::support::*;

#[test]
fn linear_memory_is_charged_and_freed_once() {
    alone("memory::linear_memory_is_charged_and_freed_once", &[("SIMGPU_MEM", "64M")], || {
        context();
        let small = result("cuMemAlloc_v2", &[1]);
        assert_eq!(used(), 512);
        let large = result("cuMemAlloc_v2", &[MIB]);
        assert_eq!(used(), 512 + 2 * MIB);
        let mut word = 0u64;
        assert_eq!(call("cuMemAlloc_v2", &[at(&mut word), 0]), INVALID_VALUE);
        assert_eq!(call("cuMemAlloc_v2", &[0, 64]), INVALID_VALUE);
        assert_eq!(
            call("cuMemAlloc_v2", &[at(&mut word), 62 * MIB]),
            OUT_OF_MEMORY,
            "the small block is in the way"
        );
        assert_eq!(call("cuMemAlloc_v2", &[at(&mut word), u64::MAX - 5]), OUT_OF_MEMORY);
        assert_eq!(call("cuMemFree_v2", &[large + 512]), INVALID_VALUE, "not a start");
        ok("cuMemFree_v2", &[large]);
        assert_eq!(call("cuMemFree_v2", &[large]), INVALID_VALUE, "twice");
        ok("cuMemFree_v2", &[0]);
        ok("cuMemFree_v2", &[small]);
        assert_eq!(used(), 0);
        result("cuMemAlloc_v2", &[64 * MIB]);
        assert_eq!(used(), 64 * MIB);
    });
}

#[test]
fn pitched_managed_and_host() {
    alone("memory::pitched_managed_and_host", &[], || {
        context();
        let (mut address, mut pitch) = (0u64, 0u64);
        ok("cuMemAllocPitch_v2", &[at(&mut address), at(&mut pitch), 700, 10, 4]);
        assert_eq!(pitch, 1024);
        let (mut base, mut size) = (0u64, 0u64);
        ok("cuMemGetAddressRange_v2", &[at(&mut base), at(&mut size), address + 5000]);
        assert_eq!((base, size), (address, 10240));
        let managed = result("cuMemAllocManaged", &[4096, 1]);
        assert_eq!(result("cuPointerGetAttribute", &[8, managed]), 1);
        let before = used();
        let host = result("cuMemHostAlloc", &[10000, 0]);
        assert_eq!(used(), before, "host memory is not the device's");
        assert_eq!(result("cuPointerGetAttribute", &[2, host]), 1, "host");
        assert_eq!(result("cuPointerGetAttribute", &[2, address]), 2, "device");
        assert_eq!(result("cuMemHostGetDevicePointer_v2", &[host, 0]), host);
        assert_eq!(call("cuMemFree_v2", &[host]), INVALID_VALUE);
        ok("cuMemFreeHost", &[host]);
        assert_eq!(call("cuMemFreeHost", &[host]), INVALID_VALUE);
        let mut mine = vec![0u8; 8192];
        let start = at(&mut mine[0]);
        ok("cuMemHostRegister_v2", &[start, 8192, 0]);
        assert_eq!(call("cuMemHostRegister_v2", &[start + 100, 8, 0]), 712);
        ok("cuMemHostUnregister", &[start]);
        assert_eq!(call("cuMemHostUnregister", &[start]), 713);
    });
}

#[test]
fn copies_move_bytes() {
    alone("memory::copies_move_bytes", &[], || {
        context();
        let (a, b) = (result("cuMemAlloc_v2", &[MIB]), result("cuMemAlloc_v2", &[MIB]));
        let mut from: Vec<u8> = (0..1000u32).map(|i| (i * 7) as u8).collect();
        let mut to = vec![0u8; 1000];
        ok("cuMemcpyHtoD_v2", &[a, at(&mut from[0]), 1000]);
        ok("cuMemcpyDtoDAsync_v2", &[b + 3, a, 1000, 0]);
        ok("cuMemcpyDtoH_v2", &[at(&mut to[0]), b + 3, 1000]);
        assert_eq!(from, to);
        ok("cuMemsetD32_v2", &[a, 0x01020304, 250]);
        ok("cuMemcpy", &[at(&mut to[0]), a, 1000]);
        assert_eq!(&to[..5], &[4, 3, 2, 1, 4]);
        ok("cuMemsetD8_v2", &[a, 0, MIB]);
        ok("cuMemcpyDtoH_v2", &[at(&mut to[0]), a, 1000]);
        assert!(to.iter().all(|&b| b == 0), "a large zero memset");
        assert_eq!(call("cuMemcpyHtoD_v2", &[0x1000, at(&mut from[0]), 8]), INVALID_VALUE);
        assert_eq!(call("cuMemsetD8_v2", &[a, 0, 3 * MIB]), INVALID_VALUE, "past the end");
        ok("cuMemFree_v2", &[b]);
        assert_eq!(call("cuMemcpyDtoH_v2", &[at(&mut to[0]), b, 8]), INVALID_VALUE, "freed");
    });
}

/// A `CUDA_MEMCPY2D` from host to device, or back.
fn flat(from: [u64; 7], to: [u64; 7], width: u64, height: u64) -> [u64; 16] {
    let mut record = [0; 16];
    record[..7].copy_from_slice(&from);
    record[7..14].copy_from_slice(&to);
    (record[14], record[15]) = (width, height);
    record
}

#[test]
fn rows_are_copied_with_their_pitch() {
    alone("memory::rows_are_copied_with_their_pitch", &[], || {
        context();
        let device = result("cuMemAlloc_v2", &[4096]);
        let mut from: Vec<u8> = (0..64).collect();
        let mut to = vec![0xffu8; 64];
        // x, y, kind, host, device, array, pitch
        let host = |v: &mut Vec<u8>| [0, 0, 1, at(&mut v[0]), 0, 0, 16];
        let there = [4, 1, 2, 0, device, 0, 512];
        let mut record = flat(host(&mut from), there, 10, 4);
        ok("cuMemcpy2D_v2", &[at(&mut record)]);
        let mut record = flat(there, host(&mut to), 10, 4);
        ok("cuMemcpy2DAsync_v2", &[at(&mut record), 0]);
        for row in 0..4 {
            assert_eq!(to[row * 16..row * 16 + 10], from[row * 16..row * 16 + 10]);
            assert_eq!(to[row * 16 + 10], 0xff, "beyond the width");
        }
        let mut word = [0u8; 32];
        ok("cuMemcpyDtoH_v2", &[at(&mut word), device + 512 + 4, 32]);
        assert_eq!(word[..10], from[..10], "row 1, byte 4");
    });
}

#[test]
fn small_reads_are_zero_unless_the_host_wrote() {
    alone("memory::small_reads_are_zero_unless_the_host_wrote", &[], || {
        context();
        let device = result("cuMemAlloc_v2", &[4096]);
        let mut value = [0x5555_5555_5555_5555u64; 4];
        let mut back = [0u64; 4];
        ok("cuMemcpyHtoD_v2", &[device, at(&mut value), 32]);
        ok("cuMemcpyDtoH_v2", &[at(&mut back), device + 8, 16]);
        assert_eq!(back[..2], value[..2], "the host wrote it");
        launch();
        back = [1; 4];
        ok("cuMemcpyDtoH_v2", &[at(&mut back), device + 8, 16]);
        assert_eq!(back, [0, 0, 1, 1], "a kernel may have written it since");
        ok("cuMemcpyDtoH_v2", &[at(&mut back), device, 24]);
        assert_eq!(back[..3], value[..3], "a larger read is what is there");
        ok("cuMemsetD8_v2", &[device, 3, 8]);
        ok("cuMemcpyDtoH_v2", &[at(&mut back), device, 8]);
        assert_eq!(back[0], 0x0303_0303_0303_0303, "a memset is the host's");
    });
}

#[test]
fn flags_are_set_now_and_then_where_asked_for() {
    alone("memory::flags_are_set_now_and_then_where_asked_for", &[("SIMGPU_FLAGS", "3")], || {
        context();
        let device = result("cuMemAlloc_v2", &[4096]);
        launch();
        let mut flags = [7u8; 7];
        for flag in &mut flags {
            ok("cuMemcpyDtoH_v2", &[at(flag), device, 1]);
            let mut count = 7u64;
            ok("cuMemcpyDtoH_v2", &[at(&mut count), device, 8]);
            assert_eq!(count, 0, "a count is none");
        }
        assert_eq!(flags, [0, 0, 1, 0, 0, 1, 0]);
        let mut mine = 5u8;
        ok("cuMemcpyHtoD_v2", &[device, at(&mut mine), 1]);
        ok("cuMemcpyDtoH_v2", &[at(&mut flags), device, 1]);
        assert_eq!(flags[0], 5, "the host wrote it");
    });
}

#[test]
fn pools_hold_and_give_back() {
    alone("memory::pools_hold_and_give_back", &[("SIMGPU_MEM", "256M")], || {
        context();
        let pool = result("cuDeviceGetDefaultMemPool", &[0]);
        let attribute = |which| {
            let mut value = 0u64;
            ok("cuMemPoolGetAttribute", &[pool, which, at(&mut value)]);
            value
        };
        let (reserved, used_now) = (5, 7);
        let a = result("cuMemAllocAsync", &[10 * MIB, 0]);
        let b = result("cuMemAllocFromPoolAsync", &[30 * MIB, pool, 0]);
        assert_eq!((attribute(used_now), attribute(reserved)), (40 * MIB, 64 * MIB));
        assert_eq!(used(), 64 * MIB, "what is reserved is charged");
        ok("cuMemFreeAsync", &[b, 0]);
        assert_eq!(
            (attribute(used_now), attribute(reserved)),
            (10 * MIB, 64 * MIB),
            "nothing is released yet"
        );
        let mut threshold = 48 * MIB;
        ok("cuMemPoolSetAttribute", &[pool, 4, at(&mut threshold)]);
        ok("cuStreamSynchronize", &[0]);
        assert_eq!(attribute(reserved), 48 * MIB, "down to the threshold");
        ok("cuMemPoolTrimTo", &[pool, 0]);
        assert_eq!(attribute(reserved), 32 * MIB, "what is used, in whole steps");
        assert_eq!((attribute(8), attribute(6)), (40 * MIB, 64 * MIB), "high marks");
        let big = result("cuMemAlloc_v2", &[246 * MIB]);
        assert_eq!(attribute(reserved), 10 * MIB, "a device out of memory empties its pools");
        ok("cuMemFree_v2", &[big]);
        ok("cuMemFree_v2", &[a]);
        assert_eq!(call("cuMemFreeAsync", &[a, 0]), INVALID_VALUE);
        ok("cuCtxSynchronize", &[]);
        let mut nothing = 0u64;
        assert_eq!(call("cuMemPoolDestroy", &[pool]), INVALID_VALUE, "the default pool stays");
        assert_eq!(call("cuMemAllocAsync", &[at(&mut nothing), 300 * MIB, 0]), OUT_OF_MEMORY);
    });
}

#[test]
fn a_destroyed_pool_ends_with_its_last_block() {
    alone("memory::a_destroyed_pool_ends_with_its_last_block", &[], || {
        context();
        let mut props = [0u64; 11]; // CUmemPoolProps: pinned; location device 0
        props[0] = 1;
        props[1] = 1;
        let pool = result("cuMemPoolCreate", &[at(&mut props)]);
        let block = result("cuMemAllocFromPoolAsync", &[2 * MIB, pool, 0]);
        ok("cuMemPoolDestroy", &[pool]);
        assert_eq!(used(), 2 * MIB);
        let mut word = 0u64;
        assert_eq!(call("cuMemAllocFromPoolAsync", &[at(&mut word), 512, pool, 0]), INVALID_VALUE);
        ok("cuMemFreeAsync", &[block, 0]);
        assert_eq!(used(), 0);
    });
}

/// `CUmemAllocationProp`: pinned, on device 0, exportable as a file descriptor.
pub fn props() -> [u64; 4] {
    props_of(0)
}

pub fn props_of(device: u64) -> [u64; 4] {
    [1 | 1 << 32, 1 | device << 32, 0, 0]
}

#[test]
fn physical_memory_ends_with_its_last_reference_and_map() {
    alone("memory::physical_memory_ends_with_its_last_reference_and_map", &[], || {
        context();
        let mut props = props();
        let step = 2 * MIB;
        assert_eq!(result("cuMemGetAllocationGranularity", &[at(&mut props), 0]), step);
        let range = result("cuMemAddressReserve", &[4 * step, 0, 0, 0]);
        let mut word = 0u64;
        assert_eq!(call("cuMemCreate", &[at(&mut word), step + 512, at(&mut props), 0]), INVALID_VALUE);
        let first = result("cuMemCreate", &[step, at(&mut props), 0]);
        let second = result("cuMemCreate", &[2 * step, at(&mut props), 0]);
        assert_eq!(used(), 3 * step);
        ok("cuMemMap", &[range, step, 0, first, 0]);
        ok("cuMemMap", &[range + step, 2 * step, 0, second, 0]);
        assert_eq!(call("cuMemMap", &[range + step, step, 0, first, 0]), INVALID_VALUE, "taken");
        assert_eq!(call("cuMemMap", &[range + 4 * step, step, 0, first, 0]), INVALID_VALUE, "not reserved");
        ok("cuMemRelease", &[first]);
        assert_eq!(used(), 3 * step, "still mapped");
        assert_eq!(call("cuMemRelease", &[first]), INVALID_VALUE);
        assert_eq!(result("cuMemRetainAllocationHandle", &[range + 100]), first);
        let mut bytes = vec![7u8; 3 * step as usize];
        ok("cuMemcpyHtoD_v2", &[range, at(&mut bytes[0]), 3 * step]);
        assert_eq!(call("cuMemAddressFree", &[range, 4 * step]), INVALID_VALUE, "mapped");
        assert_eq!(call("cuMemUnmap", &[range, 2 * step]), INVALID_VALUE, "cuts a map in two");
        ok("cuMemUnmap", &[range, 3 * step]);
        assert_eq!(used(), 3 * step, "one retained, one never released");
        ok("cuMemMap", &[range, step, 0, first, 0]);
        let mut back = vec![0u8; 100];
        ok("cuMemcpyDtoH_v2", &[at(&mut back[0]), range, 100]);
        assert_eq!(back, [7; 100], "the handle kept its bytes");
        ok("cuMemUnmap", &[range, step]);
        ok("cuMemRelease", &[first]);
        assert_eq!(used(), 2 * step);
        ok("cuMemRelease", &[second]);
        assert_eq!(used(), 0);
        ok("cuMemAddressFree", &[range, 4 * step]);
    });
}

/// A `CUarrayMapInfo`: maps (or for no handle unmaps) tiles of level 0 of an array.
fn map_info(array: u64, from: [u32; 2], extent: [u32; 2], memory: u64, offset: u64) -> [u64; 12] {
    let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    let (operation, device) = (if memory == 0 { 2 } else { 1 }, 1);
    let mut info = [0; 12];
    (info[1], info[4], info[5]) = (array, pair(from[0], from[1]), pair(0, extent[0]));
    (info[6], info[7], info[8], info[9], info[10]) = (pair(extent[1], 1), operation, memory, offset, device);
    info
}

#[test]
fn sparse_arrays_hold_what_is_mapped_into_them() {
    alone("memory::sparse_arrays_hold_what_is_mapped_into_them", &[], || {
        context();
        let mut shape = [300u64, 200, 0, 0x20 | 1 << 32, 0x40];
        let array = result("cuArray3DCreate_v2", &[at(&mut shape)]);
        assert_eq!(used(), 0, "no memory of its own");
        let mut properties = [0u32; 12];
        ok("cuArrayGetSparseProperties", &[at(&mut properties), array]);
        assert_eq!(properties[..3], [128, 128, 1]);
        let memory = result("cuMemCreate", &[2 * MIB, at(&mut props()), 0]);
        let change = |info: [u64; 12], count| call("cuMemMapArrayAsync", &[at(&mut { info }), count, 0]);
        assert_eq!(change(map_info(array, [0, 0], [300, 128], memory, 0), 1), 0, "three tiles, to the edge");
        assert_eq!(change(map_info(array, [128, 128], [128, 72], memory, 4 * 65536), 1), 0);
        assert_eq!(change(map_info(array, [5, 0], [128, 128], memory, 0), 1), INVALID_VALUE, "cuts a tile");
        assert_eq!(change(map_info(array, [0, 0], [128, 128], memory, 2 * MIB), 1), INVALID_VALUE, "past it");
        ok("cuMemRelease", &[memory]);
        assert_eq!(used(), 2 * MIB, "mapped");
        assert_eq!(change(map_info(array, [0, 0], [300, 128], 0, 0), 1), 0);
        assert_eq!(used(), 2 * MIB, "one tile is left");
        assert_eq!(change(map_info(array, [128, 128], [128, 72], 0, 0), 1), 0);
        assert_eq!(used(), 0);
        let memory = result("cuMemCreate", &[2 * MIB, at(&mut props()), 0]);
        assert_eq!(change(map_info(array, [0, 0], [128, 128], memory, 0), 1), 0);
        ok("cuMemRelease", &[memory]);
        ok("cuArrayDestroy", &[array]);
        assert_eq!(used(), 0, "the array's end unmaps");
        let mipmap = result("cuMipmappedArrayCreate", &[at(&mut shape), 3]);
        ok("cuMipmappedArrayGetSparseProperties", &[at(&mut properties), mipmap]);
        assert_eq!((used(), properties[3]), (0, 3));
        ok("cuMipmappedArrayDestroy", &[mipmap]);
    });
}

#[test]
fn arrays_are_charged_by_size() {
    alone("memory::arrays_are_charged_by_size", &[], || {
        context();
        let mut shape = [1000u64, 1000, 0x20 | 4 << 32]; // float4
        let array = result("cuArrayCreate_v2", &[at(&mut shape)]);
        assert_eq!(used(), 16 * MIB);
        let mut from = [9u8; 64];
        let mut to = [0u8; 64];
        ok("cuMemcpyHtoA_v2", &[array, 160, at(&mut from), 64]);
        ok("cuMemcpyAtoH_v2", &[at(&mut to), array, 160, 64]);
        assert_eq!(from, to);
        ok("cuArrayDestroy", &[array]);
        assert_eq!(call("cuArrayDestroy", &[array]), INVALID_HANDLE);
        assert_eq!(used(), 0);
    });
}
