//! Compares two reports: by line what grew, shrank, appeared and vanished, and what leaks more than before.
//! Lines that moved between two versions of a program are matched by their function. Pure.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;

use leaktrace_core::ledger::verdict::Kind;
use leaktrace_core::report::wording::{package_folder, relative_path};
use leaktrace_core::report::{Finding, Frame, Location, Report};

/// How a line changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    Appeared,
    Grew,
    Shrank,
    Vanished,
    Same,
}

/// What a line retained, and what it leaked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Amount {
    pub bytes: u64,
    pub blocks: u64,
    /// The growth of leaks and possible leaks at the line; 0 if it has none.
    pub growth_bytes_per_step: f64,
}

/// A line in both reports.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub change: Change,
    /// The line in B, or in A if B does not have it. The path is relative to where the program ran.
    pub allocated_at: Option<Location>,
    /// The frame of a package that the line called, where that tells causes apart; the path is relative to the packages.
    pub library_at: Option<Location>,
    /// The line in A, where it is another.
    pub line_before: Option<u32>,
    pub layer: &'static str,
    pub device: Option<u8>,
    pub entry_point: Option<String>,
    pub before: Amount,
    pub after: Amount,
}

/// One of the two reports.
#[derive(Clone, Debug, Serialize)]
pub struct Side {
    pub file: String,
    /// The step that was asked for; `None`: the end.
    pub step: Option<u32>,
    pub steps: u32,
    pub retained_bytes: u64,
    /// The peak of the device with the highest one.
    pub peak_bytes: u64,
    pub growth_bytes_per_step: f64,
}

/// A finding that does not grow; those that do are in the rows.
#[derive(Clone, Debug, Serialize)]
pub struct Other {
    pub kind: Kind,
    /// The line, as in [`Row`].
    pub allocated_at: Option<Location>,
    pub library_at: Option<Location>,
    /// Its explanation in each report; `null`: the report does not have it.
    pub before: Option<String>,
    pub after: Option<String>,
}

/// The comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Diff {
    pub schema: &'static str,
    pub a: Side,
    pub b: Side,
    /// The largest change first.
    pub rows: Vec<Row>,
    pub others: Vec<Other>,
    /// Whether these are two moments of one recording: its leaks are judged over the whole of it, and cannot
    /// differ.
    #[serde(skip)]
    pub same_recording: bool,
}

/// What makes two rows the same line; the line number comes last.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    file: String,
    function: String,
    layer: &'static str,
    device: Option<u8>,
    entry_point: Option<String>,
    library: Option<(String, String)>,
    line: Option<u32>,
    library_line: Option<u32>,
}

impl Key {
    fn of(
        (place, library): (Option<&Location>, Option<&Location>),
        layer: &'static str,
        device: Option<u8>,
        entry_point: &Option<String>,
        folders: [&str; 2],
    ) -> Key {
        // The same file has one path, whichever folder each run was started in.
        let file = |p: &Location| {
            folders.iter().fold(p.file.as_str(), |file, cwd| relative_path(file, cwd)).to_owned()
        };
        Key {
            file: place.map_or_else(String::new, file),
            function: place.map_or_else(String::new, |p| p.function.clone()),
            layer,
            device,
            entry_point: entry_point.clone(),
            library: library.map(|at| {
                (relative_path(&at.file, package_folder(&at.file)).to_owned(), at.function.clone())
            }),
            library_line: library.and_then(|at| at.line),
            line: place.and_then(|p| p.line),
        }
    }

    /// Returns the key of the function, without the line.
    fn lineless(&self) -> Key {
        Key { line: None, library_line: None, ..self.clone() }
    }

    /// Returns the line, and the frame of a package that it called.
    fn locations(&self) -> (Option<Location>, Option<Location>) {
        let place = Location { file: self.file.clone(), line: self.line, function: self.function.clone() };
        let library = self.library.clone();
        let library = library.map(|(file, function)| Location { file, line: self.library_line, function });
        ((!place.function.is_empty() || !place.file.is_empty()).then_some(place), library)
    }
}

/// Sums up what each line of a report retained and leaked. `other`: the report it is compared with.
fn amounts(report: &Report, other: &Report) -> BTreeMap<Key, Amount> {
    let folders = [report.program.cwd.as_str(), other.program.cwd.as_str()];
    let mut all: BTreeMap<Key, Amount> = BTreeMap::new();
    for r in &report.retained {
        let key = Key::of(
            (r.allocated_at.as_ref(), r.library_at.as_ref()),
            r.layer,
            r.device,
            &r.entry_point,
            folders,
        );
        let sum = all.entry(key).or_default();
        sum.bytes = sum.bytes.saturating_add(r.live_bytes);
        sum.blocks = sum.blocks.saturating_add(r.live_blocks);
    }
    for f in report.findings.iter().filter(|f| matches!(f.kind, Kind::Leak | Kind::Growing)) {
        let all_of_it: f64 = f.sites.iter().map(|s| s.bytes_per_step).sum();
        for s in &f.sites {
            let key = Key::of(
                (s.allocated_at.as_ref(), s.library_at.as_ref()),
                f.layer,
                f.device,
                &s.entry_point,
                folders,
            );
            // A site has its share of the finding's growth.
            let share =
                if all_of_it > 0.0 { s.bytes_per_step / all_of_it } else { 1.0 / f.sites.len() as f64 };
            all.entry(key).or_default().growth_bytes_per_step += f.growth_bytes_per_step * share;
        }
    }
    all
}

/// A finding that does not grow, by what it can be known by in another run.
struct Known<'r> {
    finding: &'r Finding,
    key: Key,
    /// The user's line that called the allocating one.
    caller: Option<Location>,
    holder: Option<&'r str>,
}

impl<'r> Known<'r> {
    fn of(finding: &'r Finding, folders: [&str; 2]) -> Known<'r> {
        let site = finding.sites.first();
        let place = site.and_then(|s| s.allocated_at.as_ref());
        let own = site.into_iter().flat_map(|s| &s.stack).filter(|f| f.own).map(Frame::location);
        Known {
            finding,
            key: Key::of(
                (place, site.and_then(|s| s.library_at.as_ref())),
                finding.layer,
                finding.device,
                &None,
                folders,
            ),
            caller: own.skip_while(|at| Some(at) != place).find(|at| Some(at) != place),
            holder: finding.holders.first().map(|h| h.path.as_str()),
        }
    }

    /// Returns how much speaks for two findings being one; `None`: they are two.
    fn likeness(&self, other: &Known<'_>) -> Option<u32> {
        if self.finding.kind != other.finding.kind || self.key.lineless() != other.key.lineless() {
            return None;
        }
        let size = |f: &Finding| if f.bytes_per_step > 0.0 { f.bytes_per_step } else { f.live_bytes as f64 };
        let (a, b) = (size(self.finding), size(other.finding));
        let same_size = a.max(b) <= 2.0 * a.min(b);
        let same_path = self.key.line == other.key.line && self.caller == other.caller;
        let same_holder = self.holder.is_some() && self.holder == other.holder;
        let votes = [same_path, same_size, same_holder].into_iter().filter(|&vote| vote).count() as u32;
        (votes > 0).then_some(2 * votes + u32::from(self.key.line == other.key.line))
    }
}

/// Pairs the findings that do not grow: those of one kind in one function that have most in common.
fn others(a: &Report, b: &Report) -> Vec<Other> {
    let folders = [a.program.cwd.as_str(), b.program.cwd.as_str()];
    let stays = |f: &&Finding| !matches!(f.kind, Kind::Leak | Kind::Growing);
    let [before, after] = [a, b].map(|report| -> Vec<Known<'_>> {
        report.findings.iter().filter(stays).map(|f| Known::of(f, folders)).collect()
    });
    let mut pairs: Vec<(u32, usize, usize)> = Vec::new();
    for (i, then) in before.iter().enumerate() {
        let like = after.iter().enumerate().filter_map(|(j, now)| Some((then.likeness(now)?, i, j)));
        pairs.extend(like);
    }
    pairs.sort_by_key(|&(likeness, i, j)| (Reverse(likeness), i, j));
    let (mut of_before, mut of_after) = (vec![None; before.len()], vec![None; after.len()]);
    for (_, i, j) in pairs {
        if of_before[i].is_none() && of_after[j].is_none() {
            (of_before[i], of_after[j]) = (Some(j), Some(i));
        }
    }
    let other = |then: Option<&Known<'_>>, now: Option<&Known<'_>>| {
        let shown = now.or(then)?;
        let why = |known: Option<&Known<'_>>| known.map(|known| known.finding.explanation.clone());
        let (allocated_at, library_at) = shown.key.locations();
        Some(Other { kind: shown.finding.kind, allocated_at, library_at, before: why(then), after: why(now) })
    };
    let known_before =
        before.iter().zip(&of_before).filter_map(|(then, j)| other(Some(then), j.map(|j| &after[j])));
    let only_after = after.iter().zip(&of_after).filter(|(_, i)| i.is_none());
    known_before.chain(only_after.filter_map(|(now, _)| other(None, Some(now)))).collect()
}

fn side(file: &str, report: &Report, amounts: &BTreeMap<Key, Amount>) -> Side {
    Side {
        file: file.to_owned(),
        step: report.step,
        steps: report.steps.count,
        retained_bytes: amounts.values().fold(0, |sum: u64, a| sum.saturating_add(a.bytes)),
        peak_bytes: report.devices.iter().map(|d| d.peak_bytes).max().unwrap_or(0),
        growth_bytes_per_step: amounts.values().map(|a| a.growth_bytes_per_step).sum(),
    }
}

fn row(key: &Key, line_before: Option<u32>, before: Amount, after: Amount) -> Row {
    let gone = |a: &Amount| a.bytes == 0 && a.growth_bytes_per_step == 0.0;
    let change = match (&before, &after) {
        (b, a) if b.bytes == a.bytes && b.growth_bytes_per_step == a.growth_bytes_per_step => Change::Same,
        (b, _) if gone(b) => Change::Appeared,
        (_, a) if gone(a) => Change::Vanished,
        (b, a) if (a.bytes, a.growth_bytes_per_step) > (b.bytes, b.growth_bytes_per_step) => Change::Grew,
        _ => Change::Shrank,
    };
    let (allocated_at, library_at) = key.locations();
    Row {
        change,
        allocated_at,
        library_at,
        line_before,
        layer: key.layer,
        device: key.device,
        entry_point: key.entry_point.clone(),
        before,
        after,
    }
}

/// Pairs the lines of a function that moved. As many as before are the same ones, in order; of fewer or more, those
/// that have as many blocks and bytes.
fn in_order<'m>(
    then: &[Key],
    now: &[Key],
    before: impl Fn(&Key) -> Option<&'m Amount>,
    after: impl Fn(&Key) -> Option<&'m Amount>,
) -> Vec<(Key, Key)> {
    if then.len() == now.len() {
        return then.iter().cloned().zip(now.iter().cloned()).collect();
    }
    let mut left: Vec<&Key> = now.iter().collect();
    let same = |key: &Key| {
        let at = left.iter().position(|other| before(key) == after(other))?;
        Some((key.clone(), left.remove(at).clone()))
    };
    then.iter().filter_map(same).collect()
}

/// Compares two reports that list everything retained.
pub fn compare(a: (&str, &Report), b: (&str, &Report)) -> Diff {
    let (mut before, mut after) = (amounts(a.1, b.1), amounts(b.1, a.1));
    let sides = (side(a.0, a.1, &before), side(b.0, b.1, &after));
    let mut rows = Vec::new();
    let both: Vec<Key> = before.keys().filter(|k| after.contains_key(k)).cloned().collect();
    for key in both {
        let amounts = (before.remove(&key), after.remove(&key));
        rows.push(row(&key, None, amounts.0.unwrap_or_default(), amounts.1.unwrap_or_default()));
    }
    // In one recording no line can have moved.
    let same_recording = a.0 == b.0;
    let lines = |of: &BTreeMap<Key, Amount>| {
        let mut by_function: BTreeMap<Key, Vec<Key>> = BTreeMap::new();
        of.keys().for_each(|k| by_function.entry(k.lineless()).or_default().push(k.clone()));
        by_function
    };
    let moved = lines(&after);
    for (function, then) in lines(&before).into_iter().filter(|_| !same_recording) {
        let Some(now) = moved.get(&function) else { continue };
        for (then, now) in in_order(&then, now, |key| before.get(key), |key| after.get(key)) {
            let amounts = (before.remove(&then), after.remove(&now));
            rows.push(row(&now, then.line, amounts.0.unwrap_or_default(), amounts.1.unwrap_or_default()));
        }
    }
    rows.extend(before.iter().map(|(key, amount)| row(key, None, *amount, Amount::default())));
    rows.extend(after.iter().map(|(key, amount)| row(key, None, Amount::default(), *amount)));
    rows.sort_by_key(|r| Reverse(r.after.bytes.abs_diff(r.before.bytes)));
    Diff {
        schema: "leaktrace.diff/1",
        a: sides.0,
        b: sides.1,
        rows,
        others: others(a.1, b.1),
        same_recording,
    }
}

/// Writes the comparison as JSON.
pub fn json(diff: &Diff) -> String {
    // Numbers and strings only: that cannot fail.
    serde_json::to_string_pretty(diff).unwrap_or_default() + "\n"
}
