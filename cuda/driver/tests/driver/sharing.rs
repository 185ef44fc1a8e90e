//! Memory of one process in another.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use crate::memory::{props, props_of};
use crate::support::*;

/// A `CUipcMemHandle`, which is passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Ipc(pub [u64; 8]);

pub fn open(handle: Ipc) -> (i32, u64) {
    let mut address = 0u64;
    // SAFETY: the documented signature.
    let function: unsafe extern "C" fn(*mut u64, Ipc, u32) -> i32 =
        unsafe { std::mem::transmute(symbol("cuIpcOpenMemHandle_v2")) };
    // SAFETY: a place for the answer.
    (unsafe { function(&mut address, handle, 1) }, address)
}

fn words(line: &str) -> Vec<u64> {
    line.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn another_process_sees_the_same_bytes() {
    // The child exports; this process, which has its own driver, opens.
    let mut exporter = child("sharing::exporter")
        .env("SIMGPU_TEST_EXPORT", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the exporter starts");
    let mut lines = BufReader::new(exporter.stdout.take().unwrap()).lines().map_while(Result::ok);
    let said = lines.find(|line| line.contains("handle ")).expect("the exporter gives a handle");
    let numbers = words(said.split("handle ").nth(1).unwrap());
    let handle = Ipc(numbers.try_into().expect("eight words"));

    context();
    let (code, address) = open(handle);
    assert_eq!(code, 0);
    let mut bytes = [0u8; 32];
    ok("cuMemcpyDtoH_v2", &[at(&mut bytes), address, 32]);
    assert_eq!(bytes, [0xab; 32], "what the exporter wrote");
    ok("cuMemsetD8_v2", &[address, 0xcd, 32]);
    assert_eq!(open(handle), (0, address), "opened again: counted");
    let before = used();
    ok("cuIpcCloseMemHandle", &[address]);
    ok("cuIpcCloseMemHandle", &[address]);
    assert_eq!(call("cuIpcCloseMemHandle", &[address]), INVALID_VALUE);
    assert_eq!((before, used()), (0, 0), "foreign memory is not charged here");

    writeln!(exporter.stdin.take().unwrap(), "go on").unwrap();
    assert!(exporter.wait().unwrap().success(), "the exporter sees what the opener wrote");
    assert_ne!(open(handle).0, 0, "its process is gone");
}

/// Not a test by itself: the other process of the one above.
#[test]
fn exporter() {
    if std::env::var_os("SIMGPU_TEST_EXPORT").is_none() {
        return;
    }
    context();
    result("cuMemAlloc_v2", &[512]);
    let block = result("cuMemAlloc_v2", &[100]); // inside a page that it shares
    ok("cuMemsetD8_v2", &[block, 0xab, 100]);
    let mut handle = [0u64; 8];
    ok("cuIpcGetMemHandle", &[at(&mut handle), block]);
    let (code, own) = open(Ipc(handle));
    assert_eq!(code, 0, "within the process too");
    assert_ne!(own, block);
    println!("handle {}", handle.map(|w| w.to_string()).join(" "));
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let mut bytes = [0u8; 32];
    ok("cuMemcpyDtoH_v2", &[at(&mut bytes), block, 32]);
    assert_eq!(bytes, [0xcd; 32]);
    ok("cuMemcpyDtoH_v2", &[at(&mut bytes), own, 32]);
    assert_eq!(bytes, [0xcd; 32]);
}

#[test]
fn a_physical_handle_travels_as_a_descriptor() {
    alone("sharing::a_physical_handle_travels_as_a_descriptor", &[], || {
        context();
        let step = 2 * MIB;
        let mut props = props();
        let range = result("cuMemAddressReserve", &[2 * step, 0, 0, 0]);
        let handle = result("cuMemCreate", &[step, at(&mut props), 0]);
        ok("cuMemMap", &[range, step, 0, handle, 0]);
        ok("cuMemsetD8_v2", &[range, 0x77, 4096]);
        let mut descriptor = -1i32;
        ok("cuMemExportToShareableHandle", &[at(&mut descriptor), handle, 1, 0]);
        let imported = result("cuMemImportFromShareableHandle", &[descriptor as u64, 1]);
        // SAFETY: the descriptor is ours to close.
        unsafe { libc::close(descriptor) };
        ok("cuMemMap", &[range + step, step, 0, imported, 0]);
        let mut bytes = [0u8; 64];
        ok("cuMemcpyDtoH_v2", &[at(&mut bytes), range + step, 64]);
        assert_eq!(bytes, [0x77; 64], "moved to the file with its bytes");
        ok("cuMemsetD8_v2", &[range + step, 0x11, 64]);
        ok("cuMemcpyDtoH_v2", &[at(&mut bytes), range, 64]);
        assert_eq!(bytes, [0x11; 64], "one memory, two maps");
        ok("cuMemRelease", &[imported]);
        ok("cuMemRelease", &[handle]);
        ok("cuMemUnmap", &[range, 2 * step]);
        assert_eq!(used(), 0);
    });
}

/// A file of the program's own, as another API would hand over.
pub fn file(bytes: u64) -> i32 {
    // SAFETY: a NUL-terminated name, and the descriptor that came of it.
    unsafe {
        let file = libc::memfd_create(c"test".as_ptr(), 0);
        assert_eq!(libc::ftruncate(file, bytes as i64), 0);
        file
    }
}

/// Is the descriptor open?
fn is_open(file: i32) -> bool {
    // SAFETY: a bad descriptor is an error.
    unsafe { libc::fcntl(file, libc::F_GETFD) >= 0 }
}

#[test]
fn external_memory_is_mapped_and_freed_as_memory() {
    alone("sharing::external_memory_is_mapped_and_freed_as_memory", &[], || {
        context();
        let file = file(4 * MIB);
        let mut import = [0u64; 13];
        (import[0], import[1], import[3]) = (1, file as u64, 4 * MIB);
        let mut word = 0u64;
        import[3] = 5 * MIB;
        assert_eq!(
            call("cuImportExternalMemory", &[at(&mut word), at(&mut import)]),
            INVALID_HANDLE,
            "too small"
        );
        import[3] = 4 * MIB;
        let external = result("cuImportExternalMemory", &[at(&mut import)]);
        let mut range = [0u64; 11];
        (range[0], range[1]) = (100, MIB);
        let one = result("cuExternalMemoryGetMappedBuffer", &[external, at(&mut range)]);
        (range[0], range[1]) = (0, 4 * MIB);
        let all = result("cuExternalMemoryGetMappedBuffer", &[external, at(&mut range)]);
        range[0] = 512;
        assert_eq!(
            call("cuExternalMemoryGetMappedBuffer", &[at(&mut word), external, at(&mut range)]),
            INVALID_VALUE,
            "past the end"
        );
        ok("cuMemsetD8_v2", &[one, 0x3c, 64]);
        let mut bytes = [0u8; 66];
        ok("cuMemcpyDtoH_v2", &[at(&mut bytes), all + 99, 66]);
        assert_eq!((bytes[0], bytes[1], bytes[64], bytes[65]), (0, 0x3c, 0x3c, 0), "one memory, two maps");
        // offset, then the shape of an array, then the number of levels
        let mut mipmapped = [MIB, 64, 64, 0, 0x20 | 1 << 32, 2 << 32, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        mipmapped[6] = 2;
        let mipmap = result("cuExternalMemoryGetMappedMipmappedArray", &[external, at(&mut mipmapped)]);
        let level = result("cuMipmappedArrayGetLevel", &[mipmap, 0]);
        assert_ne!(level, 0);
        assert_eq!(used(), 0, "nobody's memory here");
        assert!(is_open(file));
        ok("cuDestroyExternalMemory", &[external]);
        assert!(!is_open(file), "the driver's since the import");
        assert_eq!(call("cuDestroyExternalMemory", &[external]), INVALID_HANDLE);
        ok("cuMemFree_v2", &[one]);
        assert_eq!(call("cuMemFreeAsync", &[all, 0]), INVALID_VALUE);
        ok("cuMemFree_v2", &[all]);
        assert_eq!(call("cuMemFree_v2", &[all]), INVALID_VALUE);
        ok("cuMipmappedArrayDestroy", &[mipmap]);
    });
}

#[test]
fn a_pool_is_opened_by_descriptor_and_its_blocks_by_data() {
    alone("sharing::a_pool_is_opened_by_descriptor_and_its_blocks_by_data", &[], || {
        context();
        let mut props = [1 | 1 << 32, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0u64];
        let pool = result("cuMemPoolCreate", &[at(&mut props)]);
        let block = result("cuMemAllocFromPoolAsync", &[5000, pool, 0]);
        let charged = used();
        let mut descriptor = -1i32;
        let default = result("cuDeviceGetDefaultMemPool", &[0]);
        let exported = call("cuMemPoolExportToShareableHandle", &[at(&mut descriptor), default, 1, 0]);
        assert_eq!(exported, INVALID_VALUE, "not made for it");
        ok("cuMemPoolExportToShareableHandle", &[at(&mut descriptor), pool, 1, 0]);
        let theirs = result("cuMemPoolImportFromShareableHandle", &[descriptor as u64, 1, 0]);
        let mut data = [0u64; 8];
        ok("cuMemPoolExportPointer", &[at(&mut data), block]);
        let opened = result("cuMemPoolImportPointer", &[theirs, at(&mut data)]);
        let again = result("cuMemPoolImportPointer", &[theirs, at(&mut data)]);
        let mut word = 0u64;
        assert_eq!(call("cuMemPoolImportPointer", &[at(&mut word), pool, at(&mut data)]), INVALID_VALUE);
        assert_eq!(call("cuMemAllocFromPoolAsync", &[at(&mut word), 512, theirs, 0]), INVALID_VALUE);
        assert_eq!(call("cuDeviceSetMemPool", &[0, theirs]), INVALID_VALUE);
        ok("cuMemsetD8_v2", &[block, 0x21, 100]);
        let mut bytes = [0u8; 100];
        ok("cuMemcpyDtoH_v2", &[at(&mut bytes), opened, 100]);
        assert_eq!(bytes, [0x21; 100]);
        ok("cuMemPoolDestroy", &[theirs]);
        assert_eq!(used(), charged, "opened blocks cost nothing");
        ok("cuMemFreeAsync", &[opened, 0]);
        ok("cuMemFree_v2", &[again]);
        ok("cuMemFree_v2", &[block]);
        ok("cuMemPoolDestroy", &[pool]);
        assert_eq!(used(), 0);
    });
}

#[test]
fn multicast_objects_bind_memory_and_own_none() {
    alone("sharing::multicast_objects_bind_memory_and_own_none", &[("SIMGPU_DEVICES", "2")], || {
        context();
        let step = 2 * MIB;
        let mut props = [2, 2 * step, 1, 0]; // devices, size, handle types, flags
        assert_eq!(result("cuMulticastGetGranularity", &[at(&mut props), 0]), step);
        let object = result("cuMulticastCreate", &[at(&mut props)]);
        assert_eq!(used(), 0);
        let mut memory_props = props_of(0);
        let memory = result("cuMemCreate", &[step, at(&mut memory_props), 0]);
        ok("cuMulticastAddDevice", &[object, 0]);
        assert_eq!(
            call("cuMulticastBindMem", &[object, 0, memory, 0, step, 0]),
            ILLEGAL_STATE,
            "one is missing"
        );
        ok("cuMulticastAddDevice", &[object, 1]);
        assert_eq!(call("cuMulticastAddDevice", &[object, 1]), INVALID_VALUE, "twice");
        ok("cuMulticastBindMem", &[object, 0, memory, 0, step, 0]);
        assert_eq!(call("cuMulticastBindMem", &[object, 0, memory, 0, step, 0]), INVALID_VALUE, "taken");
        let range = result("cuMemAddressReserve", &[3 * step, 0, 0, 0]);
        ok("cuMemMap", &[range, step, 0, memory, 0]);
        ok("cuMemMap", &[range + step, 2 * step, 0, object, 0]);
        ok("cuMulticastBindAddr_v2", &[object, 0, step, range, step, 0]);
        ok("cuMemUnmap", &[range, 3 * step]);
        ok("cuMemRelease", &[memory]);
        assert_eq!(used(), step, "bound");
        assert_eq!(call("cuMulticastUnbind", &[object, 1, 0, step]), INVALID_VALUE);
        ok("cuMulticastUnbind", &[object, 0, 0, step]);
        assert_eq!(used(), step, "bound once more");
        ok("cuMemRelease", &[object]);
        assert_eq!(used(), 0, "the object's end unbinds");
        assert_eq!(call("cuMulticastAddDevice", &[object, 0]), INVALID_VALUE);
        ok("cuMemAddressFree", &[range, 3 * step]);
    });
}
