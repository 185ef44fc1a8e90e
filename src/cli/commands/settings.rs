//! The settings of a traced program, checked before it starts: a wrong value is one line and no run. The tables of what
//! each takes are the core's.

use std::env;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::Failure;
use super::doctor::{self, Check};
use super::similar::did_you_mean;
use leaktrace_core::settings::CHOICES;
use leaktrace_core::steps::StepSetting;

/// Accepts a step source that the library will understand.
pub fn step(value: &str) -> Result<String, String> {
    let words = StepSetting::VALUES.split([',', ' ']).filter(|word| !matches!(*word, "" | "or"));
    let words = words.map(|word| word.split(':').next().unwrap_or(word));
    let written = value.split(':').next().unwrap_or(value);
    value
        .parse::<StepSetting>()
        .map(|_| value.to_owned())
        .map_err(|takes| format!("{takes}{}", did_you_mean(written, words)))
}

/// Refuses what the environment sets wrong.
pub fn refuse_wrong() -> Result<(), Failure> {
    let wrong = |variable: &str, value: &str, takes: &str| {
        Err(Failure(format!("{variable}={value} is not understood: it takes {takes}")))
    };
    let set = |variable: &str| env::var_os(variable).filter(|value| !value.is_empty());
    for choice in CHOICES {
        let Some(value) = set(choice.variable) else { continue };
        let value = value.to_string_lossy();
        if !choice.words.contains(&&*value) {
            let meant = did_you_mean(&value, choice.words.iter().copied());
            return wrong(choice.variable, &value, &format!("{}{meant}", choice.takes()));
        }
    }
    if let Some(value) = set("LEAKTRACE_STEP") {
        let value = value.to_string_lossy();
        if let Err(takes) = step(&value) {
            return wrong("LEAKTRACE_STEP", &value, takes.trim_start_matches("it takes "));
        }
    }
    if let Some(value) = set("LEAKTRACE_DUMP_EVERY") {
        let value = value.to_string_lossy();
        if !value.parse::<u32>().is_ok_and(|n| n > 0) {
            return wrong("LEAKTRACE_DUMP_EVERY", &value, "a number of steps, at least 1");
        }
    }
    Ok(())
}

/// Refuses a path that no recording can be written to. `pattern`: absolute, with its placeholders.
pub fn check_out(pattern: &Path) -> Result<(), Failure> {
    if let Some(sign) = unknown_placeholder(pattern.as_os_str()) {
        let sign = char::from(sign);
        return Err(Failure(format!(
            "{}: %{sign} is not understood: % takes one of %p %e %h %r %%",
            pattern.display()
        )));
    }
    match doctor::writable(pattern) {
        Check::Bad(why, remedy) => Err(Failure(format!("{why}: {remedy}"))),
        _ => Ok(()),
    }
}

/// Returns the first sign behind a `%` that means nothing there.
fn unknown_placeholder(pattern: &OsStr) -> Option<u8> {
    let mut bytes = pattern.as_bytes().iter();
    while bytes.any(|b| *b == b'%') {
        match bytes.next() {
            Some(b'p' | b'e' | b'h' | b'r' | b'%') => {}
            other => return Some(other.copied().unwrap_or(b'%')),
        }
    }
    None
}
