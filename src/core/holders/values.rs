//! Variables by what the program's source says of their values: what is made anew keeps nothing of before, what is made of
//! itself keeps all of it, and what is put into a collection may be dropped at a limit. It does not read the source: see
//! [`super::assignments`].

use super::assignments::{Assignments, Flag, Kept, OWN, Variable};
use super::{GcRoot, HeapGraph, Node, Owner, Path, Retention, Step, Wanted};

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
/// has not passed. The number is that of the object which has the collection, of a variable, or what the source gives that name.
pub(super) fn limit(graph: &mut impl HeapGraph, path: &Path, parting: usize) -> Option<(u64, u64)> {
    let steps = graph.steps(&path.nodes);
    let is_entry = |step: &Step| matches!(step, Step::Key(_) | Step::Index(_));
    let before: Vec<&Step> = steps.iter().take(parting).filter(|step| **step != Step::Through).collect();
    // What limits a collection limits those that are in it, and none in these.
    let is_in_one = before.last().is_some_and(|last| is_entry(last));
    if is_in_one && before.iter().rev().nth(1).is_some_and(|step| is_entry(step)) {
        return None;
    }
    // The attribute of an object is limited in each object, whatever that is in.
    let of_object = steps.iter().take(parting).rposition(|step| matches!(step, Step::Attribute(_)));
    // A function's own variable is that of the function which has it in its closure.
    let closure = steps[..parting.min(steps.len())].iter().rposition(|s| matches!(s, Step::Closure(_)));
    let (origin, begin) = match closure.map(|at| (&steps[at], at)) {
        Some((Step::Closure(name), at)) if of_object.is_none_or(|attribute| attribute < at) => {
            let function = path.nodes[..=at].iter().rev().find_map(|&node| graph.function(node))?;
            (GcRoot::Local { function, name: name.clone() }, at + 1)
        }
        _ => (path.root.origin.clone(), of_object.unwrap_or(0)),
    };
    let assigned = Assigned::of(&origin, &steps[begin..], Some(parting - begin))?;
    let (variable, entries) = (assigned.variable()?, graph.length(path.nodes[parting])?);
    let around = OBJECTS + usize::from(is_in_one);
    let objects = &path.nodes[(parting + 1).saturating_sub(around)..=parting];
    let classes: Vec<String> = objects.iter().map(|&node| class_name(graph.type_name(node))).collect();
    let limits: Vec<Kept> =
        graph.limits()?.limits_of(variable, is_in_one, &classes).into_iter().cloned().collect();
    if limits.is_empty() {
        return None;
    }
    let functions: Vec<Node> =
        path.nodes[..parting].iter().copied().filter(|&node| graph.function(node).is_some()).collect();
    let mut number = |path: &[String]| {
        let of_object = match path.split_first()? {
            (own, attributes) if own == OWN => {
                objects.iter().rev().find_map(|&object| graph.number(Some(object), attributes))
            }
            _ => {
                let mut of_closures = functions.iter().rev();
                of_closures.find_map(|&f| graph.number(Some(f), path)).or_else(|| graph.number(None, path))
            }
        };
        of_object.or_else(|| graph.limits()?.number(path.last()?))
    };
    let mut value = |kept: &Kept| {
        let is_as_wanted = |flag: &Flag| match number(&flag.path) {
            Some(value) => (value != 0) == flag.is_set,
            None => !flag.is_required,
        };
        if kept.flags.iter().all(is_as_wanted) { kept.limit.value(&mut number) } else { None }
    };
    let values = limits.iter().filter_map(&mut value);
    values.filter(|&limit| limit >= entries).min().map(|limit| (entries, limit))
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
