//! What the holder says: it can be the bound that the lives of blocks cannot show, or show that there is none; and what one
//! holder has is one cause, however many lines filled it.

use super::*;
use crate::format::entry::Retention;

/// Of what the largest owner holds at least this share must be held so.
const MOST: f64 = 0.5;

/// What is known of who holds a site's blocks.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteHolder {
    /// Who: equal for one holder.
    pub holder: u64,
    pub retention: Retention,
    pub blocks: u64,
    pub bytes: u64,
}

/// Whoever holds a site's blocks, as far as that is known.
pub(super) fn owners(view: &View<'_>, site: u32) -> Vec<u64> {
    let held = (view.context.holders)(site);
    held.into_iter().filter(|h| h.retention != Retention::Unknown).map(|h| h.holder).collect()
}

/// Whether one of these owners is one of those; `None`: some are not known.
pub(super) fn share(a: &[u64], b: &[u64]) -> Option<bool> {
    let known = !a.is_empty() && !b.is_empty();
    known.then(|| a.iter().any(|owner| b.contains(owner)))
}

/// Takes what the holders say into the findings; what is bounded by them is none, and is handed back.
pub(super) fn weigh(view: &View<'_>, findings: &mut Vec<Finding>) -> Vec<Finding> {
    let mut bounded = Vec::new();
    findings.retain_mut(|f| {
        if !matches!(f.kind, Kind::Leak | Kind::Growing) || f.sites.is_empty() {
            return true;
        }
        let held: Vec<SiteHolder> = f.sites.iter().flat_map(|p| (view.context.holders)(p.site)).collect();
        // Where a block has two owners both count.
        let sum = |of: &dyn Fn(&SiteHolder) -> bool| {
            held.iter().filter(|h| of(h)).fold(0u64, |sum, h| sum.saturating_add(h.bytes)) as f64
        };
        let largest = held.iter().map(|h| sum(&|other| other.holder == h.holder)).fold(0.0, f64::max);
        let most =
            |of: &dyn Fn(&Retention) -> bool| largest > 0.0 && sum(&|h| of(&h.retention)) >= MOST * largest;
        if most(&|h| *h == Retention::Unbounded) {
            if f.kind == Kind::Leak {
                f.confidence = Confidence::Confirmed;
            }
            return true;
        }
        if most(&|h| *h == Retention::Unreachable) {
            f.kind = Kind::PendingGc;
            return true;
        }
        // Whoever is full and gets more all the same is not what bounds it.
        if !most(&|h| matches!(h, Retention::Bounded { entries, max_entries } if entries < max_entries)) {
            return true;
        }
        let times = held.iter().filter_map(|h| match h.retention {
            Retention::Bounded { entries, max_entries } if entries < max_entries => {
                Some(max_entries as f64 / entries.max(1) as f64)
            }
            _ => None,
        });
        let bound = f.live_bytes as f64 * times.fold(1.0, f64::max);
        f.bound_bytes = Some(bound as u64);
        let device = view.ledger.devices().iter().find(|d| d.device == f.device);
        let room = device.filter(|d| d.total_bytes > 0).map(|d| {
            let others = d.live_bytes().saturating_sub(f.live_bytes) + d.unattributed_bytes.unwrap_or(0);
            d.total_bytes.saturating_sub(others) as f64
        });
        // A bound beyond the device is none that helps.
        if room.is_some_and(|room| bound > room) {
            f.kind = Kind::Growing;
            f.confidence = Confidence::Likely;
            return true;
        }
        bounded.push(Finding { kind: Kind::Cache, confidence: Confidence::Confirmed, ..f.clone() });
        false
    });
    bounded
}
