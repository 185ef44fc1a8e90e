//! Rule B: a cause can renew its blocks every few steps while there are ever more of them: no block is old, the floor rises.
//! What is looked at is a site's whole stock at the boundaries, over the last two thirds of the run.

use std::collections::BTreeSet;

use super::clock::Clock;
use super::*;
use crate::ledger::keys::Map;

/// The judged part of the run is cut into so many windows; the lowest stock of each must lie above the one before.
const WINDOWS: usize = 8;
const SKIPPED: f64 = 1.0 / 3.0;
/// Each window adds at least this share of the mean one.
const EVEN: f64 = 0.5;
/// A run shorter than this shows no such thing.
const SHORTEST: u32 = 40;
/// Of the steps that change the stock next to none takes away …
const FALLING: f64 = 0.05;
/// … and less than this share of the growth is in blocks older than a window: those are another rule's.
const OLD: f64 = 0.5;

/// One site's stock.
#[derive(Default)]
struct Stock {
    bytes: i64,
    blocks: i64,
    window: usize,
    lows: [i64; WINDOWS],
    block_lows: [i64; WINDOWS],
    rises: u32,
    falls: u32,
    added: Vec<u64>,
}

impl Stock {
    /// Up to the beginning of `window` nothing changed.
    fn pass(&mut self, window: usize) {
        while self.window < window {
            self.window += 1;
            (self.lows[self.window], self.block_lows[self.window]) = (self.bytes, self.blocks);
        }
    }
}

pub(super) fn find(view: &View<'_>, claimed: &BTreeSet<u32>) -> Vec<Finding> {
    // An evaluation that is longer than a window would look like a pause.
    let clock = Clock::trained(view);
    let steps = clock.at(view.steps);
    let from = (f64::from(steps) * SKIPPED) as u32;
    let length = steps.saturating_sub(from) as usize / WINDOWS;
    if steps < SHORTEST || length == 0 {
        return Vec::new();
    }
    let from = steps - (length * WINDOWS) as u32;
    let mut stocks: Map<Stock> = Map::default();
    // It takes a birth in every window.
    let recent =
        |s: &Site| s.births as usize >= WINDOWS && steps - clock.at(s.last_birth).min(steps) <= length as u32;
    let worth = |number: u32| view.ledger.site(number).is_some_and(recent);
    for record in view.ledger.steps() {
        for d in record.deltas.iter().filter(|d| worth(d.site) && !claimed.contains(&d.site)) {
            let stock = stocks.entry(u64::from(d.site)).or_default();
            let judged = clock.at(record.step).checked_sub(from.saturating_add(1));
            if let Some(at) = judged {
                stock.pass((at as usize / length).min(WINDOWS - 1));
            }
            stock.bytes = stock.bytes.wrapping_add(d.bytes);
            stock.blocks = stock.blocks.wrapping_add(i64::from(d.blocks));
            if judged.is_some() {
                stock.rises += u32::from(d.bytes > 0);
                stock.falls += u32::from(d.bytes < 0);
                stock.added.extend(u64::try_from(d.bytes).ok().filter(|&b| b > 0));
            } else {
                (stock.lows[0], stock.block_lows[0]) = (stock.bytes, stock.blocks);
            }
            let w = stock.window;
            stock.lows[w] = stock.lows[w].min(stock.bytes);
            stock.block_lows[w] = stock.block_lows[w].min(stock.blocks);
        }
    }
    let mut numbers: Vec<u32> = stocks.keys().map(|&k| k as u32).collect();
    numbers.sort_unstable();
    let judged = (length * WINDOWS) as f64;
    let grows = |number: u32| -> Option<Finding> {
        let stock = stocks.get_mut(&u64::from(number))?;
        stock.pass(WINDOWS - 1);
        let site = view.ledger.site(number)?;
        let rate = steady(&stock.lows)?;
        let even = f64::from(stock.falls) <= FALLING * f64::from(stock.rises + stock.falls);
        if !even || !matches!(site.layer, Layer::Block | Layer::Driver) {
            return None;
        }
        let alive = view.suspects.iter().find(|s| s.number == number)?;
        let age = |birth: u32| steps.saturating_sub(clock.at(birth));
        let aged = |c: &&Cohort| c.birth > view.burn_in && age(c.birth) > length as u32;
        let old = alive.cohorts.iter().filter(aged).fold(0, |sum: u64, c| sum.wrapping_add(c.bytes));
        if old as f64 >= OLD * rate * (WINDOWS - 1) as f64 {
            return None;
        }
        let mut f = Finding {
            bytes_per_step: median(stock.added.iter().copied()),
            bytes_interval: interval(stock.added.iter().copied()),
            blocks_per_step: steady(&stock.block_lows).map_or(0.0, |r| r / length as f64),
            growth_step_ratio: f64::from(stock.rises) / judged,
            growth_bytes_per_step: rate / length as f64,
            cohorts: alive.cohorts.len() as u32,
            oldest_step: alive.cohorts.first()?.birth,
            first_step: site.first_birth,
            span: view.steps,
            freed: site.frees,
            longest_life: site.longest_life(),
            renewed: true,
            ..Finding::new(Kind::Growing, Confidence::Likely, site.device, site.layer)
        };
        f.sites.push(SiteShare {
            site: number,
            bytes_per_step: f.bytes_per_step,
            live_bytes: bytes(&alive.cohorts),
            live_blocks: blocks(&alive.cohorts),
        });
        f.add_up();
        Some(f)
    };
    numbers.into_iter().filter_map(grows).collect()
}

/// What a window adds, if each adds about as much.
fn steady(lows: &[i64; WINDOWS]) -> Option<f64> {
    let growth = lows[WINDOWS - 1].checked_sub(lows[0]).filter(|&g| g > 0)?;
    let mean = growth as f64 / (WINDOWS - 1) as f64;
    let rises = lows.windows(2).all(|w| w[1].saturating_sub(w[0]) as f64 >= EVEN * mean);
    rises.then_some(mean)
}
