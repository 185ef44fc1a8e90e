//! Renewal at long intervals: one block that is replaced by a larger one at every evaluation, say, and at no other time. The
//! windows of [`super::renewal`] are shorter than such an interval, so this one looks at the rises themselves: they come regularly, each
//! is about as large as the others, and nothing is given back in between.

use std::collections::BTreeSet;

use super::finding::{Confidence, Finding, Kind, SiteShare};
use super::renewal::{RISING, by_cause};
use super::rhythm::{MIN_INTERVAL, rhythm};
use super::statistics::{interval, median, steady};
use super::survivors::BURST_WAIT;
use super::view::{CERTAIN_COHORTS, MIN_COHORTS, SiteView, View};
use crate::int_map::IntMap;
use crate::ledger::cohort::{blocks, bytes};
use crate::ledger::sites::{Delta, Layer};

/// The steps behind the warm-up in which a site came to hold more, and what it held then.
#[derive(Default)]
struct Rises {
    bytes: i64,
    steps: Vec<u32>,
    levels: Vec<i64>,
    /// It gave something back, or came to hold more blocks: that is another rule's.
    is_over: bool,
}

impl Rises {
    fn take(&mut self, step: u32, delta: &Delta, is_judged: bool) {
        self.bytes = self.bytes.wrapping_add(delta.bytes);
        if !is_judged || self.is_over {
            return;
        }
        if delta.bytes <= 0 || (delta.blocks != 0 && !self.steps.is_empty()) {
            *self = Rises { is_over: true, ..Rises::default() };
            return;
        }
        self.steps.push(step);
        self.levels.push(self.bytes);
    }
}

pub fn find(view: &View<'_>, explained: &BTreeSet<u32>) -> Vec<Finding> {
    let is_one = |alive: &&SiteView<'_>| {
        let is_one = alive.site.frees > 0 && alive.late == 0 && blocks(&alive.cohorts) == 1;
        let may_be = matches!(alive.site.layer, Layer::Block | Layer::Driver);
        is_one && may_be && !explained.contains(&alive.number)
    };
    let mut rises: IntMap<u32, Rises> =
        view.sites.iter().filter(is_one).map(|alive| (alive.number, Rises::default())).collect();
    if rises.is_empty() {
        return Vec::new();
    }
    for record in view.ledger.steps() {
        for delta in &record.deltas {
            if let Some(rises) = rises.get_mut(&delta.site) {
                rises.take(record.step, delta, record.step > view.burn_in);
            }
        }
    }
    let mut found: Vec<Finding> =
        rises.iter().filter_map(|(&site, rises)| finding(view, site, rises)).collect();
    found.sort_by_key(|f| f.sites.first().map(|s| s.site));
    by_cause(view, found)
}

fn finding(view: &View<'_>, number: u32, rises: &Rises) -> Option<Finding> {
    let (first, last) = (*rises.steps.first()?, *rises.steps.last()?);
    let rhythm = rhythm(&rises.steps, &[]);
    let is_due = f64::from(view.steps.saturating_sub(last)) > BURST_WAIT * rhythm.spacing;
    if rhythm.events.len() < MIN_COHORTS || !rhythm.regular || rhythm.spacing < MIN_INTERVAL || is_due {
        return None;
    }
    // Of each burst what it left: a buffer that doubles when it is full takes more each time.
    let ends = rhythm.events.iter().skip(1).map(|&begin| rises.steps.partition_point(|&step| step < begin));
    let ends = ends.chain([rises.steps.len()]);
    let levels: Vec<i64> = ends.filter_map(|end| rises.levels.get(end.checked_sub(1)?).copied()).collect();
    let rate = steady(&levels)? / rhythm.spacing;
    let alive = view.site(number)?;
    // The new one is made of the old one, which is there beside it for a moment, and only then: a batch is made in each
    // step, and is larger where an epoch has longer ones.
    let grows_when_made = rises.steps.len() as f64 >= RISING * f64::from(alive.site.births);
    if !grows_when_made || alive.site.peak_bytes() <= alive.site.live_bytes {
        return None;
    }
    let added = || rises.levels.windows(2).map(|w| w[1].saturating_sub(w[0]).unsigned_abs());
    let bytes_per_step = median(added());
    let mut f = Finding {
        bytes_per_step,
        bytes_interval: interval(added()),
        growth_step_ratio: (rises.steps.len() - 1) as f64 / f64::from(last.saturating_sub(first).max(1)),
        period_steps: Some(rhythm.spacing),
        growth_bytes_per_step: rate,
        cohorts: alive.cohorts.len() as u32,
        oldest_step: alive.cohorts.first()?.birth,
        first_step: alive.site.first_birth,
        span: view.steps,
        freed: alive.site.frees,
        longest_life: alive.site.longest_life(),
        renewed: true,
        rises_steadily: rhythm.events.len() >= CERTAIN_COHORTS,
        ..Finding::new(Kind::Growing, Confidence::Likely, alive.site.device, alive.site.layer)
    };
    f.sites.push(SiteShare {
        site: number,
        device: alive.site.device,
        bytes_per_step,
        live_bytes: bytes(&alive.cohorts),
        live_blocks: blocks(&alive.cohorts),
    });
    f.add_up();
    Some(f)
}
