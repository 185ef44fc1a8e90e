//! What `leaktrace doctor` asks of a Python interpreter: its version, and the frameworks that are installed for it. None of
//! them is imported.

use std::fs;
use std::path::Path;
use std::process::Command;

use object::{Object, ObjectSymbol};

use super::{Check, first_line, probe};
use crate::commands::locate;
use leaktrace_core::cpython::{self, UNSEEN};
use leaktrace_core::frameworks::{ARENAS, PYTORCH_VERSIONS};

/// Symbols that PyTorch must export: where it reports blocks, and where a backward pass begins.
const SYMBOLS: [(&str, &str, &str); 2] = [
    ("libc10.so", "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE", "blocks"),
    ("libtorch_cpu.so", "_ZN5torch8autograd6Engine7executeE", "backward passes"),
];
/// The library that has TensorFlow's pool, and what it must export.
const TENSORFLOW: (&str, &str) =
    ("libtensorflow_framework.so.2", "_ZN3tsl12BFCAllocator11AllocateRawEmmRKNS_20AllocationAttributesE");
/// A script that prints facts about the interpreter, and about PyTorch, JAX, TensorFlow and the packages that are its
/// arguments, none of which it imports.
const PROBE: &str = "\
import sys, sysconfig, importlib.util as u, os
print('version', sys.version.split()[0])
print('implementation', sys.implementation.name)
print('debug', int(hasattr(sys, 'gettotalrefcount')))
print('threaded', int(bool(sysconfig.get_config_var('Py_GIL_DISABLED'))))
print('preloaded', int(any('libleaktrace' in l for l in open('/proc/self/maps', errors='replace'))))
try:
    spec = u.find_spec('torch')
except (ImportError, ValueError):
    spec = None
if spec and spec.origin:
    print('torch', os.path.dirname(spec.origin))
    try:
        from importlib.metadata import version
        print('torch_version', version('torch'))
    except Exception:
        pass
    try:
        with open(os.path.join(os.path.dirname(spec.origin), 'version.py')) as f:
            print('torch_cuda', next(l for l in f if l.startswith('cuda')).split(\"'\")[1])
    except Exception:
        pass
try:
    from importlib.metadata import version
    print('jax_version', version('jax'))
except Exception:
    pass
try:
    spec = u.find_spec('tensorflow')
except (ImportError, ValueError):
    spec = None
if spec and spec.origin:
    print('tensorflow', os.path.dirname(spec.origin))
for name in sys.argv[1:]:
    try:
        if u.find_spec(name):
            print('has', name)
    except (ImportError, ValueError):
        pass
try:
    import ctypes
    driver = ctypes.c_int()
    if ctypes.CDLL('libcuda.so.1').cuDriverGetVersion(ctypes.byref(driver)) == 0:
        print('driver', driver.value)
except Exception:
    pass
";

/// Checks the interpreter and its PyTorch.
pub fn check(binary: &Path, library: &Path, checks: &mut Vec<(&'static str, Check)>) {
    let mut command = Command::new(binary);
    command.args(["-c", PROBE]).args(ARENAS.iter().map(|arena| arena.package));
    command.env("LD_PRELOAD", locate::preload(library)).env("LEAKTRACE_QUIET", "1");
    let out = match probe(&mut command) {
        Ok(out) if out.status.success() => out,
        Ok(out) => {
            let message = first_line(&out.stderr);
            checks.push((
                "python",
                Check::Bad(format!("it does not start: {message}"), "repair the interpreter first".into()),
            ));
            return;
        }
        Err(why) => {
            checks.push(("python", Check::Bad(why, "start it by hand".into())));
            return;
        }
    };
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let value = |key: &str| {
        text.lines()
            .find_map(|l| l.strip_prefix(key)?.strip_prefix(' '))
            .map(str::to_owned)
            .unwrap_or_default()
    };
    checks.push((
        "preload",
        match value("preloaded") == "1" {
            true => Check::Good("the interpreter has loaded the library".into()),
            false => Check::Bad(
                format!("the interpreter has not loaded the library {}", first_line(&out.stderr)),
                "is it a wrapper that clears LD_PRELOAD, or setuid?".into(),
            ),
        },
    ));
    checks.push((
        "python",
        layout(&value("implementation"), &value("version"), value("debug") == "1", value("threaded") == "1"),
    ));
    let (torch, jax, tensorflow) = (value("torch"), value("jax_version"), value("tensorflow"));
    if !torch.is_empty() || jax.is_empty() && tensorflow.is_empty() {
        checks.push(("pytorch", pytorch(&torch, &value("torch_version"))));
    }
    if !jax.is_empty() {
        let seen = "its arrays are seen on every device that a plugin of XLA's brings, as for GPUs";
        checks.push(("jax", Check::Good(format!("JAX {jax}: {seen}"))));
    }
    if !tensorflow.is_empty() {
        checks.push(("tensorflow", self::tensorflow(&tensorflow)));
    }
    for arena in
        ARENAS.iter().filter(|arena| text.lines().any(|l| l.strip_prefix("has ") == Some(arena.package)))
    {
        let seen =
            "what it takes from the driver is seen, by the lines that made it grow; what lies in it is not";
        checks.push(("frameworks", Check::Good(format!("{}: {seen}", arena.name))));
    }
    checks.extend(versions(&value("driver"), &value("torch_cuda")).map(|check| ("versions", check)));
}

/// Checks that the driver is not too old for the CUDA that PyTorch was built with: any driver of the same major
/// version will do, or of a later one.
fn versions(driver: &str, wanted: &str) -> Option<Check> {
    let driver: u32 = driver.parse().ok()?;
    let major: u32 = wanted.split('.').next()?.parse().ok()?;
    let both =
        format!("the driver is of CUDA {}.{}, PyTorch of CUDA {wanted}", driver / 1000, driver % 1000 / 10);
    Some(match driver / 1000 < major {
        true => Check::Bad(
            format!("{both}: it will say that the driver is too old, and find no GPU"),
            format!("update the driver, or install a PyTorch for CUDA {}", driver / 1000),
        ),
        false => Check::Good(both),
    })
}

/// Checks whether the interpreter's frames can be read.
fn layout(implementation: &str, version: &str, debug: bool, threaded: bool) -> Check {
    let remedy = || format!("{UNSEEN}; they need CPython {}", cpython::versions());
    let minor: Option<u32> = version.strip_prefix("3.").and_then(|v| v.split('.').next()?.parse().ok());
    let name = format!("{implementation} {version}");
    match minor {
        _ if implementation != "cpython" => {
            Check::Warning(format!("{name}: its frames cannot be read"), remedy())
        }
        _ if debug => Check::Warning(format!("{name}, a debug build: its frames cannot be read"), remedy()),
        Some(minor) if threaded && cpython::FREE_THREADED.contains(&minor) => Check::Warning(
            format!("CPython {version}, free-threaded: its frames can be read, its objects cannot"),
            "holders are not searched for; they need a build with the GIL".into(),
        ),
        Some(minor) if !threaded && cpython::VERSIONS.contains(&minor) => {
            Check::Good(format!("CPython {version}, its frames can be read"))
        }
        _ => Check::Warning(format!("CPython {version}: its frames cannot be read"), remedy()),
    }
}

/// Checks whether PyTorch's blocks and backward passes can be seen.
fn pytorch(folder: &str, version: &str) -> Check {
    if folder.is_empty() {
        return Check::Warning(
            "none of PyTorch, JAX and TensorFlow is installed for this interpreter".into(),
            "only memory allocated from the driver is seen, and steps from loops, LEAKTRACE_STEP or leaktrace_step".into(),
        );
    }
    let libraries = Path::new(folder).join("lib");
    if libraries.join("libtorch_hip.so").exists() {
        return Check::Warning(
            format!("PyTorch {version} is built for ROCm: calls of AMD's driver are not seen"),
            "only blocks of PyTorch's allocator may be seen; this was never tried on an AMD GPU".into(),
        );
    }
    if !libraries.join("libtorch_cuda.so").exists() {
        return Check::Warning(
            format!("PyTorch {version} is built without CUDA"),
            "install a CUDA build: this one never uses the GPU".into(),
        );
    }
    let missing: Vec<&str> = SYMBOLS
        .iter()
        .filter(|(file, symbol, _)| !exports(&libraries.join(file), symbol))
        .map(|(_, _, what)| *what)
        .collect();
    match missing.is_empty() {
        true if is_newer(version) => Check::Warning(
            format!("PyTorch {version} is newer than what was tried; its reporting symbols are found"),
            format!(
                "reports were tested with PyTorch 2.{} to 2.{}",
                PYTORCH_VERSIONS.start(),
                PYTORCH_VERSIONS.end()
            ),
        ),
        true => Check::Good(format!("PyTorch {version}, its reporting symbols are found")),
        false => Check::Warning(
            format!("PyTorch {version}: the symbols that report {} are missing", missing.join(" and ")),
            "use a wheel of PyTorch 2.0 or later; otherwise only the driver's memory is seen".into(),
        ),
    }
}

/// Returns true if a version of PyTorch is beyond those that reports were tested with.
fn is_newer(version: &str) -> bool {
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    (numbers.next(), numbers.next()) > (Some(2), Some(*PYTORCH_VERSIONS.end()))
}

/// Checks whether the blocks of TensorFlow's pool can be seen.
fn tensorflow(folder: &str) -> Check {
    let library = Path::new(folder).join(TENSORFLOW.0);
    match exports(&library, TENSORFLOW.1) {
        true => Check::Good("TensorFlow, the functions of its pool are found".into()),
        false => Check::Warning(
            "TensorFlow: the functions of its pool are not exported".into(),
            "use a wheel of TensorFlow 2.16 to 2.21; otherwise only the driver's memory is seen".into(),
        ),
    }
}

/// Returns true if a library exports a symbol with this prefix.
fn exports(library: &Path, symbol: &str) -> bool {
    let Ok(bytes) = fs::read(library) else { return false };
    let Ok(file) = object::File::parse(&*bytes) else { return false };
    file.dynamic_symbols().any(|s| s.is_definition() && s.name().is_ok_and(|name| name.starts_with(symbol)))
}
