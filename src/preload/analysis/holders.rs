//! Whose blocks are looked for, how often, and what is written down of the answer.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use crate::allocator;
use crate::lifecycle;
use crate::python;
use crate::writer::recording;
use leaktrace_core::format::entry::{Retention, Site, TableEntry};
use leaktrace_core::holders::{Owner, Wanted, listing_order};
use leaktrace_core::ledger::verdict::{Kind, judge};
use leaktrace_core::ledger::{Ledger, LiveAllocation};

/// Blocks of one cause that are looked for.
const MOST: usize = 1 << 16;
/// Blocks of a plateau that is looked for.
const PLATEAU: usize = 4096;
/// Sites looked for because memory ran out.
const OF_MEMORY: usize = 16;
/// Holders of one site that are written down.
const LISTED: usize = 8;
/// Searches for a site whose holder was not found.
const TRIES: u32 = 3;
/// Searches that are not the first may take this part of the run.
const PART: u32 = 50;
/// What a search may need at most (a million objects and their places).
const MEMORY: usize = 96 << 20;

/// What was said so far.
#[derive(Default)]
pub struct Owners {
    searches: u32,
    spent: Duration,
    longest: Duration,
    told: HashMap<Site, Told>,
}

#[derive(Default)]
struct Told {
    tries: u32,
    paths: Vec<String>,
    blocks: u64,
    /// One of the holders is known to keep what it has, and not only to have had it when it was looked for.
    lasting: bool,
}

impl Told {
    /// Whether an answer is worth writing: it is, if it names anything that was not known. A search that fell into the middle of
    /// a step may have met blocks on their way through C++ code; such an answer does not replace a lasting one.
    fn is_improved_by(&self, holders: &[Share<'_>]) -> bool {
        let lasting = holders.iter().any(Share::is_lasting);
        let blocks = holders.iter().map(|h| h.blocks).max().unwrap_or(0);
        let same = holders.iter().all(|h| self.paths.contains(&h.owner.path));
        // The recording must not grow with every search.
        let known = same && holders.len() == self.paths.len() && blocks < self.blocks * 5 / 4;
        !holders.is_empty() && (lasting || !self.lasting) && !known
    }
}

/// What an owner has of one site.
struct Share<'a> {
    owner: &'a Owner,
    blocks: u64,
    bytes: u64,
}

impl Share<'_> {
    fn is_lasting(&self) -> bool {
        self.owner.hold != Retention::Unknown
    }
}

/// Why there is a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// A step ended at which a report is written.
    Step,
    /// The program wants a report.
    Asked,
    /// Memory ran out: what was alive then.
    Memory,
    /// The program is ending.
    End,
}

/// The blocks of a search.
#[derive(Default)]
pub struct Question {
    wanted: Vec<Wanted>,
    living: Vec<LiveAllocation>,
}

impl Question {
    fn add(&mut self, cause: u32, living: Vec<LiveAllocation>) {
        self.wanted.extend(living.iter().map(|l| Wanted { block: l.address, cause }));
        self.living.extend(living);
    }

    pub fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }
}

/// The answer, and what it took.
pub struct Answer {
    owners: Vec<Owner>,
    took: Duration,
}

/// Searches. With the GIL, and without a lock of ours.
pub fn look(question: &Question) -> Answer {
    let began = Instant::now();
    let owners =
        if allocator::enough_for(MEMORY) { python::search::run(&question.wanted) } else { Vec::new() };
    Answer { owners, took: began.elapsed() }
}

impl Owners {
    /// The blocks of every cause that there is now, if it is time to look.
    pub fn question(&mut self, ledger: &Ledger, occasion: Occasion) -> Question {
        let verdict = judge(ledger);
        let mut known: Vec<u32> = Vec::new();
        let mut question = Question::default();
        let elapsed = Duration::from_nanos(lifecycle::elapsed());
        let mut due = match occasion {
            Occasion::Step => self.spent * PART <= elapsed,
            Occasion::Asked | Occasion::Memory => true,
            // There will be no other time.
            Occasion::End => self.spent * PART / 5 <= elapsed,
        };
        let open = ledger.step_count() + 1;
        // What the step under way has allocated is in nobody's hands yet.
        let ended = |living: &LiveAllocation| occasion != Occasion::Step || living.birth < open;
        for (cause, finding) in (0u32..).zip(&verdict.findings) {
            let sites: Vec<u32> = finding.sites.iter().map(|p| p.site).collect();
            let main = sites.first().and_then(|&s| key(ledger, s));
            due |= main.is_some_and(|s| self.told.get(&s).is_none_or(|t| !t.lasting && t.tries < TRIES));
            let living = ledger.live_at_sites(&sites).into_iter().filter(ended).collect();
            question.add(cause, lasting(living, finding.kind, ledger.step_count()));
            known.extend(sites);
        }
        // Who has what came late and stayed is asked along with the rest.
        let plateaus = verdict.non_leaks.iter().filter(|f| f.kind == Kind::Plateau);
        for (cause, f) in
            (verdict.findings.len() as u32..).zip(plateaus.filter(|_| !verdict.findings.is_empty()))
        {
            let sites: Vec<u32> = f.sites.iter().map(|p| p.site).collect();
            let living = ledger.live_at_sites(&sites);
            if living.len() <= PLATEAU {
                question.add(cause, living);
                known.extend(sites);
            }
        }
        if occasion == Occasion::Memory {
            let alive = ledger.out_of_memory().last().map_or(&[][..], |o| &o.sites);
            let sites = alive.iter().map(|r| r.site).filter(|site| !known.contains(site)).take(OF_MEMORY);
            let next = (verdict.findings.len() + verdict.non_leaks.len()) as u32;
            for (cause, site) in (next..).zip(sites) {
                question.add(cause, some(ledger.live_at_sites(&[site])));
            }
        }
        if due { question } else { Question::default() }
    }

    /// Writes the answer down.
    pub fn answered(&mut self, ledger: &Ledger, question: &Question, answer: &Answer) {
        self.spent += answer.took;
        self.longest = self.longest.max(answer.took);
        self.searches += 1;
        let took = format!("{} {} {}", self.searches, self.spent.as_micros(), self.longest.as_micros());
        recording::append_entry(&TableEntry::Meta { key: "holder_searches", value: &took });
        let mut found: HashMap<Site, Vec<Share<'_>>> = HashMap::new();
        let mut of_site: HashMap<u32, Option<Site>> = HashMap::new();
        // What was freed while it was looked for has no holder, whatever was found.
        let mut sites: Vec<u32> = question.living.iter().map(|l| l.site).collect();
        sites.sort_unstable();
        sites.dedup();
        let alive: HashSet<(u64, u32)> =
            ledger.live_at_sites(&sites).iter().map(|l| (l.address, l.birth)).collect();
        for living in &question.living {
            let site = of_site.entry(living.site).or_insert_with(|| key(ledger, living.site));
            if let Some(site) = *site {
                found.entry(site).or_default();
            }
        }
        for owner in &answer.owners {
            let found_alive = |l: &&LiveAllocation| alive.contains(&(l.address, l.birth));
            for living in owner.blocks.iter().filter_map(|&i| question.living.get(i)).filter(found_alive) {
                let Some(Some(site)) = of_site.get(&living.site) else { continue };
                let of = found.entry(*site).or_default();
                match of.iter_mut().find(|share| share.owner.path == owner.path) {
                    Some(share) => {
                        (share.blocks, share.bytes) = (share.blocks + 1, share.bytes + living.bytes)
                    }
                    None => of.push(Share { owner, blocks: 1, bytes: living.bytes }),
                }
            }
        }
        for (site, mut holders) in found {
            holders.sort_by_key(|share| listing_order(share.owner.hold, share.blocks, share.bytes));
            holders.truncate(LISTED);
            self.tell(site, &holders, ledger.step_count());
        }
    }

    fn tell(&mut self, site: Site, holders: &[Share<'_>], step: u32) {
        let told = self.told.entry(site).or_default();
        told.tries += 1;
        if !told.is_improved_by(holders) {
            return;
        }
        told.blocks = holders.iter().map(|h| h.blocks).max().unwrap_or(0);
        told.lasting = holders.iter().any(Share::is_lasting);
        told.paths = holders.iter().map(|h| h.owner.path.clone()).collect();
        for share in holders {
            recording::append_entry(&TableEntry::Holder {
                site,
                search: self.searches,
                step,
                blocks: share.blocks,
                bytes: share.bytes,
                name_len: share.owner.name as u32,
                retention: share.owner.hold,
                path: &share.owner.path,
            });
        }
    }

    /// The one line that says why nothing is searched, once; or why the last search cannot run.
    pub fn obstacle(&mut self, may_run: bool) -> bool {
        let why = if self.searches == 0 || !may_run { python::search::obstacle() } else { None };
        if let Some(why) = &why {
            recording::append_entry(&TableEntry::Note {
                text: &format!("who holds what is not searched: {why}"),
            });
        }
        why.is_some()
    }
}

/// The stacks of every cause that there is now: the most is wanted to be known of these.
pub fn suspicious(ledger: &Ledger) -> Vec<u32> {
    let verdict = judge(ledger);
    let sites = verdict.findings.iter().flat_map(|f| &f.sites).filter_map(|p| ledger.site(p.site));
    sites.map(|site| site.stack).collect()
}

/// What a site is known by.
fn key(ledger: &Ledger, site: u32) -> Option<Site> {
    let s = ledger.site(site)?;
    Some(Site { stack: s.stack, entry_point: s.entry_point, device: s.device, layer: s.layer as u8 })
}

/// The blocks that outlived a step, if there are any; of carry-over those that the last step has left.
fn lasting(mut living: Vec<LiveAllocation>, kind: Kind, steps: u32) -> Vec<LiveAllocation> {
    if kind == Kind::CarryOver {
        living.retain(|l| l.birth == steps);
        return some(living);
    }
    for age in [2, 1] {
        if living.iter().any(|l| l.birth.saturating_add(age) <= steps) {
            living.retain(|l| l.birth.saturating_add(age) <= steps);
            break;
        }
    }
    some(living)
}

/// Of very many some.
fn some(living: Vec<LiveAllocation>) -> Vec<LiveAllocation> {
    let stride = living.len().div_ceil(MOST).max(1);
    living.into_iter().step_by(stride).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(path: &str, hold: Retention) -> Owner {
        Owner { path: path.into(), name: path.len(), hold, cause: 0, blocks: Vec::new() }
    }

    #[test]
    fn an_answer_from_the_middle_of_a_step_does_not_replace_a_lasting_one() {
        let (list, code) = (owner("kept[*]", Retention::Unbounded), owner("C++", Retention::Unknown));
        let share = |owner, blocks| Share { owner, blocks, bytes: blocks << 20 };
        let fresh = Told::default();
        assert!(fresh.is_improved_by(&[share(&code, 2)]));
        let lasting = Told { tries: 1, paths: vec!["kept[*]".into()], blocks: 49, lasting: true };
        assert!(!lasting.is_improved_by(&[share(&code, 2)]));
        assert!(!lasting.is_improved_by(&[share(&list, 50)]));
        assert!(lasting.is_improved_by(&[share(&list, 98)]));
        let transient = Told { tries: 1, paths: vec!["C++".into()], blocks: 2, lasting: false };
        assert!(transient.is_improved_by(&[share(&list, 1), share(&code, 2)]));
    }
}
