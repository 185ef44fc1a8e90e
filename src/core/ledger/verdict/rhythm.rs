//! How births come over a run: at which intervals, ever more rarely, ever larger, and at what rate. It must not know whose
//! they are, nor what that means.

use std::cmp::Ordering;

use super::statistics::{gaps, is_regular, median};
use crate::ledger::cohort::Cohort;

/// Ever rarer births are a cache that fills up: their mean lies this many standard deviations before the
/// middle of the run (by chance, that of one in twenty steady sites does, and of a list's of one in two hundred, since a list takes
/// in what it has already) …
const SATURATING_DEVIATIONS: f64 = -1.64;
const SATURATING_DEVIATIONS_OF_LIST: f64 = -2.58;
/// … and at least this share of the run before it: half way from steady births to those of a cache that fills
/// up with a third of the run as time constant, whose mean lies at 0.29. With many births this bound decides,
/// with few the other.
const SATURATING_SHARE: f64 = 0.105;
/// … unless at least this share comes in the last quarter, nearly as much as in the others: by chance fewer came in between.
const LAST_QUARTER: f64 = 0.75;
const LATE_SHARE: f64 = 0.2;
/// Bursts that must be seen for anything to be said.
const MIN_BURSTS: usize = 2;
/// Steps from one to the next, at least, of what comes at intervals and not in every few steps.
pub const MIN_INTERVAL: f64 = 5.0;

/// What came more often at first, and at one interval since: so many of those at least, and for this share of the run.
const AT_ONE_INTERVAL: usize = 10;
const LATER_PART: f64 = 0.4;

/// Each adds more than the one before if so many of the latest add so many times what the first did, and at most this share of
/// those that differ from the one before add less.
const COMPARED: usize = 5;
const RISEN: f64 = 1.5;
const SELDOM_LESS: f64 = 0.1;

/// At which intervals births come.
pub struct Rhythm {
    /// The first birth of each burst, where births come in bursts with pauses between; else every birth.
    pub events: Vec<u32>,
    pub in_bursts: bool,
    pub spacing: f64,
    pub regular: bool,
}

/// Returns at which intervals births come. Of the `earlier` ones those count that belong to the first burst: the end of the
/// burn-in may lie within it.
pub fn rhythm(births: &[u32], earlier: &[u32]) -> Rhythm {
    let all = gaps(births);
    let pause = (4.0 * median(all.iter().copied())).max(3.0);
    let are_apart = |a: u32, b: u32| f64::from(b.saturating_sub(a)) > pause;
    let mut next = births.first().copied().unwrap_or(0);
    let is_near = |birth: &&u32| !are_apart(**birth, std::mem::replace(&mut next, **birth));
    let near = earlier.iter().rev().take_while(is_near).count();
    let in_order = [&earlier[earlier.len() - near..], births].concat();
    let starts = |w: &[u32]| are_apart(w[0], w[1]).then_some(w[1]);
    let mut events: Vec<u32> = in_order.first().copied().into_iter().collect();
    events.extend(in_order.windows(2).filter_map(starts));
    let between = gaps(&events);
    // Bursts are of one size; all but one, which may have been cut short.
    let sizes: Vec<usize> = (0..events.len())
        .map(|i| {
            let next = events.get(i + 1).copied().unwrap_or(u32::MAX);
            in_order.iter().filter(|&&b| b >= events[i] && b < next).count()
        })
        .collect();
    let largest = sizes.iter().max().copied().unwrap_or(0);
    let small = sizes.iter().filter(|&&size| size * 2 < largest).count();
    let in_bursts = events.len() >= MIN_BURSTS
        && small <= usize::from(events.len() > 2)
        && in_order.len() >= 2 * events.len()
        // The first interval may differ: there was a warm-up.
        && (between.len() == 1 || is_regular(&between) || (between.len() > 2 && is_regular(&between[1..])));
    if !in_bursts {
        let (spacing, regular) = (median(all.iter().copied()), is_regular(&all));
        return Rhythm { events: births.to_vec(), in_bursts, spacing, regular };
    }
    Rhythm { events, in_bursts, spacing: median(between.iter().copied()), regular: true }
}

pub fn period(rhythm: &Rhythm) -> Option<f64> {
    (rhythm.regular && rhythm.spacing >= 2.0).then_some(rhythm.spacing)
}

/// Returns whether births come ever more rarely. The mean of evenly spread ones lies in the middle of the
/// run. `in_list`: a list has what was born.
pub fn is_saturating(births: &[u32], latest: u32, in_list: bool) -> bool {
    let deviations = if in_list { SATURATING_DEVIATIONS_OF_LIST } else { SATURATING_DEVIATIONS };
    let share = |&birth: &u32| (f64::from(birth) - 1.5) / f64::from(latest.max(2) - 1);
    let n = births.len() as f64;
    let mean = births.iter().map(share).sum::<f64>() / n;
    let late = births.iter().filter(|birth| share(birth) > LAST_QUARTER).count() as f64;
    (mean - 0.5) * (12.0 * n).sqrt() < deviations && 0.5 - mean > SATURATING_SHARE && late < LATE_SHARE * n
}

/// Returns the first of the births that come at one interval up to the end, where they came more often before, if only in the
/// warm-up: in every step of the first epoch, say, and in every tenth since.
pub fn slowed(births: &[u32], latest: u32) -> Option<u32> {
    let all = gaps(births);
    let usual = median(all.iter().rev().take(AT_ONE_INTERVAL).copied());
    let slack = if usual < MIN_INTERVAL { 0.0 } else { 1.0 };
    let is_usual = |gap: &&u64| (**gap as f64 - usual).abs() <= slack;
    let since = all.iter().rev().take_while(is_usual).count();
    let before = &all[..all.len() - since];
    let from = *births.get(before.len())?;
    let comes_yet = f64::from(latest.saturating_sub(from)) >= LATER_PART * f64::from(latest);
    let often = median(before.iter().copied()) < usual;
    (since >= AT_ONE_INTERVAL && comes_yet && often).then_some(from)
}

/// Returns what a step adds on average, as births are weighed: from the first birth on, `until_last` steps to the last one, `span`
/// to the last that counts. Where births come to the end, what came behind the first is counted against the steps behind it:
/// anything else depends on where in a gap the span ends.
pub fn rate(births: &[Cohort], weight: fn(&Cohort) -> u64, until_last: u32, span: u32) -> f64 {
    let [_, later @ ..] = births else { return 0.0 };
    let sum = |of: &[Cohort]| of.iter().map(weight).fold(0, u64::saturating_add) as f64;
    let behind = f64::from(until_last.saturating_sub(1));
    let usual_gap = behind / later.len().max(1) as f64;
    if !later.is_empty() && f64::from(span.saturating_sub(until_last)) <= 2.0 * usual_gap {
        sum(later) / behind.max(1.0)
    } else {
        sum(births) / f64::from(span.max(1))
    }
}

/// Returns what one of the latest births adds, where they add more and more: hardly ever less than the one before, and of
/// late so many times what the first did.
pub fn late_bytes(births: &[Cohort]) -> Option<f64> {
    let usual = |births: &[Cohort]| median(births.iter().map(|c| c.bytes));
    let (first, last) = (births.first_chunk::<COMPARED>()?, births.last_chunk::<COMPARED>()?);
    let count = |order| births.windows(2).filter(|w| w[1].bytes.cmp(&w[0].bytes) == order).count() as f64;
    let (less, more) = (count(Ordering::Less), count(Ordering::Greater));
    let seldom_less = less <= SELDOM_LESS * (less + more);
    (seldom_less && usual(last) >= RISEN * usual(first)).then(|| usual(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_on_after_a_pause_does_not_fill_up() {
        // Of 400 steps; the sessions that time out come at random, one in 12 of them.
        let at_random = [
            11, 13, 22, 26, 32, 32, 35, 40, 46, 57, 68, 69, 82, 85, 91, 91, 91, 100, 107, 143, 146, 150, 190,
            196, 196, 268, 304, 307, 316, 321, 335, 346, 384,
        ];
        assert!(!is_saturating(&at_random, 390, false));
        // Each entry with a chance that falls, and then a late one now and then.
        let fills: Vec<u32> = (1..40).map(|n| 2 + n * n / 5).collect();
        assert!(is_saturating(&fills, 390, false) && is_saturating(&fills, 390, true));
        // Appended with a chance of one in six, of 300 steps: by chance fewer came late.
        let fewer_late = [
            4, 5, 13, 15, 17, 19, 24, 25, 28, 31, 33, 36, 38, 46, 55, 61, 69, 73, 77, 91, 96, 97, 102, 114,
            127, 147, 156, 163, 171, 172, 179, 188, 197, 220, 224, 233, 251, 258, 263, 265, 267, 275,
        ];
        assert!(is_saturating(&fewer_late, 297, false) && !is_saturating(&fewer_late, 297, true));
    }
}
