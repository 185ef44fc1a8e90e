//! Reference paths in words, as a programmer would write them: `__main__.trainer.history['loss'][*]`.

use super::{EXPRESSION, GRADIENT_CYCLE, GcRoot, HOOK_CYCLE, Step};

/// Nodes of a graph, or ways that paths go, that are named together.
pub(super) const NAMES: usize = 3;

/// Equal pieces in a row that are said once: the nodes of a linked list.
const RUN: usize = 4;
/// The most pieces that follow each other again and again: an attribute and an index, say.
const LONGEST: usize = 3;

/// A piece of a path.
#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Text(String),
    /// One of many like things: `[3]`, `['loss']`, a named tuple's `.loss`.
    Element(String),
    /// Many equal ones, as many as there are: `[1]…`, `.next…`.
    Run(String),
    /// A walk through an autograd graph: whether it is more than one node long, its last nodes, and whether
    /// it ends in what those have saved.
    Graph {
        far: bool,
        names: Vec<String>,
        saved: bool,
    },
}

pub(super) fn origin(origin: &GcRoot) -> String {
    match origin {
        GcRoot::Global(name) => name.clone(),
        GcRoot::Local { function, name } => format!("{function}() local `{name}`"),
        GcRoot::Foreign(what) => format!("{EXPRESSION}{what}"),
        GcRoot::Cycle(members) => {
            format!("garbage waiting for the cyclic collector: {}", members.join(" → "))
        }
        GcRoot::GradientCycle => GRADIENT_CYCLE.to_owned(),
        GcRoot::HookCycle(kept) => format!("{HOOK_CYCLE}{kept}"),
    }
}

/// Returns a path and the numbers of entries in it, which it has a star for.
fn numbers(path: &str) -> (String, Vec<&str>) {
    let (mut text, mut numbers) = (String::new(), Vec::new());
    let mut parts = path.split('[');
    text.push_str(parts.next().unwrap_or_default());
    for part in parts {
        text.push('[');
        let is_number = |n: &&str| *n == "*" || n.parse::<f64>().is_ok();
        match part.split_once(']').filter(|(number, _)| is_number(number)) {
            Some((number, rest)) => {
                numbers.push(number);
                text.push_str("*]");
                text.push_str(rest);
            }
            None => text.push_str(part),
        }
    }
    (text, numbers)
}

/// Returns whether two paths differ in numbers of entries at most.
pub fn are_alike(a: &str, b: &str) -> bool {
    a == b || numbers(a).0 == numbers(b).0
}

/// Returns the one path that stands for two which are alike.
pub(super) fn join(a: &str, b: &str) -> String {
    let ((text, of_a), (_, of_b)) = (numbers(a), numbers(b));
    let mut both = of_a.iter().zip(&of_b);
    let mut parts = text.split("[*]");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let same = both.next().filter(|(a, b)| a == b).map_or("*", |(number, _)| number);
        out.extend(["[", same, "]", part]);
    }
    out
}

/// Returns a path's names, and what stands between them, in turns.
fn names(path: &str) -> impl Iterator<Item = &str> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    path.split_inclusive(move |c| !is_name(c)).flat_map(move |part| {
        let (name, mark) = part.split_at(part.trim_end_matches(|c| !is_name(c)).len());
        [name, mark]
    })
}

/// Returns a path with a star for the number that a name ends in.
pub(super) fn unnumbered(path: &str) -> String {
    let stem = |name: &str| name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let names = names(path).map(|name| match stem(name) {
        begin if begin > 0 && begin < name.len() => format!("{}*", &name[..begin]),
        _ => name.to_owned(),
    });
    names.collect()
}

/// Returns the one path that stands for several which are the same [without those numbers](unnumbered), and has a star where
/// they differ.
pub(super) fn join_numbered(paths: &[&str]) -> String {
    let Some((first, others)) = paths.split_first() else { return String::new() };
    let differs = |at: usize, name: &str| others.iter().any(|other| names(other).nth(at) != Some(name));
    let parts = names(first).enumerate();
    parts.map(|(at, name)| if differs(at, name) { unnumbered(name) } else { name.to_owned() }).collect()
}

/// Puts in words how one object refers to another, whatever the numbers of entries.
pub(super) fn reference(steps: &[Step]) -> String {
    numbers(&paths(&[steps.to_vec()], None, false).text).0
}

/// Several paths in words.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Words {
    pub text: String,
    /// The bytes of `text` up to where the paths part or enter a graph, which are the owner's.
    pub owner: usize,
}

/// Puts in words what several paths have in common, from the root on; they part at step `parting`. `linked`: they lead
/// through a linked list, whose nodes may be tuples.
pub(super) fn paths(examples: &[Vec<Step>], parting: Option<usize>, linked: bool) -> Words {
    let mut paths: Vec<(Vec<Piece>, Option<usize>)> =
        examples.iter().map(|steps| pieces(steps, parting)).collect();
    fold_runs(&mut paths, linked);
    let Some((first, parted)) = paths.first() else { return Words::default() };
    let mut out = String::new();
    let mut owner = None;
    let longest = paths.iter().map(|(path, _)| path.len()).max().unwrap_or(0);
    for i in 0..longest {
        let here: Vec<Option<&Piece>> = paths.iter().map(|(path, _)| path.get(i)).collect();
        if *parted == Some(i) || here.iter().flatten().any(|p| matches!(p, Piece::Graph { .. })) {
            owner.get_or_insert(out.len());
        }
        let alike = here.iter().all(|p| *p == first.get(i));
        let elements = here.iter().all(|p| matches!(p, Some(Piece::Element(_))));
        if elements && (!alike || *parted == Some(i)) {
            out.push_str("[*]");
        } else if alike && let Some(piece) = first.get(i) {
            say(&mut out, piece);
        } else if let Some(piece) = same_walk(&here) {
            // Some paths end here, and others go on into the graph.
            if here.contains(&None) {
                out.push_str(" and its ");
            }
            say(&mut out, &piece);
        } else {
            out.push_str(&alternatives(&here).unwrap_or_else(|| " → …".into()));
            break;
        }
    }
    Words { owner: owner.unwrap_or(out.len()), text: out }
}

fn say(out: &mut String, piece: &Piece) {
    match piece {
        Piece::Text(text) | Piece::Element(text) => out.push_str(text),
        Piece::Run(text) => {
            out.push_str(text);
            out.push('…');
        }
        Piece::Graph { far, names, saved } => {
            out.push_str(match (far, saved) {
                (true, true) => ".grad_fn → … saved by ",
                (false, true) => ".grad_fn → saved by ",
                (true, false) => ".grad_fn → … → ",
                (false, false) => ".grad_fn → ",
            });
            let more = if names.len() > NAMES { ", …" } else { "" };
            out.push_str(&names[..names.len().min(NAMES)].join(", "));
            out.push_str(more);
        }
    }
}

/// Puts one piece in the place of equal ones in a row, in all paths where one has many: of two nodes of a linked list
/// one is further from its head. So it does with a few pieces that follow each other again and again. Equal indices in a row
/// are no list by themselves.
fn fold_runs(paths: &mut [(Vec<Piece>, Option<usize>)], linked: bool) {
    let said = |pattern: &[Piece]| {
        let text = |piece: &Piece| match piece {
            Piece::Text(text) | Piece::Element(text) => Some(text.clone()),
            Piece::Run(_) | Piece::Graph { .. } => None,
        };
        let is_named = linked || pattern.iter().any(|piece| matches!(piece, Piece::Text(_)));
        pattern.iter().map(text).collect::<Option<String>>().filter(|_| is_named)
    };
    let times = |path: &[Piece], at: usize, pattern: &[Piece]| {
        path[at..].chunks_exact(pattern.len()).take_while(|chunk| *chunk == pattern).count()
    };
    let longest = paths.iter().map(|(path, _)| path.len()).max().unwrap_or(0);
    for at in 0..longest {
        let pattern = |path: &[Piece], length: usize| {
            let pattern = path.get(at..at + length)?;
            let said = said(pattern)?;
            (times(path, at, pattern) >= RUN).then(|| (pattern.to_vec(), said))
        };
        let long = (1..=LONGEST).find_map(|length| paths.iter().find_map(|(path, _)| pattern(path, length)));
        let Some((pattern, said)) = long else { continue };
        for (path, parted) in paths.iter_mut().filter(|(path, _)| path.len() >= at) {
            let length = times(path, at, &pattern) * pattern.len();
            path.splice(at..at + length, [Piece::Run(said.clone())]);
            *parted = parted.map(|p| if p < at + length.max(1) { p.min(at) } else { p + 1 - length });
        }
    }
}

/// Names the ways that several paths go on, if these are of one kind: attributes of an object, what a function uses, the
/// functions whose variables they go through, which are those of one exception's traceback.
fn alternatives(here: &[Option<&Piece>]) -> Option<String> {
    let mut ways: Vec<&str> = Vec::new();
    for piece in here {
        let Some(Piece::Text(text)) = piece else { return None };
        if !ways.contains(&text.as_str()) {
            ways.push(text);
        }
    }
    // In one order, whichever was found first.
    ways.sort_unstable();
    let listed = |all: Vec<&str>| {
        let mut names: Vec<&str> = Vec::new();
        for name in all {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let more = if names.len() > NAMES { ", …" } else { "" };
        format!("{}{more}", names[..names.len().min(NAMES)].join(", "))
    };
    let after = |mark: &str| ways.iter().map(|way| way.strip_prefix(mark)).collect::<Option<Vec<&str>>>();
    if let Some(names) = after(".") {
        let begin = common_start(&names);
        // Named by a number, as entries are.
        return Some(match names.len() > NAMES && !begin.is_empty() {
            true => format!(".{begin}*"),
            false => format!(" → {}", listed(ways)),
        });
    }
    if let Some(variables) = after(" → closure variable ") {
        return Some(format!(" → closure variables {}", listed(variables)));
    }
    if let Some(arguments) = after(" → default of argument ") {
        return Some(format!(" → defaults of arguments {}", listed(arguments)));
    }
    let functions = after(" → ")?.into_iter().map(|way| Some(way.split_once(" local `")?.0));
    Some(format!(" → locals of {}", listed(functions.collect::<Option<Vec<&str>>>()?)))
}

/// Returns what all names begin with, before a number.
fn common_start<'n>(names: &[&'n str]) -> &'n str {
    let Some((first, others)) = names.split_first() else { return "" };
    let alike = |other: &&str| first.chars().zip(other.chars()).take_while(|(a, b)| a == b).count();
    let most = others.iter().map(alike).min().unwrap_or(0);
    let start = first.char_indices().nth(most).map_or(*first, |(end, _)| &first[..end]);
    start.trim_end_matches(|c: char| c.is_ascii_digit())
}

/// Returns the one walk through a graph that stands for several, which end at different nodes.
fn same_walk(here: &[Option<&Piece>]) -> Option<Piece> {
    let (mut deep, mut kept, mut all) = (false, false, Vec::new());
    for piece in here.iter().flatten() {
        let Piece::Graph { far, names, saved } = piece else { return None };
        deep |= far;
        kept |= saved;
        for name in names {
            if !all.contains(name) {
                all.push(name.clone());
            }
        }
    }
    Some(Piece::Graph { far: deep, names: all, saved: kept })
}

/// Returns the pieces of one path, and which of them is the step at which it parts from others.
fn pieces(steps: &[Step], parting: Option<usize>) -> (Vec<Piece>, Option<usize>) {
    let mut out: Vec<Piece> = Vec::new();
    let mut parted = None;
    let mut i = 0;
    while let Some(step) = steps.get(i) {
        if parting == Some(i) {
            parted = Some(out.len());
        }
        let next = steps.get(i + 1).filter(|_| parting != Some(i + 1));
        match (step, next) {
            // A module of a network is named as one names it in a program.
            (Step::Attribute(dict), Some(Step::Key(key))) if is_part_dict(dict) => {
                out.push(part(key));
                i += 2;
                continue;
            }
            (Step::Through, _) => {}
            (Step::Attribute(name), _) => out.push(Piece::Text(format!(".{name}"))),
            (Step::Index(n), _) => out.push(Piece::Element(format!("[{n}]"))),
            (Step::Field(name), _) => out.push(Piece::Element(format!(".{name}"))),
            (Step::Key(key), _) => out.push(Piece::Element(format!("[{key}]"))),
            (Step::AsKey, _) => out.push(Piece::Text(" → its keys".into())),
            (Step::Element, _) => out.push(Piece::Element("[*]".into())),
            (Step::Local { function, name }, _) => {
                out.push(Piece::Text(format!(" → {function}() local `{name}`")));
            }
            (Step::Closure(name), _) => out.push(Piece::Text(format!(" → closure variable `{name}`"))),
            (Step::Default(name), _) => out.push(Piece::Text(format!(" → default of argument `{name}`"))),
            (Step::Named(what), _) => out.push(Piece::Text(format!(" → {what}"))),
            (Step::Gradient, _) => out.push(Piece::Text(".grad".into())),
            (Step::Graph(name), _) => {
                out.push(Piece::Graph { far: false, names: vec![name.clone()], saved: false });
            }
            (Step::Next(name), _) => match out.last_mut() {
                Some(Piece::Graph { far, names, .. }) => (*far, *names) = (true, vec![name.clone()]),
                _ => out.push(Piece::Text(format!(" → {name}"))),
            },
            (Step::Saved, _) => match out.last_mut() {
                Some(Piece::Graph { saved, .. }) => *saved = true,
                _ => out.push(Piece::Text(" → saved tensor".into())),
            },
        }
        i += 1;
    }
    (out, parted)
}

fn is_part_dict(name: &str) -> bool {
    matches!(name, "_modules" | "_parameters" | "_buffers")
}

/// Returns a module's key as its name: `'weight'` → `.weight`, `'0'` → `[0]`.
fn part(key: &str) -> Piece {
    let name = key.trim_matches('\'');
    match name.chars().next() {
        Some(c) if c.is_ascii_digit() => Piece::Element(format!("[{name}]")),
        Some(_) if name.chars().all(|c| c.is_alphanumeric() || c == '_') => Piece::Text(format!(".{name}")),
        _ => Piece::Element(format!("[{key}]")),
    }
}
