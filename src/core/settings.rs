//! The variables that a traced program reads and that take one of a few words. The program `leaktrace` refuses a wrong one
//! before it starts anything; the traced process says a line and goes on with the default. Knows nothing of what they mean.

/// A variable and the words it takes.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    pub variable: &'static str,
    pub words: &'static [&'static str],
}

pub const SWITCH: Choice = Choice { variable: "LEAKTRACE", words: &["on", "off", "1", "0"] };
pub const STACKS: Choice =
    Choice { variable: "LEAKTRACE_STACKS", words: &["auto", "python", "native", "mixed", "off"] };
pub const HOLDERS: Choice = Choice { variable: "LEAKTRACE_HOLDERS", words: &["auto", "off"] };
pub const EVENTS: Choice = Choice { variable: "LEAKTRACE_EVENTS", words: &["window", "all"] };

/// All of them.
pub const CHOICES: [Choice; 4] = [SWITCH, STACKS, HOLDERS, EVENTS];

impl Choice {
    /// Returns the words for a sentence: `auto, python or off`. What stands for another word is left out.
    pub fn takes(&self) -> String {
        let words: Vec<&str> = self.words.iter().copied().filter(|w| !w.starts_with(['0', '1'])).collect();
        match words.split_last() {
            Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
            _ => words.concat(),
        }
    }
}
