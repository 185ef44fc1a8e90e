//! The process that is to be attached to: who owns it, whether it may be reached from here, and which Python runs in it. It
//! is looked at, and left as it is.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Object, ObjectSymbol};

use super::super::{Failure, proc};

/// What a program that can use a GPU has loaded.
const GPU: [&str; 5] = ["libcuda.so", "libcudart", "libtorch_cuda", "libc10_cuda", "libcublas"];
/// Where Linux says who may trace whom.
const PTRACE_SCOPE: &str = "/proc/sys/kernel/yama/ptrace_scope";

/// A process with a Python in it.
pub struct Target {
    pub pid: u32,
    /// When it started, so that another process with its number is not taken for it.
    started: u64,
    pub owner: (u32, u32),
    pub exe: PathBuf,
    /// The minor version of its CPython 3; `None`: 3.10 or earlier, or not known.
    pub minor: Option<u32>,
    /// leaktrace's library, where it is loaded already.
    pub library: Option<PathBuf>,
    pub python: Addresses,
    maps: Vec<Mapping>,
}

/// Where functions lie that are called to take the library in.
pub struct Addresses {
    pub run: u64,
    pub add_pending_call: u64,
    pub save_thread: u64,
    pub fetch_error: u64,
    pub restore_error: u64,
    pub mmap: u64,
}

/// A mapped part of a file.
struct Mapping {
    start: u64,
    offset: u64,
    path: String,
}

impl Mapping {
    fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }
}

impl Target {
    /// Looks at a process. `Err`: it cannot be attached to from here, and why.
    pub fn find(pid: u32) -> Result<Target, Failure> {
        let fail = |why: &str| Failure(format!("process {pid} {why}"));
        let started = proc::ticks(pid).ok_or_else(|| Failure(format!("there is no process {pid}")))?;
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let owner = (id(&status, "Uid:"), id(&status, "Gid:"));
        let (Some(uid), Some(gid)) = owner else { return Err(fail("ended meanwhile")) };
        let own = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let own_uid = id(&own, "Uid:").unwrap_or_default();
        if own_uid != 0 && own_uid != uid {
            return Err(fail(&format!(
                "belongs to another user (uid {uid}): attach as that user, or as root (sudo leaktrace attach {pid})"
            )));
        }
        if let Some(why) = obstacle(own_uid == 0) {
            return Err(fail(&format!("cannot be reached: {why}")));
        }
        let denied = || {
            let why = if own_uid == 0 { ", even for root)" } else { "): attach as its user or as root" };
            fail(&format!(
                "cannot be looked at (permission denied{why}; in a container it takes the capability SYS_PTRACE (docker run \
                 --cap-add SYS_PTRACE)"
            ))
        };
        for space in ["mnt", "pid"] {
            let of = |process: &str| fs::read_link(format!("/proc/{process}/ns/{space}"));
            let (theirs, ours) = (of(&pid.to_string()).map_err(|_| denied())?, of("self"));
            if ours.is_ok_and(|ours| ours != theirs) {
                return Err(fail(&format!(
                    "runs in another container ({space} namespace): run leaktrace inside it (docker exec, kubectl exec)"
                )));
            }
        }
        let root =
            |process: &str| fs::metadata(format!("/proc/{process}/root/")).map(|m| (m.dev(), m.ino())).ok();
        if root(&pid.to_string()) != root("self") {
            return Err(fail("runs in another root folder (chroot): run leaktrace inside it"));
        }
        let exe = fs::read_link(format!("/proc/{pid}/exe")).map_err(|_| denied())?;
        let maps = maps(&fs::read_to_string(format!("/proc/{pid}/maps")).map_err(|_| denied())?);
        let (python, minor) = python(&maps, &exe).map_err(|why| fail(&why))?;
        let library = maps.iter().find(|m| m.name().starts_with("libleaktrace.so"));
        let library = library.map(|m| m.path.trim_end_matches(" (deleted)").into());
        Ok(Target { pid, started, owner: (uid, gid), exe, minor, library, python, maps })
    }

    /// Refuses a process that has nothing by which it could use a GPU.
    pub fn check_gpu(&self) -> Result<(), Failure> {
        match self.maps.iter().any(|m| GPU.iter().any(|name| m.name().starts_with(name))) {
            true => Ok(()),
            false => Err(Failure(format!(
                "process {} has loaded neither CUDA nor a PyTorch with it: there is nothing to record (yet)",
                self.pid
            ))),
        }
    }

    pub fn is_alive(&self) -> bool {
        proc::ticks(self.pid) == Some(self.started)
    }
}

/// Returns why no process of the same user can be reached on this machine; `None`: it can.
pub fn obstacle(root: bool) -> Option<String> {
    let scope = fs::read_to_string(PTRACE_SCOPE).ok()?;
    match scope.trim() {
        "3" => Some(format!("{PTRACE_SCOPE} is 3, which forbids tracing until the machine is restarted")),
        "1" | "2" if !root => Some(format!(
            "{PTRACE_SCOPE} is {}: attach as root (sudo leaktrace attach), or allow it (sudo sysctl kernel.yama.ptrace_scope=0)",
            scope.trim()
        )),
        _ => None,
    }
}

/// Returns the effective id of a line of `/proc/PID/status`.
fn id(status: &str, line: &str) -> Option<u32> {
    status.lines().find_map(|l| l.strip_prefix(line))?.split_whitespace().nth(1)?.parse().ok()
}

fn maps(text: &str) -> Vec<Mapping> {
    let mapping = |line: &str| {
        let mut fields = line.splitn(6, ' ');
        let start = u64::from_str_radix(fields.next()?.split('-').next()?, 16).ok()?;
        let offset = u64::from_str_radix(fields.nth(1)?, 16).ok()?;
        let path = fields.nth(2)?.trim_start().to_owned();
        path.starts_with('/').then_some(Mapping { start, offset, path })
    };
    text.lines().filter_map(mapping).collect()
}

/// Finds the interpreter: in its library, or in the program itself. `Err`: why there is none, as the end of a sentence.
fn python(maps: &[Mapping], exe: &Path) -> Result<(Addresses, Option<u32>), String> {
    let none = "is not a Python program: leaktrace attaches to Python programs only; others are recorded by leaktrace run";
    let is_exe = |m: &&Mapping| Path::new(m.path.trim_end_matches(" (deleted)")) == exe;
    let libraries = maps.iter().filter(|m| m.name().starts_with("libpython3"));
    let candidates: Vec<&Mapping> =
        libraries.chain(maps.iter().filter(is_exe)).filter(|m| m.offset == 0).collect();
    let mut found = None;
    for file in candidates {
        if file.path.ends_with(" (deleted)") {
            return Err(format!("runs {}, which was replaced since: restart it", file.path));
        }
        let Some(symbols) = Symbols::read(file) else { continue };
        if symbols.address("PyRun_SimpleString").is_some() {
            found = Some(symbols);
            break;
        }
    }
    let symbols = found.ok_or(none)?;
    let libc = maps
        .iter()
        .find(|m| m.offset == 0 && m.name().starts_with("libc.so.6") || m.name().starts_with("libc-2."));
    let libc = libc.and_then(Symbols::read);
    let mmap = libc.as_ref().and_then(|libc| libc.address("mmap")).ok_or("has no glibc in it")?;
    let of = |name: &str| symbols.address(name).ok_or_else(|| format!("runs a Python without {name}"));
    let addresses = Addresses {
        run: of("PyRun_SimpleString")?,
        add_pending_call: of("Py_AddPendingCall")?,
        save_thread: of("PyEval_SaveThread")?,
        fetch_error: of("PyErr_Fetch")?,
        restore_error: of("PyErr_Restore")?,
        mmap,
    };
    Ok((addresses, symbols.minor()))
}

/// The exported symbols of a mapped file.
struct Symbols {
    bytes: Vec<u8>,
    /// Where the file's first byte is mapped.
    start: u64,
}

impl Symbols {
    fn read(file: &Mapping) -> Option<Symbols> {
        Some(Symbols { bytes: fs::read(&file.path).ok()?, start: file.start })
    }

    fn symbol(&self, name: &str) -> Option<(ElfFile64<'_>, u64)> {
        let file = ElfFile64::parse(&*self.bytes).ok()?;
        let found = file
            .dynamic_symbols()
            .find(|s| s.is_definition() && s.name() == Ok(name))
            .map(|s| s.address())?;
        Some((file, found))
    }

    fn address(&self, name: &str) -> Option<u64> {
        let (file, address) = self.symbol(name)?;
        let loads =
            file.elf_program_headers().iter().filter(|h| h.p_type(file.endian()) == object::elf::PT_LOAD);
        let first = loads.map(|h| h.p_vaddr(file.endian())).min()? & !0xfff;
        Some(self.start.wrapping_sub(first).wrapping_add(address))
    }

    /// Reads `Py_Version`, which CPython 3.11 and later export.
    fn minor(&self) -> Option<u32> {
        let (file, address) = self.symbol("Py_Version")?;
        use object::ObjectSection;
        let data = file.sections().find_map(|s| s.data_range(address, 8).ok().flatten())?;
        let version = u64::from_le_bytes(data.try_into().ok()?);
        (version >> 24 & 0xff == 3).then_some((version >> 16 & 0xff) as u32)
    }
}
