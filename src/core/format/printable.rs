//! What a program names, as text that is safe to print: nothing in it steers a terminal, turns the order of the
//! letters around, ends a line, or is a command to whoever reads a log.

use std::borrow::Cow;

/// Returns whether a character changes how others are shown, and shows nothing itself.
fn is_control(c: char) -> bool {
    // Marks of direction, separators of lines and paragraphs, the byte order mark.
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// Returns the text with its control characters escaped, as `\n` and `\u{1b}`; a tab is a space. So are the
/// commands of CI services that may stand anywhere in a line: `##[error]`, `##vso[task.complete]`.
pub fn printable(text: &str) -> Cow<'_, str> {
    printable_but(text, &[])
}

/// Returns the text with its control characters escaped but for these.
pub fn printable_but<'t>(text: &'t str, kept: &[char]) -> Cow<'t, str> {
    let is_kept = |c: &char| !is_control(*c) || kept.contains(c);
    if text.chars().all(|c| is_kept(&c)) {
        return no_inner_command(Cow::Borrowed(text));
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            c if is_kept(&c) => escaped.push(c),
            '\t' => escaped.push(' '),
            c => escaped.extend(c.escape_default()),
        }
    }
    no_inner_command(Cow::Owned(escaped))
}

/// Returns a line of output that is no command of a CI service: GitHub's begin with `::`.
pub fn no_command(line: &str) -> Cow<'_, str> {
    let mut line = Cow::Borrowed(line);
    let begin = line.len() - line.trim_start().len();
    if line[begin..].starts_with("::") {
        line.to_mut().insert(begin, '\\');
    }
    no_inner_command(line)
}

fn no_inner_command(mut line: Cow<'_, str>) -> Cow<'_, str> {
    let mut from = 0;
    while let Some(at) = line[from..].find("##").map(|at| from + at + 1) {
        let rest = line[at + 1..].trim_start_matches(|c: char| c.is_ascii_alphanumeric());
        if rest.starts_with('[') {
            line.to_mut().insert(at, '\\');
        }
        from = at;
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_seen() {
        assert_eq!(printable("größe 漢 ok"), "größe 漢 ok");
        assert_eq!(
            printable("a\nb\r\x1b]0;x\x07\u{9b}31m\tc\x7f\0"),
            "a\\nb\\r\\u{1b}]0;x\\u{7}\\u{9b}31m c\\u{7f}\\u{0}"
        );
        assert_eq!(printable("\u{202e}gnp.exe\u{2028}\u{feff}"), "\\u{202e}gnp.exe\\u{2028}\\u{feff}");
        assert_eq!(printable_but("a\0b\nc", &['\0']), "a\0b\\nc");
    }

    #[test]
    fn a_line_is_no_command() {
        for (line, wanted) in [
            ("std::vector a::b", "std::vector a::b"),
            ("::error::x", "\\::error::x"),
            ("   ::error::x", "   \\::error::x"),
            ("x ##[error]y", "x #\\#[error]y"),
            ("##vso[task.complete]", "#\\#vso[task.complete]"),
            ("###[a", "##\\#[a"),
            ("a ## b [c]", "a ## b [c]"),
            ("", ""),
        ] {
            assert_eq!(no_command(line), wanted);
        }
    }
}
