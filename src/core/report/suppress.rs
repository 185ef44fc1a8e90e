//! Suppressions: findings to ignore, listed in a file in the manner of LeakSanitizer's, one rule a line:
//!
//! ```text
//! # what is known
//! leak:train.py:log_metrics       # the dashboard keeps them, #1234
//! *:third_party/*.py:*
//! cache:model.py:rotary_embedding # fills up once
//! ```
//!
//! `KIND:PATTERN`, then the reason behind a `#`. A kind is a finding's, or `*` for all, or `cache`: what is expected to
//! gather there, as long as nothing shows that it is no cache. A pattern stands for a whole frame, written `function`,
//! `file:function`, `file:line` or `file:line:function`, the file's path from any of its folders on; `*` for any text.
//! A finding is suppressed when each of its sites has such a frame: one cause may not hide another that keeps its pace.
//!
//! Pure: text in, a report changed. Knows no file and no command.

use std::fmt;

use serde::Serialize;

use super::{Finding, Report, Site};
use crate::ledger::verdict::{Confidence, Kind};

/// The kinds of findings that a rule may name.
pub const KINDS: [Kind; 9] = [
    Kind::Leak,
    Kind::Growing,
    Kind::PendingGc,
    Kind::Residue,
    Kind::LastLoop,
    Kind::AfterLast,
    Kind::Fragmentation,
    Kind::CarryOver,
    Kind::Periodic,
];
/// What stands for the location of unattributed growth.
const UNATTRIBUTED: &str = "unattributed";
/// Rules named in the warning about those that suppressed nothing.
const NAMED: usize = 8;

/// What one rule suppressed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Suppressed {
    /// `KIND:PATTERN`, as it was written.
    pub pattern: String,
    /// The comment behind the rule; `null`: there is none.
    pub reason: Option<String>,
    pub findings: u32,
    /// The sum over those findings.
    pub bytes_per_step: f64,
}

/// A line that is no rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    pub line: usize,
    what: String,
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for SyntaxError {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KindPattern {
    Any,
    Cache,
    One(Kind),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    line: usize,
    kind: KindPattern,
    pattern: String,
    reason: Option<String>,
}

/// The rules of a file, in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suppressions {
    rules: Vec<Rule>,
}

impl Suppressions {
    /// Reads the rules; the first line that is none is the error.
    pub fn read(text: &str) -> Result<Suppressions, SyntaxError> {
        let mut rules = Vec::new();
        for (line, text) in (1..).zip(text.lines()) {
            let (rule, reason) = text.split_once('#').map_or((text, ""), |(rule, reason)| (rule, reason));
            let (rule, reason) = (rule.trim(), reason.trim());
            if rule.is_empty() {
                continue;
            }
            let wrong = |what: String| SyntaxError { line, what };
            let (name, pattern) = rule.split_once(':').ok_or_else(|| {
                wrong(format!("'{rule}' is not a rule: a rule is KIND:PATTERN, such as leak:train.py:log"))
            })?;
            let kind = KindPattern::named(name.trim()).ok_or_else(|| {
                wrong(format!("'{}' is not a kind: {}, cache or * for all", name.trim(), kinds()))
            })?;
            let pattern = pattern.trim().to_owned();
            if pattern.is_empty() {
                return Err(wrong(format!("'{rule}' has no pattern; * is any frame")));
            }
            rules.push(Rule { line, kind, pattern, reason: (!reason.is_empty()).then(|| reason.to_owned()) });
        }
        Ok(Suppressions { rules })
    }

    /// Takes what is suppressed out of a report's findings and counts it, by the first rule that matches (its
    /// largest site). Rules that suppressed nothing are named in a warning.
    pub fn apply(&self, report: &mut Report) {
        let mut counts = vec![(0u32, 0.0f64); self.rules.len()];
        report.findings.retain(|f| match self.rule_of(f) {
            Some(rule) => {
                counts[rule].0 += 1;
                counts[rule].1 += f.bytes_per_step;
                false
            }
            None => true,
        });
        for (rule, (findings, bytes_per_step)) in self.rules.iter().zip(counts).filter(|(_, c)| c.0 > 0) {
            let (pattern, reason) = (rule.text(), rule.reason.clone());
            report.suppressed.push(Suppressed { pattern, reason, findings, bytes_per_step });
        }
        let used: Vec<String> = report.suppressed.iter().map(|s| s.pattern.clone()).collect();
        report.warnings.extend(self.unused(|rule| used.iter().any(|used| used == rule)));
    }

    /// Returns the warning about rules that suppressed nothing; `None` if each did. `is_used`: whether a rule, as
    /// [`Suppressed::pattern`] has it, suppressed something.
    pub fn unused(&self, is_used: impl Fn(&str) -> bool) -> Option<String> {
        let unused = self.rules.iter().filter(|rule| !is_used(&rule.text()));
        let unused: Vec<String> =
            unused.map(|rule| format!("{} (line {})", rule.text(), rule.line)).collect();
        let more = match unused.len().saturating_sub(NAMED) {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        let named = unused.get(..NAMED).unwrap_or(&unused).join(", ");
        (!unused.is_empty()).then(|| format!("suppressions that suppressed nothing: {named}{more}"))
    }

    /// Returns the rule that suppresses a finding, by number.
    fn rule_of(&self, f: &Finding) -> Option<usize> {
        let find =
            |test: &dyn Fn(&Rule) -> bool| self.rules.iter().position(|r| r.kind.includes(f) && test(r));
        if f.sites.is_empty() {
            return find(&|r| matches(&r.pattern, UNATTRIBUTED));
        }
        let of_site = |site: &Site| find(&|r| r.is_at(site));
        let all: Option<Vec<usize>> = f.sites.iter().map(of_site).collect();
        all?.first().copied()
    }
}

impl KindPattern {
    fn named(name: &str) -> Option<KindPattern> {
        match name {
            "*" => Some(KindPattern::Any),
            "cache" => Some(KindPattern::Cache),
            _ => KINDS.into_iter().find(|k| k.name() == name).map(KindPattern::One),
        }
    }

    const fn name(self) -> &'static str {
        match self {
            KindPattern::Any => "*",
            KindPattern::Cache => "cache",
            KindPattern::One(kind) => kind.name(),
        }
    }

    fn includes(self, f: &Finding) -> bool {
        match self {
            KindPattern::Any => true,
            KindPattern::One(kind) => f.kind == kind,
            // What has outlived all that its line lets go is no cache, whatever was expected.
            KindPattern::Cache => match f.kind {
                Kind::Growing | Kind::Residue | Kind::LastLoop | Kind::AfterLast | Kind::Periodic => true,
                Kind::Leak => f.confidence == Confidence::Likely,
                _ => false,
            },
        }
    }
}

fn kinds() -> String {
    KINDS.map(Kind::name).join(", ")
}

impl Rule {
    /// Returns the rule as it was written, without its reason.
    fn text(&self) -> String {
        format!("{}:{}", self.kind.name(), self.pattern)
    }

    fn is_at(&self, site: &Site) -> bool {
        let locations = site.allocated_at.iter().chain(&site.forward_site);
        let mut locations = locations.map(|p| (p.file.as_str(), p.line, p.function.as_str()));
        let frames = site.stack.iter().map(|f| &f.frame);
        let mut frames = frames.map(|f| (f.file.as_str(), f.line, f.function.as_str()));
        let is = |(file, line, function): (&str, Option<u32>, &str)| self.is_frame(file, line, function);
        locations.any(is) || frames.any(is)
    }

    fn is_frame(&self, file: &str, line: Option<u32>, function: &str) -> bool {
        if matches(&self.pattern, function) {
            return true;
        }
        // The path from any of its folders on.
        let folders = file.match_indices('/').map(|(at, _)| at + 1);
        std::iter::once(0).chain(folders).any(|from| {
            let file = &file[from..];
            matches(&self.pattern, &format!("{file}:{function}"))
                || line.is_some_and(|line| {
                    matches(&self.pattern, &format!("{file}:{line}"))
                        || matches(&self.pattern, &format!("{file}:{line}:{function}"))
                })
        })
    }
}

/// Returns whether a pattern, in which `*` stands for any text, matches the whole of a text.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    // Where to go on if it fails: behind the last star, which then takes one more.
    let mut again: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            again = Some((p + 1, t));
            p += 1;
        } else if pattern.get(p) == Some(&text[t]) {
            (p, t) = (p + 1, t + 1);
        } else if let Some((star, taken)) = again {
            (p, t) = (star, taken + 1);
            again = Some((star, taken + 1));
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_text() {
        for (pattern, text) in
            [("a*c", "abbc"), ("*", ""), ("*b*b", "abab"), ("a", "a"), ("**", "x"), ("a*", "a")]
        {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("a*c", "abcd"), ("", "x"), ("a", ""), ("*b", "abc"), ("b", "abc")] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn a_line_that_is_no_rule_is_told_by_its_number() {
        let told = |text: &str| Suppressions::read(text).expect_err(text).to_string();
        assert!(told("# fine\n\nleak").starts_with("line 3: 'leak' is not a rule"));
        assert!(told("leek:train.py:f").starts_with("line 1: 'leek' is not a kind: leak, growing, "));
        assert!(told("*:f\nleak: # why").starts_with("line 2: 'leak:' has no pattern"));
        let read = Suppressions::read("  leak : a.py:f  # why: #12 \n").expect("is a rule");
        let rule = &read.rules[0];
        assert_eq!((rule.pattern.as_str(), rule.reason.as_deref()), ("a.py:f", Some("why: #12")));
    }
}
