//! Finds the variable that carries an autograd graph from one step to the next (a recurrent state, say), among all variables from
//! which the graph is reachable. Where a graph reaches back through all steps, the output and the loss of the last step reach all of
//! it too, by way of that variable. Only the graph behind that variable repeats itself from its first node on.

use super::group::Group;
use super::{HeapGraph, Node, Step};

/// How often the first nodes of a graph have to come again.
const REPEATS: usize = 3;
/// The share of its blocks that who reaches a graph by what was handed on has in common with that.
const REACHED: f64 = 0.9;

/// A walk through the graph that a group holds its blocks by.
struct Walk {
    nodes: Vec<Node>,
    /// After how many nodes it begins again, if it does.
    period: Option<usize>,
}

/// Leaves out what only reaches the graph of what was handed on.
pub(super) fn leave_out_others(graph: &mut impl HeapGraph, groups: &mut Vec<Group>) {
    let walks: Vec<Option<Walk>> = groups.iter().map(|group| walk(graph, group)).collect();
    let reaches = |i: usize| {
        let (Some(walk), count) = (&walks[i], groups[i].paths.len() as f64) else { return false };
        groups.iter().zip(&walks).any(|(other, handed_on)| {
            other.cause == groups[i].cause
                && handed_on.as_ref().is_some_and(|handed_on| walk.leads_to(handed_on))
                && groups[i].shared(other) as f64 >= REACHED * count
        })
    };
    let reaching: Vec<bool> = (0..groups.len()).map(reaches).collect();
    let mut reaching = reaching.into_iter();
    groups.retain(|_| reaching.next() != Some(true));
}

/// Whether what was handed on is still to be found: all that is known only reach a graph.
pub(super) fn is_missing(graph: &mut impl HeapGraph, groups: &[Group]) -> bool {
    groups.iter().all(|group| walk(graph, group).is_some_and(|walk| walk.period.is_none()))
}

impl Walk {
    /// Whether it comes to the graph of what was handed on by way of that. What comes to it after a whole number of periods
    /// is what a later step handed on.
    fn leads_to(&self, handed_on: &Walk) -> bool {
        let (Some(period), Some(first)) = (handed_on.period, handed_on.nodes.first()) else { return false };
        let after = self.nodes.iter().position(|node| node == first);
        self.period.is_none() || after.is_some_and(|after| after % period != 0)
    }
}

/// Returns the longest walk of a group. `None`: no graph, or a collection of many.
fn walk(graph: &mut impl HeapGraph, group: &Group) -> Option<Walk> {
    let path = group.paths.iter().filter(|_| group.parting.is_none()).max_by_key(|path| path.nodes.len())?;
    let (mut names, mut nodes) = (Vec::new(), Vec::new());
    for (step, &node) in graph.steps(&path.nodes).into_iter().zip(path.nodes.iter().skip(1)) {
        if let Step::Graph(name) | Step::Next(name) = step {
            names.push(name);
            nodes.push(node);
        }
    }
    (!nodes.is_empty()).then(|| Walk { period: period(&names), nodes })
}

/// Returns after how many names the first ones come again and again, in the same order.
fn period(names: &[String]) -> Option<usize> {
    (1..=names.len() / (REPEATS + 1)).find(|&period| {
        let end = period * (REPEATS + 1);
        names[period..end] == names[..end - period]
    })
}
