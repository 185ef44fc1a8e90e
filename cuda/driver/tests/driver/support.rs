//! The library under test, and a fresh process for each test: the driver's state and its settings are the
//! process's.

use std::ffi::{CString, c_void};
use std::path::PathBuf;
use std::process::Command;

const CHILD: &str = "SIMGPU_TEST_CHILD";

/// Runs `body` in a process that has only this test in it, with these settings.
pub fn alone(name: &str, settings: &[(&str, &str)], body: impl FnOnce()) {
    if std::env::var_os(CHILD).is_some() {
        body();
        return;
    }
    let mut command = child(name);
    command.envs(settings.iter().copied());
    let output = command.output().expect("the test binary runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    assert!(text(&output.stdout).contains("1 passed"), "{name} is not a test: {}", text(&output.stdout));
}

/// This binary again, to run one test only, in its child role.
pub fn child(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this binary has a path"));
    command.args([name, "--exact", "--nocapture"]).env(CHILD, "1");
    for setting in ["MEM", "DEVICES", "CC", "LOG", "FAIL", "FLAGS"] {
        command.env_remove(format!("SIMGPU_{setting}"));
    }
    command.env_remove("CUDA_VISIBLE_DEVICES");
    command
}

/// The newest build of the library next to this binary.
pub fn library() -> PathBuf {
    let exe = std::env::current_exe().expect("this binary has a path");
    let built = exe.ancestors().skip(1).take(2).map(|dir| dir.join("libsimgpu_driver.so"));
    let age = |path: &PathBuf| path.metadata().and_then(|m| m.modified()).ok();
    built.filter(|path| path.exists()).max_by_key(age).expect("the library is built")
}

pub fn symbol(name: &str) -> *mut c_void {
    let path = CString::new(library().into_os_string().into_encoded_bytes()).expect("a path without NUL");
    let name = CString::new(name).expect("a name without NUL");
    // SAFETY: a NUL-terminated path to our own library, whose constructors do nothing; opening it again is
    // counted.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    assert!(!library.is_null(), "the library opens");
    // SAFETY: a live handle and a NUL-terminated name.
    unsafe { libc::dlsym(library, name.as_ptr()) }
}

type Twelve = unsafe extern "C" fn(u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64) -> i32;

/// Calls a function by its address: every argument is one word, and a callee does not see surplus ones.
pub fn call_at(address: *mut c_void, arguments: &[u64]) -> i32 {
    assert!(!address.is_null());
    let mut a = [0; 12];
    a[..arguments.len()].copy_from_slice(arguments);
    // SAFETY: the driver's functions take integers and pointers only, in this platform's C calling
    // convention.
    unsafe {
        let function: Twelve = std::mem::transmute(address);
        function(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11])
    }
}

pub fn call(name: &str, arguments: &[u64]) -> i32 {
    let address = symbol(name);
    assert!(!address.is_null(), "{name} is exported");
    call_at(address, arguments)
}

/// Calls and expects success.
pub fn ok(name: &str, arguments: &[u64]) {
    assert_eq!(call(name, arguments), 0, "{name} {arguments:x?}");
}

/// The address of a value, as an argument.
pub fn at<T>(value: &mut T) -> u64 {
    value as *mut T as u64
}

/// Calls a function whose first argument is where one word of result goes.
pub fn result(name: &str, rest: &[u64]) -> u64 {
    let mut value = 0u64;
    let mut arguments = vec![at(&mut value)];
    arguments.extend(rest);
    ok(name, &arguments);
    value
}

pub const INVALID_VALUE: i32 = 1;
pub const OUT_OF_MEMORY: i32 = 2;
pub const NOT_INITIALIZED: i32 = 3;
pub const NO_DEVICE: i32 = 100;
pub const INVALID_DEVICE: i32 = 101;
pub const INVALID_CONTEXT: i32 = 201;
pub const INVALID_HANDLE: i32 = 400;
pub const ILLEGAL_STATE: i32 = 401;
pub const NOT_FOUND: i32 = 500;
pub const CONTEXT_IS_DESTROYED: i32 = 709;

pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;

/// Initialises and makes a context current.
pub fn context() -> u64 {
    ok("cuInit", &[0]);
    result("cuCtxCreate_v2", &[0, 0])
}

/// Free and total bytes.
pub fn info() -> (u64, u64) {
    let (mut free, mut total) = (0u64, 0u64);
    ok("cuMemGetInfo_v2", &[at(&mut free), at(&mut total)]);
    (free, total)
}

pub fn used() -> u64 {
    let (free, total) = info();
    total - free
}

/// A kernel, launched: what the host wrote before no longer counts as known.
pub fn launch() {
    let image = [0u8; 8];
    let module = result("cuModuleLoadData", &[image.as_ptr() as u64]);
    let function = result("cuModuleGetFunction", &[module, c"k".as_ptr() as u64]);
    ok("cuLaunchKernel", &[function, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0]);
}
