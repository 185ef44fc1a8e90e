//! The holders of a report: as numbers for the verdicts, by name for people.

use std::borrow::Cow;
use std::collections::HashMap;

use super::Builder;
use crate::format::entry::{self, Retention};
use crate::format::tables;
use crate::frameworks;
use crate::holders::{Listed, sort_for_listing};
use crate::ledger::Layer;
use crate::ledger::verdict::{self, Finding, Kind, SiteHolder};
use crate::report::{Holder, Searches};

/// How a note begins that says why the heap cannot be searched.
const NOT_SEARCHED: &str = "who holds what is not searched: ";
/// What stands between a function and the name of its variable.
const LOCAL: &str = "() local `";
/// How the name of a cycle begins, and what stands between its members.
const CYCLE: &str = "garbage waiting for the cyclic collector: ";
const LEADS_TO: &str = " → ";
/// Holders listed under one finding.
const HOLDERS: usize = 32;

impl Builder<'_> {
    /// Sums up the heap searches, if there were any.
    pub(super) fn searches(&self) -> Option<Searches> {
        let text = self.meta("holder_searches")?;
        let mut figures = text.split(' ').map(|n| n.parse::<u64>().ok());
        let mut next = || figures.next().flatten();
        let (count, total, longest) = (next()?, next()?, next()?);
        Some(Searches { count, seconds: total as f64 / 1e6, longest_s: longest as f64 / 1e6 })
    }

    /// Returns what a site is known by in the recording's tables.
    pub(super) fn key(&self, site: u32) -> Option<entry::Site> {
        let site = self.ledger.site(site)?;
        let (stack, entry_point) = (site.stack, site.entry_point);
        Some(entry::Site { stack, entry_point, device: site.device, layer: site.layer as u8 })
    }

    /// Returns who holds what, each holder as a number.
    pub(super) fn held(&self) -> HashMap<entry::Site, Vec<SiteHolder>> {
        let mut numbers: HashMap<Cow<'_, str>, u64> = HashMap::new();
        let mut of_sites = HashMap::new();
        for (site, (_, holders)) in &self.tables.holders {
            let frames = self.names.frames(site.stack);
            let line = self.names.allocated_at(&frames);
            let end = line.and_then(|line| frames.iter().position(|frame| std::ptr::eq(frame, line)));
            let of_call: Vec<&str> = frames
                .iter()
                .take(end.map_or(0, |end| end + 1))
                .map(|frame| frame.function.as_str())
                .collect();
            let held = holders.iter().map(|h| {
                let mut number = |name| {
                    let next = numbers.len() as u64;
                    *numbers.entry(name).or_insert(next)
                };
                let name = name_of(h);
                let (holder, object) = (number(owner_of(h)), number(object_of(name).into()));
                let (retention, blocks, bytes) = (h.retention, h.blocks, h.bytes);
                let is_state = frameworks::of_number(site.entry_point).is_state(name);
                let local = h.path.split_once(LOCAL);
                let is_of_call = local.is_some_and(|(function, _)| of_call.contains(&function));
                SiteHolder { holder, object, retention, is_state, is_of_call, blocks, bytes }
            });
            of_sites.insert(*site, held.collect());
        }
        of_sites
    }

    /// Returns why no search found a holder of a finding's blocks.
    pub(super) fn why_no_holder(&self, f: &Finding) -> Option<String> {
        let has_owner = f.kind.grows()
            || matches!(
                f.kind,
                Kind::PendingGc | Kind::Residue | Kind::AfterLast | Kind::CarryOver | Kind::Periodic
            );
        if f.sites.is_empty() || !has_owner {
            return None;
        }
        if f.layer == Layer::Code {
            let is_kept = f.kind != Kind::Periodic;
            return is_kept
                .then(|| "holders of compiled programs are not searched for; mostly it is the framework's own cache".into());
        }
        if f.kind == Kind::PendingGc && !self.holders(f.sites.iter().map(|part| part.site)).is_empty() {
            return Some("what was found holds other blocks of the same lines, which are not garbage".into());
        }
        let searched = f.sites.iter().filter_map(|part| self.tables.unheld.get(&self.key(part.site)?));
        if let Some((step, why)) = searched.max_by_key(|(step, _)| *step) {
            return Some(format!("searched for at step {step}: {why}"));
        }
        // What is released again and again is no leak: nobody was looked for.
        if f.kind == Kind::Periodic {
            return None;
        }
        if let Some(why) = self.tables.notes.iter().find_map(|note| note.strip_prefix(NOT_SEARCHED)) {
            return Some(why.to_owned());
        }
        Some(match self.searches() {
            _ if self.meta("holders").as_deref() == Some("off") => "LEAKTRACE_HOLDERS is off".into(),
            Some(_) => "the last search of the heap was before this was seen to grow".into(),
            None if self.meta("python").is_none() => "no Python interpreter was found in this process".into(),
            None if !matches!(f.kind, Kind::Leak | Kind::Growing) => {
                "nothing was seen to grow while the program ran, so that the heap was not searched".into()
            }
            None => "the interpreter was never free for a search while this grew".into(),
        })
    }

    /// Lists who held what grew as of the last heap search; others of the same sites only if nobody else did.
    pub(super) fn holders_of(&self, f: &Finding) -> Vec<Holder> {
        let mut holders = self.holders(f.sites.iter().map(|part| part.site));
        let may_hold =
            |h: &Holder| h.retention.is_some() || verdict::may_hold(f, Retention::Unknown, h.bytes);
        if holders.iter().any(may_hold) {
            holders.retain(may_hold);
        }
        // What a living object or C++ holds is no garbage: it is of the same lines.
        if f.kind == Kind::PendingGc {
            holders.retain(|h| h.retention == Some("unreachable"));
        }
        holders
    }

    /// Lists who held the blocks of these sites as of the last heap search.
    pub(super) fn holders(&self, sites: impl Iterator<Item = u32>) -> Vec<Holder> {
        let mut holders: Vec<(Retention, &str, Holder)> = Vec::new();
        // One beyond the last is of another loop's: which ones count was decided later.
        let steps = self.ledger.step_count();
        let step_of = |step: u32| if step > steps { 0 } else { step };
        for key in sites.filter_map(|site| self.key(site)) {
            for held in self.tables.holders.get(&key).iter().flat_map(|(_, all)| all) {
                match holders.iter_mut().map(|(_, _, h)| h).find(|h| h.path == held.path) {
                    Some(h) => {
                        h.bytes = h.bytes.saturating_add(held.bytes);
                        h.blocks = h.blocks.saturating_add(held.blocks);
                        h.step = h.step.max(step_of(held.step));
                    }
                    None => holders.push((
                        held.retention,
                        name_of(held),
                        Holder {
                            path: held.path.clone(),
                            bytes: held.bytes,
                            blocks: held.blocks,
                            step: step_of(held.step),
                            retention: match held.retention {
                                Retention::Unknown => None,
                                Retention::Unbounded | Retention::Remade | Retention::Appended => {
                                    Some("unbounded")
                                }
                                Retention::Bounded { .. } => Some("bounded"),
                                Retention::Limited { .. } => Some("limited"),
                                Retention::Unreachable => Some("unreachable"),
                                Retention::Replaced | Retention::Computed => Some("replaced"),
                            },
                            max_entries: match held.retention {
                                Retention::Bounded { max_entries, .. } => Some(max_entries),
                                Retention::Limited { limit, .. } => Some(limit),
                                _ => None,
                            },
                        },
                    )),
                }
            }
        }
        let paths = holders.iter().map(|(_, _, h)| h.path.as_str());
        let optimizers: Vec<String> =
            frameworks::optimizers_in(paths).into_iter().map(str::to_owned).collect();
        let refers = |path: &str| {
            optimizers
                .iter()
                .any(|to| path.strip_prefix(to.as_str()).is_some_and(|rest| rest.starts_with('.')))
        };
        sort_for_listing(&mut holders, |&(hold, name, ref h)| Listed {
            hold,
            name,
            blocks: h.blocks,
            bytes: h.bytes,
            refers: refers(&h.path),
        });
        holders.into_iter().map(|(_, _, h)| h).take(HOLDERS).collect()
    }
}

/// Returns the part of a holder's path that names what would have to drop the blocks.
fn name_of(held: &tables::Holder) -> &str {
    held.path.get(..held.name_len).unwrap_or(&held.path)
}

/// Returns a name of what would have to drop the blocks, by which those of one cause are known. A variable that has several is
/// one of several calls of its function that run, and so are the others of these: it is the calls that keep them. A cycle is
/// one wherever it is entered.
fn owner_of(held: &tables::Holder) -> Cow<'_, str> {
    let name = name_of(held);
    if let Some(cycle) = name.strip_prefix(CYCLE) {
        let mut members: Vec<&str> = cycle.split(LEADS_TO).collect();
        // It ends where it begins.
        members.pop();
        if name.ends_with('…') || members.is_empty() {
            return name.into();
        }
        let rotated = |by: usize| [&members[by..], &members[..by]].concat();
        members = (0..members.len()).map(rotated).min().unwrap_or_default();
        return members.join(LEADS_TO).into();
    }
    let is_variable =
        held.blocks > 1 && name == held.path && name.matches('`').count() == 2 && name.ends_with('`');
    name.split_once(LOCAL).filter(|_| is_variable).map_or(name, |(function, _)| function).into()
}

/// Returns the name of the object or the collection that a holder is part of; of a variable, and where a module's name
/// cannot be told from an object's, its own.
fn object_of(name: &str) -> &str {
    let variable = match name.rfind('`') {
        Some(end) => end + 1,
        None => name.strip_prefix("__main__.").map_or(name.len(), |_| "__main__.".len()),
    };
    name[variable..].rfind(['.', '[']).map_or(name, |end| &name[..variable + end])
}

#[cfg(test)]
mod tests {
    use super::{object_of, owner_of};
    use crate::format::entry::Retention;
    use crate::format::tables::Holder;

    #[test]
    fn attributes_are_parts_of_objects_and_variables_are_not() {
        for (name, object) in [
            ("Trainer.fit() local `cache`.keys", "Trainer.fit() local `cache`"),
            ("Trainer.fit() local `first`", "Trainer.fit() local `first`"),
            ("__main__.cache.layers[1]", "__main__.cache.layers"),
            ("__main__.first", "__main__.first"),
            ("package.module.first", "package.module.first"),
        ] {
            assert_eq!(object_of(name), object);
        }
    }
    #[test]
    fn cycles_are_one_and_so_are_the_calls_that_have_several_of_a_variable() {
        let of = |path: &str, blocks: u64| Holder {
            path: path.to_owned(),
            name_len: path.len(),
            retention: Retention::Unbounded,
            blocks,
            bytes: 512 * blocks,
            step: 1,
        };
        let are_one = |a: &str, b: &str, blocks| owner_of(&of(a, blocks)) == owner_of(&of(b, blocks));
        let cycle = |members: &str| format!("garbage waiting for the cyclic collector: {members}");
        assert!(are_one(&cycle("A → B → C → A"), &cycle("B → C → A → B"), 2));
        assert!(are_one(&cycle("A.b → B.a → A"), &cycle("B.a → A.b → B"), 2));
        assert!(!are_one(&cycle("A → B → A"), &cycle("A → A"), 2));
        assert!(are_one("train() local `x`", "train() local `y`", 2));
        // One call has one block in each variable, and a list may have many.
        assert!(!are_one("train() local `x`", "train() local `y`", 1));
        assert!(!are_one("train() local `x`[*]", "train() local `y`[*]", 2));
    }
}
