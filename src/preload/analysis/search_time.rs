//! How long a search for holders may take. It knows no heap and no clock.

use std::time::Duration;

/// The most processor time that a search takes as a rule. A debug build is several times slower, and what it finds must not
/// depend on how busy the machine is that runs the tests.
const USUAL: Duration = Duration::from_millis(if cfg!(debug_assertions) { 10_000 } else { 2_000 });
/// The part of the run, 1 in so many, that a search may take after one whose time was too short, and the most of it.
const SHARE: u32 = 20;
const LONGEST: Duration = Duration::from_secs(10);
/// What it may take then at the program's end: there will be no other.
const LAST: Duration = Duration::from_secs(3);

/// The processor time of searches.
#[derive(Default)]
pub struct SearchTime {
    /// What the latest search had, if it found too little in that.
    too_short: Option<Duration>,
}

impl SearchTime {
    /// Returns what a search may take now.
    pub fn now(&self, elapsed: Duration, at_end: bool) -> Duration {
        let least = if at_end { LAST.max(USUAL) } else { USUAL };
        match self.too_short {
            None => USUAL,
            Some(_) => least.max(LONGEST.min(elapsed / SHARE)),
        }
    }

    /// Returns whether a search that is made now may find what the latest had too little time for.
    pub fn is_longer(&self, elapsed: Duration, at_end: bool) -> bool {
        self.too_short.is_none_or(|before| self.now(elapsed, at_end) >= 2 * before)
    }

    /// Takes in that a search had this time, and whether that was enough.
    pub fn took(&mut self, had: Duration, in_time: bool) {
        self.too_short = (!in_time).then_some(had);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_after_one_whose_time_was_too_short_takes_longer_or_is_none() {
        let hours = |n: u64| Duration::from_secs(3600 * n);
        let mut time = SearchTime::default();
        assert_eq!((time.now(hours(1), true), time.is_longer(hours(1), false)), (USUAL, true));
        time.took(USUAL, false);
        assert!(!time.is_longer(2 * SHARE * USUAL - Duration::from_millis(1), false));
        assert!(time.is_longer(2 * SHARE * USUAL, false) || USUAL >= LONGEST);
        assert_eq!(time.now(Duration::ZERO, true), LAST.max(USUAL));
        assert_eq!(time.now(hours(1), false), LONGEST.max(USUAL));
        // What is too large for that is not searched at the end either.
        time.took(LONGEST, false);
        assert!(!time.is_longer(hours(9), true));
        time.took(LONGEST, true);
        assert_eq!(time.now(hours(1), true), USUAL);
    }
}
