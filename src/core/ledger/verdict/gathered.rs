//! What a loop gathered for what comes behind it, and the program went on: the outputs of a prediction, say, which are then
//! one tensor or are given back. Whoever frees his leaks at the end of the program leaks all the same, and so does a training
//! that gathers while it trains.

use super::finding::{Confidence, Finding, Kind};
use super::view::View;
use crate::ledger::cohort::Cohort;
use crate::ledger::totals::{Allocated, SCALAR};

/// The share of what is held that must have been given back, or have come to be one block.
const SHARE: f64 = 0.9;
/// The program went on if it made so many allocations behind that: more than the end of a program does.
const WENT_ON: u64 = 8;
/// What comes right behind a loop, such as a tensor of all that it gathered, is among so many first allocations.
const FIRST: u32 = 16;

/// Takes those findings out and returns them: they are no leaks.
pub fn take(view: &View<'_>, findings: &mut Vec<Finding>) -> Vec<Finding> {
    let went_on = !view.is_training() && view.ledger.allocated_after_releases() >= WENT_ON;
    let is_gathered = |f: &mut Finding| {
        matches!(f.kind, Kind::Leak | Kind::Growing | Kind::LastLoop)
            // Compiled programs may take no memory that is known.
            && f.live_bytes > 0
            && f.live_blocks > 1
            && (went_on && is_given_back(view, f)
                || f.kind == Kind::LastLoop && 2 * view.ledger.freed_after_last_step(f.device) >= f.live_bytes
                || view.ledger.exited() && (is_joined(view, f) || is_copied(view, f)))
    };
    let told = |f: Finding| Finding {
        kind: Kind::Gathered,
        confidence: Confidence::Confirmed,
        evidence_step: view.steps,
        ..f
    };
    let gathered = findings.extract_if(.., is_gathered).map(told).collect();
    for f in findings.iter_mut().filter(|f| f.live_bytes > 0) {
        f.released_later |= view.ledger.exited() && is_given_back(view, f);
    }
    gathered
}

fn is_given_back(view: &View<'_>, f: &Finding) -> bool {
    let released = f.sites.iter().map(|s| view.ledger.released_after_last_step(s.site));
    released.fold(0u64, u64::saturating_add) as f64 >= SHARE * f.live_bytes as f64
}

/// Returns whether it was copied to the host one by one, after a loop that did not train.
fn is_copied(view: &View<'_>, f: &Finding) -> bool {
    let copied = f.sites.iter().map(|s| view.ledger.copied_to_host_after_last_step(s.site));
    copied.fold(0u64, u64::saturating_add) as f64 >= SHARE * f.live_bytes as f64 && !trains_between(view, f)
}

/// Returns whether all of it came to be one block, or what each site has came to be one.
fn is_joined(view: &View<'_>, f: &Finding) -> bool {
    let is_new = |a: &&Allocated| !outlived_one_before(view, f, a.site);
    let wholes: Vec<Allocated> =
        view.ledger.largest_after_last_step().iter().filter(is_new).copied().collect();
    let gathered = Gathered { trains: trains_between(view, f), released: is_given_back(view, f) };
    let has_whole =
        |bytes: u64, blocks: u64| wholes.iter().any(|whole| gathered.is_sum(bytes, blocks, *whole));
    has_whole(f.live_bytes, f.live_blocks)
        || f.sites.len() > 1 && f.sites.iter().all(|s| has_whole(s.live_bytes, s.live_blocks))
}

/// Returns whether any step from the first that gathered to the last may have trained.
fn trains_between(view: &View<'_>, f: &Finding) -> bool {
    let births = || cohorts(view, f).map(|c| c.birth);
    births().min().zip(births().max()).is_none_or(|(a, z)| view.ledger.phases().train_between(a, z))
}

/// Returns whether this site had made a block before that did not take the place of what was gathered until then: whoever joins
/// all again and again needs them all.
fn outlived_one_before(view: &View<'_>, f: &Finding, site: u32) -> bool {
    let before = view.ledger.site(site).map_or(0, |s| s.birth_up_to(view.steps));
    let outlived =
        cohorts(view, f).filter(|c| c.birth < before).fold(0u64, |sum, c| sum.saturating_add(c.bytes));
    outlived as f64 > (1.0 - SHARE) * f.live_bytes as f64
}

fn cohorts<'v>(view: &'v View<'_>, f: &Finding) -> impl Iterator<Item = &'v Cohort> {
    f.sites.iter().filter_map(|s| view.site(s.site)).flat_map(|s| &s.cohorts)
}

/// What is known of parts that may have been joined.
struct Gathered {
    /// Whether steps between their births trained.
    trains: bool,
    /// Whether they were released afterwards.
    released: bool,
}

impl Gathered {
    /// Returns whether a block may be all these parts in one. Allocators that round up do so for each: all parts in one are
    /// smaller by less than that for each, and larger by less than that for one. Others give as much as was asked for.
    fn is_sum(&self, parts: u64, count: u64, whole: Allocated) -> bool {
        let unit = if parts.is_multiple_of(SCALAR) { SCALAR } else { 0 };
        let least = parts.saturating_sub(unit.saturating_mul(count));
        let is_within = whole.bytes >= least && whole.bytes <= parts.saturating_add(unit);
        if is_within && whole.bytes as f64 >= SHARE * parts as f64 {
            return true;
        }
        // A list of losses is not told from scalars that a prediction gathers.
        if self.trains {
            return false;
        }
        let of_few_numbers = parts == SCALAR.saturating_mul(count);
        of_few_numbers && has_each(whole.bytes, count)
            || is_within && whole.bytes > SCALAR && whole.before < FIRST && (self.released || !of_few_numbers)
    }
}

/// Returns whether a block is as large as so many parts of a few numbers each, such as one token for each sequence of a batch, or
/// one part more, such as what the first token was made from. Allocators give each part as much as a scalar. One block as large as
/// a scalar may be anything.
fn has_each(whole: u64, parts: u64) -> bool {
    let rounded = |bytes: u64| bytes.next_multiple_of(SCALAR);
    let is_of = |each: u64| [parts, parts + 1].iter().any(|n| rounded(n.saturating_mul(each)) == whole);
    whole > SCALAR && (0..SCALAR.ilog2()).any(|n| is_of(1 << n))
}
