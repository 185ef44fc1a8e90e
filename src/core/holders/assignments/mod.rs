//! What the program's source says of a variable: whether the value that it gets is made of the one that it had. It reads the
//! text of Python's files by names alone: an attribute is one thing in all objects, a call may use all that a function of that
//! name reads. So it errs to one side, and says that a value is made anew only where no way leads back to the variable.

mod flows;
mod limits;
mod statements;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};

pub use limits::{Flag, Kept, OWN};

use limits::Placed;

use flows::{between_brackets, flows, parameters, plain, run_over};
use statements::{Statement, Token, statements};

/// Files and bytes of source that are read.
pub const MOST_FILES: usize = 64;
pub const MOST_BYTES: u64 = 1 << 20;
/// More functions of one name are not told apart by it.
const MOST_NAMESAKES: usize = 16;

/// A variable: of a module, of a function, or an attribute of any object.
#[derive(Clone, Copy, Debug)]
pub enum Variable<'a> {
    Global {
        module: &'a str,
        name: &'a str,
    },
    /// Of a function, by its own name.
    Local {
        function: &'a str,
        name: &'a str,
    },
    Attribute(&'a str),
}

/// A name, where it means one thing: a scope and a name, or an attribute, of no scope.
type Key = (Option<usize>, String);
/// The scope of what all the functions of a name are given.
const GIVEN: usize = usize::MAX;
type Flows = HashMap<Key, HashSet<Key>>;

const KEYWORDS: [&str; 24] = [
    "and", "or", "not", "in", "is", "if", "else", "for", "lambda", "await", "async", "yield", "from",
    "return", "None", "True", "False", "del", "raise", "assert", "global", "nonlocal", "as", "while",
];
/// Methods that put what they are given into what they are called of.
const GATHERING: [&str; 11] = [
    "append",
    "appendleft",
    "extend",
    "extendleft",
    "insert",
    "add",
    "update",
    "setdefault",
    "push",
    "put",
    "put_nowait",
];
/// Functions and methods that join what they are given to more of it.
const JOINING: [&str; 9] =
    ["cat", "concat", "concatenate", "stack", "vstack", "hstack", "dstack", "append", "pad"];
/// Methods that make a tensor larger in place.
const RESIZING: [&str; 3] = ["resize_", "resize_as_", "set_"];
/// Functions and methods that assign to an attribute by its name, and those that may assign to any variable.
const SETTING: [&str; 4] = ["setattr", "__setattr__", "register_buffer", "register_parameter"];
const ANYTHING: [&str; 5] = ["exec", "eval", "globals", "locals", "vars"];
const ATTRIBUTES: &str = "__dict__";
/// The attribute by which a tensor's own values are replaced.
const DATA: &str = "data";

struct Scope {
    parent: Option<usize>,
    /// The name of the function or class; a module has none.
    name: Option<String>,
    is_class: bool,
    indent: usize,
    parameters: Vec<String>,
    locals: HashSet<String>,
    outer: HashSet<String>,
}

/// What the source of a program says of its variables.
#[derive(Default)]
pub struct Assignments {
    scopes: Vec<Scope>,
    /// The scopes of modules and of functions, by name.
    modules: HashMap<String, usize>,
    functions: HashMap<String, Vec<usize>>,
    /// By each name what its value may be made of, what it is made of one by one, and what is put into it.
    from: Flows,
    of_each: Flows,
    put_in: Flows,
    /// What is assigned to.
    assigned: HashSet<Key>,
    /// What something is put into.
    gathers: HashSet<Key>,
    /// Whether there is what may assign to an attribute, or to any variable, that is not named.
    any_attribute: bool,
    anything: bool,
    limits: limits::Limits,
}

impl Assignments {
    /// Reads some modules: their names and their texts.
    pub fn of<'a>(modules: impl IntoIterator<Item = (&'a str, &'a str)>) -> Assignments {
        let (mut all, statements) = Assignments::named(modules);
        all.parameters_are_given();
        for (scope, _, tokens) in &statements {
            all.flows_of(*scope, tokens);
        }
        all
    }

    /// The same for the lengths that collections are kept at, and nothing else: what values are made of takes far longer.
    pub fn limits_in<'a>(modules: impl IntoIterator<Item = (&'a str, &'a str)>) -> Assignments {
        let (mut all, statements) = Assignments::named(modules);
        all.find_limits(&statements);
        all
    }

    /// Returns what names mean, and the statements.
    fn named<'a>(modules: impl IntoIterator<Item = (&'a str, &'a str)>) -> (Assignments, Vec<Placed>) {
        let mut all = Assignments::default();
        let mut statements: Vec<Placed> = Vec::new();
        for (name, text) in modules {
            let module = all.enter(None, None, false, 0);
            all.modules.insert(name.to_owned(), module);
            all.scopes_of(module, text, &mut statements);
        }
        for (scope, _, tokens) in &statements {
            all.names_of(*scope, tokens);
        }
        (all, statements)
    }

    /// Returns whether a variable gets values that are made anew: from nothing that it had, nor from what a program gathers.
    pub fn are_anew(&self, variable: Variable<'_>) -> bool {
        let is_attribute = matches!(variable, Variable::Attribute(_));
        if self.anything || is_attribute && self.any_attribute {
            return false;
        }
        let keys = self.keys_of(variable);
        let is_assigned = keys.iter().any(|key| self.assigned.contains(key));
        is_assigned && keys.iter().all(|key| self.is_anew(key))
    }

    /// Returns whether a collection is made of what it had itself, one by one: what was put into it stays in it.
    pub fn are_of_themselves(&self, collection: Variable<'_>) -> bool {
        self.keys_of(collection).iter().any(|key| self.is_of_itself(key))
    }

    fn is_of_itself(&self, collection: &Key) -> bool {
        let mut seen: HashSet<(&Key, bool)> = HashSet::new();
        let mut next = vec![(collection, false)];
        while let Some((key, by_each)) = next.pop() {
            let ways = [(&self.from, by_each), (&self.put_in, by_each), (&self.of_each, true)];
            for (flows, by_each) in ways {
                for from in flows.get(key).into_iter().flatten() {
                    if by_each && from == collection {
                        return true;
                    }
                    if seen.insert((from, by_each)) {
                        next.push((from, by_each));
                    }
                }
            }
        }
        false
    }

    /// Returns whether a variable's values are made of one of some others, which keeps what it had, and are not made of themselves.
    pub fn are_computed_from<'a>(
        &self,
        variable: Variable<'_>,
        mut others: impl Iterator<Item = Variable<'a>>,
    ) -> bool {
        let keys = self.keys_of(variable);
        let of_itself = |key: &Key| self.sources([key]).contains(key);
        if keys.is_empty() || keys.iter().any(of_itself) {
            return false;
        }
        let sources = self.sources(&keys);
        let keeps = |key: &Key| sources.contains(key) && (self.gathers.contains(key) || of_itself(key));
        others.any(|other| self.keys_of(other).iter().any(keeps))
    }

    /// Returns what a variable is known as.
    fn keys_of(&self, variable: Variable<'_>) -> Vec<Key> {
        match variable {
            Variable::Attribute(name) => vec![(None, name.to_owned())],
            // Other modules know it as an attribute of this one.
            Variable::Global { module, name } => {
                let Some(&module) = self.modules.get(module) else { return Vec::new() };
                vec![(Some(module), name.to_owned()), (None, name.to_owned())]
            }
            Variable::Local { function, name } => {
                self.functions_named(function).iter().map(|&at| self.resolved(at, name)).collect()
            }
        }
    }

    fn is_anew(&self, variable: &Key) -> bool {
        let sources = self.sources([variable]);
        !sources.contains(variable) && !sources.iter().any(|&from| self.gathers.contains(from))
    }

    /// Returns all that the values of some variables may be made of.
    fn sources<'k>(&self, variables: impl IntoIterator<Item = &'k Key>) -> HashSet<&Key> {
        let mut seen: HashSet<&Key> = HashSet::new();
        let of = |key: &Key| self.from.get(key).into_iter().flatten();
        let mut next: Vec<&Key> = variables.into_iter().flat_map(of).collect();
        while let Some(key) = next.pop() {
            if seen.insert(key) {
                next.extend(of(key));
            }
        }
        seen
    }

    /// Returns the functions of a name, if they are few.
    fn functions_named(&self, name: &str) -> &[usize] {
        let all = self.functions.get(name).filter(|all| all.len() <= MOST_NAMESAKES);
        all.map_or(&[], |all| &all[..])
    }

    fn enter(&mut self, parent: Option<usize>, name: Option<String>, is_class: bool, indent: usize) -> usize {
        let (locals, outer) = (HashSet::new(), HashSet::new());
        self.scopes.push(Scope { parent, name, is_class, indent, parameters: Vec::new(), locals, outer });
        self.scopes.len() - 1
    }

    /// Finds the functions and classes of a file, and of each statement the scope that it is in.
    fn scopes_of(&mut self, module: usize, text: &str, out: &mut Vec<Placed>) {
        let mut open = vec![module];
        for Statement { indent, tokens } in statements(text) {
            while open.len() > 1 && open.last().is_some_and(|&at| indent <= self.scopes[at].indent) {
                open.pop();
            }
            let scope = open.last().copied().unwrap_or(module);
            let head =
                if tokens.first().is_some_and(|t| t.is_word("async")) { &tokens[1..] } else { &tokens[..] };
            if let [kind, Token::Name(name), rest @ ..] = head
                && (kind.is_word("def") || kind.is_word("class"))
            {
                let is_class = kind.is_word("class");
                let own = self.enter(Some(scope), Some(name.clone()), is_class, indent);
                if !is_class {
                    let names = parameters(rest);
                    self.scopes[own].locals.extend(names.iter().cloned());
                    self.scopes[own].parameters = names;
                    self.functions.entry(name.clone()).or_default().push(own);
                }
                out.push((own, indent, tokens));
                open.push(own);
                continue;
            }
            out.push((scope, indent, tokens));
        }
    }

    /// Takes in which names a statement makes a scope's own.
    fn names_of(&mut self, scope: usize, tokens: &[Token]) {
        if tokens.first().is_some_and(|t| t.is_word("global") || t.is_word("nonlocal")) {
            let names = tokens[1..]
                .iter()
                .filter_map(|t| if let Token::Name(n) = t { Some(n.clone()) } else { None });
            self.scopes[scope].outer.extend(names);
            return;
        }
        for (targets, _) in flows(tokens) {
            for token in plain(targets) {
                if let Token::Name(name) = token {
                    self.scopes[scope].locals.insert(name.clone());
                }
            }
        }
    }

    /// Returns what a name means in a scope.
    fn resolved(&self, scope: usize, name: &str) -> Key {
        let mut at = scope;
        loop {
            let here = &self.scopes[at];
            // What a class has are attributes.
            if here.is_class && at == scope && here.locals.contains(name) {
                return (None, name.to_owned());
            }
            let is_own = !here.is_class && here.locals.contains(name) && !here.outer.contains(name);
            match here.parent {
                Some(parent) if !is_own => at = parent,
                _ => return (Some(at), name.to_owned()),
            }
        }
    }

    /// Takes in what a statement assigns, to what and from what.
    fn flows_of(&mut self, scope: usize, tokens: &[Token]) {
        let head = if tokens.first().is_some_and(|t| t.is_word("async")) { &tokens[1..] } else { tokens };
        let is_definition = head.first().is_some_and(|t| t.is_word("def") || t.is_word("class"));
        let reads = if is_definition { Vec::new() } else { self.keys(scope, tokens) };
        for name in self.names_of_call(scope) {
            self.from.entry(name).or_default().extend(reads.iter().cloned());
        }
        if is_definition {
            return;
        }
        self.arguments(scope, tokens);
        let run_over = self.keys(scope, &run_over(tokens));
        if tokens.first().is_some_and(|t| t.is_word("return") || t.is_word("yield")) {
            for name in self.names_of_call(scope) {
                self.of_each.entry(name).or_default().extend(run_over.iter().cloned());
            }
        }
        for (targets, values) in flows(tokens) {
            let joins = values.iter().any(|t| match t {
                Token::Name(name) | Token::Attribute(name) => JOINING.contains(&name.as_str()),
                other => other.is("["),
            });
            let values = self.keys(scope, &values.iter().map(|&t| t.clone()).collect::<Vec<_>>());
            for target in targets.split(|t| t.is(",")) {
                for key in self.changed(scope, target) {
                    self.assigned.insert(key.clone());
                    // Numbers count on, and collections that are joined to more gather.
                    if joins && values.contains(&key) {
                        self.gathers.insert(key.clone());
                    }
                    self.of_each.entry(key.clone()).or_default().extend(run_over.iter().cloned());
                    self.from.entry(key).or_default().extend(values.iter().cloned());
                }
            }
        }
        for (at, pair) in tokens.windows(2).enumerate() {
            let (Token::Name(name) | Token::Attribute(name)) = &pair[0] else { continue };
            let name = name.as_str();
            // Any other object may have a method of such a name.
            let is_attribute = matches!(pair[0], Token::Attribute(_));
            self.anything |= if is_attribute { name == ATTRIBUTES } else { ANYTHING.contains(&name) };
            if !pair[1].is("(") {
                continue;
            }
            let of = || self.keys(scope, &tokens[..at]).pop();
            if GATHERING.contains(&name) {
                if let Some(key) = of() {
                    let put = self.keys(scope, between_brackets(&tokens[at + 1..]));
                    self.put_in.entry(key.clone()).or_default().extend(put);
                    self.gathers.insert(key);
                }
            } else if RESIZING.contains(&name) {
                if let Some(key) = of() {
                    self.from.entry(key.clone()).or_default().insert(key);
                }
            } else if SETTING.contains(&name) {
                let named = tokens[at..]
                    .iter()
                    .find_map(|t| if let Token::Text(text) = t { Some(text) } else { None });
                self.any_attribute |= named.is_none();
                if let Some(name) = named {
                    self.assigned.insert((None, name.clone()));
                    self.from.entry((None, name.clone())).or_default().extend(reads.iter().cloned());
                }
            }
        }
    }

    /// Returns the names by which a scope is called, if it is a function: all that it reads, its result may be made of. What
    /// `__init__` reads, an instance of the class may be made of.
    fn names_of_call(&self, scope: usize) -> Vec<Key> {
        let own = &self.scopes[scope];
        let (Some(name), Some(parent), false) = (&own.name, own.parent, own.is_class) else {
            return Vec::new();
        };
        let class = &self.scopes[parent];
        match (&class.name, class.parent) {
            (Some(class), Some(outside)) if self.scopes[parent].is_class && name == "__init__" => {
                vec![(None, class.clone()), self.resolved(outside, class)]
            }
            _ => vec![(None, name.clone()), self.resolved(parent, name)],
        }
    }

    /// Returns what an assignment to a target changes.
    fn changed(&mut self, scope: usize, target: &[Token]) -> Vec<Key> {
        let part = target.iter().position(|t| t.is("["));
        let mut keys = self.keys(scope, &target[..part.unwrap_or(target.len())]);
        let is_own_data = matches!(target.last(), Some(Token::Attribute(name)) if name == DATA);
        let keep = if is_own_data { 2 } else { 1 };
        keys.drain(..keys.len().saturating_sub(keep));
        // What something is put into.
        if part.is_some() {
            self.gathers.extend(keys.iter().cloned());
        }
        keys
    }

    /// Takes in that parameters are made of what the functions of their function's name are given.
    fn parameters_are_given(&mut self) {
        for (name, functions) in &self.functions {
            for &function in functions {
                let of = &self.scopes[function];
                let is_method = of.parent.is_some_and(|parent| self.scopes[parent].is_class);
                for parameter in of.parameters.iter().skip(usize::from(is_method)) {
                    let given = (Some(GIVEN), name.clone());
                    self.from.entry((Some(function), parameter.clone())).or_default().insert(given);
                }
            }
        }
    }

    /// Takes in what the functions that a statement calls are given.
    fn arguments(&mut self, scope: usize, tokens: &[Token]) {
        for (at, pair) in tokens.windows(2).enumerate() {
            let (Token::Name(name) | Token::Attribute(name)) = &pair[0] else { continue };
            if self.functions.contains_key(name) && pair[1].opens() {
                let given = self.keys(scope, between_brackets(&tokens[at + 1..]));
                self.from.entry((Some(GIVEN), name.clone())).or_default().extend(given);
            }
        }
    }

    /// Returns what the names in some tokens mean: not those of arguments.
    fn keys(&self, scope: usize, tokens: &[Token]) -> Vec<Key> {
        let mut depth = 0usize;
        let mut keys = Vec::new();
        for (at, token) in tokens.iter().enumerate() {
            depth = (depth + usize::from(token.opens())).saturating_sub(usize::from(token.closes()));
            match token {
                Token::Name(name) => {
                    let is_argument = depth > 0 && tokens.get(at + 1).is_some_and(|t| t.is("="));
                    if !KEYWORDS.contains(&name.as_str()) && !is_argument {
                        keys.push(self.resolved(scope, name));
                    }
                }
                Token::Attribute(name) => keys.push((None, name.clone())),
                Token::Mark(_) | Token::Text(_) | Token::Number(_) => {}
            }
        }
        keys
    }
}
