//! What was live: at the end, at a step, since a step, by cohort, and when memory ran out.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

use super::stacks::Lines;
use super::{Builder, Query};
use crate::format::event::NO_DEVICE;
use crate::ledger::{self, Ledger, retained, retained_since};
use crate::report::{Cohort, OutOfMemory, Program, Retained, Unlisted, wording};

impl Builder<'_> {
    /// Lists what sites have live.
    pub(super) fn retained(&mut self, held: &[ledger::Retained]) -> Vec<Retained> {
        let mut listed = Vec::new();
        for r in held {
            let Some(site) = self.ledger.site(r.site) else { continue };
            let (allocated_at, stack) = self.stack(site.stack);
            listed.push(Retained {
                number: r.site,
                allocated_at,
                library_at: self.library_at(site.stack),
                layer: site.layer.name(),
                device: (site.device != NO_DEVICE).then_some(site.device),
                live_bytes: r.bytes,
                live_blocks: r.blocks,
                entry_point: self.entry_point(site.entry_point),
                stack,
                holders: self.holders(std::iter::once(r.site)),
            });
        }
        listed
    }

    /// Lists what is live on a device by the last event, largest first.
    pub(super) fn live_now(&mut self, device: u8) -> Vec<Retained> {
        let mut sums: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        let blocks = self.ledger.live_blocks().into_iter();
        for live in blocks.chain(self.ledger.live_driver_allocations()) {
            let sum = sums.entry(live.site).or_default();
            *sum = (sum.0.saturating_add(1), sum.1.saturating_add(live.bytes));
        }
        let of_device = |site: &u32| {
            self.ledger.site(*site).is_some_and(|s| {
                s.device == device && matches!(s.layer, ledger::Layer::Block | ledger::Layer::Driver)
            })
        };
        let sums = sums.into_iter().filter(|(site, _)| of_device(site));
        let mut live: Vec<ledger::Retained> =
            sums.map(|(site, (blocks, bytes))| ledger::Retained { site, blocks, bytes }).collect();
        live.sort_by_key(|r| (Reverse(r.bytes), r.site));
        self.retained(&live)
    }

    /// Lists what is live at the end of what was allocated after a step, by the step it was allocated in.
    pub(super) fn cohorts(&mut self, since: u32) -> Vec<Cohort> {
        // By step: bytes, blocks, the most bytes of one site and which.
        let mut cohorts: BTreeMap<u32, (u64, u64, u64, u32)> = BTreeMap::new();
        for (site, of_site) in self.ledger.cohorts() {
            for c in of_site.iter().filter(|c| c.birth > since) {
                let sum = cohorts.entry(c.birth).or_default();
                (sum.0, sum.1) = (sum.0.wrapping_add(c.bytes), sum.1.wrapping_add(c.blocks));
                if c.bytes > sum.2 {
                    (sum.2, sum.3) = (c.bytes, site);
                }
            }
        }
        let row = |(step, (bytes, blocks, _, site)): (u32, (u64, u64, u64, u32))| {
            let stack = self.ledger.site(site).map_or(0, |s| s.stack);
            Cohort { step, bytes, blocks, allocated_at: self.stack(stack).0 }
        };
        cohorts.into_iter().map(row).collect()
    }

    /// Describes a failed allocation.
    pub(super) fn out_of_memory(&mut self, o: &ledger::OutOfMemory, program: &Program) -> OutOfMemory {
        let (allocated_at, stack) = self.stack(o.stack);
        let mut failure = OutOfMemory {
            device: o.device,
            requested_bytes: o.requested_bytes,
            allocated_bytes: o.allocated_bytes,
            step: o.step,
            explanation: String::new(),
            allocated_at,
            stack,
            carry_over_bytes: o.carry_over_bytes,
            reserved_bytes: o.reserved_bytes,
            free_in_segments_bytes: o.free_in_segments_bytes,
            largest_free_block_bytes: o.largest_free_block_bytes,
            holders: self.holders(o.sites.iter().map(|r| r.site)),
            retained: self.retained(&o.sites),
        };
        failure.explanation = wording::out_of_memory(&failure, &program.base);
        failure
    }
}

/// Keeps the sites of the `most` largest lines, and adds up the others.
pub(super) fn largest_lines(
    ledger: &Ledger,
    lines: &Lines<'_>,
    held: Vec<ledger::Retained>,
    most: usize,
) -> (Vec<ledger::Retained>, Option<Unlisted>) {
    if held.len() <= most {
        return (held, None);
    }
    let line = |r: &ledger::Retained| ledger.site(r.site).map(|s| (lines.number(s.stack), s.layer, s.device));
    let mut sums: HashMap<_, Unlisted> = HashMap::new();
    for r in &held {
        let sum = sums.entry(line(r)).or_insert(Unlisted { lines: 1, ..Unlisted::default() });
        sum.live_bytes = sum.live_bytes.saturating_add(r.bytes);
        sum.live_blocks = sum.live_blocks.saturating_add(r.blocks);
    }
    let mut ranked: Vec<_> = sums.into_iter().collect();
    ranked.sort_unstable_by_key(|&(line, sum)| (Reverse(sum.live_bytes), line));
    let unlisted = ranked.split_off(most.min(ranked.len()));
    let kept: HashSet<_> = ranked.into_iter().map(|(line, _)| line).collect();
    let rest = unlisted.into_iter().map(|(_, sum)| sum).reduce(|a, b| Unlisted {
        lines: a.lines + b.lines,
        live_bytes: a.live_bytes.saturating_add(b.live_bytes),
        live_blocks: a.live_blocks.saturating_add(b.live_blocks),
    });
    (held.into_iter().filter(|r| kept.contains(&line(r))).collect(), rest)
}

/// Returns what is listed as retained: what was live then, or what was allocated since a step.
pub(super) fn listed(ledger: &Ledger, query: Query) -> Vec<ledger::Retained> {
    let now = || retained(ledger, query.step);
    let Some(since) = query.since else { return now() };
    // What each block is from is known of the ledger's last step alone.
    let is_last = query.step.is_none_or(|step| step >= ledger.step_count());
    if is_last && !query.net {
        return retained_since(ledger, since);
    }
    let before: HashMap<u32, ledger::Retained> = match since {
        0 => HashMap::new(),
        _ => retained(ledger, Some(since)).into_iter().map(|r| (r.site, r)).collect(),
    };
    let more = |r: ledger::Retained| match before.get(&r.site) {
        Some(then) => ledger::Retained {
            site: r.site,
            blocks: r.blocks.saturating_sub(then.blocks),
            bytes: r.bytes.saturating_sub(then.bytes),
        },
        None => r,
    };
    let mut grown: Vec<ledger::Retained> = now().into_iter().map(more).filter(|r| r.bytes > 0).collect();
    grown.sort_by_key(|r| (Reverse(r.bytes), r.site));
    grown
}
