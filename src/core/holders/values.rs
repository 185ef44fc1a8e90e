//! Variables by what the program's source says of their values: what is made anew keeps nothing of before, what is made of
//! itself keeps all of it, and what is put into a collection may be dropped at a limit. It does not read the source: see
//! [`super::assignments`].

use super::assignments::{Assignments, Limit, OWN, Variable};
use super::{GcRoot, HeapGraph, Owner, Path, Retention, Step, Wanted};

/// A collection and what it is an attribute of: a dict, and the object that has this one.
const OBJECTS: usize = 3;

/// The variable, or attribute, that an owner is the value of.
pub(super) struct Assigned {
    origin: GcRoot,
    attribute: Option<String>,
    /// The owner is a collection.
    is_collection: bool,
}

impl Assigned {
    /// Returns the variable that a path begins with, or the last attribute it leads to: of a block, or of the collection that
    /// it parts in.
    pub fn of(origin: &GcRoot, steps: &[Step], parting: Option<usize>) -> Option<Assigned> {
        if !matches!(origin, GcRoot::Global(_) | GcRoot::Local { .. }) {
            return None;
        }
        let (mut attribute, is_collection) = (None, parting.is_some());
        for step in &steps[..parting.unwrap_or(steps.len()).min(steps.len())] {
            match step {
                Step::Through => {}
                Step::Attribute(name) => attribute = Some(name.clone()),
                Step::Key(_) | Step::Index(_) if is_collection => {}
                _ => return None,
            }
        }
        Some(Assigned { origin: origin.clone(), attribute, is_collection })
    }

    fn variable(&self) -> Option<Variable<'_>> {
        if let Some(name) = &self.attribute {
            return Some(Variable::Attribute(name));
        }
        match &self.origin {
            GcRoot::Global(path) => {
                path.rsplit_once('.').map(|(module, name)| Variable::Global { module, name })
            }
            GcRoot::Local { function, name } => {
                Some(Variable::Local { function: function.rsplit('.').next().unwrap_or(function), name })
            }
            _ => None,
        }
    }
}

/// Says of owners without a bound that have what is renewed how they retain it, as far as the source decides that.
pub(super) fn tell_apart(
    graph: &mut impl HeapGraph,
    wanted: &[Wanted],
    owners: Vec<(Owner, Option<Assigned>)>,
) -> Vec<Owner> {
    let has_renewed = |owner: &Owner| owner.blocks.first().is_some_and(|&at| wanted[at].renewed);
    let asked: Vec<usize> =
        (0..owners.len()).filter(|&at| owners[at].1.is_some() && has_renewed(&owners[at].0)).collect();
    let source = if asked.is_empty() { None } else { graph.assignments() };
    let decided: Vec<(usize, Retention)> = source.map_or_else(Vec::new, |source| {
        asked.iter().filter_map(|&at| Some((at, retention(source, &owners, at)?))).collect()
    });
    let mut all: Vec<Owner> = owners.into_iter().map(|(owner, _)| owner).collect();
    decided.into_iter().for_each(|(at, hold)| all[at].hold = hold);
    all
}

/// Returns how many entries the collection has that a path parts in, and the least length that the source keeps it at and that it
/// has not passed. The number is that of the object which has the collection, or the one that the source gives that name.
pub(super) fn limit(graph: &mut impl HeapGraph, path: &Path, parting: usize) -> Option<(u64, u64)> {
    let steps = graph.steps(&path.nodes);
    // What limits a collection limits no other one in it.
    let is_entry = |step: &Step| matches!(step, Step::Key(_) | Step::Index(_));
    if steps.iter().take(parting).any(is_entry) {
        return None;
    }
    let assigned = Assigned::of(&path.root.origin, &steps, Some(parting))?;
    let (variable, entries) = (assigned.variable()?, graph.length(path.nodes[parting])?);
    let objects = &path.nodes[(parting + 1).saturating_sub(OBJECTS)..=parting];
    let classes: Vec<String> = objects.iter().map(|&node| class_name(graph.type_name(node))).collect();
    let source = graph.limits()?;
    let named = |limit: &Limit| match limit {
        Limit::Path(path) => path.last().and_then(|name| source.number(name)),
        Limit::Number(_) => None,
    };
    let limits = source.limits_of(variable, &classes).into_iter();
    let limits: Vec<(Limit, Option<u64>)> = limits.map(|limit| (limit.clone(), named(limit))).collect();
    let value = |(limit, named): (Limit, Option<u64>)| {
        let number = match limit {
            Limit::Number(number) => Some(number),
            Limit::Path(path) => match path.split_first() {
                Some((own, attributes)) if own == OWN => {
                    objects.iter().rev().find_map(|&object| graph.number(Some(object), attributes))
                }
                _ => graph.number(None, &path),
            },
        };
        number.or(named).filter(|&limit| limit >= entries)
    };
    limits.into_iter().filter_map(value).min().map(|limit| (entries, limit))
}

fn class_name(type_name: String) -> String {
    type_name.rsplit('.').next().map(str::to_owned).unwrap_or_default()
}

fn retention(source: &Assignments, owners: &[(Owner, Option<Assigned>)], at: usize) -> Option<Retention> {
    let assigned = owners[at].1.as_ref()?;
    let variable = assigned.variable()?;
    if assigned.is_collection {
        return source.are_of_themselves(variable).then_some(Retention::Remade);
    }
    if source.are_anew(variable) {
        return Some(Retention::Replaced);
    }
    // What an object keeps it keeps on purpose, whatever that is computed from.
    if assigned.attribute.is_some() {
        return None;
    }
    let others = owners.iter().filter(|(other, _)| other.cause != owners[at].0.cause);
    let others = others.filter_map(|(_, assigned)| assigned.as_ref()?.variable());
    source.are_computed_from(variable, others).then_some(Retention::Computed)
}
