//! By which of several ways to it an owner is named.

use super::*;

/// `frames = self.intermediates`, in a method of what its caller has.
#[test]
fn what_the_caller_has_comes_before_a_variable_of_the_call() {
    let base = |step: Step| {
        let toy = Toy::default().root(0, 1, "draw() local `frames`").list(1, 10..30);
        let toy = toy.root(1, 5, "main() local `pipeline`").holds(5, 1, step);
        (10..30).fold(toy, Toy::tensor)
    };
    let attribute = || Step::Attribute("intermediates".into());
    let found = |mut toy: Toy| {
        // Both are the program's own; the variable of the call is met first.
        toy.roots = vec![toy.roots.concat(), Vec::new(), toy.roots[1].clone(), toy.roots[0].clone()];
        toy.layers = 2..4;
        toy.find(1010..1030)
    };
    assert_eq!(found(base(attribute())), one("main() local `pipeline`.intermediates[*]", 20));
    // A generator that the caller has is no better name for its own variable.
    let suspended = Step::Local { function: "draw".into(), name: "frames".into() };
    assert_eq!(found(base(suspended)), one("draw() local `frames`[*]", 20));
    // An owner that another owner is a part of.
    let mut nested = base(attribute()).holds(1, 2, Step::Index(20)).list(2, 30..50);
    nested = (30..50).fold(nested, Toy::tensor).root(0, 2, "draw() local `more`");
    nested.roots = vec![nested.roots.concat(), Vec::new(), nested.roots[1].clone(), nested.roots[0].clone()];
    nested.layers = 2..4;
    let paths: Vec<String> = nested.find(1010..1050).into_iter().map(|(path, _)| path).collect();
    assert!(paths.iter().all(|path| path.starts_with("main() local `pipeline`.intermediates")), "{paths:?}");
}

/// `results[rate] = curve`, where `curve` is a variable still.
#[test]
fn an_entry_that_a_variable_has_too_goes_by_its_collection() {
    let mut toy = Toy::default().root(0, 1, "main() local `results`").root(0, 3, "main() local `curve`");
    toy = (2..5).fold(toy.list(1, 2..5), |toy, list| toy.list(list, 10 * list..10 * list + 10));
    toy = (20..50).fold(toy, Toy::tensor);
    assert_eq!(toy.find(1020..1050), one("main() local `results`[*][*]", 30));
}

#[test]
fn what_a_key_has_goes_by_who_else_has_the_key() {
    let attribute = |name: &str| Step::Attribute(name.into());
    let toy = Toy::default().root(0, 1, "__main__.optimizer").root(0, 2, "__main__.model");
    let toy = toy.holds(1, 3, attribute("state")).holds(3, 9, Step::AsKey);
    let toy = toy.holds(2, 4, Step::Through).holds(4, 5, attribute("head")).holds(5, 9, attribute("weight"));
    let mut toy = toy.holds(9, 20, Step::Named("its hooks".into())).list(20, 10..14);
    for tensor in 10..14 {
        toy = toy.tensor(tensor);
    }
    assert_eq!(toy.find(1010..1014), one("__main__.model.head.weight → its hooks[*]", 4));
    toy.roots[0].pop();
    assert_eq!(toy.find(1010..1014), one("__main__.optimizer.state → its keys → its hooks[*]", 4));
}

/// A recurrent network: each step's output and loss reach the whole graph by way of the state.
#[test]
fn what_is_handed_on_from_step_to_step_is_named_and_not_what_else_reaches_its_graph() {
    // `state`: the rank of its name.
    let network = |output: &str, state: usize| {
        let mut toy = (1..4).fold(Toy::default(), |toy, n| toy.root(0, n, &format!("__main__.output{n}x")));
        toy = toy.root(state, 4, "__main__.state").tensor(4).saves(4, 40, Step::Graph("Cell".into()));
        for n in 1..4 {
            toy = toy.tensor(n).saves(n, 10 + n, Step::Graph(output.into()));
            toy = toy.saves(10 + n, 40, Step::Next("Cell".into()));
        }
        for node in (40..52).step_by(2) {
            toy = toy.saves(node, node + 1, Step::Next("Mm".into())).saves(node, node + 3000, Step::Saved);
            toy = toy.saves(node + 1, node + 2, Step::Next("Cell".into()));
        }
        toy
    };
    let blocks = || (40..52).step_by(2).map(|node| node + 3000);
    // Also where it is found last of all, and where an output is made as a part of each step is.
    for (output, state) in [("Sum", 0), ("Sum", 1), ("Mm", 0)] {
        let found = network(output, state).find(blocks());
        assert_eq!(found, one("__main__.state.grad_fn → … saved by Cell", 6), "{output} {state}");
    }
    // Of two steps there is no telling.
    assert_eq!(network("Sum", 0).find(blocks().take(2)).len(), 4);
}
