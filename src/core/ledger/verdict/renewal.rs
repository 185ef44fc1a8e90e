//! A site can free all of its blocks and still hold ever more. It may reallocate them every few steps, each
//! time more of them: no block is old, but the floor rises. Or it frees them ever later, as a queue does whose
//! consumer is too slow: no block is older than those that were freed. So this rule looks at all that a site holds
//! at the boundaries, over the last two thirds of the run.

use std::collections::BTreeSet;

use super::finding::{Confidence, Finding, Kind, SiteShare};
use super::holders;
use super::phase_clock::PhaseClock;
use super::statistics::{Levels, grouped, interval, irregular, median, steady, steady_within, sum_intervals};
use super::survivors::{BURST_WAIT, STEADY_COHORTS};
use super::view::View;
use crate::frameworks::{self, Framework};
use crate::int_map::IntMap;
use crate::ledger::cohort::{Cohort, blocks, bytes};
use crate::ledger::sites::{Layer, Site};

/// The judged part of the run is cut into so many windows; the least held in each must lie above the one before, or in all
/// but one where blocks are freed ever later.
const WINDOWS: usize = 8;
/// The share of the run before the judged part.
const SKIPPED: f64 = 1.0 / 3.0;
/// A run shorter than this cannot show it, unless there is more after every one of its steps: then so many suffice, or so many
/// where there are more blocks.
const MIN_STEPS: u32 = 40;
const MIN_STEPS_OF_EACH: u32 = 20;
const MIN_STEPS_OF_BLOCKS: u32 = 16;
/// At least this share of the steps that allocate must leave more than was held before, and no later step less than that: what
/// is as large as before in most of them has its size from outside, as a batch does whose length grows from epoch to epoch. It
/// may be smaller again at once: PyTorch's allocator leaves a block what it was found in, if that is up to 1 MiB more …
pub const RISING: f64 = 0.5;
/// … or this share, where it rises by no more than PyTorch's allocator rounds up: blocks of more than 10 MiB to 2 MiB. What grows
/// by half a MiB in each step becomes larger in every fourth …
const RISING_ROUNDED: f64 = 0.2;
const LARGE: u64 = 10 << 20;
const ROUNDED_TO: f64 = (2 << 20) as f64;
/// … and smaller blocks to 512 bytes, where they are as many as before, each rises by no more, never falls, and rises oftener than a
/// run has epochs: the keys and values of a cache by 144 bytes with each token, which is in 28 of 100 steps …
const RISING_SMALL: f64 = 0.1;
const SMALL_ROUNDED_TO: u64 = 512;
const MORE_THAN_EPOCHS: u32 = 24;
/// The last windows, of which each has what the one before has, where nothing rises any more.
const STILL: usize = 3;
/// Or there are more blocks all the time, of which each is replaced by itself: then no more of them than so many are there twice,
/// of so many at least.
const REPLACED_AT_ONCE: u64 = 2;
const MIN_REPLACED: u64 = 5;
/// What is replaced as a whole, with more parts seldom, may be of a work that takes more rounds. So many rises are enough where
/// its holder keeps all that it had.
const MIN_RISES: u32 = 8;
/// … and less than this share of the growth is in blocks older than a window: those belong to another rule, unless
/// they are freed ever later.
const OLD: f64 = 0.5;
/// What keeps on grows in the second half of the judged part by at least this share of what it grew by in the first; what fills
/// up grows ever less. Of a queue that backs up this share is enough, since what is taken out by chance is not the same in both, or
/// the last where its rises are irregular.
const KEEPS_ON: f64 = 0.8;
const BACKS_UP: f64 = 0.65;
const BACKS_UP_IRREGULAR: f64 = 0.5;
/// So many blocks that were freed alone were taken out one after the other.
const ONE_BY_ONE: u64 = 8;
/// The windows of the second half for one of the first half.
const LATER_WINDOWS: f64 = (WINDOWS - 1 - WINDOWS / 2) as f64 / (WINDOWS / 2) as f64;

/// What grows by as much as another thing, but for this share, may be computed from it.
const SAME_GROWTH: f64 = 0.1;

/// What a site holds, followed over the run.
struct Stock {
    framework: &'static Framework,
    bytes: i64,
    blocks: i64,
    window: usize,
    /// The least held in each window, and how much of it may be spare.
    lows: [i64; WINDOWS],
    spare: [i64; WINDOWS],
    block_lows: [i64; WINDOWS],
    rises: u32,
    falls: bool,
    added: Vec<u64>,
    added_blocks: Vec<u64>,
}

impl Stock {
    fn of(view: &View<'_>, site: u32) -> Stock {
        Stock {
            framework: frameworks::of_number(view.ledger.site(site).map_or(0, |s| s.entry_point)),
            bytes: 0,
            blocks: 0,
            window: 0,
            lows: [0; WINDOWS],
            spare: [0; WINDOWS],
            block_lows: [0; WINDOWS],
            rises: 0,
            falls: false,
            added: Vec::new(),
            added_blocks: Vec::new(),
        }
    }

    /// Moves on to a window; nothing changed until its beginning.
    fn move_to(&mut self, window: usize) {
        while self.window < window {
            self.window += 1;
            self.set_lows();
        }
    }

    fn set_lows(&mut self) {
        let w = self.window;
        (self.lows[w], self.block_lows[w], self.spare[w]) =
            (self.bytes, self.blocks, self.spare_of(self.bytes, self.blocks));
    }

    /// Returns how much of so many bytes in so many blocks may be spare.
    fn spare_of(&self, bytes: i64, blocks: i64) -> i64 {
        self.framework.spare(bytes, blocks, SMALL_ROUNDED_TO as i64)
    }
}

pub fn find(view: &View<'_>, explained: &BTreeSet<u32>) -> Vec<Finding> {
    // An evaluation that is longer than a window would look like a pause.
    let clock = PhaseClock::of_training(view);
    let steps = clock.at(view.steps);
    let from = (f64::from(steps) * SKIPPED) as u32;
    let length = steps.saturating_sub(from) as usize / WINDOWS;
    if steps < MIN_STEPS_OF_BLOCKS || length == 0 {
        return Vec::new();
    }
    let from = steps - (length * WINDOWS) as u32;
    let mut stocks: IntMap<u32, Stock> = IntMap::default();
    // It takes a birth in every window.
    let recent =
        |s: &Site| s.births as usize >= WINDOWS && steps - clock.at(s.last_birth).min(steps) <= length as u32;
    let worth = |number: u32| view.ledger.site(number).is_some_and(recent);
    let mut before = 0;
    for record in view.ledger.steps() {
        // Of a long run the older records stand for several steps each.
        let spanned = clock.at(record.step).saturating_sub(before).max(1);
        before = clock.at(record.step);
        for d in record.deltas.iter().filter(|d| worth(d.site) && !explained.contains(&d.site)) {
            let stock = stocks.entry(d.site).or_insert_with(|| Stock::of(view, d.site));
            let judged = clock.at(record.step).checked_sub(from.saturating_add(1));
            if let Some(at) = judged {
                stock.move_to((at as usize / length).min(WINDOWS - 1));
            }
            stock.bytes = stock.bytes.wrapping_add(d.bytes);
            stock.blocks = stock.blocks.wrapping_add(i64::from(d.blocks));
            if judged.is_some() {
                stock.rises = stock.rises.saturating_add(if d.bytes > 0 { spanned } else { 0 });
                stock.falls |= d.bytes < 0;
                if d.bytes > 0 && spanned == 1 {
                    stock.added.push(d.bytes.unsigned_abs());
                    stock.added_blocks.push(u64::from(d.blocks.max(0).unsigned_abs()));
                }
            } else {
                stock.set_lows();
            }
            let w = stock.window;
            if stock.bytes < stock.lows[w] {
                (stock.lows[w], stock.spare[w]) = (stock.bytes, stock.spare_of(stock.bytes, stock.blocks));
            }
            stock.block_lows[w] = stock.block_lows[w].min(stock.blocks);
        }
    }
    let mut numbers: Vec<u32> = stocks.keys().copied().collect();
    numbers.sort_unstable();
    let judged = (length * WINDOWS) as f64;
    let grows = |number: u32| -> Option<Finding> {
        let stock = stocks.get_mut(&number)?;
        stock.move_to(WINDOWS - 1);
        let site = view.ledger.site(number)?;
        let exactly_even = steady(&stock.lows);
        let has_spare = stock.spare[WINDOWS - 1] > 0;
        let within = if has_spare { steady_within(&stock.lows, &stock.spare) } else { None };
        let even = exactly_even.or_else(|| within.map(|(least, most)| f64::midpoint(least, most)));
        // Where blocks have spare room, those before them show whether it rises from step to step.
        let seen = |from, exactly| rises(view, &clock, number, stock, from, exactly);
        let before_spare = has_spare.then(|| seen(clock.at(view.burn_in), true));
        let before_spare = before_spare.filter(|exact| exact.steps as usize >= WINDOWS);
        let in_whole_run = || seen(clock.at(view.burn_in), false);
        let rate = even.or_else(|| irregular(&stock.lows))?;
        if !matches!(site.layer, Layer::Block | Layer::Driver) {
            return None;
        }
        if steps < MIN_STEPS {
            let since_first = || seen(clock.at(site.first_birth).max(clock.at(view.burn_in)), false);
            let shown = before_spare.unwrap_or_else(since_first);
            let in_all = shown.lasting >= shown.steps;
            let by_blocks = stock.added_blocks.len() as f64 >= judged
                && stock.added_blocks.iter().all(|&blocks| blocks > 0);
            if !in_all || !(by_blocks || steps >= MIN_STEPS_OF_EACH) {
                return None;
            }
        }
        let alive = view.site(number)?;
        let age = |birth: u32| steps.saturating_sub(clock.at(birth));
        let aged = |c: &&Cohort| c.birth > view.burn_in && age(c.birth) > length as u32;
        let old = alive.cohorts.iter().filter(aged).fold(0, |sum: u64, c| sum.wrapping_add(c.bytes));
        // A queue that backs up has more blocks, and not only larger ones.
        let has_more = stock.block_lows[WINDOWS - 1] > stock.block_lows[0];
        let ever_later = has_more && old as f64 >= OLD * rate * (WINDOWS - 1) as f64;
        let share = judged / f64::from(steps.saturating_sub(clock.at(site.first_birth)).saturating_add(1));
        let births = f64::from(site.births) * share.min(1.0);
        let added = median(stock.added.iter().copied());
        let (live_bytes, live_blocks) = (bytes(&alive.cohorts), blocks(&alive.cohorts));
        let rounded = added <= ROUNDED_TO && live_bytes > LARGE.saturating_mul(live_blocks);
        // Half of each may be spare, so that many a larger one is found in a smaller gap.
        let by_half = stock.framework.leaves_half();
        let rising = if rounded || by_half { RISING_ROUNDED } else { RISING };
        let rounded_each = SMALL_ROUNDED_TO.saturating_mul(live_blocks) as f64;
        let is_small =
            !stock.falls && added <= rounded_each && stock.added_blocks.iter().all(|&blocks| blocks == 0);
        if (even.is_none() || (exactly_even.is_none() && has_stopped(stock))) && !ever_later {
            return None;
        }
        let mut if_remade = false;
        let mut lasting = if ever_later { 0 } else { seen(from, false).lasting };
        let more_blocks = steady(&stock.block_lows);
        let most = stock.lows.iter().copied().chain([stock.bytes]).max()?.unsigned_abs();
        // What is made anew as a whole, of more parts than before, is there twice for a moment, or was gone.
        let one_by_one = || {
            let block = live_bytes / live_blocks.max(1);
            let twice = site.peak_bytes().saturating_sub(most);
            live_blocks >= MIN_REPLACED && (1..=REPLACED_AT_ONCE.saturating_mul(block)).contains(&twice)
        };
        let rose_before =
            before_spare.map(|exact| f64::from(exact.lasting) >= RISING * f64::from(exact.steps));
        let grows = match ever_later {
            true => {
                // What a dict gets may be for a key that it has already, ever more often.
                let is_keyed = holders::is_unbounded(view, number) && !holders::are_appended(view, number);
                let share = match even {
                    _ if is_keyed => KEEPS_ON,
                    Some(_) => BACKS_UP,
                    None => BACKS_UP_IRREGULAR,
                };
                backs_up(site, &clock, length as u32) && self::keeps_on(&stock.lows, share)
            }
            false if f64::from(lasting) >= rising * births => true,
            false if rose_before.is_some() => rose_before == Some(true),
            false if has_spare && exactly_even.is_none() => f64::from(lasting) >= RISING_SMALL * births,
            false if is_small && lasting >= MORE_THAN_EPOCHS => f64::from(lasting) >= RISING_SMALL * births,
            false if more_blocks.is_some() && one_by_one() => {
                // They are few, and those before count as well.
                lasting = in_whole_run().lasting;
                true
            }
            false if more_blocks.is_some() && live_blocks >= MIN_REPLACED => {
                lasting = in_whole_run().lasting;
                if_remade = true;
                lasting >= MIN_RISES
            }
            false => false,
        };
        if !grows {
            return None;
        }
        let keeps_on = keeps_on(&stock.lows, KEEPS_ON);
        // What is made of the old one is there beside it for a moment. Else, if it does not come in more blocks either, the old
        // one was gone, and the new one is another thing that happens to be larger.
        if !ever_later && more_blocks.is_none() && site.peak_bytes() <= most {
            return None;
        }
        let oldest_step = alive.cohorts.first()?.birth;
        let blocks_per_step = match ever_later {
            true => median(stock.added_blocks.iter().copied()),
            false => more_blocks.map_or(0.0, |r| r / length as f64),
        };
        // Where blocks have spare room a step adds what the steps before have added, or most do, if it can be that, or what a line
        // through all levels rises by.
        let can_be = |of_step: &f64| {
            within.is_some_and(|(least, most)| (least..=most).contains(&(of_step * length as f64)))
        };
        let mean = rate / length as f64;
        let slope = seen(from, false).slope;
        let shown = [before_spare.map_or(if by_half { slope } else { added }, Rises::mean), added, slope];
        let of_step = shown.into_iter().find(can_be).unwrap_or(mean);
        let is_spread = has_spare && !ever_later;
        let (bytes_per_step, growth) = if is_spread { (of_step, of_step) } else { (added, mean) };
        let mut f = Finding {
            bytes_per_step,
            bytes_interval: interval(stock.added.iter().copied()).filter(|_| !is_spread),
            blocks_per_step,
            growth_step_ratio: if is_spread { 1.0 } else { f64::from(stock.rises) / judged },
            growth_bytes_per_step: growth,
            cohorts: alive.cohorts.len() as u32,
            oldest_step,
            first_step: site.first_birth,
            span: if ever_later {
                view.steps.saturating_sub(oldest_step).saturating_add(1)
            } else {
                view.steps
            },
            freed: site.frees,
            longest_life: site.longest_life(),
            renewed: !ever_later,
            if_remade,
            rises_steadily: lasting as usize >= STEADY_COHORTS && keeps_on,
            ever_later,
            may_end: even.is_none(),
            ..Finding::new(Kind::Growing, Confidence::Likely, site.device, site.layer)
        };
        f.sites.push(SiteShare {
            site: number,
            device: site.device,
            bytes_per_step,
            live_bytes,
            live_blocks,
        });
        f.add_up();
        Some(f)
    };
    let (open, found): (Vec<Finding>, Vec<Finding>) =
        numbers.into_iter().filter_map(grows).partition(|f| f.if_remade);
    [by_cause(view, found), by_cause(view, open)].concat()
}

/// Joins the findings that are one cause.
pub fn by_cause(view: &View<'_>, found: Vec<Finding>) -> Vec<Finding> {
    grouped(found, |a, b| together(view, a, b)).into_iter().filter_map(joined).collect()
}

/// What a site held after each step, from the last one back.
#[derive(Clone, Copy)]
struct Rises {
    /// The steps that left it with less than every later one did, so that what it holds rises for good in the next.
    lasting: u32,
    /// All steps of which the figures are, and what they added together.
    steps: u32,
    bytes: i64,
    /// By how much a step rises along the line that lies nearest to all levels (least squares).
    slope: f64,
}

impl Rises {
    fn mean(self) -> f64 {
        self.bytes as f64 / f64::from(self.steps.max(1))
    }
}

/// Returns how many of the steps after `from` left a site with less than every later one did; `exactly`: of those steps alone
/// after which nothing of it could be spare, and less than was needed later.
fn rises(
    view: &View<'_>,
    clock: &PhaseClock<'_>,
    site: u32,
    stock: &Stock,
    from: u32,
    exactly: bool,
) -> Rises {
    let mut all = Rises { lasting: 0, steps: 0, bytes: 0, slope: 0.0 };
    let mut levels = Levels::default();
    let (mut held, mut blocks, mut least) = (stock.bytes, stock.blocks, i64::MAX);
    let mut records = view.ledger.steps().iter().rev().peekable();
    while let Some(record) = records.next().filter(|r| clock.at(r.step) > from) {
        // Of a long run the older records stand for several steps each.
        let before = records.peek().map_or(0, |r| clock.at(r.step));
        let stands_for = clock.at(record.step).saturating_sub(before).max(1);
        let spare = if exactly { stock.spare_of(held, blocks) } else { 0 };
        levels.add(f64::from(clock.at(record.step)), held as f64);
        if spare == 0 {
            all.steps = all.steps.saturating_add(stands_for);
        }
        let Ok(at) = record.deltas.binary_search_by_key(&site, |d| d.site) else { continue };
        if spare == 0 {
            all.lasting = all.lasting.saturating_add(if held < least { stands_for } else { 0 });
            all.bytes = all.bytes.wrapping_add(record.deltas[at].bytes);
        }
        least = least.min(held.saturating_sub(spare));
        held = held.wrapping_sub(record.deltas[at].bytes);
        blocks = blocks.wrapping_sub(i64::from(record.deltas[at].blocks));
    }
    all.slope = levels.slope();
    all
}

/// Returns whether two sites are one cause: one object has both, or, where holders are not known, one line renews both.
fn together(view: &View<'_>, a: &Finding, b: &Finding) -> bool {
    let (Some(x), Some(y)) = (a.sites.first(), b.sites.first()) else { return false };
    let line = |site: u32| view.ledger.site(site).map(|s| (view.context.location)(s.stack));
    let held = |site: u32| -> Vec<u64> { (view.context.holders)(site).iter().map(|h| h.object).collect() };
    let one = || holders::share(&held(x.site), &held(y.site)).unwrap_or_else(|| line(x.site) == line(y.site));
    a.layer == b.layer && one()
}

/// Returns the sites of what grows by as much as something else that is renewed and came before it: it is computed from that,
/// and ends with it.
pub fn following(findings: &[Finding]) -> BTreeSet<u32> {
    let renewed = || findings.iter().filter(|f| f.renewed && !f.sites.is_empty());
    let first = |f: &Finding| f.sites.iter().map(|s| s.site).min();
    let alike = |a: f64, b: f64| (a - b).abs() <= SAME_GROWTH * a;
    let follows = |f: &&Finding| {
        let is_before = |other: &Finding| first(other) < first(f) && other.device == f.device;
        renewed().any(|other| is_before(other) && alike(other.growth_bytes_per_step, f.growth_bytes_per_step))
    };
    renewed().filter(follows).flat_map(|f| f.sites.iter().map(|s| s.site)).collect()
}

fn joined(group: Vec<Finding>) -> Option<Finding> {
    let mut f = group.into_iter().reduce(|a, b| Finding {
        sites: [a.sites, b.sites].concat(),
        bytes_per_step: a.bytes_per_step + b.bytes_per_step,
        bytes_interval: sum_intervals(a.bytes_interval, b.bytes_interval),
        blocks_per_step: a.blocks_per_step + b.blocks_per_step,
        growth_step_ratio: a.growth_step_ratio.max(b.growth_step_ratio),
        growth_bytes_per_step: a.growth_bytes_per_step + b.growth_bytes_per_step,
        cohorts: a.cohorts.max(b.cohorts),
        oldest_step: a.oldest_step.min(b.oldest_step),
        first_step: a.first_step.min(b.first_step),
        freed: a.freed.wrapping_add(b.freed),
        longest_life: a.longest_life.max(b.longest_life),
        rises_steadily: a.rises_steadily && b.rises_steadily,
        may_end: a.may_end || b.may_end,
        ..a
    })?;
    f.add_up();
    Some(f)
}

/// Returns whether what rose before has stood still for so long that its blocks would have outgrown what they have to spare.
fn has_stopped(stock: &Stock) -> bool {
    let [first, .., since, before, last] = stock.lows;
    let blocks = stock.blocks.max(1);
    let is_large = last.unsigned_abs() > LARGE.saturating_mul(blocks.unsigned_abs());
    // As much as of somewhat larger ones.
    let spare = stock.spare_of(last.saturating_add(ROUNDED_TO as i64 * blocks), blocks) as f64;
    let spare = spare + if is_large { ROUNDED_TO * blocks as f64 } else { 0.0 };
    let of_window = since.saturating_sub(first) as f64 / (WINDOWS - STILL) as f64;
    since == before && before == last && STILL as f64 * of_window > spare
}

/// Returns whether a site frees its blocks all the time, one birth step after the other, but ever later.
fn backs_up(site: &Site, clock: &PhaseClock<'_>, window: u32) -> bool {
    let steps = clock.at(site.last_birth);
    let gaps = site.releases.windows(2).map(|w| u64::from(clock.at(w[1].step) - clock.at(w[0].step)));
    let released_within = f64::from(window).max(BURST_WAIT * median(gaps));
    let last = clock.at(site.last_release);
    // Where nothing takes out any more what was taken out one by one, it grows all the faster.
    let goes_on = f64::from(steps.saturating_sub(last)) <= released_within;
    let together = site.releases.iter().fold(0u64, |sum, r| sum.saturating_add(r.blocks));
    let has_gone_on = site.lasting.saturating_sub(together) >= ONE_BY_ONE && last >= steps / 2;
    let all_the_time =
        site.first_release > 0 && clock.at(site.first_release) <= steps / 2 && (goes_on || has_gone_on);
    all_the_time && !site.is_collected() && site.longest_life() > window
}

/// Returns whether the second half of the judged part adds at least this share of what the first one does: what fills up adds
/// ever less.
fn keeps_on(lows: &[i64; WINDOWS], share: f64) -> bool {
    let [first, .., last] = *lows;
    let middle = lows[WINDOWS / 2];
    let (early, late) = (middle.saturating_sub(first), last.saturating_sub(middle));
    late as f64 >= share * early as f64 * LATER_WINDOWS
}
