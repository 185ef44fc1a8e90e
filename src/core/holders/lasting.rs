//! Owners that a variable names, though something that outlasts it refers to them too: the list that a method appends to is
//! an attribute of an object that its caller has, and may be an entry of a list by now. They are named by that.
//!
//! So are those that a key of a dict has, by what else has that key: a model has the parameters that are the keys of an
//! optimizer's state.

use super::group::{Group, Owning, Path};
use super::search::Search;
use super::{HeapGraph, Node, Nodes, OWN_RANKS, Root, Step, Wanted};

/// An owner that the variable of a call names: its group, and the layer of the variable.
struct Inner {
    group: usize,
    node: Node,
    layer: usize,
}

/// Names owners by what lasts longest.
pub(super) fn rename(graph: &mut impl HeapGraph, groups: &mut [Group]) {
    if groups.iter().all(|g| g.paths.len() < 2) {
        return;
    }
    let layers = graph.roots_by_life();
    by_outer_calls(graph, groups, &layers);
    by_collections(graph, groups, &layers);
    by_what_has_the_key(graph, groups);
}

/// Returns how deep the call is whose variable a root is; 0: nothing lasts longer.
fn layer_of(layers: &[Vec<Root>], root: &Root) -> usize {
    layers.iter().position(|roots| roots.contains(root)).unwrap_or(0)
}

/// Names what has several blocks, and a call's variable refers to, by what the calls have that led to it.
fn by_outer_calls(graph: &mut impl HeapGraph, groups: &mut [Group], layers: &[Vec<Root>]) {
    let mut inner = Vec::new();
    for (group, of) in groups.iter().enumerate().filter(|(_, g)| g.paths.len() > 1) {
        let layer = of.paths.iter().map(|path| layer_of(layers, &path.root)).min().unwrap_or(0);
        if let Owning::Node(node) = of.owner
            && layer > 0
        {
            inner.push(Inner { group, node, layer });
        }
    }
    let Some(deepest) = inner.iter().map(|owner| owner.layer).max() else { return };
    let mut search = Search::for_objects(inner.iter().map(|owner| owner.node), Nodes::default());
    for roots in &layers[..deepest] {
        if search.is_done() || !search.walk_without_graphs(graph, roots.clone()) {
            break;
        }
    }
    for Inner { group, node, layer } in inner {
        let Some(way) = search.path(0, &Wanted { block: node, ..Wanted::default() }) else { continue };
        // A suspended function is a way to what it has, and no better name.
        let is_plain = |step: &Step| !matches!(step, Step::Local { .. });
        if layer_of(layers, &way.root) < layer && graph.steps(&way.nodes).iter().all(is_plain) {
            lead(&mut groups[group], node, &way);
        }
    }
}

/// Names an entry that a variable refers to by the collection that others of its cause are named by.
fn by_collections(graph: &mut impl HeapGraph, groups: &mut [Group], layers: &[Vec<Root>]) {
    let mut known: Vec<Path> = Vec::new();
    for group in groups.iter() {
        let (Some(path), Owning::Node(owner)) = (group.paths.first(), &group.owner) else { continue };
        let Some(at) = path.nodes.iter().position(|node| node == owner).filter(|&at| at > 0) else {
            continue;
        };
        let holder = at.checked_sub(2).map(|h| path.nodes[h]);
        let is_known =
            known.iter().any(|k| k.cause == group.cause && k.nodes.last() == Some(&path.nodes[at - 1]));
        if !is_known && graph.is_collection(holder, path.nodes[at - 1]) {
            known.push(Path { nodes: path.nodes[..at].to_vec(), ..path.clone() });
        }
    }
    let mut entries = Vec::new();
    for mut way in known {
        let Some(&collection) = way.nodes.last() else { continue };
        entries.clear();
        graph.references_from(&[collection], false, &mut entries);
        let layer = layer_of(layers, &way.root);
        for group in groups.iter_mut().filter(|g| g.cause == way.cause) {
            let Owning::Node(owner) = group.owner else { continue };
            let is_other = |p: &Path| {
                !p.nodes.contains(&collection)
                    && p.nodes.first() == Some(&owner)
                    && layer_of(layers, &p.root) >= layer
            };
            if entries.iter().any(|&(_, node)| node == owner) && group.paths.iter().all(is_other) {
                way.nodes.push(owner);
                lead(group, owner, &way);
                way.nodes.pop();
            }
        }
    }
}

/// Names what a key of a dict has by something else that has the key.
fn by_what_has_the_key(graph: &mut impl HeapGraph, groups: &mut [Group]) {
    for group in groups {
        let (Some(parting), Some(path)) = (group.parting, group.paths.first()) else { continue };
        let Some(nodes) = path.nodes.get(..=parting) else { continue };
        let Some(at) = graph.steps(nodes).iter().rposition(|step| *step == Step::AsKey) else { continue };
        let Some(&key) = nodes.get(at + 1) else { continue };
        if group.paths.iter().any(|p| p.nodes.get(at + 1) != Some(&key)) {
            continue;
        }
        // Whatever has the dict may well have its keys elsewhere, too.
        let around = &nodes[at.saturating_sub(1)..=at];
        let mut search =
            Search::for_objects([key].into_iter(), around.iter().map(|&node| (node, ())).collect());
        for rank in 0..OWN_RANKS {
            let Some(roots) = graph.roots(rank).filter(|_| !search.is_done()) else { break };
            if !search.walk_without_graphs(graph, roots) {
                return;
            }
        }
        if let Some(way) = search.path(0, &Wanted { block: key, ..Wanted::default() }) {
            lead(group, key, &way);
        }
    }
}

/// Has the paths of a group come to one of their nodes, up to their owner, by another way.
fn lead(group: &mut Group, node: Node, way: &Path) {
    let at = |path: &Path| path.nodes.iter().position(|&n| n == node);
    if let Some(before) = group.paths.first().and_then(at) {
        group.parting = group.parting.map(|parting| (parting + way.nodes.len()).saturating_sub(before + 1));
    }
    for path in &mut group.paths {
        if let Some(at) = at(path) {
            path.nodes.splice(..=at, way.nodes.iter().copied());
            path.root = way.root.clone();
        }
    }
}
