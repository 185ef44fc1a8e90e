//! What `leaktrace doctor` asks of a Python interpreter: its version, and which packages are installed for it. None of them
//! is imported.

use std::path::Path;
use std::process::Command;

use super::{Check, first_line, frameworks, probe};
use crate::commands::locate;
use leaktrace_core::cpython::{self, UNSEEN};
use leaktrace_core::frameworks::ALL;

/// A script that prints facts about the interpreter, and of each package that is an argument its version and its folder. None
/// of them is imported.
const PROBE: &str = "\
import sys, sysconfig, importlib.util as u, os
print('version', sys.version.split()[0])
print('implementation', sys.implementation.name)
print('debug', int(hasattr(sys, 'gettotalrefcount')))
print('threaded', int(bool(sysconfig.get_config_var('Py_GIL_DISABLED'))))
print('preloaded', int(any('libleaktrace' in l for l in open('/proc/self/maps', errors='replace'))))
for name in sys.argv[1:]:
    try:
        spec = u.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if not (spec and spec.origin):
        continue
    folder = os.path.dirname(spec.origin)
    try:
        from importlib.metadata import version
        number = version(name)
    except Exception:
        number = ''
    print('package', name, number or '-', folder)
    try:
        with open(os.path.join(folder, 'version.py')) as f:
            print(name + '_cuda', next(l for l in f if l.startswith('cuda')).split(\"'\")[1])
    except Exception:
        pass
try:
    import ctypes
    driver = ctypes.c_int()
    if ctypes.CDLL('libcuda.so.1').cuDriverGetVersion(ctypes.byref(driver)) == 0:
        print('driver', driver.value)
except Exception:
    pass
";

/// Checks the interpreter and its frameworks.
pub fn check(binary: &Path, library: &Path, checks: &mut Vec<(&'static str, Check)>) {
    let mut command = Command::new(binary);
    command.args(["-c", PROBE]).args(frameworks::packages());
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
    checks.extend(frameworks::checks(&text));
    let cuda = ALL
        .iter()
        .find_map(|f| Some((f.name, value(&format!("{}_cuda", f.package())))).filter(|(_, v)| !v.is_empty()));
    checks.extend(
        cuda.and_then(|(name, cuda)| versions(&value("driver"), name, &cuda))
            .map(|check| ("versions", check)),
    );
}

/// Checks that the driver is not too old for the CUDA that a framework was built with: any driver of the same major
/// version will do, or of a later one.
fn versions(driver: &str, name: &str, wanted: &str) -> Option<Check> {
    let driver: u32 = driver.parse().ok()?;
    let major: u32 = wanted.split('.').next()?.parse().ok()?;
    let both =
        format!("the driver is of CUDA {}.{}, {name} of CUDA {wanted}", driver / 1000, driver % 1000 / 10);
    Some(match driver / 1000 < major {
        true => Check::Bad(
            format!("{both}: it will say that the driver is too old, and find no GPU"),
            format!("update the driver, or install a {name} for CUDA {}", driver / 1000),
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
