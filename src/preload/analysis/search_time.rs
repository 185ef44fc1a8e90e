//! How long a search for holders may take. It knows no heap and no clock.

use std::time::Duration;

/// The most processor time that a search takes as a rule. A debug build is several times slower, and what it finds must not
/// depend on how busy the machine is that runs the tests.
const USUAL: Duration = Duration::from_millis(if cfg!(debug_assertions) { 10_000 } else { 2_000 });
/// The part of the run, 1 in so many, that a search may take after one whose time was too short, and the most of it.
const SHARE: u32 = 20;
const LONGEST: Duration = Duration::from_secs(10);
/// What it may take then at the program's end: there will be no other.
const LAST: Duration = Duration::from_secs(4);

/// The processor time of searches.
pub struct SearchTime {
    /// What one takes as a rule.
    usual: Duration,
    /// What the latest search had, if it found too little in that.
    too_short: Option<Duration>,
}

impl Default for SearchTime {
    fn default() -> SearchTime {
        SearchTime { usual: USUAL, too_short: None }
    }
}

impl SearchTime {
    /// Returns what a search may take now.
    pub fn now(&self, elapsed: Duration, at_end: bool) -> Duration {
        let least = if at_end { LAST.max(self.usual) } else { self.usual };
        match self.too_short {
            None => self.usual,
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
        let seconds = Duration::from_secs;
        let usual = seconds(2);
        let mut time = SearchTime { usual, ..SearchTime::default() };
        assert_eq!((time.now(seconds(3600), true), time.is_longer(seconds(0), false)), (usual, true));
        time.took(usual, false);
        assert!(!time.is_longer(seconds(79), false) && time.is_longer(seconds(80), false));
        assert_eq!(time.now(seconds(80), false), seconds(4));
        assert!(time.is_longer(seconds(0), true));
        assert_eq!((time.now(seconds(0), true), time.now(seconds(3600), false)), (LAST, LONGEST));
        // What is too large for that is not searched at the end either.
        time.took(LONGEST, false);
        assert!(!time.is_longer(seconds(36_000), true));
        time.took(LONGEST, true);
        assert_eq!(time.now(seconds(3600), true), usual);
    }
}
