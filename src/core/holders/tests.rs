//! The search over a made-up graph.

use std::collections::BTreeMap;

use super::*;

mod limits;
mod naming;

/// Objects by number: what each holds and how. Blocks are from 1000 on.
#[derive(Default)]
struct Toy {
    edges: BTreeMap<Node, Vec<(Node, Step)>>,
    graphs: BTreeMap<Node, Vec<(Node, Step)>>,
    roots: Vec<Vec<Root>>,
    collections: Vec<Node>,
    packages: Vec<Node>,
    namespaces: Vec<Node>,
    tensors: Vec<Node>,
    /// Types, where a collection is not of the same as all others.
    sorts: BTreeMap<Node, u64>,
    bounds: BTreeMap<Node, (u64, u64)>,
    counts: BTreeMap<Node, i64>,
    /// The ranks of roots of which each lasts longer than the next one.
    layers: std::ops::Range<usize>,
    asked: usize,
    patience: Option<usize>,
    source: Option<Assignments>,
    /// The numbers that objects have as attributes.
    numbers: BTreeMap<(Node, String), u64>,
}

impl Toy {
    fn holds(mut self, holder: Node, held: Node, step: Step) -> Toy {
        self.edges.entry(holder).or_default().push((held, step));
        self
    }

    fn saves(mut self, holder: Node, held: Node, step: Step) -> Toy {
        self.graphs.entry(holder).or_default().push((held, step));
        self
    }

    fn root(mut self, rank: usize, node: Node, name: &str) -> Toy {
        self.roots.resize_with(self.roots.len().max(rank + 1), Vec::new);
        self.roots[rank].push(Root { node, origin: GcRoot::Global(name.into()) });
        self
    }

    fn list(mut self, list: Node, items: impl Iterator<Item = Node>) -> Toy {
        self.collections.push(list);
        for (i, item) in items.enumerate() {
            self = self.holds(list, item, Step::Index(i));
        }
        self
    }

    /// A tensor and its block, 1000 behind it.
    fn tensor(mut self, tensor: Node) -> Toy {
        self.tensors.push(tensor);
        self.holds(tensor, tensor + 1000, Step::Through)
    }

    fn find(&mut self, blocks: impl Iterator<Item = Node>) -> Vec<(String, usize)> {
        let wanted: Vec<Wanted> =
            blocks.map(|block| Wanted { block, bytes: 1, ..Wanted::default() }).collect();
        super::find(self, &wanted).owners.into_iter().map(|o| (o.path, o.blocks.len())).collect()
    }
}

impl HeapGraph for Toy {
    fn references_from(&mut self, holders: &[Node], graphs: bool, found: &mut Vec<(u32, Node)>) {
        self.asked += holders.len();
        for (i, holder) in (0..).zip(holders) {
            let more = self.graphs.get(holder).filter(|_| graphs);
            let all = self.edges.get(holder).into_iter().chain(more).flatten();
            found.extend(all.map(|(held, _)| (i, *held)));
        }
    }

    fn roots(&mut self, rank: usize) -> Option<Vec<Root>> {
        self.roots.get(rank).cloned()
    }

    fn roots_by_life(&mut self) -> Vec<Vec<Root>> {
        self.roots[self.layers.clone()].to_vec()
    }

    fn steps(&mut self, way: &[Node]) -> Vec<Step> {
        let step = |pair: &[Node]| {
            let all = self.edges.get(&pair[0]).into_iter().chain(self.graphs.get(&pair[0])).flatten();
            all.clone().find(|(held, _)| *held == pair[1]).map_or(Step::Through, |(_, step)| step.clone())
        };
        way.windows(2).map(step).collect()
    }

    fn is_collection(&mut self, _: Option<Node>, node: Node) -> bool {
        self.collections.contains(&node)
    }

    fn is_namespace(&mut self, node: Node) -> bool {
        self.namespaces.contains(&node)
    }

    fn is_of_package(&mut self, _: Option<Node>, node: Node) -> bool {
        self.packages.contains(&node)
    }

    fn bound(&mut self, _: Option<Node>, node: Node) -> Option<(u64, u64)> {
        self.bounds.get(&node).copied()
    }
    fn length(&mut self, node: Node) -> Option<u64> {
        self.source.as_ref().and_then(|_| Some(self.edges.get(&node)?.len() as u64))
    }

    fn number(&mut self, object: Option<Node>, path: &[String]) -> Option<u64> {
        self.numbers.get(&(object?, path.join("."))).copied()
    }

    fn limits(&mut self) -> Option<&Assignments> {
        self.source.as_ref()
    }

    fn has_graph(&mut self, node: Node) -> bool {
        self.tensors.contains(&node)
    }

    fn unreachable_objects(&mut self, reached: &dyn Fn(Node) -> bool) -> Option<Vec<(Node, i64)>> {
        let counts = self.counts.iter().map(|(&node, &count)| (node, count));
        Some(counts.filter(|(node, _)| !reached(*node)).collect())
    }

    fn references(&mut self, holder: Node, found: &mut Vec<Node>) {
        found.extend(self.edges.get(&holder).into_iter().flatten().map(|(held, _)| *held));
    }

    fn type_name(&mut self, node: Node) -> String {
        format!("T{node}")
    }

    fn sort(&mut self, node: Node) -> u64 {
        // Objects that are neither are of as many types.
        match node {
            _ if self.sorts.contains_key(&node) => self.sorts[&node],
            _ if self.tensors.contains(&node) => 1,
            _ if self.collections.contains(&node) => 2,
            _ if self.graphs.contains_key(&node) => 3,
            _ => 10 + node,
        }
    }

    fn is_late(&self) -> bool {
        self.patience.is_some_and(|most| self.asked >= most)
    }
}

fn one(path: &str, blocks: usize) -> Vec<(String, usize)> {
    vec![(path.to_owned(), blocks)]
}

#[test]
fn many_blocks_of_one_list_have_one_owner() {
    let mut toy = Toy::default().root(0, 1, "__main__.losses").list(1, 10..30);
    toy = (10..30).fold(toy, Toy::tensor);
    assert_eq!(toy.find(1010..1030), one("__main__.losses[*]", 20));
    assert_eq!(toy.find([1013].into_iter()), one("__main__.losses[3]", 1));
}

/// Of many paths some are put in words, and by these each of two attributes that take turns must show.
#[test]
fn an_attribute_does_not_stand_for_another_one() {
    for jobs in [8, 12, 16, 24] {
        let mut toy = Toy::default().root(0, 1, "__main__.jobs").list(1, 10..10 + jobs);
        for job in 10..10 + jobs {
            toy.sorts.insert(job, 9);
            for (tensor, name) in [(100 + 2 * job, "x"), (101 + 2 * job, "result")] {
                toy = toy.holds(job, tensor, Step::Attribute(name.into())).tensor(tensor);
            }
        }
        let blocks = 1120..1120 + 2 * jobs;
        assert_eq!(toy.find(blocks), one("__main__.jobs[*] → .result, .x", 2 * jobs as usize), "{jobs} jobs");
    }
}

/// Ways that are of one kind are named, those that are named by numbers as one.
#[test]
fn ways_on_are_named_where_paths_part() {
    let closure = |n: usize| Step::Closure(["logits", "y"][n % 2].into());
    let cases: [(&dyn Fn(usize) -> Step, &str); 4] = [
        (&closure, "__main__.jobs[*] → closure variables `logits`, `y`"),
        (&|n| Step::Default(["a", "b"][n % 2].into()), "__main__.jobs[*] → defaults of arguments `a`, `b`"),
        (&|n| Step::Attribute(format!("out_{n}")), "__main__.jobs[*].out_*"),
        (&|n| [closure(n), Step::Attribute("x".into())][n % 2].clone(), "__main__.jobs[*] → …"),
    ];
    for (way, words) in cases {
        let mut toy = Toy::default().root(0, 1, "__main__.jobs").list(1, 10..20);
        for job in 10..20 {
            toy = toy.holds(job, 90 + job, way(job as usize)).tensor(90 + job);
            toy.sorts.insert(job, 9);
        }
        assert_eq!(toy.find(1100..1110), one(words, 10));
    }
}

#[test]
fn a_bound_is_the_owners_or_all_of_its_entries() {
    let hold = |toy: &mut Toy| {
        let wanted: Vec<Wanted> =
            (1010..1030).map(|block| Wanted { block, bytes: 1, ..Wanted::default() }).collect();
        let owners = super::find(toy, &wanted).owners;
        let [owner] = &owners[..] else { panic!("{owners:?}") };
        (owner.path.clone(), owner.path[..owner.name].to_owned(), owner.hold)
    };
    let base = || (10..30).fold(Toy::default().root(0, 1, "__main__.recent").list(1, 10..30), Toy::tensor);
    let told = |hold| ("__main__.recent[*]".to_owned(), "__main__.recent".to_owned(), hold);
    assert_eq!(hold(&mut base()), told(Retention::Unbounded));
    let mut bounded = base();
    bounded.bounds.insert(1, (20, 100));
    assert_eq!(hold(&mut bounded), told(Retention::Bounded { entries: 20, max_entries: 100 }));
    // Five buffers in a dict, all bounded, or all but one of them.
    let mut five = Toy::default().root(0, 1, "__main__.buffers").list(1, 2..7);
    five = (2..7).fold(five, |toy, buffer| toy.list(buffer, 2 + 4 * buffer..6 + 4 * buffer));
    five = (10..30).fold(five, Toy::tensor);
    five.bounds = (2..7).map(|buffer| (buffer, (4, 20))).collect();
    assert_eq!(hold(&mut five).2, Retention::Bounded { entries: 20, max_entries: 100 });
    five.bounds.remove(&3);
    assert_eq!(hold(&mut five).2, Retention::Unbounded);
}

/// A replay buffer, and a batch that was drawn from it; the batch is found first.
#[test]
fn a_sample_of_what_a_bounded_owner_has_is_no_owner() {
    let found = |batch: std::ops::Range<Node>, bound: Option<(u64, u64)>| {
        let mut toy = Toy::default().root(0, 2, "f() local `batch`").list(2, batch);
        toy = toy.root(0, 1, "f() local `memory`").list(1, 10..30);
        toy.bounds.extend(bound.map(|bound| (1, bound)));
        (10..30).fold(toy, Toy::tensor).find(1010..1030)
    };
    let (memory, batch) = (one("f() local `memory`[*]", 20), |n| one("f() local `batch`[*]", n));
    assert_eq!(found(12..28, Some((20, 100))), memory);
    // What is full bounds nothing more.
    assert_eq!(found(12..14, Some((20, 20))).len(), 2);
    // It has all of them: so far both may be where they are kept.
    assert_eq!(found(10..30, Some((20, 100))), [batch(20), memory.clone()].concat());
    assert_eq!(found(12..28, None).len(), 2);
}

/// The list is a variable of another module, too, from which it is nearer than from the one that was searched first.
#[test]
fn a_way_that_is_found_without_a_variable_leads_to_the_owner_as_the_others_do() {
    let mut toy = Toy::default().root(0, 1, "f() local `trainer`").root(1, 3, "store.BUFFER").list(3, 10..50);
    toy.roots[0][0].origin = GcRoot::Local { function: "f".into(), name: "trainer".into() };
    for (holder, held, name) in [(1, 49, "last"), (1, 2, "agent"), (2, 5, "memory"), (5, 3, "items")] {
        toy = toy.holds(holder, held, Step::Attribute(name.into()));
    }
    toy = (10..50).fold(toy, Toy::tensor);
    assert_eq!(toy.find(1010..1050), one("f() local `trainer`.agent.memory.items[*]", 40));
}

/// The same where nothing has a bound: what a function has a few of for the moment.
#[test]
fn a_variable_with_a_few_of_what_an_unbounded_owner_has_is_no_owner() {
    let found = |batch: std::ops::Range<Node>| {
        let mut toy = Toy::default().root(0, 2, "f() local `batch`").list(2, batch);
        toy.roots[0][0].origin = GcRoot::Local { function: "f".into(), name: "batch".into() };
        toy = toy.root(0, 1, "__main__.memory").list(1, 10..50);
        (10..50).fold(toy, Toy::tensor).find(1010..1050).into_iter().map(|(path, _)| path).collect::<Vec<_>>()
    };
    assert_eq!(found(12..18), ["__main__.memory[*]"]);
    assert_eq!(found(12..32).len(), 2, "it has half of them");
}

/// An optimizer has two states for each parameter beside itself; the list of the models has the parameters alone.
#[test]
fn whoever_has_a_third_of_the_blocks_is_an_owner_too() {
    let found = |models: std::ops::Range<Node>| {
        let toy = Toy::default().root(0, 1, "__main__.state").list(1, 10..40);
        let toy = toy.root(0, 2, "__main__.models").list(2, models);
        (10..40).fold(toy, Toy::tensor).find(1010..1040).into_iter().map(|(path, _)| path).collect::<Vec<_>>()
    };
    assert_eq!(found(10..20), ["__main__.state[*]", "__main__.models[*]"]);
    assert_eq!(found(10..18), ["__main__.state[*]"], "a quarter");
}

/// The first entry of a cache, which the variable that it was assigned to has too.
#[test]
fn a_variable_with_one_tensor_is_no_owner_beside_a_bounded_one() {
    let found = |bound: Option<(u64, u64)>, in_list: bool| {
        let mut toy = Toy::default().root(0, 1, "__main__.recent").list(1, 10..11).tensor(10);
        toy = if in_list {
            toy.root(0, 2, "f() local `newest`").list(2, 10..11)
        } else {
            toy.root(0, 10, "f() local `newest`")
        };
        toy.bounds.extend(bound.map(|bound| (1, bound)));
        toy.find([1010].into_iter()).into_iter().map(|(path, _)| path).collect::<Vec<String>>()
    };
    assert_eq!(found(Some((1, 16)), false), ["__main__.recent[0]"]);
    assert_eq!(found(Some((1, 16)), true).len(), 2);
    assert_eq!(found(Some((1, 1)), false).len(), 2);
    assert_eq!(found(None, false).len(), 2);
}

#[test]
fn an_alias_of_the_list_is_no_second_owner_but_another_list_is() {
    let base = || {
        let toy = Toy::default().root(0, 1, "__main__.losses").list(1, 10..30).root(0, 2, "__main__.trainer");
        (10..30).fold(toy, Toy::tensor)
    };
    let mut alias = base().holds(2, 1, Step::Attribute("losses".into()));
    assert_eq!(alias.find(1010..1030), one("__main__.losses[*]", 20));
    let mut copy = base().holds(2, 3, Step::Attribute("kept".into())).list(3, 10..30);
    let found = copy.find(1010..1030);
    assert_eq!(found, [one("__main__.losses[*]", 20), one("__main__.trainer.kept[*]", 20)].concat());
}

#[test]
fn owners_that_differ_in_numbers_of_entries_are_one() {
    let mut toy = Toy::default().root(0, 1, "__main__.study").list(1, 2..4);
    for trial in 2..4 {
        toy = toy.holds(trial, 4 + trial, Step::Attribute("history".into()));
        toy = toy.list(4 + trial, 10 * trial..10 * trial + 10);
    }
    toy = (20..40).fold(toy, Toy::tensor);
    let both = one("__main__.study[*].history[*]", 20);
    assert_eq!(toy.find(1020..1040), both);
    assert_eq!(toy.find(1020..1030), one("__main__.study[0].history[*]", 10));
    // Other ways on are other owners.
    for (a, b, joined) in [
        ("a[0].x[*]", "a[1].x[*]", Some("a[*].x[*]")),
        ("a[0][3]['k']", "a[*][3]['k']", Some("a[*][3]['k']")),
        ("a[0.5][*]", "a[1e-05][*]", Some("a[*][*]")),
        ("a[0].x", "a[0].y", None),
        ("a['k'][*]", "a['l'][*]", None),
    ] {
        assert_eq!(words::are_alike(a, b).then(|| words::join(a, b)).as_deref(), joined);
    }
}

#[test]
fn variables_that_are_made_by_number_are_one_owner() {
    let mut toy = Toy::default();
    for (n, name) in ["out_0", "out_1", "out_2", "out_10", "other"].into_iter().enumerate() {
        toy = toy.root(0, 1 + n as Node, &format!("__main__.{name}")).tensor(1 + n as Node);
    }
    let mut names = |blocks| toy.find(blocks).into_iter().map(|(path, ..)| path).collect::<Vec<_>>();
    assert_eq!(names(1001..1006), ["__main__.out_*", "__main__.other"]);
    // Three are as well named by themselves.
    assert_eq!(names(1001..1004), ["__main__.out_0", "__main__.out_1", "__main__.out_2"]);
    for (paths, joined) in [
        (["__main__.layer1.w2[*]", "__main__.layer2.w2[*]"], "__main__.layer*.w2[*]"),
        (["step() local `x1`", "step() local `x2`"], "step() local `x*`"),
    ] {
        assert_eq!(words::join_numbered(&paths), joined);
        assert_eq!(words::unnumbered(paths[0]), words::unnumbered(paths[1]));
    }
    assert_ne!(words::unnumbered("a.b[0]"), words::unnumbered("a.b[1]"));
}

#[test]
fn two_variables_of_one_tensor_are_two_owners() {
    let toy = Toy::default().root(0, 10, "__main__.loss").root(0, 1, "__main__.retval").tensor(10);
    let mut toy = toy.holds(1, 10, Step::Index(0));
    let found = toy.find([1010].into_iter());
    assert_eq!(found, [one("__main__.loss", 1), one("__main__.retval[0]", 1)].concat());
}

/// `history.append((x, caches))`, where `caches` are pairs: the second of everything has the index 1 four times.
#[test]
fn equal_indices_in_a_row_are_no_linked_list() {
    let mut toy = Toy::default().root(0, 1, "__main__.history").list(1, 10..16);
    for entry in 10..16 {
        let (caches, pair) = (entry + 100, entry + 200);
        toy = toy
            .list(entry, [0, caches].into_iter())
            .list(caches, [0, pair].into_iter())
            .list(pair, [0, entry + 300].into_iter())
            .tensor(entry + 300);
    }
    toy.sorts.extend((10..16).flat_map(|entry| [(entry, 50), (entry + 100, 51), (entry + 200, 50)]));
    assert_eq!(toy.find(1310..1316), one("__main__.history[*][1][1][1]", 6));
}

#[test]
fn the_programs_own_names_come_before_a_librarys() {
    let toy = Toy::default().root(0, 1, "__main__.a").root(2, 10, "torch.something").tensor(10);
    let mut toy = toy.holds(1, 2, Step::Attribute("b".into())).holds(2, 10, Step::Key("'c'".into()));
    assert_eq!(toy.find([1010].into_iter()), one("__main__.a.b['c']", 1));
}

#[test]
fn graphs_come_last_and_are_summed_up() {
    let mut toy = Toy::default().root(0, 1, "__main__.losses").list(1, 10..14);
    for tensor in 10..14 {
        toy = toy.tensor(tensor).saves(tensor, tensor + 100, Step::Graph("MeanBackward0".into()));
        toy = toy.saves(tensor + 100, tensor + 200, Step::Next("MulBackward0".into()));
        toy = toy.saves(tensor + 200, tensor + 3000, Step::Saved);
    }
    assert_eq!(toy.find(3010..3014), one("__main__.losses[*].grad_fn → … saved by MulBackward0", 4));
}

#[test]
fn modules_are_named_as_in_a_program() {
    let toy = Toy::default().root(0, 1, "__main__.model").tensor(10);
    let toy = toy.holds(1, 2, Step::Attribute("_modules".into())).holds(2, 3, Step::Key("'0'".into()));
    let toy =
        toy.holds(3, 4, Step::Attribute("_parameters".into())).holds(4, 10, Step::Key("'weight'".into()));
    let mut toy = toy.holds(10, 500, Step::Gradient).holds(500, 5000, Step::Through);
    assert_eq!(toy.find([5000].into_iter()), one("__main__.model[0].weight.grad", 1));
}

#[test]
fn what_only_holds_itself_is_garbage_and_what_something_else_holds_is_not() {
    // 1 → 2 → 1, and 2 holds the tensor; every reference is one of theirs.
    let mut toy = Toy::default().root(0, 7, "__main__.x").tensor(10);
    toy = toy.holds(1, 2, Step::Attribute("a".into())).holds(2, 1, Step::Attribute("b".into()));
    toy = toy.holds(2, 10, Step::Attribute("t".into()));
    toy.counts = [(1, 1), (2, 1), (10, 1)].into();
    let found = toy.find([1010].into_iter());
    assert_eq!(found, one("garbage waiting for the cyclic collector: T2.b → T1.a → T2", 1));
    // One reference more than they have of each other.
    toy.counts.insert(1, 2);
    let found = toy.find([1010].into_iter());
    assert_eq!(found.len(), 1);
    assert!(
        found[0].0.starts_with("held by C or C++ code, or by an expression under way: T1.a.t"),
        "{found:?}"
    );
}

/// A view keeps its base, a Python object, by C++ alone; the view itself is in a cycle.
#[test]
fn a_tensor_that_c_holds_does_not_hide_the_cycle_that_its_view_is_in() {
    let mut toy = Toy::default().root(0, 7, "__main__.x").tensor(10);
    toy = toy.holds(1, 2, Step::Attribute("a".into())).holds(2, 1, Step::Attribute("b".into()));
    toy = toy.holds(2, 11, Step::Attribute("view".into())).holds(11, 1010, Step::Through);
    toy.tensors.push(11);
    toy.counts = [(1, 1), (2, 1), (10, 1), (11, 1)].into();
    let found = toy.find([1010].into_iter());
    assert_eq!(found, one("garbage waiting for the cyclic collector: T2.b → T1.a → T2", 1));
}

#[test]
fn what_nothing_is_seen_to_hold_is_said_so() {
    let mut toy = Toy::default().root(0, 7, "__main__.x");
    assert_eq!(toy.find([1010].into_iter()), one(UNSEEN, 1));
}

#[test]
fn a_search_that_was_cut_short_claims_nothing() {
    let mut toy = Toy { patience: Some(1), ..Toy::default() }.root(0, 1, "__main__.x").list(1, 2..3);
    assert_eq!(toy.find([1010].into_iter()), Vec::new());
}

fn listed(hold: Retention, name: &str, blocks: u64, bytes: u64) -> Listed<'_> {
    Listed { hold, name, blocks, bytes, refers: false }
}

#[test]
fn lasting_holders_are_listed_before_transient_ones_and_those_of_few_blocks_last() {
    let mut all = [
        (Retention::Unknown, "C++", 60, 1 << 30),
        (Retention::Unbounded, "few", 3, 1 << 20),
        (Retention::Unreachable, "garbage", 49, 4096),
    ];
    sort_for_listing(&mut all, |&(hold, name, blocks, bytes)| listed(hold, name, blocks, bytes));
    assert_eq!(all.map(|(_, _, blocks, _)| blocks), [49, 3, 60]);
}

#[test]
fn who_holds_most_bytes_is_listed_first() {
    let mut all =
        [(Retention::Unbounded, "losses", 60, 60 * 512), (Retention::Unbounded, "outputs", 12, 12 << 20)];
    sort_for_listing(&mut all, |&(hold, name, blocks, bytes)| listed(hold, name, blocks, bytes));
    assert_eq!(all.map(|(_, name, ..)| name), ["outputs", "losses"]);
}

#[test]
fn who_only_refers_to_what_another_has_is_listed_behind_it() {
    let mut all = [("opt", 11, true), ("opt", 10, true), ("model", 10, false)];
    sort_for_listing(&mut all, |&(name, blocks, refers)| Listed {
        refers,
        ..listed(Retention::Unbounded, name, blocks, blocks)
    });
    assert_eq!(all.map(|(name, ..)| name), ["model", "opt", "opt"]);
}

#[test]
fn a_list_that_a_comprehension_fills_comes_before_what_its_round_has() {
    let filling = format!("{EXPRESSION}list[*]");
    let mut all = [(Retention::Unbounded, "model", 2, 2), (Retention::Unknown, filling.as_str(), 8, 8)];
    sort_for_listing(&mut all, |&(hold, name, blocks, bytes)| listed(hold, name, blocks, bytes));
    assert_eq!(all.map(|(_, _, blocks, _)| blocks), [8, 2]);
}

#[test]
fn the_lists_of_an_object_of_a_package_go_by_its_name() {
    let metric = |packages: Vec<Node>| {
        let toy = Toy { packages, ..Toy::default() }
            .root(0, 1, "__main__.metric")
            .holds(1, 2, Step::Attribute("labels".into()))
            .list(2, 10..30);
        (10..30).fold(toy, Toy::tensor)
    };
    let name = |mut toy: Toy| {
        let wanted: Vec<Wanted> =
            (1010..1030).map(|block| Wanted { block, bytes: 1, ..Wanted::default() }).collect();
        let owners = super::find(&mut toy, &wanted).owners;
        owners[0].path[..owners[0].name].to_owned()
    };
    assert_eq!(name(metric(vec![1])), "__main__.metric");
    assert_eq!(name(metric(vec![])), "__main__.metric.labels");
}

#[test]
fn the_owner_that_was_found_first_is_listed_first_though_its_paths_are_told_apart() {
    let mut all = [("state", 90), ("state", 45), ("output", 135), ("loss", 135)];
    let hold = Retention::Unbounded;
    sort_for_listing(&mut all, |&(name, blocks)| listed(hold, name, blocks, blocks));
    assert_eq!(all.map(|(name, _)| name), ["state", "state", "output", "loss"]);
}

#[test]
fn the_nodes_of_a_linked_list_are_said_once() {
    // samples = (tensor, samples), sixty times.
    let mut toy = Toy::default().root(0, 100, "__main__.samples");
    for node in 100..160 {
        toy.collections.push(node);
        toy = toy.holds(node, node + 100, Step::Index(0)).tensor(node + 100);
        toy = if node < 159 { toy.holds(node, node + 1, Step::Index(1)) } else { toy };
    }
    let found = toy.find(1200..1260);
    assert_eq!(found, one("__main__.samples[1]…[0]", 60));
}

/// Dicts in each other, the innermost of which have lists; the types of all dicts are one.
#[test]
fn dicts_in_each_other_are_no_linked_list() {
    let mut toy = Toy::default().root(0, 1, "__main__.of");
    for (outer, inner) in [(1, 2), (2, 3), (3, 4), (4, 5)] {
        toy.collections.push(outer);
        toy = toy.holds(outer, inner, Step::Key(format!("'{inner}'")));
    }
    toy.sorts.insert(5, 8);
    toy = (10..30).fold(toy.list(5, 10..30), Toy::tensor);
    assert_eq!(toy.find(1010..1030), one("__main__.of['2']['3']['4']['5'][*]", 20));
}

#[test]
fn two_lists_of_one_namespace_are_two_owners() {
    let mut toy = Toy::default().root(0, 1, "__main__.namespace");
    toy.collections.push(1);
    toy = toy.holds(1, 2, Step::Key("'kept'".into())).holds(1, 3, Step::Key("'masks'".into()));
    toy = toy.list(2, 10..30).list(3, 30..50);
    toy = (10..50).fold(toy, Toy::tensor);
    let both = [one("__main__.namespace['kept'][*]", 20), one("__main__.namespace['masks'][*]", 20)].concat();
    assert_eq!(toy.find(1010..1050), both);
    // They are one cause, unless the dict has the variables of executed code.
    let wanted: Vec<Wanted> = (1010..1050)
        .map(|block| Wanted { block, bytes: 1, cause: u32::from(block >= 1030), renewed: false })
        .collect();
    let names = |toy: &mut Toy| -> Vec<String> {
        let owners = super::find(toy, &wanted).owners;
        owners.iter().map(|o| o.path[..o.name].to_owned()).collect()
    };
    assert_eq!(names(&mut toy), ["__main__.namespace"; 2]);
    toy.namespaces.push(1);
    assert_eq!(names(&mut toy), ["__main__.namespace['kept']", "__main__.namespace['masks']"]);
}

#[test]
fn a_variable_beside_a_bounded_cache_does_not_unbind_it() {
    // namespace['cache'] has nine tensors, and namespace['y'] the last of them.
    let mut toy = Toy::default().root(0, 1, "__main__.namespace");
    toy.collections.push(1);
    toy = toy.holds(1, 2, Step::Key("'cache'".into())).holds(1, 18, Step::Key("'y'".into()));
    toy = (10..19).fold(toy.list(2, 10..19), Toy::tensor);
    toy.bounds.insert(2, (9, 16));
    let wanted: Vec<Wanted> =
        (1010..1019).map(|block| Wanted { block, bytes: 1, ..Wanted::default() }).collect();
    let owners = super::find(&mut toy, &wanted).owners;
    let cache = owners.iter().find(|o| o.path == "__main__.namespace['cache'][*]").expect("the cache");
    assert_eq!(cache.hold, Retention::Bounded { entries: 9, max_entries: 16 });
}
