//! Residue: set up together, and still there after the rest was freed. Two ways to see it:
//!
//! * of the blocks that one line allocated in one step, most were freed in one later step, and some were not. That is
//!   an unload if the line did not go on allocating in other steps, and if less was live afterwards: what a loop
//!   renews, or what its first pass sets up, is ordinary turnover;
//! * the program turned to something else for good (none of the sites that were busy before has allocated
//!   since), returned cached memory, set up new things, and what it had set up for the part that is over was
//!   not freed.

use std::collections::{BTreeMap, BTreeSet};

use super::finding::{Confidence, Finding, Kind, SiteShare};
use super::view::{SiteView, View};
use crate::ledger::cohort::{blocks, bytes};
use crate::ledger::sites::{Delta, Layer, Site};
use crate::ledger::steps::StepRecord;

/// Of a group at least so many blocks, and this share of them, were freed.
const MIN_FREED: u64 = 4;
const FREED_SHARE: f64 = 0.5;
/// The rest has stayed for at least so many steps, and this share of the run.
const STAYED_STEPS: u32 = 10;
const STAYED_SHARE: f64 = 0.1;
/// Births in so many steps make a site busy; after the rest was freed they make it a line that comes again.
const BUSY_BIRTHS: u32 = 5;
/// What is left is at least this share of what was freed: frameworks keep constants of a few bytes for good.
const LEFT_SHARE: f64 = 0.001;
/// What was live fell by at least this share of what was freed, beside what was set up in its place.
const FALLEN_SHARE: f64 = 0.5;
/// What the new part set up, at least, beside what stays of the old one.
const NEW_SHARE: f64 = 0.05;

pub fn find(view: &View<'_>, explained: &BTreeSet<u32>) -> Vec<Finding> {
    let mut findings = in_part(view, explained);
    let mut explained = explained.clone();
    explained.extend(findings.iter().flat_map(|f| f.sites.iter().map(|s| s.site)));
    findings.extend(left_behind(view, &explained));
    findings
}

fn stayed(view: &View<'_>, since: u32) -> bool {
    let steps = view.steps.saturating_sub(since);
    steps >= STAYED_STEPS && f64::from(steps) >= STAYED_SHARE * f64::from(view.steps)
}

/// A site that allocated in one step only: it set something up, and is not part of a loop.
#[derive(Clone, Copy)]
struct SetUp<'a> {
    number: u32,
    site: &'a Site,
    /// Alive at the judged moment.
    blocks: u64,
    bytes: u64,
}

fn set_up<'a>(view: &View<'a>, explained: &BTreeSet<u32>) -> Vec<SetUp<'a>> {
    let alive: BTreeMap<u32, &SiteView<'_>> = view.sites.iter().map(|s| (s.number, s)).collect();
    let sites = view.ledger.sites().filter(|(number, _)| !explained.contains(number));
    let once = sites.filter(|(_, s)| s.births == 1 && matches!(s.layer, Layer::Block | Layer::Driver));
    let alive = |number: u32| alive.get(&number).filter(|s| s.late == 0).map_or(&[][..], |s| &s.cohorts);
    once.map(|(number, site)| {
        let alive = alive(number);
        SetUp { number, site, blocks: blocks(alive), bytes: bytes(alive) }
    })
    .collect()
}

fn in_part(view: &View<'_>, explained: &BTreeSet<u32>) -> Vec<Finding> {
    let mut lines: BTreeMap<(u64, u32, u8, Layer), Vec<SetUp<'_>>> = BTreeMap::new();
    for s in set_up(view, explained) {
        let key = ((view.context.location)(s.site.stack), s.site.first_birth, s.site.device, s.site.layer);
        lines.entry(key).or_default().push(s);
    }
    let mut unloads: BTreeMap<(u32, u32, u8, Layer), Vec<SetUp<'_>>> = BTreeMap::new();
    for ((_, birth, device, layer), sites) in lines {
        let freed = sites.iter().fold(0, |sum: u64, s| sum.wrapping_add(s.site.aged));
        let left = sites.iter().fold(0, |sum: u64, s| sum.wrapping_add(s.blocks));
        let releases = sites.iter().map(|s| s.site).filter(|s| s.aged > 0);
        let first = releases.clone().map(|s| s.first_release).min().unwrap_or(0);
        let last = releases.map(|s| s.last_release).max().unwrap_or(0);
        let at_once = last.saturating_sub(first) <= 1;
        let most = freed >= MIN_FREED && freed as f64 >= FREED_SHARE * freed.saturating_add(left) as f64;
        if most && at_once && left > 0 && stayed(view, last) {
            unloads.entry((birth, last, device, layer)).or_default().extend(sites);
        }
    }
    let matters = |sites: &[SetUp<'_>]| {
        let left: u64 = sites.iter().map(|s| s.bytes).fold(0, u64::saturating_add);
        let most: u64 = sites.iter().map(|s| s.site.peak_bytes()).fold(0, u64::saturating_add);
        left as f64 >= LEFT_SHARE * most.saturating_sub(left) as f64
    };
    let is_unload = |sites: &[SetUp<'_>]| {
        matters(sites) && fell(view, sites) && !comes_again(view, sites) && !renews(view, sites)
    };
    let unloads = unloads.into_iter().filter(|(_, sites)| is_unload(sites));
    unloads.filter_map(|((_, step, _, _), sites)| finding(view, step, &sites)).collect()
}

/// Returns whether less was live after most of these blocks had been freed, beside what was set up in their place.
fn fell(view: &View<'_>, sites: &[SetUp<'_>]) -> bool {
    let released = sites.iter().map(|s| s.site).filter(|s| s.aged > 0);
    let first = released.clone().map(|s| s.first_release).min().unwrap_or(0);
    let last = released.map(|s| s.last_release).max().unwrap_or(0);
    let Some(Site { device, .. }) = sites.first().map(|s| s.site) else { return false };
    let live = |record: &StepRecord| {
        let held = record.devices.iter().find(|d| d.device == *device)?;
        Some((record.step, held.live_bytes()))
    };
    let records = view.ledger.steps();
    let before = records.iter().rev().find(|r| r.step < first).and_then(live).unwrap_or((0, 0));
    let Some(after) = records.iter().find(|r| r.step >= last).and_then(live) else { return false };
    // What lines that began to allocate then hold was set up in its place. Blocks of the sizes that were freed are
    // renewed, and no other thing.
    let line = |s: &Site| (view.context.location)(s.stack);
    let early = view.ledger.sites().filter(|(_, s)| s.first_birth <= before.0);
    let early: BTreeSet<u64> = early.map(|(_, s)| line(s)).collect();
    // What is freed when functions return at the end of the program was left all the same.
    let freed = |s: &SetUp<'_>| s.site.peak_bytes().saturating_sub(s.bytes);
    let sizes: BTreeSet<u64> = sites.iter().filter_map(|s| freed(s).checked_div(s.site.aged)).collect();
    let is_new = |d: &&Delta| {
        let begun = view.ledger.site(d.site).filter(|s| s.device == *device && !early.contains(&line(s)));
        let size = d.bytes.checked_div(i64::from(d.blocks)).and_then(|size| u64::try_from(size).ok());
        begun.is_some() && d.bytes > 0 && size.is_none_or(|size| !sizes.contains(&size))
    };
    let during = records.iter().filter(|r| r.step > before.0 && r.step <= after.0).flat_map(|r| &r.deltas);
    let in_place = during.filter(is_new).fold(0u64, |sum, d| sum.saturating_add(d.bytes.unsigned_abs()));
    let freed = sites.iter().map(freed).fold(0u64, u64::saturating_add);
    before.1.saturating_add(in_place) as f64 >= after.1 as f64 + FALLEN_SHARE * freed as f64
}

/// Returns whether the lines of these sites went on allocating after most of the blocks had been freed.
fn comes_again(view: &View<'_>, sites: &[SetUp<'_>]) -> bool {
    let lines: BTreeSet<u64> = sites.iter().map(|s| (view.context.location)(s.site.stack)).collect();
    let last = sites.iter().map(|s| s.site.last_release).max().unwrap_or(0);
    let later = view.ledger.sites().filter(|(_, s)| s.last_birth > last);
    let again = later.filter(|(_, s)| lines.contains(&(view.context.location)(s.stack)));
    again.fold(0u32, |births, (_, s)| births.saturating_add(s.births)) >= BUSY_BIRTHS
}

/// Returns whether the lines of these sites made some of the blocks that were freed anew in that very step: that is turnover.
fn renews(view: &View<'_>, sites: &[SetUp<'_>]) -> bool {
    let lines: BTreeSet<u64> = sites.iter().map(|s| (view.context.location)(s.site.stack)).collect();
    let last = sites.iter().map(|s| s.site.last_release).max().unwrap_or(0);
    let mut renewed =
        view.ledger.sites().filter(|(_, s)| s.last_birth == last && s.last_release == last && s.aged > 0);
    renewed.any(|(_, s)| lines.contains(&(view.context.location)(s.stack)))
}

fn left_behind(view: &View<'_>, explained: &BTreeSet<u32>) -> Vec<Finding> {
    // At the step looked for, every busy site either was over or had not begun.
    let busy: Vec<(u32, u32)> = view
        .ledger
        .sites()
        .filter(|(_, s)| s.births >= BUSY_BIRTHS)
        .map(|(_, s)| (s.first_birth, s.last_birth))
        .collect();
    let turned = |step: u32| {
        let before = busy.iter().filter(|(_, last)| *last <= step).count();
        let after = busy.iter().filter(|(first, _)| *first >= step).count();
        before > 0 && after > 0 && before + after == busy.len()
    };
    let Some(&step) = view.ledger.releases.trims().iter().find(|&&step| turned(step) && stayed(view, step))
    else {
        return Vec::new();
    };
    let all = set_up(view, explained);
    let mut devices: BTreeMap<(u8, Layer), Vec<SetUp<'_>>> = BTreeMap::new();
    for s in all.iter().filter(|s| s.site.first_birth < step && s.blocks > 0) {
        devices.entry((s.site.device, s.site.layer)).or_default().push(*s);
    }
    let anew = |device: u8| {
        let new = all.iter().filter(|s| s.site.first_birth >= step && s.site.device == device);
        new.fold(0, |sum: u64, s| sum.wrapping_add(s.bytes))
    };
    let judge = |((device, _), sites): ((u8, Layer), Vec<SetUp<'_>>)| {
        let mut f = finding(view, step, &sites)?;
        f.confidence = Confidence::Likely;
        let new = anew(device) as f64 >= NEW_SHARE * f.live_bytes as f64;
        (new && f.live_blocks >= MIN_FREED).then_some(f)
    };
    devices.into_iter().filter_map(judge).collect()
}

fn finding(view: &View<'_>, step: u32, sites: &[SetUp<'_>]) -> Option<Finding> {
    let site = sites.first()?.site;
    let mut f = Finding::new(Kind::Residue, Confidence::Confirmed, site.device, site.layer);
    for s in sites.iter().filter(|s| s.blocks > 0) {
        let (live_bytes, live_blocks) = (s.bytes, s.blocks);
        f.sites.push(SiteShare {
            site: s.number,
            device: s.site.device,
            bytes_per_step: 0.0,
            live_bytes,
            live_blocks,
        });
    }
    f.freed = sites.iter().fold(0, |sum, s| sum.wrapping_add(s.site.aged));
    f.oldest_step = sites.iter().map(|s| s.site.first_birth).min()?;
    f.first_step = f.oldest_step;
    f.evidence_step = step;
    f.cohorts = 1;
    f.span = view.steps.saturating_sub(step);
    f.add_up();
    (f.live_blocks > 0).then_some(f)
}
