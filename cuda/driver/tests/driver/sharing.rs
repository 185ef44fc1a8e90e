//! Memory of one process in another.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use crate::memory::props;
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
