//! What each site holds at the judged moment (the last boundary; without steps the exit, or the end), in the figures
//! that the aggregated formats show.

use std::collections::HashMap;

use leaktrace_core::ledger::Ledger;

/// Growth counts from the end of this share of the steps: what comes before is warm-up.
const WARM_UP_SHARE: f64 = 0.25;

/// Which of the figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    Live,
    Retained,
    Growth,
    Peak,
}

/// The figures of one site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    pub site: u32,
    pub live_bytes: u64,
    pub live_blocks: u64,
    /// Of these what is older than the step that ended last. Without steps all of it.
    pub retained_bytes: u64,
    /// Live bytes now less those when the step ended that growth counts from.
    pub growth_bytes: i64,
    /// The most that this site ever held.
    pub peak_bytes: u64,
}

impl Figures {
    pub fn of(&self, value: Value) -> i64 {
        match value {
            Value::Live => self.live_bytes as i64,
            Value::Retained => self.retained_bytes as i64,
            Value::Growth => self.growth_bytes,
            Value::Peak => self.peak_bytes as i64,
        }
    }
}

/// The step that growth counts from, if none is asked for.
pub fn warm_up(ledger: &Ledger) -> u32 {
    (WARM_UP_SHARE * f64::from(ledger.step_count())) as u32
}

/// The figures of every site that ever held anything, by its number. `since`: the step at whose end growth begins; of a
/// step that is not known by itself the nearest one before it.
pub fn of(ledger: &Ledger, since: Option<u32>) -> Vec<Figures> {
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
        let mut f = Figures { site, peak_bytes: s.peak_bytes(), ..Figures::default() };
        for cohort in cohorts.next_if(|(of, _)| *of == site).iter().flat_map(|(_, all)| all) {
            f.live_bytes = f.live_bytes.wrapping_add(cohort.bytes);
            f.live_blocks = f.live_blocks.wrapping_add(cohort.blocks);
            if cohort.birth < last || last == 0 {
                f.retained_bytes = f.retained_bytes.wrapping_add(cohort.bytes);
            }
        }
        f.growth_bytes = (f.live_bytes as i64).wrapping_sub(then.get(&site).copied().unwrap_or(0));
        // A site of segments only is none.
        if s.allocs > 0 || f.live_blocks > 0 {
            all.push(f);
        }
    }
    all
}
