//! A program that uses every family at random keeps its own books: what it holds, what the truth log says and
//! what the device says is in use must agree at each of its instants.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::library;

/// A folder of this test's own with a `libcuda.so.1` in it.
fn folder(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("simgpu-families-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    std::os::unix::fs::symlink(library(), dir.join("libcuda.so.1")).unwrap();
    dir
}

fn compile(dir: &Path, flavour: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../programs/families.c");
    let program = dir.join("families");
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-O1", "-g", "-pthread", "-Wall", "-Wextra", "-Werror"]).arg(flavour).arg(source);
    if flavour == "-DBY_LINK" {
        cc.arg(dir.join("libcuda.so.1"));
    }
    let output = cc.arg("-o").arg(&program).output().expect("a C compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

/// The truth log, read on and on.
#[derive(Default)]
struct Truth {
    live: HashMap<String, (i64, bool)>,
    /// Bytes on the device and on the host.
    sums: (i64, i64),
    seen: BTreeSet<String>,
}

impl Truth {
    fn read(&mut self, text: &str) {
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [_, _, sign, api, address, bytes, device] = words[..] else { panic!("{line}") };
            let (bytes, host): (i64, bool) = (bytes.parse().unwrap(), device == "-1");
            self.seen.insert(format!("{sign}{api}"));
            let sum = if host { &mut self.sums.1 } else { &mut self.sums.0 };
            if sign == "+" {
                assert_eq!(self.live.insert(address.to_owned(), (bytes, host)), None, "given twice: {line}");
                *sum += bytes;
            } else {
                assert_eq!(self.live.remove(address), Some((bytes, host)), "never given: {line}");
                *sum -= bytes;
            }
        }
    }
}

/// Runs the program; returns what the log has seen, and what it still holds at the end.
fn run(program: &Path, arguments: [&str; 6]) -> Truth {
    let log = program.with_file_name("truth.log");
    let _ = std::fs::remove_file(&log);
    let mut command = Command::new(program);
    command.args(arguments).arg("check").env_clear().env("SIMGPU_LOG", &log);
    let output = command.env("LD_LIBRARY_PATH", program.parent().unwrap()).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {:?} {stderr}", output.status);
    let text = std::fs::read_to_string(&log).unwrap();
    let (mut truth, mut done, mut own) = (Truth::default(), 0, (-1, -1));
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["own", _, device, host] => own = (device.parse().unwrap(), host.parse().unwrap()),
            ["instant", number, length] => {
                let length = length.parse().unwrap();
                truth.read(&text[done..length]);
                done = length;
                assert_eq!(truth.sums, own, "device and host at instant {number} of {arguments:?}");
            }
            ["end", _] => {}
            _ => panic!("{line}"),
        }
    }
    truth.read(&text[done..]);
    truth
}

#[track_caller]
fn compare(flavour: &str) {
    let dir = folder(flavour);
    let program = compile(&dir, flavour);
    let clean = run(&program, ["1", "6000", "20", "3", "primary", "clean"]);
    assert_eq!(clean.sums, (0, 0));
    for api in
        ["cuMemAlloc_v2", "cuMemAllocPitch_v2", "cuMemAllocManaged", "cuMemHostAlloc", "cuMemAllocHost_v2"]
            .into_iter()
            .chain(["cuMemAllocAsync", "cuMemAllocFromPoolAsync", "cuMemCreate", "cuGraphLaunch"])
            .chain(["cuArrayCreate_v2", "cuArray3DCreate_v2", "cuMipmappedArrayCreate"])
    {
        assert!(clean.seen.contains(&format!("+{api}")), "{api} is not among {:?}", clean.seen);
    }
    for end in
        ["cuMemFree_v2", "cuMemFreeAsync", "cuMemFreeHost", "cuMemRelease", "cuMemUnmap", "cuGraphLaunch"]
            .into_iter()
            .chain(["cuArrayDestroy", "cuMipmappedArrayDestroy", "implicit"])
    {
        assert!(clean.seen.contains(&format!("-{end}")), "{end} is not among {:?}", clean.seen);
    }
    for (seed, threads, context, end) in
        [("2", "1", "own", "clean"), ("3", "4", "own", "clean"), ("4", "2", "primary", "keep")]
    {
        let truth = run(&program, [seed, "3000", "20", threads, context, end]);
        assert_eq!(truth.live.is_empty(), end == "clean");
    }
    let _ = std::fs::remove_dir_all(&dir);
}

#[test]
fn by_linking() {
    compare("-DBY_LINK");
}

#[test]
fn by_dlsym() {
    compare("-DBY_DLSYM");
}

#[test]
fn by_get_proc_address() {
    compare("-DBY_PROC");
}
