//! What was gathered after the last step, where none was seen: requests that another thread serves, a loop that could not be
//! told. It cannot be judged, and is told with its line and its holder.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::finding::{Confidence, Finding, Kind, SiteShare};
use super::holders;
use super::statistics::grouped;
use super::view::View;
use crate::ledger::after_last::Gathered;
use crate::ledger::sites::Layer;

/// The turns in which a site must have kept something: a few results at the end of a run are none of it.
const MIN_TURNS: u32 = 32;

pub fn find(view: &View<'_>, explained: &BTreeSet<u32>) -> Vec<Finding> {
    let mut found: Vec<(Gathered, Vec<u64>)> = view
        .ledger
        .gathered_after_last_step()
        .into_iter()
        .filter(|sum| sum.turns >= MIN_TURNS && !explained.contains(&sum.site))
        .map(|sum| (sum, holders::of_site(view, sum.site)))
        .collect();
    found.sort_by_key(|(sum, _)| (Reverse(sum.bytes), sum.site));
    grouped(found, |a, b| together(view, a, b)).iter().filter_map(|group| finding(view, group)).collect()
}

/// Returns whether two sites are one cause: one holder has both, or the same lines made them.
fn together(view: &View<'_>, a: &(Gathered, Vec<u64>), b: &(Gathered, Vec<u64>)) -> bool {
    let lines = |sum: &Gathered| view.ledger.site(sum.site).map(|site| (view.context.lines)(site.stack));
    holders::share(&a.1, &b.1) == Some(true) || lines(&a.0) == lines(&b.0)
}

fn finding(view: &View<'_>, group: &[(Gathered, Vec<u64>)]) -> Option<Finding> {
    let (leader, _) = group.first()?;
    let device = view.ledger.site(leader.site)?.device;
    let share = |(sum, _): &(Gathered, Vec<u64>)| {
        Some(SiteShare {
            site: sum.site,
            device: view.ledger.site(sum.site)?.device,
            bytes_per_step: 0.0,
            live_bytes: sum.bytes,
            live_blocks: sum.blocks,
        })
    };
    let mut f = Finding {
        sites: group.iter().filter_map(share).collect(),
        cohorts: leader.turns,
        evidence_step: view.steps,
        ..Finding::new(Kind::AfterLast, Confidence::Likely, device, Layer::Block)
    };
    f.add_up();
    Some(f)
}
