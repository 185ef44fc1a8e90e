//! Statistics of each site at the judged moment (the last boundary; without steps the exit, or the end), for
//! the formats that show sums.

use std::collections::HashMap;

use leaktrace_core::ledger::Ledger;

/// Growth counts from the end of this share of the steps: the steps before are warm-up.
const WARM_UP_SHARE: f64 = 0.25;

/// One of the statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    Live,
    Retained,
    Growth,
    Peak,
}

/// The statistics of one site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiteStats {
    pub site: u32,
    pub live_bytes: u64,
    pub live_blocks: u64,
    /// The bytes of these that are older than the step that ended last; without steps all of them.
    pub retained_bytes: u64,
    /// Live bytes less those at the end of the step that growth counts from.
    pub growth_bytes: i64,
    /// The most bytes that this site ever held.
    pub peak_bytes: u64,
}

impl SiteStats {
    pub fn get(&self, value: Value) -> i64 {
        match value {
            Value::Live => self.live_bytes as i64,
            Value::Retained => self.retained_bytes as i64,
            Value::Growth => self.growth_bytes,
            Value::Peak => self.peak_bytes as i64,
        }
    }
}

/// Returns the step that growth counts from by default.
pub fn warm_up(ledger: &Ledger) -> u32 {
    (WARM_UP_SHARE * f64::from(ledger.step_count())) as u32
}

/// Computes the statistics of every site that ever held anything, in the order of their numbers. `since`: the
/// step that growth counts from the end of; where it was merged with others, the nearest one before it.
pub fn site_stats(ledger: &Ledger, since: Option<u32>) -> Vec<SiteStats> {
    let since = since.unwrap_or_else(|| warm_up(ledger));
    let last = ledger.step_count();
    let mut then: HashMap<u32, i64> = HashMap::new();
    for delta in ledger.steps().iter().take_while(|r| r.step <= since).flat_map(|r| &r.deltas) {
        let sum = then.entry(delta.site).or_default();
        *sum = sum.wrapping_add(delta.bytes);
    }
    let mut cohorts = ledger.cohorts().into_iter().peekable();
    let mut all = Vec::new();
    for (site, s) in ledger.sites() {
        let mut f = SiteStats { site, peak_bytes: s.peak_bytes(), ..SiteStats::default() };
        for cohort in cohorts.next_if(|(of, _)| *of == site).iter().flat_map(|(_, all)| all) {
            f.live_bytes = f.live_bytes.wrapping_add(cohort.bytes);
            f.live_blocks = f.live_blocks.wrapping_add(cohort.blocks);
            if cohort.birth < last || last == 0 {
                f.retained_bytes = f.retained_bytes.wrapping_add(cohort.bytes);
            }
        }
        f.growth_bytes = (f.live_bytes as i64).wrapping_sub(then.get(&site).copied().unwrap_or(0));
        // A site that allocates segments alone holds no bytes of its own.
        if s.allocs > 0 || f.live_blocks > 0 {
            all.push(f);
        }
    }
    all
}
