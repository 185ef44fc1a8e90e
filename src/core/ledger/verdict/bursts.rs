//! Rule: what comes in bursts, of which each is removed but for a part. No block need be older than those that were removed, and
//! between two bursts nothing grows: so this rule looks at what a site holds just before each burst.

use std::collections::BTreeSet;

use super::finding::{Confidence, Finding, Kind};
use super::renewal::by_cause;
use super::rhythm::{MIN_INTERVAL, rhythm};
use super::statistics::{interval, median, steady};
use super::view::{SiteView, View};
use crate::int_map::IntMap;
use crate::ledger::cohort::blocks;
use crate::ledger::sites::Layer;

/// Levels that must rise evenly, the first one left out: it has the warm-up in it.
const MIN_LEVELS: usize = 5;
/// What comes in more steps than this share comes in none of them in bursts.
const MOST_STEPS: f64 = 0.5;
/// From so many intervals behind the last burst on all of it was removed that will be.
const REMOVED: f64 = 0.5;
/// The next burst is overdue from so many intervals on.
const OVERDUE: f64 = 1.5;

/// What a site held over the run.
#[derive(Default)]
struct Stock {
    now: Level,
    /// The steps that left more than there was before, what was held before each, and what it added.
    rises: Vec<(u32, Level, u64)>,
}

#[derive(Clone, Copy, Default)]
struct Level {
    bytes: i64,
    blocks: i64,
}

pub fn find(view: &View<'_>, explained: &BTreeSet<u32>) -> Vec<Finding> {
    let is_open = |s: &&SiteView<'_>| {
        let is_block = matches!(s.site.layer, Layer::Block | Layer::Driver);
        let is_rare = f64::from(s.site.births) <= MOST_STEPS * f64::from(view.steps);
        // Each level but the first has a block more.
        let is_enough = blocks(&s.cohorts) >= MIN_LEVELS as u64 - 1 && s.site.frees > 0;
        is_block && is_rare && is_enough && !s.site.is_collected() && !explained.contains(&s.number)
    };
    let mut stocks: IntMap<u32, Stock> =
        view.sites.iter().filter(is_open).map(|s| (s.number, Stock::default())).collect();
    if stocks.is_empty() {
        return Vec::new();
    }
    for record in view.ledger.steps() {
        for delta in &record.deltas {
            let Some(stock) = stocks.get_mut(&delta.site) else { continue };
            if delta.bytes > 0 {
                stock.rises.push((record.step, stock.now, delta.bytes.unsigned_abs()));
            }
            stock.now.bytes = stock.now.bytes.wrapping_add(delta.bytes);
            stock.now.blocks = stock.now.blocks.wrapping_add(i64::from(delta.blocks));
        }
    }
    let mut found: Vec<Finding> =
        stocks.iter().filter_map(|(&number, stock)| finding(view, view.site(number)?, stock)).collect();
    found.sort_by_key(|f| f.sites.first().map(|s| s.site));
    by_cause(view, found)
}

fn finding(view: &View<'_>, of: &SiteView<'_>, stock: &Stock) -> Option<Finding> {
    let births: Vec<u32> = stock.rises.iter().map(|r| r.0).collect();
    let rhythm = rhythm(&births, &[]);
    let since = f64::from(view.steps.saturating_sub(*rhythm.events.last()?));
    if !rhythm.regular || rhythm.spacing < MIN_INTERVAL || since > OVERDUE * rhythm.spacing {
        return None;
    }
    let before =
        |event: &u32| stock.rises.binary_search_by_key(event, |r| r.0).ok().map(|at| stock.rises[at].1);
    let mut levels: Vec<Level> = rhythm.events.iter().skip(2).filter_map(before).collect();
    if since >= REMOVED * rhythm.spacing {
        levels.push(stock.now);
    }
    // A block that is replaced by a larger one is another rule's.
    let by = |of: fn(&Level) -> i64| steady(&levels.iter().map(of).collect::<Vec<i64>>());
    let (of_burst, _) = by(|l| l.bytes).zip(by(|l| l.blocks)).filter(|_| levels.len() >= MIN_LEVELS)?;
    let rate = of_burst / rhythm.spacing;
    let added = || stock.rises.iter().map(|r| r.2);
    let life = of.site.longest_life();
    let oldest_step = of.cohorts.first()?.birth;
    let mut f = Finding {
        bytes_per_step: median(added()),
        bytes_interval: interval(added()),
        blocks_per_step: median(of.cohorts.iter().map(|c| c.blocks)),
        growth_step_ratio: births.len() as f64 / f64::from(view.steps.max(1)),
        period_steps: Some(rhythm.spacing),
        growth_bytes_per_step: rate,
        cohorts: of.cohorts.len() as u32,
        oldest_step,
        first_step: of.site.first_birth,
        span: view.steps.saturating_sub(oldest_step).saturating_add(1),
        freed: of.site.frees,
        longest_life: life,
        ever_later: f64::from(life) >= rhythm.spacing,
        may_end: true,
        ..Finding::new(Kind::Growing, Confidence::Likely, of.site.device, of.site.layer)
    };
    f.sites.push(of.share(f.bytes_per_step));
    f.add_up();
    Some(f)
}
