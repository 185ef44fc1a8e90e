//! What holders show: the bound that the lives of blocks cannot show, or that there is none; and that what
//! one holder has is one cause, however many lines filled it.

use std::collections::{BTreeMap, BTreeSet};

use super::finding::{Confidence, Finding, Kind};
use super::renewal;
use super::survivors::{STEADY_COHORTS, STEADY_SHARE};
use super::view::{CERTAIN_COHORTS, MIN_COHORTS, SiteHolder, View};
use crate::format::entry::Retention;
use crate::ledger::sites::Layer;

/// A kind of retention decides from this share of what the largest holder has on.
const DECISIVE_SHARE: f64 = 0.5;
/// Garbage that has so many times what any one holder that is in use has, of the same lines, is what grows.
const GARBAGE: f64 = 2.0;
/// The entries that come later may have so many times the blocks of the first ones.
const UNEVEN_ENTRIES: u64 = 2;
/// Entries of a step that is not over: what was just made, and what was just taken out.
const IN_HAND: u64 = 2;
/// The interval of the median of sizes that differ is as wide as this, and what comes rarely comes in fewer steps than this
/// share.
const DIFFERENT_SIZES: f64 = 1.5;
const RARELY: f64 = 0.5;

/// Returns the holders of a site's blocks whose retention is known.
pub fn of_site(view: &View<'_>, site: u32) -> Vec<u64> {
    let held = (view.context.holders)(site);
    held.into_iter().filter(|h| h.retention != Retention::Unknown).map(|h| h.holder).collect()
}

/// Returns whether most of what was found of a site's blocks had an owner that was alive, while the program
/// ran: no cycle keeps them.
pub fn is_owned(view: &View<'_>, site: u32) -> bool {
    most_are(view, site, &|r| r != Retention::Unreachable)
}

/// Returns whether most of what was found of a site's blocks lay in cycles that nothing else refers to.
pub fn is_garbage(view: &View<'_>, site: u32) -> bool {
    most_are(view, site, &|r| r == Retention::Unreachable)
}

/// Returns whether most of what was found of a site's blocks is in containers that have no bound.
pub fn is_unbounded(view: &View<'_>, site: u32) -> bool {
    most_are(view, site, &Retention::is_unbounded)
}

/// Returns whether most of what was found of a site's blocks is in lists that have no bound.
pub fn are_appended(view: &View<'_>, site: u32) -> bool {
    most_are(view, site, &|r| r == Retention::Appended)
}

/// Returns whether variables alone have what grew, each of which gets its values from nothing it had before.
pub fn are_replaced(view: &View<'_>, f: &Finding) -> bool {
    let held = |site: u32| (view.context.holders)(site).into_iter().map(|h| h.retention);
    let known: Vec<Retention> =
        f.sites.iter().flat_map(|s| held(s.site)).filter(|r| *r != Retention::Unknown).collect();
    !known.is_empty() && known.iter().all(|r| r.is_replaced())
}

/// Returns whether what grew is in collections that are made anew, each of all that it had before.
pub fn are_remade(view: &View<'_>, f: &Finding) -> bool {
    f.sites.iter().all(|s| most_are(view, s.site, &|r| r == Retention::Remade))
}

/// Returns whether most of what was found of a site's blocks, as far as its retention is known, is of one kind.
fn most_are(view: &View<'_>, site: u32, is_of_kind: &dyn Fn(Retention) -> bool) -> bool {
    let held = (view.context.holders)(site);
    let known = held.iter().filter(|h| h.retention != Retention::Unknown);
    let (of_kind, others): (Vec<&SiteHolder>, Vec<&SiteHolder>) =
        known.partition(|h| is_of_kind(h.retention));
    let blocks = |of: &[&SiteHolder]| of.iter().fold(0u64, |sum, h| sum.saturating_add(h.blocks));
    blocks(&of_kind) > blocks(&others)
}

/// Returns whether two sites have a holder in common; `None` if the holders of one are not known.
pub fn share(a: &[u64], b: &[u64]) -> Option<bool> {
    let known = !a.is_empty() && !b.is_empty();
    known.then(|| a.iter().any(|holder| b.contains(holder)))
}

/// Adds to leaks what their holders got from other sites before: another loop filled the same list.
pub fn take_in_earlier(view: &View<'_>, findings: &mut [Finding], explained: &mut BTreeSet<u32>) {
    let mut leaks: BTreeMap<(u64, u8), usize> = BTreeMap::new();
    for (at, f) in
        findings.iter().enumerate().filter(|(_, f)| f.kind == Kind::Leak && f.layer == Layer::Block)
    {
        for holder in f.sites.iter().filter_map(|s| main_holder(view, s.site)) {
            leaks.entry((holder, f.device)).or_insert(at);
        }
    }
    if leaks.is_empty() {
        return;
    }
    for s in &view.sites {
        if s.site.layer != Layer::Block || s.cohorts.len() < MIN_COHORTS || explained.contains(&s.number) {
            continue;
        }
        let leak = main_holder(view, s.number).and_then(|holder| leaks.get(&(holder, s.site.device)));
        if let Some(f) = leak.and_then(|&at| findings.get_mut(at)) {
            explained.insert(s.number);
            let share = s.share(0.0);
            f.live_bytes = f.live_bytes.wrapping_add(share.live_bytes);
            f.live_blocks = f.live_blocks.wrapping_add(share.live_blocks);
            f.sites.push(share);
        }
    }
}

/// Returns the holder that has the most of a site's blocks, if that can take in more for ever.
fn main_holder(view: &View<'_>, site: u32) -> Option<u64> {
    let held = (view.context.holders)(site);
    let most = held.into_iter().max_by_key(|h| h.blocks)?;
    most.retention.is_unbounded().then_some(most.holder)
}

/// Returns whether what a holder has can be what grew. C or C++ code that has more than all of it has something else
/// of the same site: a library's workspace is large, and set up once by a line that others may follow.
pub fn may_hold(f: &Finding, retention: Retention, bytes: u64) -> bool {
    retention != Retention::Unknown || bytes <= f.live_bytes
}

/// Returns how many entries a holder has, and how many it can have, or may have.
fn room(retention: Retention) -> Option<(u64, u64)> {
    match retention {
        Retention::Bounded { entries, max_entries } => Some((entries, max_entries)),
        Retention::Limited { entries, limit } => Some((entries, limit)),
        _ => None,
    }
}

/// Returns how many blocks a holder that has so many of them may have, by the limits that the program compares the lengths of its
/// collections with. What grows in each of their entries no such limit bounds. `None`: there is none.
fn limited_to(view: &View<'_>, f: &Finding, holder: u64, has: u64) -> Option<u64> {
    let of_site = |site: u32| {
        let held = (view.context.holders)(site).into_iter().filter(|h| h.holder == holder);
        held.fold((0u64, 0u64), |(all, most), h| match h.retention {
            Retention::Limited { entries, limit } => {
                (all.saturating_add(entries), most.saturating_add(limit))
            }
            _ => (all, most),
        })
    };
    // Several sites may fill the same collections.
    let (entries, limit) = f.sites.iter().map(|s| of_site(s.site)).max_by_key(|of| of.1)?;
    let in_one = has.div_ceil(entries.max(1));
    let grows_in_each =
        entries.saturating_mul(f.live_blocks) < has.saturating_mul(u64::from(f.cohorts)) / UNEVEN_ENTRIES;
    let in_hand = if f.freed > 0 { IN_HAND } else { 0 };
    (limit > 0 && !grows_in_each).then(|| limit.saturating_add(in_hand).saturating_mul(in_one))
}

/// Returns whether a bound of so many bytes is beyond the size of a device: it does not help.
fn exceeds_a_device(view: &View<'_>, f: &Finding, bound: f64) -> bool {
    view.ledger.devices().iter().any(|d| {
        let part = f.part_on(d.device);
        let its = (f.live_bytes as f64 * part) as u64;
        let others = d.live_bytes().saturating_sub(its) + d.unattributed_bytes.unwrap_or(0);
        d.total_bytes > 0 && part > 0.0 && bound * part > d.total_bytes.saturating_sub(others) as f64
    })
}

/// Returns the most bytes that bounded holders can ever have. Their entries are those of the moment of the search, and so
/// are the bytes of an entry; what a finding has by now came later, in part.
fn bound_of<'a>(holders: impl Iterator<Item = &'a SiteHolder>, f: &Finding) -> f64 {
    // By holder: its blocks and bytes at all sites, and its entries.
    let mut all: BTreeMap<u64, (u64, u64, u64, u64)> = BTreeMap::new();
    for h in holders {
        if let Some((entries, max_entries)) = room(h.retention) {
            let (blocks, bytes, now, most) = all.entry(h.holder).or_default();
            (*blocks, *bytes) = (blocks.saturating_add(h.blocks), bytes.saturating_add(h.bytes));
            (*now, *most) = ((*now).max(entries), (*most).max(max_entries));
        }
    }
    let of_one = |&(blocks, bytes, entries, most): &(u64, u64, u64, u64)| {
        let in_one = (blocks as f64 / entries.max(1) as f64).round().max(1.0);
        bytes as f64 / blocks.max(1) as f64 * in_one * most as f64
    };
    // A block that two of them have would count twice.
    let blocks = all.values().fold(0u64, |sum, of| sum.saturating_add(of.0));
    let are_apart = blocks <= f.live_blocks;
    let bounds = all.values().map(of_one);
    let bound = if are_apart { bounds.sum() } else { bounds.fold(0.0, f64::max) };
    bound.max(f.live_bytes as f64)
}

/// Whether what grows has an entry for each new size, now and then: a cache that is looked up by shape has a bound, which
/// nothing shows.
fn may_be_by_size(f: &Finding) -> bool {
    let differ = |[low, high]: [f64; 2]| high > DIFFERENT_SIZES * low;
    f.freed == 0 && f.growth_step_ratio < RARELY && f.bytes_interval.is_some_and(differ)
}

/// Grades findings by their holders; takes out and returns those that their holder bounds, which are no
/// findings.
pub fn weigh(view: &View<'_>, findings: &mut Vec<Finding>) -> Vec<Finding> {
    let mut bounded = Vec::new();
    let following = renewal::following(findings);
    findings.retain_mut(|f| {
        if !f.kind.grows() || f.sites.is_empty() {
            return true;
        }
        let held = f.sites.iter().flat_map(|p| (view.context.holders)(p.site));
        let held: Vec<SiteHolder> = held.filter(|h| may_hold(f, h.retention, h.bytes)).collect();
        // Where a block has two holders both count.
        let sum = |of: &dyn Fn(&SiteHolder) -> bool| {
            held.iter().filter(|h| of(h)).fold(0u64, |sum, h| sum.saturating_add(h.bytes)) as f64
        };
        let largest = held.iter().map(|h| sum(&|other| other.holder == h.holder)).fold(0.0, f64::max);
        let most = |of: &dyn Fn(&Retention) -> bool| {
            largest > 0.0 && sum(&|h| of(&h.retention)) >= DECISIVE_SHARE * largest
        };
        let blocks = |holder: u64| {
            held.iter().filter(|h| h.holder == holder).fold(0u64, |sum, h| sum.saturating_add(h.blocks))
        };
        // A variable has the newest result, of each thread or task that runs: where others have several, one block shows
        // nothing that grows.
        let several = held.iter().any(|h| blocks(h.holder) > 1);
        // Several collections, each with a limit of its own, may have all of it together.
        let limits: BTreeMap<u64, Option<u64>> =
            held.iter().map(|h| (h.holder, limited_to(view, f, h.holder, blocks(h.holder)))).collect();
        let limited = limits.values().flatten().fold(0, |sum: u64, blocks| sum.saturating_add(*blocks));
        let is_open = |h: &SiteHolder| match h.retention {
            Retention::Limited { .. } => limits[&h.holder].is_none() || limited < f.live_blocks,
            retention => retention.is_unbounded(),
        };
        let grows = |h: &SiteHolder| is_open(h) && !(several && blocks(h.holder) == 1);
        // What is in use has each of a few parts of its newest: garbage has those of many steps.
        let of_one = |h: &SiteHolder| sum(&|other| other.holder == h.holder && grows(other));
        let largest_used = held.iter().map(of_one).fold(0.0, f64::max);
        let is_garbage = sum(&|h| h.retention == Retention::Unreachable) >= GARBAGE * largest_used.max(1.0);
        if !is_garbage && largest > 0.0 && sum(&grows) >= DECISIVE_SHARE * largest {
            // What the curve of a short or irregular run leaves open, the container decides: it has no bound, and has
            // kept what was put into it.
            let every_step = f.growth_step_ratio >= STEADY_SHARE && f.cohorts as usize >= CERTAIN_COHORTS;
            if f.kind == Kind::Growing && !f.may_end && (every_step || f.cohorts as usize >= STEADY_COHORTS) {
                f.kind = Kind::Leak;
            }
            // A variable whose block is replaced by ever larger ones keeps all that was put into it. What a call gave back when
            // its loop was over was the work of that call: a generation's keys and values, say. No training is.
            let is_given_back =
                || !view.is_training() && 2 * view.ledger.freed_after_last_step(f.device) >= f.live_bytes;
            let follows = || f.sites.iter().any(|p| following.contains(&p.site));
            if f.kind == Kind::Growing && f.rises_steadily && !follows() && !is_given_back() {
                f.kind = Kind::Leak;
            }
            if f.kind == Kind::Leak && !f.renewed && !may_be_by_size(f) {
                f.confidence = Confidence::Confirmed;
            }
            return true;
        }
        if most(&|h| *h == Retention::Unreachable) {
            f.kind = Kind::PendingGc;
            f.confidence = Confidence::Confirmed;
            // What else these lines free was never in a cycle.
            if !f.sites.iter().any(|p| view.site(p.site).is_some_and(|s| s.site.was_collected())) {
                f.longest_life = 0;
            }
            return true;
        }
        // A holder that is full while its site grows all the same is not what bounds it; one that has all there is, is.
        // Its newest entry may have been found in the local variable that has it too. Nor does one bound more than it
        // has room for.
        let bounds = |h: &SiteHolder| {
            let Some((entries, max_entries)) = room(h.retention) else { return false };
            if matches!(h.retention, Retention::Limited { .. }) {
                return !is_open(h);
            }
            let has = blocks(h.holder);
            let in_one = has.div_ceil(entries.max(1));
            let has_room =
                entries < max_entries && max_entries.saturating_mul(in_one) >= f.live_blocks / UNEVEN_ENTRIES;
            let has_all = || {
                has.saturating_add(in_one) >= f.live_blocks && entries.saturating_mul(in_one) >= f.live_blocks
            };
            has_room || has_all()
        };
        if largest <= 0.0 || sum(&bounds) < DECISIVE_SHARE * largest {
            return true;
        }
        let bound = bound_of(held.iter().filter(|h| bounds(h)), f);
        let limits = held.iter().filter(|h| bounds(h) && matches!(h.retention, Retention::Limited { .. }));
        let limit = limits.filter_map(|h| room(h.retention)).map(|(_, limit)| limit).max();
        (f.bound_bytes, f.limit) = (Some(bound as u64), limit);
        if exceeds_a_device(view, f, bound) {
            f.kind = Kind::Growing;
            f.confidence = Confidence::Likely;
            return true;
        }
        bounded.push(Finding { kind: Kind::Cache, confidence: Confidence::Confirmed, ..f.clone() });
        false
    });
    bounded
}
