//! The searches for holders: which blocks are asked about, how often, and what of the answer is recorded. It
//! does not know how a search is done: see `leaktrace_core::holders` and the interpreter's heap.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use crate::allocator;
use crate::analysis::answers::{Recorded, Share, is_owned, keep_in_calls, tell_from_passing};
use crate::analysis::search_time::SearchTime;
use crate::analysis::{loop_steps, step_schedule};
use crate::state;
use crate::writer::recording;
use leaktrace_core::format::entry::{Retention, Site, TableEntry};
use leaktrace_core::format::tables::{COLLECTOR, COLLECTOR_OFF};
use leaktrace_core::holders::{Found, Listed, Owner, Wanted, sort_for_listing};
use leaktrace_core::ledger::verdict::{BURN_IN_STEPS, Finding, Kind, SiteShare, is_much, judge, old_age};
use leaktrace_core::ledger::{Layer, Ledger, LiveAllocation};

/// The blocks of one cause that are searched for.
const MAX_BLOCKS: usize = 1 << 16;
/// The blocks of a plateau that is searched for.
const MAX_PLATEAU_BLOCKS: usize = 4096;
/// So many blocks are more than a place in a list or two.
const FEW_BLOCKS: usize = 4;
/// The sites that are searched for because memory ran out.
const MAX_OOM_SITES: usize = 16;
/// The holders of one site that are recorded.
const MAX_HOLDERS: usize = 8;
/// The part of the run, 1 in so many, that searches beside the first may take.
const TIME_SHARE: u32 = 50;
/// The part of the run that searches for new findings between reports may take, after so many.
const NEW_SHARE: u32 = 10;
const NEW_SEARCHES: u32 = 3;
/// What searches may take beside a part of the run: a short run has some, too.
const ALLOWANCE: Duration = Duration::from_millis(400);
/// The part of the run that searches may have taken for one more, which sees whether a holder is still the
/// same with more blocks. What tests find must not depend on how busy their machine is.
const CONFIRM_SHARE: u32 = if cfg!(debug_assertions) { 1 } else { 10 };
/// The part of the run that looks for new findings may take, and how long they may take at first. For tests as above.
const LOOK_SHARE: u32 = if cfg!(debug_assertions) { 2 } else { 200 };
const LOOK_ALLOWANCE: Duration = Duration::from_millis(20);
/// The memory that a search may need (a million objects and the edges between them).
const MEMORY: usize = 96 << 20;

/// The searches so far and what was recorded of them.
#[derive(Default)]
pub struct Searches {
    count: u32,
    spent: Duration,
    longest: Duration,
    time: SearchTime,
    recorded: HashMap<Site, Recorded>,
    /// Whether garbage collection was switched off at the latest.
    collector_is_off: bool,
    /// The time that looks for new findings took.
    looking: Duration,
    /// The number of the level of loops whose steps these are.
    level: u32,
    /// The latest step that was asked at.
    step: u32,
}

/// The reason for a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// New findings are looked for. What was not seen yet has to be searched for now: the function that holds
    /// it may return before the next report.
    Look,
    /// A step ended at which a report is written.
    Step,
    /// The program wants a report.
    Asked,
    /// Memory ran out: what was alive then.
    Memory,
    /// The program is ending.
    End,
}

/// The blocks that are searched for.
#[derive(Default)]
pub struct Question {
    wanted: Vec<Wanted>,
    living: Vec<LiveAllocation>,
    at_end: bool,
    /// Somebody reads the answer as of this moment.
    asked: bool,
    /// The processor time that the search may take.
    time: Duration,
}

impl Question {
    fn add(&mut self, cause: u32, renewed: bool, living: Vec<LiveAllocation>) {
        let wanted = |l: &LiveAllocation| Wanted { block: l.address, bytes: l.bytes, cause, renewed };
        self.wanted.extend(living.iter().map(wanted));
        self.living.extend(living);
    }

    pub fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }
}

/// The owners that were found, why others were not, and the time it took.
pub struct Answer {
    owners: Vec<Owner>,
    why_not: &'static str,
    in_time: bool,
    collector_is_off: bool,
    took: Duration,
}

/// Runs a search. With the GIL held, and no lock of ours.
pub fn search(question: &Question, find: impl FnOnce(&[Wanted], Duration) -> Found) -> Answer {
    let began = Instant::now();
    let (found, why_not) = if allocator::can_allocate(MEMORY) {
        let found = find(&question.wanted, question.time);
        let why_not = if found.in_time { "no object that can be read refers to it" } else { OUT_OF_TIME };
        (found, why_not)
    } else {
        let nothing = Found { in_time: true, ..Found::default() };
        (nothing, "there was too little host memory for a search of the heap")
    };
    let Found { owners, in_time, collector_is_off } = found;
    Answer { owners, why_not, in_time, collector_is_off, took: began.elapsed() }
}

const OUT_OF_TIME: &str = "the time for a search of the heap was up before it was found";

impl Searches {
    /// Takes in of which level of loops the steps are. What was answered for those of another is void: what outlived
    /// one of these need not outlive one of those.
    pub fn set_level(&mut self, level: u32) {
        if level != self.level {
            self.recorded.clear();
            self.level = level;
            step_schedule::look_from(0);
        }
    }

    /// Takes in at which step it is asked. Far fewer than before are steps of something else: first those of a loop, then
    /// those of an optimizer. What was answered for the others is void, but at the end there is no other answer.
    fn set_step(&mut self, step: u32, at_end: bool) {
        if step < self.step / 2 && !at_end {
            self.recorded.clear();
            step_schedule::look_from(0);
        }
        self.step = step;
    }

    /// Returns the blocks of every cause that there is now; none if it is not time to search.
    pub fn question(&mut self, ledger: &Ledger, occasion: Occasion) -> Question {
        let began = Instant::now();
        self.set_step(ledger.step_count(), occasion == Occasion::End);
        let verdict = judge(ledger);
        let mut known: Vec<u32> = Vec::new();
        let mut question = Question {
            at_end: occasion == Occasion::End,
            asked: !matches!(occasion, Occasion::Look | Occasion::Step),
            ..Question::default()
        };
        let elapsed = Duration::from_nanos(state::elapsed());
        question.time = self.time.now(elapsed, question.at_end);
        let is_longer = self.time.is_longer(elapsed, question.at_end);
        let step = ledger.step_count();
        let looks = occasion == Occasion::Look;
        let beyond = self.spent.saturating_sub(ALLOWANCE);
        let may_confirm = beyond * CONFIRM_SHARE <= elapsed;
        let may_look = self.count < NEW_SEARCHES || beyond * NEW_SHARE <= elapsed;
        let mut due = match occasion {
            Occasion::Look => false,
            Occasion::Step => self.spent * TIME_SHARE <= elapsed,
            Occasion::Asked | Occasion::Memory => true,
            // There will be no other time.
            Occasion::End => self.spent * CONFIRM_SHARE <= elapsed,
        };
        let open = ledger.step_count() + 1;
        // What the step under way has allocated is in nobody's hands yet.
        let at_step = matches!(occasion, Occasion::Look | Occasion::Step);
        let ended = |living: &LiveAllocation| !at_step || living.birth < open;
        let suspected: Vec<&Finding> = verdict.findings.iter().chain(&verdict.undecided).collect();
        for (cause, &finding) in (0u32..).zip(&suspected) {
            // Nobody points to a compiled program but its framework.
            if finding.layer == Layer::Code {
                continue;
            }
            let sites: Vec<u32> = finding.sites.iter().map(|p| p.site).collect();
            let main = sites.first().and_then(|&s| key(ledger, s));
            let grows = finding.kind.grows()
                || matches!(finding.kind, Kind::PendingGc | Kind::Residue | Kind::Periodic);
            let living: Vec<LiveAllocation> =
                ledger.live_at_sites(&sites).into_iter().filter(ended).collect();
            let is_open = |s| match self.recorded.get(&s) {
                None => true,
                Some(known) if known.why_not == OUT_OF_TIME && known.paths.is_empty() => is_longer,
                // Of one block nobody can tell whether its place in a list was the first of many.
                Some(known) => {
                    let of_one = known.blocks <= 1 && living.len() >= FEW_BLOCKS;
                    known.is_open(step, may_confirm) || (question.at_end && (!known.lasting || of_one))
                }
            };
            // Whoever has but one block of a sawtooth may be the variable that has the newest.
            let of_tooth = finding.period_steps.map_or(0.0, |period| period * finding.blocks_per_step);
            let shows = grows && (finding.kind != Kind::Periodic || living.len() as f64 >= of_tooth / 2.0);
            due |= (!looks || (may_look && shows)) && main.is_some_and(is_open);
            // When memory runs out, all that is alive is asked about, however young.
            question.add(
                cause,
                finding.renewed,
                match occasion {
                    Occasion::Memory => sample(living),
                    _ => lasting(living, finding.kind, ledger.step_count()),
                },
            );
            known.extend(sites);
        }
        // Holders of what came late and stayed are searched for along with the rest, and at the end if that is much.
        let live = ledger.judged_devices().iter().fold(0u64, |sum, d| sum.saturating_add(d.live_bytes()));
        let is_much = |f: &Finding| {
            // What comes less and less often is a cache or a list, as its holder shows.
            let fills = f.kind == Kind::Cache && f.evidence_step == 0;
            let is_much = |p: &SiteShare| is_much(f.kind, f.cohorts, p.live_bytes, live);
            question.at_end && (fills || f.sites.first().is_some_and(is_much))
        };
        let wanted = |f: &&Finding| is_much(f) || (f.kind == Kind::Plateau && !suspected.is_empty());
        let plateaus: Vec<&Finding> = verdict.non_leaks.iter().filter(wanted).collect();
        due |= plateaus.iter().any(|f| is_much(f)) && suspected.is_empty();
        let mut room = MAX_PLATEAU_BLOCKS;
        for (cause, f) in (suspected.len() as u32..).zip(plateaus) {
            let sites: Vec<u32> = f.sites.iter().map(|p| p.site).collect();
            let living = ledger.live_at_sites(&sites);
            if living.len() <= room {
                room -= living.len();
                question.add(cause, false, living);
                known.extend(sites);
            }
        }
        if occasion == Occasion::Memory {
            let alive = ledger.out_of_memory().last().map_or(&[][..], |o| &o.sites);
            let sites = alive.iter().map(|r| r.site).filter(|site| !known.contains(site)).take(MAX_OOM_SITES);
            let next = (suspected.len() + verdict.non_leaks.len()) as u32;
            for (cause, site) in (next..).zip(sites) {
                question.add(cause, false, sample(ledger.live_at_sites(&[site])));
            }
        }
        if looks {
            self.looking += began.elapsed();
            step_schedule::look_from(step.saturating_add((step / 4).max(2)));
        }
        if due { question } else { Question::default() }
    }

    /// Returns whether it is time to look for new findings at this step. The steps between looks grow with
    /// the run, so that all of them together cost no more than a few verdicts.
    pub fn is_look_due(&self, step: u32) -> bool {
        let allowed = || LOOK_ALLOWANCE + Duration::from_nanos(state::elapsed()) / LOOK_SHARE;
        let is_due = step_schedule::is_look_due(step);
        if is_due && self.looking > allowed() {
            step_schedule::postpone_look(step);
            return false;
        }
        is_due
    }

    /// Takes in how long it took to make ready what new findings are looked for in.
    pub fn looked(&mut self, took: Duration) {
        self.looking += took;
    }

    /// Records an answer.
    pub fn record(&mut self, ledger: &Ledger, question: &Question, answer: &Answer) {
        self.spent += answer.took;
        self.longest = self.longest.max(answer.took);
        self.count += 1;
        self.time.took(question.time, answer.in_time);
        let took = format!("{} {} {}", self.count, self.spent.as_micros(), self.longest.as_micros());
        recording::append_entry(&TableEntry::Meta { key: "holder_searches", value: &took });
        if std::mem::replace(&mut self.collector_is_off, answer.collector_is_off) != answer.collector_is_off {
            let value = if answer.collector_is_off { COLLECTOR_OFF } else { "" };
            recording::append_entry(&TableEntry::Meta { key: COLLECTOR, value });
        }
        let mut found: HashMap<Site, Vec<Share<'_>>> = HashMap::new();
        let mut of_site: HashMap<u32, Option<Site>> = HashMap::new();
        // Blocks that were freed during the search have no holder, whatever was found.
        let mut sites: Vec<u32> = question.living.iter().map(|l| l.site).collect();
        sites.sort_unstable();
        sites.dedup();
        let alive: HashSet<(u64, u32)> =
            ledger.live_at_sites(&sites).iter().map(|l| (l.address, l.birth)).collect();
        // When these were allocated, and the latest of those that are older than what their site frees.
        let mut ages: HashMap<Site, (Vec<u32>, u32)> = HashMap::new();
        for living in &question.living {
            let site = of_site.entry(living.site).or_insert_with(|| key(ledger, living.site));
            if let Some(site) = *site {
                found.entry(site).or_default();
                let age = || old_age(ledger.site(living.site).map_or(0, |site| site.usual_life()));
                let (births, _) = ages
                    .entry(site)
                    .or_insert_with(|| (Vec::new(), ledger.step_count().saturating_sub(age())));
                if alive.contains(&(living.address, living.birth)) {
                    births.push(living.birth);
                }
            }
        }
        // The variables of a module's own loop are there to the end.
        let returned = question.at_end && !loop_steps::are_in_modules();
        for owner in &answer.owners {
            let found_alive = |l: &&LiveAllocation| alive.contains(&(l.address, l.birth));
            for living in owner.blocks.iter().filter_map(|&i| question.living.get(i)).filter(found_alive) {
                let Some(Some(site)) = of_site.get(&living.site) else { continue };
                let of = found.entry(*site).or_default();
                match of.iter_mut().find(|share| share.owner.path == owner.path) {
                    Some(share) => {
                        (share.blocks, share.bytes) = (share.blocks + 1, share.bytes + living.bytes);
                        share.oldest = share.oldest.min(living.birth);
                    }
                    // What hangs on nothing when functions have returned may have had an owner before.
                    None => {
                        let late = returned && owner.hold == Retention::Unreachable;
                        let hold = if late { Retention::Unknown } else { owner.hold };
                        of.push(Share { owner, hold, blocks: 1, bytes: living.bytes, oldest: living.birth });
                    }
                }
            }
        }
        for (site, mut holders) in found {
            if let Some((births, old)) = ages.get_mut(&site) {
                births.sort_unstable();
                tell_from_passing(&mut holders, births, *old);
            }
            sort_for_listing(&mut holders, |share| Listed {
                hold: share.hold,
                name: share.owner.path.get(..share.owner.name).unwrap_or(&share.owner.path),
                blocks: share.blocks,
                bytes: share.bytes,
                refers: false,
            });
            holders.truncate(MAX_HOLDERS);
            self.record_site(site, &mut holders, question, answer.why_not, ledger.step_count());
        }
    }

    fn record_site(
        &mut self,
        site: Site,
        holders: &mut Vec<Share<'_>>,
        question: &Question,
        why_not: &'static str,
        step: u32,
    ) {
        let recorded = self.recorded.entry(site).or_default();
        recorded.tries += 1;
        recorded.step = step;
        recorded.unbind_growing(holders);
        keep_in_calls(holders);
        recorded.leave_out_samples(holders);
        if holders.is_empty() && recorded.paths.is_empty() && recorded.why_not != why_not {
            recorded.why_not = why_not;
            recording::append_entry(&TableEntry::Unheld { site, step, why: why_not });
        }
        // It was garbage while the program ran, too.
        if recorded.lasting && !recorded.owned {
            holders.iter_mut().for_each(|h| h.hold = h.owner.hold);
        }
        let improved = recorded.is_improved_by(holders, question.at_end, question.asked);
        recorded.remember(holders);
        if !improved {
            return;
        }
        recorded.owned = is_owned(holders);
        recorded.bounded = holders.first().is_some_and(Share::is_bounded);
        recorded.blocks = holders.iter().map(|h| h.blocks).max().unwrap_or(0);
        recorded.lasting = holders.iter().any(Share::is_lasting);
        recorded.paths = holders.iter().map(|h| h.owner.path.clone()).collect();
        for share in holders {
            recording::append_entry(&TableEntry::Holder {
                site,
                search: self.count,
                step,
                blocks: share.blocks,
                bytes: share.bytes,
                name_len: share.owner.name as u32,
                retention: share.hold,
                path: &share.owner.path,
            });
        }
    }

    /// Returns whether something keeps a search from running, and says so in the recording: before the first
    /// one, or where the last one cannot run.
    pub fn is_obstructed(&mut self, may_run: bool, obstacle: impl FnOnce() -> Option<String>) -> bool {
        let why = if self.count == 0 || !may_run { obstacle() } else { None };
        if let Some(why) = &why {
            recording::append_entry(&TableEntry::Note {
                text: &format!("who holds what is not searched: {why}"),
            });
        }
        why.is_some()
    }
}

/// Returns the stacks of every cause that there is now: of these native frames are worth taking.
pub fn suspicious(ledger: &Ledger) -> Vec<u32> {
    let verdict = judge(ledger);
    let sites = verdict.findings.iter().flat_map(|f| &f.sites).filter_map(|p| ledger.site(p.site));
    sites.map(|site| site.stack).collect()
}

/// Returns what a site is known by in the recording.
fn key(ledger: &Ledger, site: u32) -> Option<Site> {
    let s = ledger.site(site)?;
    Some(Site { stack: s.stack, entry_point: s.entry_point, device: s.device, layer: s.layer as u8 })
}

/// Returns the blocks that outlived a step, if there are any; of carry-over those that the last step has left, and of what
/// came after it just that.
fn lasting(mut living: Vec<LiveAllocation>, kind: Kind, steps: u32) -> Vec<LiveAllocation> {
    match kind {
        Kind::CarryOver => living.retain(|l| l.birth == steps),
        Kind::AfterLast => living.retain(|l| l.birth > steps),
        _ => leave_out_young(&mut living, kind, steps),
    }
    sample(living)
}

fn leave_out_young(living: &mut Vec<LiveAllocation>, kind: Kind, steps: u32) {
    if kind.grows() || kind == Kind::PendingGc {
        leave_out_warm_up(living);
    }
    for age in [2, 1] {
        if living.iter().any(|l| l.birth.saturating_add(age) <= steps) {
            living.retain(|l| l.birth.saturating_add(age) <= steps);
            break;
        }
    }
}

/// Leaves out what came in the first steps and is more than what any later step has added: it is no part of
/// the growth.
fn leave_out_warm_up(living: &mut Vec<LiveAllocation>) {
    let mut of_steps: HashMap<u32, u64> = HashMap::new();
    living.iter().for_each(|l| *of_steps.entry(l.birth).or_default() += l.bytes);
    let later = of_steps.iter().filter(|(birth, _)| **birth > BURN_IN_STEPS).map(|(_, bytes)| *bytes);
    let Some(most) = later.max() else { return };
    living.retain(|l| l.birth > BURN_IN_STEPS || of_steps.get(&l.birth).is_none_or(|bytes| *bytes <= most));
}

/// Returns a sample of blocks where there are very many.
fn sample(living: Vec<LiveAllocation>) -> Vec<LiveAllocation> {
    let stride = living.len().div_ceil(MAX_BLOCKS).max(1);
    living.into_iter().step_by(stride).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_at_steps_of_something_else_is_void() {
        let mut searches = Searches::default();
        let site = Site { stack: 1, entry_point: 0, device: 0, layer: 0 };
        searches.set_step(58, false);
        searches.recorded.insert(site, Recorded::default());
        for (step, at_end) in [(72, false), (71, false), (0, true)] {
            searches.set_step(step, at_end);
            assert_eq!(searches.recorded.len(), 1, "{step}");
        }
        searches.set_step(72, false);
        searches.set_step(10, false);
        assert_eq!(searches.recorded.len(), 0);
    }
}
