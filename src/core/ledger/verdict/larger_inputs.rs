//! What is allocated anew in each step and is larger each time, because the step is given more: longer sequences, larger
//! batches. Then nearly all that the step makes grows alike, from its first allocation on, and not just one thing that is made
//! of the one before.

use super::finding::{Confidence, Finding, Kind};
use super::holders;
use super::view::View;
use crate::ledger::allocation_trend::Trend;
use crate::ledger::sites::{Layer, Site};
use crate::ledger::totals::SCALAR;

/// At least so many other call stacks allocate more and more …
const LEAST: usize = 2;
/// … and so many times as many as those whose blocks stay as large as they were: more than numbers, which have one size
/// whatever the step is given. As many suffice for what the step begins with, which is given to it, and for what grows by the
/// same share of itself, up to this difference: it has its size from that.
const MORE: usize = 2;
const MORE_BESIDE_FIRST: usize = 1;
const SAME_SHARE: f64 = 0.1;
/// They allocate in at least this share of the steps in which the site in question does.
const AS_OFTEN: f64 = 0.5;

/// Takes those findings out and returns them: they are no leaks.
pub fn take(view: &View<'_>, findings: &mut Vec<Finding>) -> Vec<Finding> {
    let mut taken = Vec::new();
    findings.retain(|f| {
        let may_be = f.renewed && f.blocks_per_step == 0.0;
        let is_one = may_be && (holders::are_replaced(view, f) || grows_with_the_rest(view, f));
        if is_one {
            let kind = Kind::LargerInputs;
            taken.push(Finding { kind, confidence: Confidence::Confirmed, ..f.clone() });
        }
        !is_one
    });
    taken
}

fn grows_with_the_rest(view: &View<'_>, f: &Finding) -> bool {
    let Some(own) = f.sites.iter().filter_map(|s| view.ledger.site(s.site)).max_by_key(|s| s.births) else {
        return false;
    };
    let often = |steps: u32| f64::from(steps) >= AS_OFTEN * f64::from(own.births);
    let beside = |s: &Site| s.layer == Layer::Block && s.device == own.device && often(s.births);
    // What a step begins with, it is given. What is made of the one before needs something that is added to it.
    let begins = view.ledger.sites().find(|(_, s)| beside(s) && often(s.steps_begun()));
    let Some((first, given)) = begins.filter(|(_, s)| s.trend() == Trend::Grows) else { return false };
    // What an optimizer makes has the sizes of the model, whatever it is given.
    let counts = |s: &Site| beside(s) && !(view.context.is_optimizer)(s.stack);
    let others =
        view.ledger.sites().filter(|(number, s)| f.sites.iter().all(|own| own.site != *number) && counts(s));
    let (mut grow, mut stay) = (0, 0);
    for (_, s) in others {
        match s.trend() {
            Trend::Grows => grow += 1,
            Trend::Stays if s.latest_bytes() > SCALAR => stay += 1,
            Trend::Stays | Trend::Varies => {}
        }
    }
    let is_first = f.sites.iter().any(|own| own.site == first);
    let grown = f.growth_bytes_per_step * f64::from(view.steps) / f.live_bytes.max(1) as f64;
    let as_given = (grown - given.grown()).abs() <= SAME_SHARE;
    let more = if is_first || as_given { MORE_BESIDE_FIRST } else { MORE };
    grow >= LEAST && grow >= more * stay
}
