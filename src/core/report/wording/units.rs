//! Figures, paths and words for people: sizes with their unit, grouped digits, shortened paths. Knows no finding.

use crate::format::printable::printable;
use crate::report::Location;
use crate::symbols;

const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "%"];
const PUNCTUATION: [char; 5] = [',', ';', '.', ':', ')'];

/// Returns bytes with one unit: `512 B`, `72.0 KiB`, `1.5 GiB`.
pub fn size(bytes: f64) -> String {
    let mut value = bytes;
    for unit in ["B", "KiB", "MiB", "GiB", "TiB"] {
        if value < 1024.0 || unit == "TiB" {
            return if unit == "B" && value.fract() == 0.0 {
                format!("{value:.0} B")
            } else {
                format!("{value:.1} {unit}")
            };
        }
        value /= 1024.0;
    }
    String::new()
}

/// Returns a number with its thousands apart: `282,112`.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Returns `512 B`, or `72.0 KiB (73,728 B)` where the unit rounds.
pub fn exact(bytes: f64) -> String {
    if bytes < 1024.0 {
        size(bytes)
    } else {
        format!("{} ({} B)", size(bytes), grouped(bytes.round() as u64))
    }
}

/// Returns `1 block`, `2 blocks`, `1.5 blocks`.
pub fn count(n: f64, noun: &str) -> String {
    let plural = if n == 1.0 { "" } else { "s" };
    let n = if n.fract() == 0.0 { grouped(n as u64) } else { format!("{n:.1}") };
    format!("{n} {noun}{plural}")
}

/// Returns `2026-11-23 00:51:07 UTC`; of no moment nothing is known. `seconds`: since 1970.
pub fn moment(seconds: f64) -> String {
    if !(seconds.is_finite() && seconds > 0.0) {
        return "at a time that is not known".to_owned();
    }
    let all = seconds as u64;
    let (days, rest) = (all / 86_400, all % 86_400);
    // Years that begin in March have their leap day last; eras of 400 years are all alike.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let year = era * 400 + year + u64::from(month <= 2);
    let (hours, minutes, seconds) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year}-{month:02}-{day:02} {hours:02}:{minutes:02}:{seconds:02} UTC")
}

/// Returns `1st`, `2nd`, `11th`.
pub fn ordinal(n: u64) -> String {
    let ending = match (n % 10, n % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{}{ending}", grouped(n))
}

/// Returns the path relative to the program's working directory where it lies below it.
pub fn relative_path<'p>(file: &'p str, cwd: &str) -> &'p str {
    let cwd = cwd.trim_end_matches('/');
    match file.strip_prefix(cwd).and_then(|rest| rest.strip_prefix('/')) {
        Some(rest) if !cwd.is_empty() && !rest.is_empty() => rest,
        _ => file,
    }
}

/// Returns the folder that paths are shown relative to: the working directory, or that of the script among a program's
/// arguments if it lies elsewhere.
pub fn base_folder<'p>(mut arguments: impl Iterator<Item = &'p str>, cwd: &'p str) -> &'p str {
    let script = arguments.find(|a| a.ends_with(".py"));
    let Some((folder, _)) = script.and_then(|script| script.rsplit_once('/')) else { return cwd };
    let inside = match folder.starts_with('/') {
        true => folder == cwd || relative_path(folder, cwd) != folder,
        false => folder.split('/').all(|part| part != ".."),
    };
    if inside { cwd } else { folder }
}

/// Returns `train.py:37`; of a notebook's cell `Cell[12] line 3`.
pub fn file_line(file: &str, line: u32, cwd: &str) -> String {
    match file.starts_with("Cell[") {
        true => format!("{file} line {line}"),
        false => format!("{}:{line}", relative_path(file, cwd)),
    }
}

/// Returns `train.py:37 cross_entropy_loss`.
pub fn location(location: Option<&Location>, cwd: &str) -> String {
    let Some(at) = location else { return "an unknown location (no stack was taken)".to_owned() };
    // Only a C++ function's name has parameters.
    let function = if at.function.contains('(') { symbols::plain(&at.function) } else { at.function.clone() };
    match at.line {
        Some(line) => format!("{} {function}", file_line(&at.file, line, cwd)),
        None => function,
    }
}

/// Escapes control characters: a program's own texts must not steer the terminal.
pub fn sanitize(text: &str) -> String {
    printable(text).into()
}

/// Returns the words that a line may be broken between; a number stays with its unit, an arrow with what it names.
pub fn words(text: &str) -> impl Iterator<Item = String> {
    let mut words = text.split_whitespace().peekable();
    std::iter::from_fn(move || {
        let first = words.next()?;
        if first == "<-" {
            return Some(words.by_ref().fold(first.to_owned(), |all, word| all + " " + word));
        }
        Some(match words.next_if(|next| UNITS.contains(&next.trim_end_matches(PUNCTUATION))) {
            Some(unit) => format!("{first} {unit}"),
            None => first.to_owned(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_the_calendar() {
        for (seconds, text) in [
            (1.0, "1970-01-01 00:00:01 UTC"),
            (951_782_400.0, "2000-02-29 00:00:00 UTC"),
            (1_795_999_999.5, "2026-11-30 00:53:19 UTC"),
            (1_709_251_199.0, "2024-02-29 23:59:59 UTC"),
        ] {
            assert_eq!(super::moment(seconds), text);
        }
        assert!(super::moment(0.0).contains("not known"));
    }

    #[test]
    fn figures_are_for_people() {
        let sizes = [0.0, 512.0, 1023.0, 73_728.0, 1.5 * 1024.0 * 1024.0, 80.0 * f64::from(1 << 30)];
        assert_eq!(sizes.map(size), ["0 B", "512 B", "1023 B", "72.0 KiB", "1.5 MiB", "80.0 GiB"]);
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(exact(282_112.0), "275.5 KiB (282,112 B)");
        assert_eq!([1, 2, 3, 11, 23].map(ordinal), ["1st", "2nd", "3rd", "11th", "23rd"]);
    }

    #[test]
    fn paths_are_relative_to_the_working_directory_or_the_script() {
        for (script, base) in [
            ("train.py", "/w"),
            ("runs/train.py", "/w"),
            ("/w/runs/train.py", "/w"),
            ("../train.py", ".."),
            ("/elsewhere/train.py", "/elsewhere"),
        ] {
            assert_eq!(base_folder(["-u", script, "/data/x"].into_iter(), "/w"), base, "{script}");
        }
        assert_eq!(base_folder(["-m", "train"].into_iter(), "/w"), "/w");
        assert_eq!(relative_path("../train.py", ".."), "train.py");
    }
}
