//! A file of leaks that are accepted: each by its file, function and layer (lines move), with the bytes per
//! step that it may grow by. Pure: text in, text out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{SourceRoot, rate};
use crate::ranks::Cause;
use leaktrace_core::ledger::verdict::Kind;
use leaktrace_core::report::{Location, Site};

const SCHEMA: &str = "leaktrace.baseline/1";
/// Runs of one program differ by this factor: what grows by no more than this beyond the baseline has not
/// grown.
const SLACK: f64 = 1.05;

/// One known leak.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Leak {
    kind: String,
    file: String,
    function: String,
    /// The line it was at: for people.
    line: Option<u32>,
    layer: String,
    bytes_per_step: f64,
}

/// The contents of the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Baseline {
    schema: String,
    leaks: Vec<Leak>,
}

/// What makes two causes of different runs the same: kind, layer, file, function.
type Key = (String, String, String, String);

/// Bytes per step of each key: a function may have several lines.
pub type Growth = BTreeMap<Key, f64>;

/// How a cause compares with the baseline.
pub enum Known {
    Accepted,
    Grew { was: f64, is: f64 },
    New { at: String },
}

/// Returns what grows at each line of a cause, since a line that is new may join a known cause.
fn parts(cause: &Cause, root: &SourceRoot) -> Vec<(Key, Option<u32>, f64)> {
    let f = &cause.finding;
    let class = match f.kind {
        // A shorter run may not show yet that it is a leak.
        Kind::Growing => Kind::Leak,
        kind => kind,
    };
    let key = |at: Option<&Location>| {
        let file = at.map_or_else(String::new, |p| root.relative(&p.file, &cause.program));
        // On another machine the same package is in another folder.
        let file = file.rsplit_once("/site-packages/").map_or(&*file, |(_, inside)| inside);
        let function = at.map_or("", |p| p.function.as_str());
        (class.name().to_owned(), f.layer.to_owned(), file.to_owned(), function.to_owned())
    };
    if f.sites.is_empty() {
        return vec![(key(None), None, rate(cause))];
    }
    let all: f64 = f.sites.iter().map(|s| s.bytes_per_step).sum();
    let part = |s: &Site| {
        let at = s.allocated_at.as_ref();
        let share = if all > 0.0 { s.bytes_per_step / all } else { 1.0 / f.sites.len() as f64 };
        (key(at), at.and_then(|p| p.line), rate(cause) * share)
    };
    f.sites.iter().map(part).collect()
}

/// Sums up what grows over all causes.
pub fn growth(causes: &[Cause], root: &SourceRoot) -> Growth {
    let mut all = Growth::new();
    for (key, _, rate) in causes.iter().flat_map(|cause| parts(cause, root)) {
        *all.entry(key).or_default() += rate;
    }
    all
}

impl Baseline {
    /// Makes a baseline of what was found.
    pub fn of<'c>(causes: impl IntoIterator<Item = &'c Cause>, root: &SourceRoot) -> Baseline {
        let leak = |(c, (key, line, bytes_per_step)): (&Cause, (Key, Option<u32>, f64))| {
            let (_, layer, file, function) = key;
            Leak { kind: c.finding.kind.name().to_owned(), file, function, line, layer, bytes_per_step }
        };
        let all = causes.into_iter().flat_map(|c| parts(c, root).into_iter().map(move |part| (c, part)));
        Baseline { schema: SCHEMA.to_owned(), leaks: all.map(leak).collect() }
    }

    /// Reads the file; the error is for people.
    pub fn read(text: &str) -> Result<Baseline, String> {
        let baseline: Baseline = serde_json::from_str(text).map_err(|e| format!("is not a baseline: {e}"))?;
        match baseline.schema == SCHEMA {
            true => Ok(baseline),
            false => Err(format!("is a baseline of another version ({}); write it again", baseline.schema)),
        }
    }

    pub fn to_text(&self) -> String {
        // Numbers and strings only: that cannot fail.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    pub fn len(&self) -> usize {
        self.leaks.len()
    }

    /// Compares a cause with what is known: whether all of it is, and none of it has grown. `growth`: of all
    /// that was found.
    pub fn compare(&self, cause: &Cause, growth: &Growth, root: &SourceRoot) -> Known {
        let mut known = Known::Accepted;
        for (key, line, _) in parts(cause, root) {
            let (mut was, mut any) = (0.0, false);
            self.leaks
                .iter()
                .filter(|l| l.is(&key))
                .for_each(|l| (was, any) = (was + l.bytes_per_step, true));
            let is = growth.get(&key).copied().unwrap_or_default();
            if !any {
                let line = line.map_or_else(String::new, |line| format!(":{line}"));
                return Known::New { at: format!("{}{line} {}", key.2, key.3) };
            }
            if is > was * SLACK {
                known = Known::Grew { was, is };
            }
        }
        known
    }

    /// Names the leaks that nothing found is: they are mended, or moved to another file or function.
    pub fn unused(&self, growth: &Growth) -> Vec<String> {
        let unused = self.leaks.iter().filter(|leak| !growth.keys().any(|key| leak.is(key)));
        let name = |l: &Leak| match (l.file.is_empty(), l.line) {
            (true, _) => format!("{} in unattributed memory", l.kind),
            (_, Some(line)) => format!("{} at {}:{line} {}", l.kind, l.file, l.function),
            (_, None) => format!("{} at {} {}", l.kind, l.file, l.function),
        };
        unused.map(name).collect()
    }
}

impl Leak {
    fn is(&self, key: &Key) -> bool {
        let class = if self.kind == Kind::Growing.name() { Kind::Leak.name() } else { &self.kind };
        (class, &self.layer, &self.file, &self.function) == (&*key.0, &key.1, &key.2, &key.3)
    }
}
