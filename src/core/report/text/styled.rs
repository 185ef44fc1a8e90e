//! Styled text that fits a width: lines of spans, broken at spaces. Knows no report and no terminal.

use std::borrow::Cow;
use std::fmt;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::format::printable::{no_command, printable};
use crate::report::wording::words;

/// The narrowest width that text is laid out for.
const NARROWEST: usize = 40;
/// The widest: the eye loses the line in longer ones.
const WIDEST: usize = 120;

/// What a span of text means, for whoever colours it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Plain,
    Bold,
    Dim,
    Good,
    Bad,
    Warning,
    Accent,
}

/// A run of text in one style.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    pub style: Style,
    pub text: String,
}

/// Lines of styled text; `Display` writes them without their styles.
#[derive(Clone, Debug)]
pub struct Text {
    lines: Vec<Vec<Span>>,
    width: usize,
}

impl Text {
    pub fn new(width: usize) -> Text {
        Text { lines: Vec::new(), width: width.clamp(NARROWEST, WIDEST) }
    }

    /// Returns the columns that lines may take.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns the lines written so far.
    pub fn lines(&self) -> &[Vec<Span>] {
        &self.lines
    }

    /// Appends one line of spans as they are.
    pub fn line(&mut self, spans: &[(Style, &str)]) {
        self.push(spans.iter().map(|&(style, text)| Span { style, text: text.to_owned() }).collect());
    }

    /// Appends an empty line, but never two in a row and none at the top.
    pub fn gap(&mut self) {
        if self.lines.last().is_some_and(|last| !last.is_empty()) {
            self.lines.push(Vec::new());
        }
    }

    /// Takes the empty line at the end back.
    pub fn ungap(&mut self) {
        self.lines.pop_if(|last| last.is_empty());
    }

    /// Appends spans with a space between them, broken into lines that begin with `lead`, later ones with `indent` spaces.
    /// A word longer than a line stays whole: nobody could copy a broken path.
    pub fn wrap(&mut self, lead: &str, indent: usize, spans: &[(Style, &str)]) {
        self.marked((Style::Plain, lead), indent, spans);
    }

    /// Appends spans as [`Text::wrap`] does, behind a styled lead.
    pub fn marked(&mut self, (style, lead): (Style, &str), indent: usize, spans: &[(Style, &str)]) {
        let mut line = vec![Span { style, text: lead.to_owned() }];
        let (mut column, mut fresh) = (lead.width(), true);
        for &(style, text) in spans {
            // What stands in one style on one line is one span.
            let mut run = String::new();
            for word in words(text) {
                if !fresh && column + 1 + word.width() > self.width {
                    line.push(Span { style, text: std::mem::take(&mut run) });
                    self.push(std::mem::take(&mut line));
                    line.push(Span { style: Style::Plain, text: " ".repeat(indent) });
                    (column, fresh) = (indent, true);
                }
                if !fresh {
                    column += 1;
                    match run.is_empty() {
                        true => line.push(Span { style: Style::Plain, text: " ".to_owned() }),
                        false => run.push(' '),
                    }
                }
                column += word.width();
                run.push_str(&word);
                fresh = false;
            }
            line.push(Span { style, text: run });
        }
        self.push(line);
    }

    /// Appends a line without the spaces at its end. Whatever it says, it steers no terminal and is no command
    /// to who reads the log.
    fn push(&mut self, mut line: Vec<Span>) {
        for span in &mut line {
            if let Cow::Owned(text) = printable(&span.text) {
                span.text = text;
            }
        }
        let whole: String = line.iter().map(|span| span.text.as_str()).collect();
        if let Cow::Owned(text) = no_command(&whole) {
            // Rare, and then it is not worth its colours.
            line = vec![Span { style: Style::Plain, text }];
        }
        while let Some(last) = line.last_mut() {
            last.text.truncate(last.text.trim_end_matches(' ').len());
            if !last.text.is_empty() {
                break;
            }
            line.pop();
        }
        line.retain(|span| !span.text.is_empty());
        self.lines.push(line);
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.lines {
            line.iter().try_for_each(|span| f.write_str(&span.text))?;
            f.write_str("\n")?;
        }
        Ok(())
    }
}

/// Cuts a text to so many columns, with `…` where something is missing.
pub fn fitted(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let mut taken = 0;
    let fits = |c: &char| {
        taken += c.width().unwrap_or(0);
        taken < columns
    };
    text.chars().take_while(fits).chain(['…']).collect()
}

/// Draws values as a row of bars, from zero to the largest.
pub fn sparkline(values: &[u64], columns: usize) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let columns = columns.min(values.len()).max(1);
    let top = values.iter().copied().max().unwrap_or(0).max(1);
    let column = |i: usize| {
        // The largest of those that share a column: a peak must not get lost.
        let (from, to) = (i * values.len() / columns, ((i + 1) * values.len() / columns).max(1));
        values.get(from..to).and_then(|part| part.iter().max()).copied().unwrap_or(0)
    };
    let bar = |value: u64| BARS[(value as f64 / top as f64 * 7.0).round() as usize];
    (0..columns).map(|i| bar(column(i))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_letters_are_counted_as_they_are_seen() {
        let said = "損失 損失 損失 損失 損失 損失 損失 損失 損失 損失 損失 損失 損失 損失 損失 損失";
        let mut text = Text::new(40);
        text.wrap(
            "  ",
            4,
            &[(Style::Bold, said), (Style::Plain, "and 12.5 KiB (3 MiB) more of it, twice over")],
        );
        let plain = text.to_string();
        assert!(plain.lines().count() > 3 && plain.lines().all(|l| l.width() <= 40), "{plain}");
        assert!(plain.contains("12.5 KiB"), "a number stays with its unit: {plain}");
        let mut text = Text::new(900);
        let sentence = "memory that nobody frees ".repeat(40);
        text.wrap("", 2, &[(Style::Plain, &sentence), (Style::Bad, "<- waiting for garbage collection 1")]);
        let plain = text.to_string();
        assert!(plain.lines().all(|l| l.width() <= WIDEST), "{plain}");
        assert!(
            plain.contains("<- waiting for garbage collection 1"),
            "an arrow stays with its name: {plain}"
        );
        assert_eq!((fitted("損失損失", 5), fitted("abc", 3)), ("損失…".to_owned(), "abc".to_owned()));
    }

    #[test]
    fn a_curve_rises_from_zero_to_the_largest() {
        let rising: Vec<u64> = (0..8).map(|n| n * 10).collect();
        assert_eq!(sparkline(&rising, 8), "▁▂▃▄▅▆▇█");
        assert_eq!(sparkline(&[0, 9, 0], 48), "▁█▁");
        assert_eq!(sparkline(&[0, 0], 48), "▁▁");
        assert_eq!(sparkline(&[], 48), "▁");
        // A spike between two columns is seen.
        let mut spike = vec![1u64; 100];
        spike[41] = 1000;
        assert!(sparkline(&spike, 10).contains('█'));
        assert_eq!(sparkline(&[u64::MAX, u64::MAX], 2), "██");
    }
}
