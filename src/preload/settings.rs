//! The environment: what may be set, and one clear line for what was set wrong.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use crate::shield::say;
use crate::shield::shown;
use crate::stacks::Stacks;
use leaktrace_core::steps::Setting;

/// All settings, with their defaults.
#[derive(Clone, Debug)]
pub struct Settings {
    pub on: bool,
    /// As given; see [`Settings::path`].
    pub out: OsString,
    pub step: Setting,
    /// The name in `range:NAME`.
    pub range: Option<String>,
    pub stacks: Stacks,
    /// Look for who holds what leaks.
    pub holders: bool,
    /// Steps between report dumps, if that was said.
    pub dump_every: Option<u32>,
    /// Keep every event in the file.
    pub all_events: bool,
    pub quiet: bool,
}

impl Settings {
    /// Reads the environment.
    pub fn read() -> Settings {
        Settings {
            on: choice("LEAKTRACE", "on or off", true, |v| match v {
                "on" | "1" => Some(true),
                "off" | "0" => Some(false),
                _ => None,
            }),
            out: out(),
            step: choice(
                "LEAKTRACE_STEP",
                "auto, optimizer, loop, backward, range:NAME, api or every:SECONDS",
                Setting::Auto,
                step,
            ),
            range: std::env::var("LEAKTRACE_STEP")
                .ok()
                .and_then(|v| v.strip_prefix("range:").map(Into::into)),
            stacks: choice(
                "LEAKTRACE_STACKS",
                "auto, python, native, mixed or off",
                Stacks::Auto,
                |v| match v {
                    "auto" => Some(Stacks::Auto),
                    "python" => Some(Stacks::Python),
                    "native" => Some(Stacks::Native),
                    "mixed" => Some(Stacks::Mixed),
                    "off" => Some(Stacks::Off),
                    _ => None,
                },
            ),
            holders: choice("LEAKTRACE_HOLDERS", "auto or off", true, |v| match v {
                "auto" => Some(true),
                "off" => Some(false),
                _ => None,
            }),
            dump_every: choice("LEAKTRACE_DUMP_EVERY", "a number of steps, at least 1", None, |v| {
                v.parse().ok().filter(|n| *n > 0).map(Some)
            }),
            all_events: choice("LEAKTRACE_EVENTS", "window or all", false, |v| match v {
                "window" => Some(false),
                "all" => Some(true),
                _ => None,
            }),
            quiet: std::env::var_os("LEAKTRACE_QUIET").is_some_and(|v| !v.is_empty() && v != "0"),
        }
    }

    /// The recording's path with `%p`, `%e`, `%h`, `%r` filled in.
    pub fn path(&self) -> PathBuf {
        let mut path = Vec::new();
        let mut bytes = self.out.as_bytes().iter();
        while let Some(&b) = bytes.next() {
            if b != b'%' {
                path.push(b);
                continue;
            }
            match bytes.next() {
                Some(b'p') => path.extend(std::process::id().to_string().bytes()),
                Some(b'e') => path.extend(program().as_bytes()),
                Some(b'h') => path.extend(host().bytes()),
                Some(b'r') => path.extend(rank().unwrap_or_else(|| "0".into()).bytes()),
                Some(b'%') => path.push(b'%'),
                Some(other) => path.extend([b'%', *other]),
                None => path.push(b'%'),
            }
        }
        PathBuf::from(OsString::from(std::ffi::OsStr::from_bytes(&path)))
    }
}

/// What may follow a `%`. Anything else stays as it is written.
const SIGNS: &[u8] = b"pehr%";

fn out() -> OsString {
    let Some(value) = std::env::var_os("LEAKTRACE_OUT").filter(|v| !v.is_empty()) else {
        return "leaktrace.%p.ltrace".into();
    };
    let mut bytes = value.as_bytes().iter();
    while bytes.any(|b| *b == b'%') {
        if !bytes.next().is_some_and(|sign| SIGNS.contains(sign)) {
            say(&format!(
                "LEAKTRACE_OUT={} is not understood: % takes one of %p %e %h %r %%; it is left as it stands",
                shown(&value)
            ));
            break;
        }
    }
    value
}

fn choice<T>(variable: &str, takes: &str, default: T, parse: impl Fn(&str) -> Option<T>) -> T {
    let Some(value) = std::env::var_os(variable).filter(|v| !v.is_empty()) else { return default };
    value.to_str().and_then(parse).unwrap_or_else(|| {
        say(&format!(
            "{variable}={} is not understood: it takes {takes}; the default is used",
            shown(&value)
        ));
        default
    })
}

fn step(value: &str) -> Option<Setting> {
    Some(match value {
        "auto" => Setting::Auto,
        "optimizer" => Setting::Optimizer,
        "loop" => Setting::Loop,
        "backward" => Setting::Backward,
        "api" => Setting::Api,
        _ if value.strip_prefix("range:").is_some_and(|name| !name.is_empty()) => Setting::Range,
        _ => {
            let seconds: f64 = value.strip_prefix("every:")?.parse().ok()?;
            Setting::Every(
                Duration::try_from_secs_f64(seconds).ok().filter(|d| *d >= Duration::from_millis(1))?,
            )
        }
    })
}

/// The program's file name.
fn program() -> OsString {
    std::env::current_exe()
        .ok()
        .and_then(|p| p.file_name().map(Into::into))
        .unwrap_or_else(|| "unknown".into())
}

/// This machine's name.
pub fn host() -> String {
    let mut name = [0u8; 256];
    // SAFETY: a buffer of that length; the last byte stays NUL.
    unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    String::from_utf8_lossy(name.split(|b| *b == 0).next().unwrap_or_default()).into_owned()
}

/// The rank that a launcher gave this process.
pub fn rank() -> Option<String> {
    ["RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"]
        .iter()
        .find_map(|v| std::env::var(v).ok())
        .filter(|v| !v.is_empty() && v.bytes().all(|b| b.is_ascii_digit()))
}
