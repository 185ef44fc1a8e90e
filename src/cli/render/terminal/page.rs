//! Styled text on its way to a terminal: written with escape sequences or without. Knows no report.

use std::fmt::Write;
use std::ops::{Deref, DerefMut};

use anstyle::{AnsiColor, Style as Ansi};

use leaktrace_core::report::text::{Style, Text};

/// Text that knows whether it is coloured.
pub struct Page {
    text: Text,
    colour: bool,
}

impl Page {
    pub fn new(width: usize, colour: bool) -> Page {
        Page { text: Text::new(width), colour }
    }

    pub fn into_text(self) -> String {
        match self.colour {
            true => coloured(&self.text),
            false => self.text.to_string(),
        }
    }
}

impl Deref for Page {
    type Target = Text;

    fn deref(&self) -> &Text {
        &self.text
    }
}

impl DerefMut for Page {
    fn deref_mut(&mut self) -> &mut Text {
        &mut self.text
    }
}

/// Writes text with escape sequences for its styles.
pub fn coloured(text: &Text) -> String {
    let mut out = String::new();
    for line in text.lines() {
        for span in line {
            let style = ansi(span.style);
            // Writing to a string cannot fail.
            let _ = match span.style {
                Style::Plain => out.write_str(&span.text),
                _ => write!(out, "{style}{}{style:#}", span.text),
            };
        }
        out.push('\n');
    }
    out
}

const fn ansi(style: Style) -> Ansi {
    match style {
        Style::Plain => Ansi::new(),
        Style::Bold => Ansi::new().bold(),
        Style::Dim => Ansi::new().dimmed(),
        Style::Good => AnsiColor::Green.on_default().bold(),
        Style::Bad => AnsiColor::Red.on_default().bold(),
        Style::Warning => AnsiColor::Yellow.on_default().bold(),
        Style::Accent => AnsiColor::Cyan.on_default().bold(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_add_nothing_but_escape_sequences() {
        let written = |colour| {
            let mut page = Page::new(40, colour);
            page.wrap(
                "  ",
                4,
                &[(Style::Bold, "one"), (Style::Plain, "two and more words than a line can take")],
            );
            page.gap();
            page.line(&[(Style::Bad, "three")]);
            page.into_text()
        };
        let coloured = written(true);
        assert_eq!(anstream::adapter::strip_str(&coloured).to_string(), written(false));
        assert!(coloured.contains("\x1b[1mone\x1b[0m two"), "{coloured:?}");
    }
}
