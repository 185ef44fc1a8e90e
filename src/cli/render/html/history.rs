//! What was live when, by site: the ledger's step records, thinned out to be drawn. Every total stays exact: sites beyond
//! the limit are one "other" per group, and steps between two points are summed up in the later one.

use std::collections::{HashMap, HashSet};

use serde::Serialize;

use super::Limits;
use super::stacks::Stacks;
use leaktrace_core::format::event::{NO_DEVICE, StepSource};
use leaktrace_core::format::tables::Tables;
use leaktrace_core::ledger::{DeviceAt, Layer, Ledger, Retained, StepRecord, retained};
use leaktrace_core::report::{self, Annotation, Report};
use leaktrace_core::symbols::{NamedFrame, Names};

/// Characters of an annotation's name.
const LABEL: usize = 80;
/// Annotations at one point.
const ANNOTATIONS: usize = 8;

/// What is counted together: a device's memory, pinned host memory, or external memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Group {
    pub kind: &'static str,
    pub device: Option<u8>,
}

/// A site, or all sites of a group beyond the limit.
#[derive(Debug, Default, Serialize)]
pub struct Site {
    group: usize,
    layer: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    entry_point: Option<String>,
    /// The frame it allocates at (`null`: not known), and its stack's node.
    location: Option<u32>,
    stack: i32,
    /// As of the latest event.
    live_bytes: u64,
    live_blocks: u64,
    /// As of the reported moment, and how much of that was allocated since the middle of the run.
    retained_bytes: u64,
    retained_blocks: u64,
    growth_bytes: u64,
    peak_bytes: u64,
    allocs: u64,
    first_birth: u32,
    last_birth: u32,
    /// The sites that it stands for; 0: it is one.
    others: u32,
    /// Its changes are counted with the group's other sites: they are too many to list.
    summed: bool,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// A moment: the end of a step.
#[derive(Debug, Default, Serialize)]
pub struct Point {
    step: u32,
    at_s: f64,
    /// Names of the annotations since the point before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    annotations: Vec<String>,
    /// Garbage collections and failed allocations since the point before.
    #[serde(skip_serializing_if = "is_zero")]
    collections: u32,
    #[serde(skip_serializing_if = "is_zero")]
    failures: u32,
    /// Whether a loop ended the step between those of the program's own source: an evaluation, an encoder that runs first.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    phase: bool,
    /// By group: live bytes, their peak since the point before, reserved bytes.
    totals: Vec<(u64, u64, u64)>,
    /// Site, blocks, bytes, and again: what changed since the point before.
    changes: Vec<i64>,
}

/// The history of a run.
#[derive(Debug, Serialize)]
pub struct History {
    groups: Vec<Group>,
    sites: Vec<Site>,
    points: Vec<Point>,
    /// The reported point, and the one that growth is counted from.
    at: usize,
    middle: usize,
    /// All sites of the ledger, and the step records that the points were made of.
    site_count: usize,
    records: usize,
    #[serde(skip)]
    slots: HashMap<u32, usize>,
    /// Sites with a history of their own.
    #[serde(skip)]
    drawn: HashSet<u32>,
    #[serde(skip)]
    other: Vec<usize>,
    #[serde(skip)]
    group_of: HashMap<u32, usize>,
}

/// The net change of a site: its number, blocks, bytes.
type Change = (u32, i64, i64);

/// A point whose changes still name sites by their numbers in the ledger.
struct Draft {
    point: Point,
    changes: Vec<Change>,
}

impl History {
    /// Builds the history from the step records; `named`: sites that the report names, which are listed first.
    pub fn new(
        ledger: &Ledger,
        tables: &Tables,
        names: &Names<'_>,
        report: &Report,
        named: &[u32],
        stacks: &mut Stacks,
        limits: &Limits,
    ) -> History {
        let all: Vec<u32> = (0..).take_while(|&n| ledger.site(n).is_some()).collect();
        let (groups, group_of) = groups(ledger, &all);
        let drafts = drafts(ledger, report, &groups, limits);
        let at = report.step.and_then(|step| drafts.iter().position(|d| d.point.step >= step));
        let at = at.unwrap_or(drafts.len().saturating_sub(1));
        let half = drafts.get(at).map_or(0, |d| d.point.step / 2);
        let middle = drafts.iter().position(|d| d.point.step >= half).unwrap_or(0);
        let held = retained(ledger, report.step);
        let (kept, drawn) = choose(ledger, &all, &drafts, &held, named, limits);
        let mut history = History {
            sites: Vec::new(),
            points: Vec::new(),
            at,
            middle,
            site_count: all.len(),
            records: ledger.steps().len(),
            slots: kept.iter().enumerate().map(|(slot, &site)| (site, slot)).collect(),
            drawn,
            other: (kept.len()..kept.len() + groups.len()).collect(),
            groups,
            group_of,
        };
        history.list(ledger, tables, names, &kept, &all, stacks);
        history.add_points(drafts, &held);
        history
    }

    /// Returns the index of a site in the list.
    pub fn slot(&self, site: u32) -> usize {
        self.slots.get(&site).copied().unwrap_or_else(|| self.rest(site))
    }

    /// Returns the index of the other sites of a site's group.
    fn rest(&self, site: u32) -> usize {
        self.group_of.get(&site).and_then(|&g| self.other.get(g)).copied().unwrap_or(0)
    }

    fn list(
        &mut self,
        ledger: &Ledger,
        tables: &Tables,
        names: &Names<'_>,
        kept: &[u32],
        all: &[u32],
        stacks: &mut Stacks,
    ) {
        let own = |f: &_| names.is_own(f);
        for &number in kept {
            let Some(s) = ledger.site(number) else { continue };
            let frames = names.frames(s.stack);
            let at = names.allocated_at(&frames).cloned();
            let at = at.as_ref();
            let listed = report::listed_frames(names, s.stack, frames);
            let frames: Vec<NamedFrame> = listed.into_iter().map(|f| f.frame).collect();
            self.sites.push(Site {
                group: self.group_of.get(&number).copied().unwrap_or(0),
                layer: s.layer.name(),
                entry_point: tables.entry_point(s.entry_point).cloned(),
                location: at.map(|f| stacks.frame(f, own(f))),
                stack: stacks.stack(&frames, at, &own),
                live_bytes: s.live_bytes,
                live_blocks: s.live_blocks,
                peak_bytes: s.peak_bytes(),
                allocs: s.allocs,
                first_birth: s.first_birth,
                last_birth: s.last_birth,
                summed: !self.drawn.contains(&number),
                ..Site::default()
            });
        }
        for group in 0..self.groups.len() {
            self.sites.push(Site { group, layer: "", stack: -1, ..Site::default() });
        }
        for number in all.iter().filter(|n| !self.slots.contains_key(n)) {
            let (slot, Some(s)) = (self.slot(*number), ledger.site(*number)) else { continue };
            let Some(other) = self.sites.get_mut(slot) else { continue };
            other.others += 1;
            other.live_bytes = other.live_bytes.wrapping_add(s.live_bytes);
            other.live_blocks = other.live_blocks.wrapping_add(s.live_blocks);
            other.peak_bytes = other.peak_bytes.wrapping_add(s.peak_bytes());
            other.allocs = other.allocs.wrapping_add(s.allocs);
        }
    }

    /// Adds the points, their changes by listed site.
    fn add_points(&mut self, drafts: Vec<Draft>, held: &[Retained]) {
        let mut then: Vec<i64> = vec![0; self.sites.len()];
        for (i, Draft { mut point, changes }) in drafts.into_iter().enumerate() {
            let mut sums: HashMap<usize, (i64, i64)> = HashMap::new();
            for (site, blocks, bytes) in changes {
                let listed = self.slot(site);
                if i <= self.middle
                    && let Some(sum) = then.get_mut(listed)
                {
                    *sum = sum.wrapping_add(bytes);
                }
                let slot = if self.drawn.contains(&site) { listed } else { self.rest(site) };
                let sum = sums.entry(slot).or_default();
                *sum = (sum.0.wrapping_add(blocks), sum.1.wrapping_add(bytes));
            }
            let mut sums: Vec<_> = sums.into_iter().filter(|(_, sum)| *sum != (0, 0)).collect();
            sums.sort_unstable();
            for (slot, (blocks, bytes)) in sums {
                point.changes.extend([slot as i64, blocks, bytes]);
            }
            self.points.push(point);
        }
        for r in held {
            let slot = self.slot(r.site);
            let Some(s) = self.sites.get_mut(slot) else { continue };
            s.retained_bytes = s.retained_bytes.wrapping_add(r.bytes);
            s.retained_blocks = s.retained_blocks.wrapping_add(r.blocks);
        }
        for (s, then) in self.sites.iter_mut().zip(then) {
            s.growth_bytes = s.retained_bytes.saturating_sub(then.max(0) as u64);
        }
    }
}

/// Returns the groups, and the group of each site.
fn groups(ledger: &Ledger, all: &[u32]) -> (Vec<Group>, HashMap<u32, usize>) {
    let of = |number: &u32| {
        let s = ledger.site(*number)?;
        Some(match s.layer {
            Layer::Block | Layer::Driver => Group { kind: "device", device: Some(s.device) },
            Layer::Host => Group { kind: "host", device: None },
            Layer::External => Group { kind: "external", device: None },
            Layer::Code => Group { kind: "code", device: None },
        })
    };
    let of_devices = ledger.devices().iter().filter(|d| d.device != NO_DEVICE);
    let of_devices = of_devices.map(|d| Group { kind: "device", device: Some(d.device) });
    let mut groups: Vec<Group> = all.iter().filter_map(of).chain(of_devices).collect();
    groups.sort_by_key(|g| {
        (["device", "host", "external", "code"].iter().position(|k| *k == g.kind), g.device)
    });
    groups.dedup();
    let index = |group: Group| groups.iter().position(|g| *g == group);
    let group_of = all.iter().filter_map(|n| Some((*n, of(n).and_then(index)?))).collect();
    (groups, group_of)
}

/// Chooses the records that become points: of each stretch of neighbours the last one, for each device the one with the
/// most live bytes, and the step asked for.
fn chosen(records: &[StepRecord], step: Option<u32>, points: usize) -> Vec<usize> {
    let devices = records.last().map_or(1, |r| r.devices.len().max(1));
    let stretches = (points / (devices + 1)).max(2);
    let stretch = if records.len() <= points { 1 } else { records.len().div_ceil(stretches) };
    let mut chosen = Vec::new();
    for (n, part) in records.chunks(stretch).enumerate() {
        let live = |r: &StepRecord, device| {
            r.devices.iter().find(|d| d.device == device).map_or(0, DeviceAt::live_bytes)
        };
        let mut of_part = vec![part.len() - 1];
        for device in part.last().map_or(&[][..], |r| &r.devices).iter().map(|d| d.device) {
            of_part.extend((0..part.len()).max_by_key(|&i| live(&part[i], device)));
        }
        of_part.extend(part.iter().position(|r| Some(r.step) == step));
        of_part.sort_unstable();
        of_part.dedup();
        chosen.extend(of_part.into_iter().map(|i| n * stretch + i));
    }
    chosen
}

fn drafts(ledger: &Ledger, report: &Report, groups: &[Group], limits: &Limits) -> Vec<Draft> {
    let records = ledger.steps();
    let total = |devices: &[DeviceAt], peaks: &[StepRecord], group: &Group| {
        let of = |d: &&DeviceAt| group.device.is_none_or(|device| device == d.device);
        let sum =
            |figure: fn(&DeviceAt) -> u64| devices.iter().filter(of).map(figure).fold(0, u64::wrapping_add);
        match group.kind {
            "host" => (sum(|d| d.host_bytes), 0, 0),
            "external" => (sum(|d| d.external_bytes), 0, 0),
            "code" => (sum(|d| d.code_bytes), 0, 0),
            _ => {
                let peaks = peaks.iter().flat_map(|r| &r.devices).filter(of).map(|d| d.peak_bytes);
                let live = sum(DeviceAt::live_bytes);
                (live, peaks.max().unwrap_or(0).max(live), sum(|d| d.reserved_bytes))
            }
        }
    };
    if records.is_empty() {
        // The one known moment.
        let devices = ledger.judged_devices();
        let totals = groups.iter().map(|g| total(&devices, &[], g)).collect();
        let held = retained(ledger, None);
        let changes = held.iter().map(|r| (r.site, r.blocks as i64, r.bytes as i64)).collect();
        let point = Point { at_s: ledger.last_ns() as f64 / 1e9, totals, ..Point::default() };
        return vec![Draft { point, changes }];
    }
    let annotations = &report.steps.annotations;
    let counts: HashMap<_, _> =
        report.steps.annotation_counts.iter().map(|c| ((c.kind, &*c.name), c.count)).collect();
    let too_often = records.len() / 4;
    let mut drafts = Vec::new();
    let (mut next, mut annotated) = (0, 0);
    for index in chosen(records, report.step, limits.points) {
        let span = &records[next..=index];
        next = index + 1;
        let record = &records[index];
        let mut sums: HashMap<u32, (i64, i64)> = HashMap::new();
        for d in span.iter().flat_map(|r| &r.deltas) {
            let sum = sums.entry(d.site).or_default();
            *sum = (sum.0.wrapping_add(d.blocks.into()), sum.1.wrapping_add(d.bytes));
        }
        // What a program does in nearly every step annotates nothing.
        let often = |m: &Annotation| {
            m.kind != "user" && counts.get(&(m.kind, &*m.name)).is_some_and(|&n| n as usize > too_often)
        };
        let last = index + 1 == records.len();
        let until = annotations[annotated..].iter().take_while(|m| last || m.step <= record.step).count();
        let mut names: Vec<String> = Vec::new();
        let here = &annotations[annotated..annotated + until];
        let collections = here.iter().filter(|m| m.kind == "gc").count() as u32;
        let steps = span.first().map_or(0, |r| r.step)..=if last { u32::MAX } else { record.step };
        let failures = report.out_of_memory.iter().filter(|o| steps.contains(&o.step)).count() as u32;
        for m in here.iter().filter(|m| !often(m)) {
            let name: String = m.name.chars().take(LABEL).collect();
            if names.len() < ANNOTATIONS && !names.contains(&name) {
                names.push(name);
            }
        }
        annotated += until;
        let point = Point {
            step: record.step,
            at_s: record.at_ns as f64 / 1e9,
            annotations: names,
            collections,
            failures,
            phase: report.steps.phase_steps > 0 && record.source == StepSource::Loop as u8,
            totals: groups.iter().map(|g| total(&record.devices, span, g)).collect(),
            changes: Vec::new(),
        };
        let changes = sums.into_iter().filter(|(_, sum)| *sum != (0, 0));
        let changes = changes.map(|(site, (blocks, bytes))| (site, blocks, bytes)).collect();
        drafts.push(Draft { point, changes });
    }
    drafts
}

/// Chooses the sites that are listed: those the report names, then the largest; and which of them have a history of their
/// own, as far as their changes fit.
fn choose(
    ledger: &Ledger,
    all: &[u32],
    drafts: &[Draft],
    held: &[Retained],
    named: &[u32],
    limits: &Limits,
) -> (Vec<u32>, HashSet<u32>) {
    let mut changes: HashMap<u32, usize> = HashMap::new();
    for (site, ..) in drafts.iter().flat_map(|d| &d.changes) {
        *changes.entry(*site).or_default() += 1;
    }
    let held: HashMap<u32, u64> = held.iter().map(|r| (r.site, r.bytes)).collect();
    let largest = |n: u32| {
        let peak = ledger.site(n).map_or(0, |s| s.peak_bytes());
        peak.max(held.get(&n).copied().unwrap_or(0))
    };
    let mut ranked = all.to_vec();
    let named: HashSet<u32> = named.iter().copied().collect();
    ranked.sort_by_cached_key(|n| (!named.contains(n), std::cmp::Reverse(largest(*n)), *n));
    ranked.truncate(limits.sites);
    let mut left = limits.changes;
    let fits = |n: &&u32| {
        let count = changes.get(n).copied().unwrap_or(0);
        let fits = count <= left;
        left -= if fits { count } else { 0 };
        fits
    };
    let drawn = ranked.iter().filter(fits).copied().collect();
    (ranked, drawn)
}
