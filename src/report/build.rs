//! Puts a report together from books, tables and names.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use super::explain;
use super::*;
use crate::ledger::verdict::{self, Held, Known, judge_by};
use crate::ledger::{self, Ledger, retained};
use crate::symbol::Names;
use crate::trace::entry::{self, Hold};
use crate::trace::record::NO_DEVICE;
use crate::trace::tables::{Stack, Tables};

/// Sites listed under `retained`, and under one finding.
const RETAINED: usize = 50;
const SITES: usize = 20;
/// Holders listed under one finding.
const HOLDERS: usize = 32;
/// Steps listed one by one, and devices listed in all of them.
pub const SERIES: usize = 10_000;
const SERIES_DEVICES: usize = 80_000;
/// Points of the curve of one finding.
const CURVE: usize = 120;

/// Bytes of names listed in stacks; where they run out, a stack shows its innermost frame only. Every stack of a usual
/// report fits many times over.
const NAMES: usize = 16 << 20;
/// What a frame takes beside its names.
const FRAME: usize = 256;

/// What is known of a run beside its events.
#[derive(Clone, Debug, Default)]
pub struct Run {
    pub end: End,
    pub pid: u32,
    /// Nanoseconds the process was watched, if it said goodbye; else the last boundary's time stands in.
    pub duration_ns: Option<u64>,
    /// Events that found no room in the recording.
    pub dropped_events: u64,
    /// What the reader or the recorder could not do, one line each.
    pub problems: Vec<String>,
    /// Nanoseconds since 1970 when the recording began; 0: not known.
    pub began_ns: u64,
}

/// What a report is asked for beside the judgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// What was alive when this step ended.
    pub step: Option<u32>,
    /// What came since this one ended (0: since the beginning).
    pub since: Option<u32>,
    /// All that was alive, not only the largest.
    pub all: bool,
    /// And by the step it was born in.
    pub cohorts: bool,
}

/// The step asked for is not in the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepUnknown {
    step: u32,
    count: u32,
    /// The nearest one after it that is still known by itself.
    next: Option<u32>,
}

impl fmt::Display for StepUnknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (step, count) = (self.step, self.count);
        match self.next {
            _ if count == 0 => write!(f, "step {step} is not there: no step was seen in this run"),
            Some(next) if step > 0 => {
                write!(
                    f,
                    "step {step} was merged with its neighbours to bound the recording; the next kept is {next}"
                )
            }
            _ => write!(f, "step {step} is not there: the steps are 1 to {count}"),
        }
    }
}

impl std::error::Error for StepUnknown {}

/// The totals of the latest steps.
fn series(ledger: &Ledger) -> Vec<Step> {
    let records = ledger.steps();
    let mut devices = 0;
    let fits = |r: &&ledger::StepRecord| {
        devices += r.devices.len();
        devices <= SERIES_DEVICES
    };
    let listed = records.iter().rev().take(SERIES).take_while(fits).count();
    let latest = records.iter().skip(records.len() - listed);
    let device = |d: &ledger::DeviceAt| StepDevice {
        index: d.device,
        live_bytes: d.live_bytes(),
        block_bytes: d.block_bytes,
        pool_used_bytes: d.pool_used_bytes,
        reserved_bytes: d.reserved_bytes,
        driver_live_bytes: d.driver_bytes,
        unattributed_bytes: d.unattributed_bytes,
    };
    let step = |r: &ledger::StepRecord| Step {
        step: r.step,
        at_s: r.at_ns as f64 / 1e9,
        host_bytes: r.devices.iter().fold(0, |sum: u64, d| sum.wrapping_add(d.host_bytes)),
        devices: r.devices.iter().filter(|d| d.device != NO_DEVICE).map(device).collect(),
    };
    latest.map(step).collect()
}

impl Report {
    /// The report of a run; with `step`, of what was alive when that step ended.
    pub fn build(
        ledger: &Ledger,
        tables: &Tables,
        names: &Names<'_>,
        run: &Run,
        step: Option<u32>,
    ) -> Result<Report, StepUnknown> {
        Report::asked(ledger, tables, names, run, Asked { step, ..Asked::default() })
    }

    /// The same, asked for more.
    pub fn asked(
        ledger: &Ledger,
        tables: &Tables,
        names: &Names<'_>,
        run: &Run,
        asked: Asked,
    ) -> Result<Report, StepUnknown> {
        let step = asked.step;
        for step in step.into_iter().chain(asked.since.filter(|&s| s > 0)) {
            if ledger.step(step).is_none() {
                let next = ledger.steps().iter().map(|r| r.step).find(|&s| s > step);
                return Err(StepUnknown { step, count: ledger.step_count(), next });
            }
        }
        let mut b =
            Builder { ledger, tables, names, stacks: HashMap::new(), forward: HashMap::new(), room: NAMES };
        let mut devices = b.devices(step);
        let (host_bytes, host_live_bytes) = b.host(step);
        let places = b.places();
        let held = b.held();
        let verdict = judge_by(
            ledger,
            Known {
                place: &|stack| places.get(&stack).copied().unwrap_or(u64::from(stack)),
                held: &|site| b.key(site).and_then(|key| held.get(&key)).cloned().unwrap_or_default(),
            },
        );
        for d in &mut devices {
            let of_device = verdict.findings.iter().filter(|f| f.device == d.index && fills(f));
            d.steps_to_oom = steps_to_oom(d, of_device.map(|f| f.growth_bytes_per_step).sum());
        }
        let program = b.program(run);
        let mut report = Report {
            schema: SCHEMA,
            steps: Steps {
                count: ledger.step_count(),
                source: ledger.source().map(|s| s.name()),
                loops: b.loops("loop"),
                levels: b.levels(),
                missed_iterations: b.meta("loop_missed").and_then(|n| n.parse().ok()).unwrap_or(0),
                marks: marks::latest(ledger, tables),
                mark_counts: marks::counts(ledger, tables),
                series: series(ledger),
            },
            findings: verdict.findings.iter().map(|f| b.finding(f, &devices, &program)).collect(),
            benign: verdict.benign.iter().map(|f| b.finding(f, &devices, &program)).collect(),
            suppressed: Vec::new(),
            retained: b.retained(&listed(ledger, asked), if asked.all { usize::MAX } else { RETAINED }),
            out_of_memory: ledger.out_of_memory().iter().map(|o| b.out_of_memory(o)).collect(),
            out_of_memory_count: ledger.out_of_memory_count(),
            coverage: b.coverage(run),
            holder_searches: b.searches(),
            notes: run.problems.clone(),
            all_frames: names.shows_all(),
            program,
            devices,
            host_bytes,
            host_live_bytes,
            step,
            since: asked.since,
            cohorts: if asked.cohorts { b.cohorts(asked.since.unwrap_or(0)) } else { Vec::new() },
        };
        for (f, curve) in report.findings.iter_mut().zip(curves(ledger, &verdict.findings)) {
            f.retained_over_steps = curve;
        }
        report.add_notes(ledger);
        Ok(report)
    }

    fn add_notes(&mut self, ledger: &Ledger) {
        let (checks, mismatches) = ledger.allocator_checks();
        if mismatches > 0 {
            self.notes.push(format!(
                "the caching allocator's own total differed from the blocks seen in {mismatches} of {checks} checks"
            ));
        }
        if ledger.unknown_events() > 0 {
            let n = ledger.unknown_events();
            self.notes.push(format!("{n} events of a kind this version does not know were passed over"));
        }
        if ledger.stackless() > 0 {
            let n = ledger.stackless();
            self.notes.push(format!("{n} allocations are listed without a stack: too many different stacks"));
        }
    }
}

struct Builder<'a> {
    ledger: &'a Ledger,
    tables: &'a Tables,
    names: &'a Names<'a>,
    stacks: HashMap<u32, (Option<Place>, Vec<Frame>)>,
    forward: HashMap<u32, Option<Place>>,
    /// Bytes left for names in stacks.
    room: usize,
}

impl Builder<'_> {
    fn meta(&self, key: &str) -> Option<String> {
        self.tables.meta.get(key).filter(|v| !v.is_empty()).cloned()
    }

    fn program(&self, run: &Run) -> Program {
        let argv = self.meta("argv").unwrap_or_default();
        let argv = argv.strip_suffix('\0').unwrap_or(&argv);
        Program {
            argv: argv.split('\0').filter(|_| !argv.is_empty()).map(str::to_owned).collect(),
            pid: self.meta("pid").and_then(|p| p.parse().ok()).unwrap_or(run.pid),
            host: self.meta("host").unwrap_or_default(),
            rank: self.meta("rank"),
            end: run.end,
            began_s: run.began_ns as f64 / 1e9,
            duration_s: run.duration_ns.unwrap_or(self.ledger.last_ns()) as f64 / 1e9,
            exe: self.meta("exe").unwrap_or_default(),
            python: self.meta("python"),
            cwd: self.meta("cwd").unwrap_or_default(),
        }
    }

    /// The loops whose iterations are steps, as places.
    fn loops(&self, level: &str) -> Vec<String> {
        let place = |text: &str| {
            let numbers: Option<Vec<u32>> = text.split(' ').map(|n| n.parse().ok()).collect();
            let &[code, header, last] = numbers?.as_slice() else { return None };
            // A `while` begins with its body, and has its condition at the end.
            let frame = |offset| entry::Frame::Python { code, offset, entry: false };
            let ends = Stack { python: vec![frame(header), frame(last)], native: Vec::new() };
            let first =
                self.names.resolve(&ends).into_iter().filter(|f| f.line.is_some()).min_by_key(|f| f.line)?;
            Some(format!("{}:{}", first.file, first.line?))
        };
        self.meta(level).iter().flat_map(|all| all.split(',')).filter_map(place).collect()
    }

    fn levels(&self) -> Vec<Level> {
        let level = |(by, count): (ledger::By, u32)| {
            let name = by.to_string();
            Level { loops: self.loops(&name), name, count }
        };
        let mut all: Vec<Level> = self.ledger.levels().map(level).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// The devices at a step, or at the judged moment.
    fn at(&self, step: Option<u32>) -> Vec<ledger::DeviceAt> {
        let record = step.and_then(|s| self.ledger.step(s));
        record.map_or_else(|| self.ledger.judged_devices(), |r| r.devices.clone())
    }

    /// Pinned host memory: at that moment, and (without a step) at the very end.
    fn host(&self, step: Option<u32>) -> (u64, u64) {
        let then = self.at(step).iter().fold(0, |sum: u64, d| sum.wrapping_add(d.host_bytes));
        let last = self.ledger.devices().iter().fold(0, |sum: u64, d| sum.wrapping_add(d.host_bytes));
        (then, if step.is_some() { then } else { last })
    }

    fn devices(&self, step: Option<u32>) -> Vec<Device> {
        let at = self.at(step);
        let upto = |d: &ledger::DeviceAt| match step {
            Some(step) => {
                let records = self.ledger.steps().iter().take_while(|r| r.step <= step);
                let peaks = records.flat_map(|r| &r.devices).filter(|e| e.device == d.device);
                peaks.map(|e| e.peak_bytes).max().unwrap_or(d.peak_bytes)
            }
            None => d.peak_bytes,
        };
        let mut devices: Vec<Device> = at
            .iter()
            .filter(|d| d.device != NO_DEVICE)
            .map(|d| {
                let known = self.tables.devices.get(&d.device);
                let now = self.ledger.devices().iter().find(|e| e.device == d.device);
                let said = now.map_or(0, |e| e.total_bytes);
                Device {
                    index: d.device,
                    name: known.map_or_else(String::new, |k| k.name.clone()),
                    total_bytes: known.map_or(said, |k| k.total_bytes),
                    peak_bytes: upto(d),
                    live_bytes: d.live_bytes(),
                    reserved_bytes: d.reserved_bytes,
                    unattributed_bytes: d.unattributed_bytes,
                    block_bytes: d.block_bytes,
                    object_bytes: d.object_bytes,
                    pool_used_bytes: d.pool_used_bytes,
                    host_bytes: d.host_bytes,
                    borrowed_bytes: d.borrowed_bytes,
                    driver_live_bytes: match step {
                        Some(_) => d.driver_bytes,
                        None => now.map_or(d.driver_bytes, ledger::Device::driver_bytes),
                    },
                    steps_to_oom: None,
                }
            })
            .collect();
        devices.sort_by_key(|d| d.index);
        devices
    }

    /// The user's line whose backward pass a stack was taken in.
    fn backward_of(&mut self, stack: u32) -> Option<Place> {
        let names = self.names;
        let find = || {
            let frames = names.forward_of(stack);
            let at = names.allocated_at(&frames)?;
            Some(Place { file: at.file.clone(), line: at.line, function: at.function.clone() })
        };
        self.forward.entry(stack).or_insert_with(find).clone()
    }

    fn stack(&mut self, id: u32) -> (Option<Place>, Vec<Frame>) {
        let names = self.names;
        let left = self.room;
        let resolve = || {
            let frames = names.frames(id);
            let at = names.allocated_at(&frames);
            let place =
                at.map(|f| Place { file: f.file.clone(), line: f.line, function: f.function.clone() });
            let mut frames = whole(names, id, frames);
            shorten(&mut frames, left);
            (place, frames)
        };
        let (place, frames) = self.stacks.entry(id).or_insert_with(resolve);
        let (place, mut frames) = (place.clone(), frames.clone());
        // Listed once more.
        self.room = left.saturating_sub(shorten(&mut frames, left));
        (place, frames)
    }

    /// The other ways that a site's allocations took from Python's innermost frame to the allocator.
    fn also_through(&mut self, id: u32) -> Vec<Vec<Frame>> {
        let mut ways = Vec::new();
        for frames in self.names.examples(id).into_iter().skip(1) {
            let mut frames = shown(self.names, frames);
            frames.truncate(
                frames.iter().position(|f| f.frame.kind != FrameKind::Native).unwrap_or(frames.len()),
            );
            if frames.is_empty() {
                continue;
            }
            self.room = self.room.saturating_sub(shorten(&mut frames, self.room));
            ways.push(frames);
        }
        ways
    }

    /// A number for the line of each stack that allocates, equal for one line.
    fn places(&self) -> HashMap<u32, u64> {
        let stacks: Vec<u32> = self.ledger.set_up_stacks();
        let mut lines: HashMap<Place, u64> = HashMap::new();
        let mut places = HashMap::new();
        for stack in stacks {
            let frames = self.names.frames(stack);
            let Some(at) = self.names.allocated_at(&frames) else { continue };
            let place = Place { file: at.file.clone(), line: at.line, function: at.function.clone() };
            // Beyond every stack id.
            let next = (lines.len() as u64) << 32 | u64::from(u32::MAX);
            places.insert(stack, *lines.entry(place).or_insert(next));
        }
        places
    }

    fn entry_point(&self, id: u16) -> Option<String> {
        self.tables.entry_points.get(&id).filter(|_| id != 0).cloned()
    }

    fn finding(&mut self, f: &verdict::Finding, devices: &[Device], program: &Program) -> Finding {
        let parts = f.parts.iter().take(SITES);
        let sites: Vec<Site> = parts
            .filter_map(|part| {
                let site = self.ledger.site(part.site)?;
                let (allocated_at, stack) = self.stack(site.stack);
                let also_through = self.also_through(site.stack);
                Some(Site {
                    number: part.site,
                    allocated_at,
                    bytes_per_step: part.bytes_per_step,
                    live_bytes: part.live_bytes,
                    live_blocks: part.live_blocks,
                    entry_point: self.entry_point(site.entry_point),
                    stack,
                    also_through,
                    backward_of: self.backward_of(site.stack),
                })
            })
            .collect();
        let device = devices.iter().find(|d| d.index == f.device);
        Finding {
            kind: f.kind,
            confidence: f.confidence,
            device: (f.device != NO_DEVICE).then_some(f.device),
            layer: f.layer.name(),
            bytes_per_step: f.bytes_per_step,
            bytes_per_step_interval: f.bytes_interval,
            blocks_per_step: f.blocks_per_step,
            adding_share: f.adding_share,
            period_steps: f.period_steps,
            growth_bytes_per_step: f.growth_bytes_per_step,
            live_bytes: f.live_bytes,
            live_blocks: f.live_blocks,
            cohorts: f.cohorts,
            oldest_step: f.oldest_step,
            first_step: (f.first_step > 0).then_some(f.first_step),
            peak_reduction_bytes: f.peak_reduction_bytes,
            event_step: (f.event_step > 0).then_some(f.event_step),
            reserved_growth_bytes: f.reserved_growth_bytes,
            steps_to_oom: device.filter(|_| fills(f)).and_then(|d| steps_to_oom(d, f.growth_bytes_per_step)),
            explanation: explain::sentence(f, &sites, &program.cwd),
            sites,
            holders: self.holders(f.parts.iter().map(|part| part.site)),
            retained_over_steps: Vec::new(),
        }
    }

    fn searches(&self) -> Option<Searches> {
        let text = self.meta("holder_searches")?;
        let mut figures = text.split(' ').map(|n| n.parse::<u64>().ok());
        let mut next = || figures.next().flatten();
        let (count, total, longest) = (next()?, next()?, next()?);
        Some(Searches { count, seconds: total as f64 / 1e6, longest_s: longest as f64 / 1e6 })
    }

    fn key(&self, site: u32) -> Option<entry::Site> {
        let site = self.ledger.site(site)?;
        let (stack, entry_point) = (site.stack, site.entry_point);
        Some(entry::Site { stack, entry_point, device: site.device, layer: site.layer as u8 })
    }

    /// Who holds what, the holders as numbers.
    fn held(&self) -> HashMap<entry::Site, Vec<Held>> {
        let mut numbers: HashMap<&str, u64> = HashMap::new();
        let mut of_sites = HashMap::new();
        for (site, (_, holders)) in &self.tables.holders {
            let held = holders.iter().map(|h| {
                let next = numbers.len() as u64;
                let name = h.path.get(..h.name).unwrap_or(&h.path);
                let owner = *numbers.entry(name).or_insert(next);
                Held { owner, hold: h.hold, blocks: h.blocks, bytes: h.bytes }
            });
            of_sites.insert(*site, held.collect());
        }
        of_sites
    }

    /// Who held the blocks of these sites when somebody last looked.
    fn holders(&self, sites: impl Iterator<Item = u32>) -> Vec<Holder> {
        let mut holders: Vec<Holder> = Vec::new();
        for key in sites.filter_map(|site| self.key(site)) {
            for held in self.tables.holders.get(&key).iter().flat_map(|(_, all)| all) {
                match holders.iter_mut().find(|h| h.path == held.path) {
                    Some(h) => {
                        h.bytes = h.bytes.saturating_add(held.bytes);
                        h.blocks = h.blocks.saturating_add(held.blocks);
                        h.step = h.step.max(held.step);
                    }
                    None => holders.push(Holder {
                        path: held.path.clone(),
                        bytes: held.bytes,
                        blocks: held.blocks,
                        step: held.step,
                        hold: match held.hold {
                            Hold::Unknown => None,
                            Hold::Open => Some("open"),
                            Hold::Bounded { .. } => Some("bounded"),
                            Hold::Garbage => Some("garbage"),
                        },
                        most_entries: match held.hold {
                            Hold::Bounded { most, .. } => Some(most),
                            _ => None,
                        },
                    }),
                }
            }
        }
        holders.sort_by_key(|h| std::cmp::Reverse((h.bytes, h.blocks)));
        holders.truncate(HOLDERS);
        holders
    }

    fn retained(&mut self, held: &[ledger::Retained], most: usize) -> Vec<Retained> {
        let mut listed = Vec::new();
        for r in held.iter().take(most) {
            let Some(site) = self.ledger.site(r.site) else { continue };
            let (allocated_at, stack) = self.stack(site.stack);
            listed.push(Retained {
                number: r.site,
                allocated_at,
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

    /// What is alive at the end of what was born after a step, by birth.
    fn cohorts(&mut self, since: u32) -> Vec<Cohort> {
        // By birth: bytes, blocks, the most of one site and which.
        let mut births: BTreeMap<u32, (u64, u64, u64, u32)> = BTreeMap::new();
        for (site, cohorts) in self.ledger.cohorts() {
            for c in cohorts.iter().filter(|c| c.birth > since) {
                let sum = births.entry(c.birth).or_default();
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
        births.into_iter().map(row).collect()
    }

    fn out_of_memory(&mut self, o: &ledger::OutOfMemory) -> OutOfMemory {
        let (allocated_at, stack) = self.stack(o.stack);
        OutOfMemory {
            device: o.device,
            requested_bytes: o.requested_bytes,
            allocated_bytes: o.allocated_bytes,
            step: o.step,
            allocated_at,
            stack,
            carried_bytes: o.carried_bytes,
            reserved_bytes: o.reserved_bytes,
            empty_bytes: o.empty_bytes,
            largest_hole_bytes: o.largest_hole_bytes,
            retained: self.retained(&o.sites, o.sites.len()),
        }
    }

    fn marker(&self, m: &ledger::Marker) -> Option<Marker> {
        let entry_point = self.entry_point(m.entry_point)?;
        Some(Marker { entry_point, calls: m.calls, bytes: m.bytes })
    }

    fn coverage(&self, run: &Run) -> Coverage {
        Coverage {
            holes: self.tables.notes.clone(),
            unknown_frees: self.ledger.unknown_frees().iter().fold(0, |sum, n| sum.wrapping_add(*n)),
            dropped_events: run.dropped_events.saturating_add(self.ledger.lost_events()),
            ledger_matches_allocator: self.ledger.matches_allocator(),
            missed_frees: self.ledger.missed_frees(),
            implicit_ends: self.ledger.implicit_ends(),
            markers: self.ledger.markers().iter().filter_map(|m| self.marker(m)).collect(),
        }
    }
}

/// A stack as it is listed: of one known by its Python frames alone the example with the native ones. `frames`: its own.
pub fn whole(names: &Names<'_>, id: u32, frames: Vec<NamedFrame>) -> Vec<Frame> {
    shown(names, names.examples(id).into_iter().next().unwrap_or(frames))
}

/// Frames as they are listed.
fn shown(names: &Names<'_>, frames: Vec<NamedFrame>) -> Vec<Frame> {
    let frame = |frame: NamedFrame| Frame { own: names.is_own(&frame), frame, folded: 0 };
    let frames = frames.into_iter().map(frame).collect();
    if names.shows_all() { frames } else { column::folded(frames) }
}

/// What is listed as retained: what was alive then, or what has come since a step.
fn listed(ledger: &Ledger, asked: Asked) -> Vec<ledger::Retained> {
    let now = retained(ledger, asked.step);
    let Some(since) = asked.since else { return now };
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
    let mut grown: Vec<ledger::Retained> = now.into_iter().map(more).filter(|r| r.bytes > 0).collect();
    grown.sort_by_key(|r| (std::cmp::Reverse(r.bytes), r.site));
    grown
}

/// What each finding's sites retained over the run.
fn curves(ledger: &Ledger, findings: &[verdict::Finding]) -> Vec<Vec<Point>> {
    let mut of_site: HashMap<u32, Vec<usize>> = HashMap::new();
    for (i, f) in findings.iter().enumerate() {
        f.parts.iter().for_each(|p| of_site.entry(p.site).or_default().push(i));
    }
    let records = ledger.steps();
    let stride = records.len().div_ceil(CURVE).max(1);
    let mut sums = vec![0i64; findings.len()];
    let mut curves = vec![Vec::new(); findings.len()];
    if findings.is_empty() {
        return curves;
    }
    for (i, record) in records.iter().enumerate() {
        for delta in &record.deltas {
            for &f in of_site.get(&delta.site).into_iter().flatten() {
                sums[f] = sums[f].wrapping_add(delta.bytes);
            }
        }
        if (records.len() - 1 - i).is_multiple_of(stride) {
            for (f, finding) in findings.iter().enumerate() {
                let device = record.devices.iter().find(|d| d.device == finding.device);
                let bytes = match finding.parts.is_empty() {
                    true => device.and_then(|d| d.unattributed_bytes).unwrap_or(0),
                    false => sums[f].max(0) as u64,
                };
                curves[f].push(Point { step: record.step, bytes });
            }
        }
    }
    curves
}

/// Cuts a stack that takes more than `room` bytes to its innermost frame; returns what it takes.
fn shorten(frames: &mut Vec<Frame>, room: usize) -> usize {
    let of = |f: &Frame| {
        let module = f.frame.module.as_ref().map_or(0, String::len);
        FRAME + f.frame.file.len() + f.frame.function.len() + module
    };
    let taken: usize = frames.iter().map(of).sum();
    if taken <= room || frames.len() < 2 {
        return taken;
    }
    frames.truncate(1);
    frames.shrink_to_fit();
    frames.iter().map(of).sum()
}

/// Steps until the device is full if it goes on like this.
fn steps_to_oom(device: &Device, growth_bytes_per_step: f64) -> Option<u64> {
    let used = device.live_bytes.saturating_add(device.unattributed_bytes.unwrap_or(0));
    let free = device.total_bytes.checked_sub(used).filter(|_| device.total_bytes > 0)?;
    let steps = free as f64 / growth_bytes_per_step;
    (growth_bytes_per_step > 0.0 && steps.is_finite()).then_some(steps as u64)
}

/// Whether it fills its device.
fn fills(f: &verdict::Finding) -> bool {
    matches!(f.kind, verdict::Kind::Leak | verdict::Kind::Growing) && f.layer != ledger::Layer::Host
}
