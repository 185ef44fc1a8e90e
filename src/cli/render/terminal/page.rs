//! Lines that fit a width: styled words, broken at spaces. Knows no report.

use std::fmt::Write;

use anstyle::Style;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use leaktrace_core::report::phrases::words;

/// A text that grows downwards.
pub struct Page {
    out: String,
    width: usize,
    colour: bool,
}

impl Page {
    pub fn new(width: usize, colour: bool) -> Page {
        Page { out: String::new(), width: width.max(40), colour }
    }

    pub fn width(&self) -> usize {
        self.width
    }

    pub fn into_text(self) -> String {
        self.out
    }

    /// One styled piece, as it is.
    fn put(&mut self, style: Style, text: &str) {
        let _ = match self.colour && style != Style::new() {
            true => write!(self.out, "{style}{text}{style:#}"),
            false => write!(self.out, "{text}"),
        };
    }

    /// One line of pieces, as they are.
    pub fn line(&mut self, pieces: &[(Style, &str)]) {
        pieces.iter().for_each(|(style, text)| self.put(*style, text));
        while self.out.ends_with(' ') {
            self.out.pop();
        }
        self.out.push('\n');
    }

    /// An empty line; never two of them.
    pub fn gap(&mut self) {
        if !self.out.is_empty() && !self.out.ends_with("\n\n") {
            self.out.push('\n');
        }
    }

    /// Pieces with a space between them, broken into lines; the later lines are indented. A word longer than a line is not
    /// broken: nobody could copy such a path.
    pub fn wrap(&mut self, lead: &str, indent: usize, pieces: &[(Style, &str)]) {
        self.marked((Style::new(), lead), indent, pieces);
    }

    /// The same behind a styled mark, which is written as it is.
    pub fn marked(&mut self, mark: (Style, &str), indent: usize, pieces: &[(Style, &str)]) {
        let lead = mark.1;
        self.put(mark.0, lead);
        let (mut column, mut fresh) = (lead.width(), true);
        for (style, text) in pieces {
            // What is said in one style on one line is one piece of it.
            let mut run = String::new();
            for word in words(text) {
                let space = usize::from(!fresh);
                if !fresh && column + space + word.width() > self.width {
                    self.put(*style, &std::mem::take(&mut run));
                    self.out.push('\n');
                    self.out.extend(std::iter::repeat_n(' ', indent));
                    (column, fresh) = (indent, true);
                }
                if !fresh {
                    column += 1;
                    if run.is_empty() { self.out.push(' ') } else { run.push(' ') }
                }
                column += word.width();
                run.push_str(&word);
                fresh = false;
            }
            self.put(*style, &run);
        }
        while self.out.ends_with(' ') {
            self.out.pop();
        }
        self.out.push('\n');
    }
}

/// The text cut to so many columns, with a mark where something is missing.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_letters_and_styles_are_counted_as_they_are_seen() {
        let style = Style::new().bold();
        let said = "損失 損失 損失 損失 損失 損失 損失 損失 損失 損失 損失 損失 損失 損失 損失 損失";
        let written = |colour| {
            let mut page = Page::new(40, colour);
            page.wrap(
                "  ",
                4,
                &[(style, said), (Style::new(), "and 12.5 KiB (3 MiB) more of it, twice over")],
            );
            page.into_text()
        };
        let plain = written(false);
        assert!(plain.lines().count() > 3 && plain.lines().all(|l| l.width() <= 40), "{plain}");
        assert!(plain.contains("12.5 KiB"), "a number stays with its unit: {plain}");
        let stripped = anstream::adapter::strip_str(&written(true)).to_string();
        assert_eq!(stripped, plain);
        assert_ne!(written(true), plain);
        assert_eq!((fitted("損失損失", 5), fitted("abc", 3)), ("損失…".to_owned(), "abc".to_owned()));
    }
}
