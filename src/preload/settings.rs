//! The settings, which come from the environment, or from who attaches, with one clear line for each that was set wrong. It knows
//! no more of what they mean than their names.

use std::ffi::{OsString, c_char};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicPtr, Ordering::*};

use once_cell::race::OnceBox;

use crate::stacks::Stacks;
use crate::stderr::{quoted, say};
use leaktrace_core::settings::{Choice, EVENTS, HOLDERS, STACKS, SWITCH};
use leaktrace_core::steps::StepSetting;

/// The settings of this process image. A forked child has them from its parent: when it changes its
/// environment, it is too late anyway.
static SETTINGS: OnceBox<Settings> = OnceBox::new();
/// Those that were handed over by attaching; null: there are none.
static HANDED_OVER: AtomicPtr<Settings> = AtomicPtr::new(std::ptr::null_mut());

/// Returns the settings of this process, which are read on first use.
#[inline]
pub fn get() -> &'static Settings {
    // SAFETY: null, or what `hand_over` leaked.
    match unsafe { HANDED_OVER.load(Acquire).as_ref() } {
        Some(settings) => settings,
        None => SETTINGS.get_or_init(|| Box::new(Settings::read(variable))),
    }
}

/// What of the environment is ours.
const OURS: &[u8] = b"LEAKTRACE";
/// Our variables as the program began with them.
static AT_START: OnceBox<Vec<(OsString, OsString)>> = OnceBox::new();

/// Keeps our variables: the program may clear its environment before the first call that is recorded. Called by the constructor.
pub fn note_environment() {
    unsafe extern "C" {
        static environ: *const *const c_char;
    }
    let begins_like_ours = |text: *const c_char| {
        // SAFETY: a string of the environment; the first byte that differs ends it.
        (0..).zip(OURS).all(|(i, byte)| unsafe { *text.add(i) } as u8 == *byte)
    };
    // SAFETY: no other thread runs yet; the list ends with a null pointer.
    let is_there = unsafe {
        let mut at = environ;
        while !at.is_null() && !(*at).is_null() && !begins_like_ours(*at) {
            at = at.add(1);
        }
        !at.is_null() && !(*at).is_null()
    };
    if is_there {
        let is_ours = |(name, _): &(OsString, OsString)| name.as_bytes().starts_with(OURS);
        AT_START.get_or_init(|| Box::new(std::env::vars_os().filter(is_ours).collect()));
    }
}

/// Returns the value of a variable: what the program set it to, or else what it began with.
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).or_else(|| {
        let all = AT_START.get()?;
        all.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    })
}

/// Has these settings hold in place of the environment's, which is the program's own: a line for each, as `NAME=value`
/// by the names of the variables.
pub fn hand_over(lines: &[u8]) {
    let value = |variable: &str| {
        let of =
            |line: &&[u8]| line.strip_prefix(variable.as_bytes())?.strip_prefix(b"=").map(<[u8]>::to_vec);
        lines.split(|b| *b == b'\n').find_map(|line| of(&line)).map(OsString::from_vec)
    };
    // Never freed: a thread may be reading those from before.
    HANDED_OVER.store(Box::into_raw(Box::new(Settings::read(value))), Release);
}

/// All settings, with their defaults.
#[derive(Clone, Debug)]
pub struct Settings {
    pub on: bool,
    /// The pattern of the recording's path, as it was given.
    pub out: OsString,
    pub step: StepSetting,
    /// The name in `LEAKTRACE_STEP=range:NAME`.
    pub range: Option<String>,
    pub stacks: Stacks,
    /// Search for who holds what leaks.
    pub holders: bool,
    /// The steps between report dumps, if they were set.
    pub dump_every: Option<u32>,
    /// Keep every event in the file, not only those since the last checkpoint.
    pub all_events: bool,
    pub quiet: bool,
}

impl Settings {
    /// Reads all, by `set`. A wrong value is said on stderr, and the default taken.
    fn read(set: impl Fn(&str) -> Option<OsString>) -> Settings {
        let set = |variable: &str| set(variable).filter(|value| !value.is_empty());
        Settings {
            on: word(&set, SWITCH, true, |v| match v {
                "on" | "1" => Some(true),
                "off" | "0" => Some(false),
                _ => None,
            }),
            out: out(set("LEAKTRACE_OUT")),
            step: choice(&set, "LEAKTRACE_STEP", StepSetting::VALUES, StepSetting::Auto, |v| v.parse().ok()),
            range: set("LEAKTRACE_STEP")
                .and_then(|v| v.to_str().and_then(|v| v.strip_prefix("range:")).map(Into::into)),
            stacks: word(&set, STACKS, Stacks::Auto, |v| match v {
                "auto" => Some(Stacks::Auto),
                "python" => Some(Stacks::Python),
                "native" => Some(Stacks::Native),
                "mixed" => Some(Stacks::Mixed),
                "off" => Some(Stacks::Off),
                _ => None,
            }),
            holders: word(&set, HOLDERS, true, |v| match v {
                "auto" => Some(true),
                "off" => Some(false),
                _ => None,
            }),
            dump_every: choice(&set, "LEAKTRACE_DUMP_EVERY", "a number of steps, at least 1", None, |v| {
                v.parse().ok().filter(|n| *n > 0).map(Some)
            }),
            all_events: word(&set, EVENTS, false, |v| match v {
                "window" => Some(false),
                "all" => Some(true),
                _ => None,
            }),
            quiet: set("LEAKTRACE_QUIET").is_some_and(|v| v != "0"),
        }
    }

    /// Returns the recording's path, with `%p`, `%e`, `%h`, `%r` filled in.
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

/// By this `leaktrace run` names the run that it starts.
const LEAKTRACE_RUN: &str = "LEAKTRACE_RUN";

/// The letters that mean something behind a `%`. Anything else stays as it is written.
const PLACEHOLDERS: &[u8] = b"pehr%";

fn out(value: Option<OsString>) -> OsString {
    let Some(value) = value else { return "leaktrace.%p.ltrace".into() };
    let mut bytes = value.as_bytes().iter();
    while bytes.any(|b| *b == b'%') {
        if !bytes.next().is_some_and(|sign| PLACEHOLDERS.contains(sign)) {
            say(&format!(
                "LEAKTRACE_OUT={} is not understood: % takes one of %p %e %h %r %%; it is left as it stands",
                quoted(&value)
            ));
            break;
        }
    }
    value
}

/// What a variable is set to, if it is.
type Set<'s> = &'s dyn Fn(&str) -> Option<OsString>;

fn word<T>(set: Set, of: Choice, default: T, parse: impl Fn(&str) -> Option<T>) -> T {
    choice(set, of.variable, &of.takes(), default, parse)
}

fn choice<T>(set: Set, variable: &str, takes: &str, default: T, parse: impl Fn(&str) -> Option<T>) -> T {
    let Some(value) = set(variable) else { return default };
    value.to_str().and_then(parse).unwrap_or_else(|| {
        say(&format!(
            "{variable}={} is not understood: it takes {takes}; the default is used",
            quoted(&value)
        ));
        default
    })
}

/// Returns the program's file name.
fn program() -> OsString {
    std::env::current_exe()
        .ok()
        .and_then(|p| p.file_name().map(Into::into))
        .unwrap_or_else(|| "unknown".into())
}

/// Returns this machine's name.
pub fn host() -> String {
    let mut name = [0u8; 256];
    // SAFETY: a buffer of that length; the last byte stays NUL.
    unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    String::from_utf8_lossy(name.split(|b| *b == 0).next().unwrap_or_default()).into_owned()
}

/// Returns the run that this process belongs to: of those who start one, the innermost that gave it a name.
pub fn run() -> Option<String> {
    let named = |v: &&str| variable(v)?.into_string().ok().filter(|id| !id.is_empty() && id != "none");
    let launchers = [
        "TORCHELASTIC_RUN_ID",
        "PMIX_NAMESPACE",
        "OMPI_MCA_ess_base_jobid",
        "SLURM_JOB_ID",
        "PBS_JOBID",
        "LSB_JOBID",
    ];
    [LEAKTRACE_RUN].iter().chain(&launchers).find_map(|v| Some(format!("{v}={}", named(v)?)))
}

/// Returns the rank that a launcher gave this process.
pub fn rank() -> Option<String> {
    ["RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"]
        .iter()
        .find_map(|v| std::env::var(v).ok())
        .filter(|v| !v.is_empty() && v.bytes().all(|b| b.is_ascii_digit()))
}
