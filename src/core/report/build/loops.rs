//! Loops as reports name them: where they are, and what of the program runs in those that are a library's.

use std::collections::BTreeMap;

use super::Builder;
use crate::format::entry;
use crate::format::tables::Stack;
use crate::ledger;
use crate::report::{LoopLocation, StepSource, UnusedLoop};
use crate::symbols::NamedFrame;

/// The sites looked at for what runs in a library's loop, those that allocate most often first.
const SITES: usize = 256;

impl Builder<'_> {
    /// Locates the loops of a step source, as `file:line`.
    pub(super) fn loop_locations(&self, source: &str) -> Vec<LoopLocation> {
        let all = self.meta(source);
        all.iter().flat_map(|all| all.split(',')).filter_map(|text| self.loop_location(text)).collect()
    }

    /// Locates a loop by the numbers of its code, of its first and of its last instruction.
    fn loop_location(&self, text: &str) -> Option<LoopLocation> {
        let numbers: Option<Vec<u32>> = text.split(' ').map(|n| n.parse().ok()).collect();
        let &[code, header, last] = numbers?.as_slice() else { return None };
        // A `while` begins with its body, and has its condition at the end. What leaves a `with` has no line.
        let first =
            [header, last].into_iter().min_by_key(|&at| self.names.line_of(code, at).unwrap_or(u32::MAX))?;
        let frame = entry::Frame::Python { code, offset: first, entry: false };
        let [frame] = &self.names.resolve(&Stack { python: vec![frame], native: Vec::new() })[..] else {
            return None;
        };
        // No loop begins with the first instruction.
        let calls_of = (last == 0).then(|| frame.function.clone());
        let runs = if self.names.is_own(frame) { None } else { self.runs(frame) };
        Some(LoopLocation { at: format!("{}:{}", frame.file, frame.line?), calls_of, runs })
    }

    pub(super) fn unused_loops(&self) -> Vec<UnusedLoop> {
        let unused = |text: &str| {
            let mut words = text.rsplitn(3, ' ');
            let (reason, iterations) = (words.next()?.to_owned(), words.next()?.parse().ok()?);
            Some(UnusedLoop { location: self.loop_location(words.next()?)?.at, iterations, reason })
        };
        let all = self.meta("loops_unused").filter(|_| self.ledger.step_count() == 0);
        all.iter().flat_map(|all| all.split(',')).filter_map(unused).collect()
    }

    pub(super) fn step_sources(&self) -> Vec<StepSource> {
        let source = |(by, count): (ledger::BoundarySource, u32)| {
            let name = by.to_string();
            StepSource { loop_locations: self.loop_locations(&name), name, count }
        };
        let mut all: Vec<StepSource> = self.ledger.step_sources().map(source).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// Returns the program's function that a library's loop runs, and a line of it: the outermost one inside that loop, of those
    /// that allocate most often.
    fn runs(&self, around: &NamedFrame) -> Option<(String, String)> {
        // A loop beside other sources may run both: what those end steps in is none of its.
        let phases = self.ledger.phases();
        let is_of_loops = |s: &ledger::Site| !phases.have_sources() || phases.is_looped(s.last_birth);
        let all = self.ledger.sites().map(|(_, site)| site).filter(|site| is_of_loops(site));
        let mut sites: Vec<(u64, u32)> = all.map(|site| (site.allocs, site.stack)).collect();
        sites.sort_unstable_by_key(|&(allocs, stack)| (std::cmp::Reverse(allocs), stack));
        sites.truncate(SITES);
        let mut runs: BTreeMap<(String, String), (u64, Option<u32>)> = BTreeMap::new();
        for (allocs, stack) in sites {
            let frames = self.names.frames(stack);
            let is_around = |f: &NamedFrame| (&f.file, &f.function) == (&around.file, &around.function);
            let inside = frames.iter().position(is_around).and_then(|at| frames.get(..at));
            let Some(own) = inside.and_then(|inside| inside.iter().rfind(|f| self.names.is_own(f))) else {
                continue;
            };
            let (all, line) = runs.entry((own.function.clone(), own.file.clone())).or_default();
            // The line of the site that allocates most often.
            line.get_or_insert(own.line?);
            *all = all.wrapping_add(allocs);
        }
        let ((function, file), (_, line)) = runs.into_iter().max_by_key(|(_, (allocs, _))| *allocs)?;
        Some((function, format!("{file}:{}", line?)))
    }
}
