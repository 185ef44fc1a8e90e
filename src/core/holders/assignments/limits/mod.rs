//! The lengths that the program's source keeps collections at: what it compares them with, where it drops or refuses entries by that.
//! It does not ask whether that is right: that a number is not passed shows in the heap.

mod expressions;
mod names;
mod remainders;

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::flows::between_brackets;
use super::statements::Token;
use super::{Assignments, GATHERING, Key, Variable};
pub use expressions::Limit;
use expressions::{
    Comparison, Order, begin_of_operand, begins_with_path, called, comparison, conjuncts, difference,
    is_one_of, last_brackets, length_of_itself, length_without_part, limit, number_given, path, without_not,
};
use names::{Alias, Collection};

/// A statement, the scope that it is in, and how far it is indented.
pub(super) type Placed = (usize, usize, Vec<Token>);

/// The name that methods have for their object.
pub const OWN: &str = "self";
/// Methods, and functions, that take something out of what they are called of, or given.
const DROPPING: [&str; 6] = ["pop", "popleft", "popitem", "remove", "discard", "clear"];
const DROPPING_FROM: [&str; 3] = ["heappop", "heapreplace", "heappushpop"];
const PUTTING_INTO: [&str; 1] = ["heappush"];
/// The words by which a program goes on with something else, and those that end a loop: that is no limit of what it gathers.
const LEAVING: [&str; 2] = ["return", "continue"];
const ENDING: [&str; 2] = ["raise", "break"];
/// How names of methods begin that are called without being named.
const UNNAMED: [&str; 2] = ["__", "forward"];
/// So many names may each stand for the next.
const MOST_NAMES: usize = 4;

/// The length that a collection is kept at, as long as some flags are as they must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    pub limit: Limit,
    pub flags: Vec<Flag>,
}

/// A variable, or attributes of one, that must be true, or false. Where it is not known, `is_required` decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag {
    pub path: Vec<String>,
    pub is_set: bool,
    pub is_required: bool,
}

/// That a collection is shorter than a limit, or else is not.
struct Condition {
    collection: Collection,
    kept: Kept,
    is_less: bool,
}

/// Collections that are kept at a length, and numbers that have names.
#[derive(Default)]
pub(super) struct Limits {
    kept: HashMap<Collection, Vec<Kept>>,
    /// By parameters, what functions are given as these.
    given: HashMap<Key, HashSet<Collection>>,
    /// The classes that a class is made of.
    bases: HashMap<String, Vec<String>>,
    /// The class of the object that a variable or an attribute is, if it is but one.
    objects: HashMap<Collection, Option<String>>,
    /// A name that is given several numbers has none.
    numbers: HashMap<String, Option<u64>>,
    /// What is assigned once only; a name that is assigned again stands for itself.
    aliases: HashMap<Key, Option<Alias>>,
    /// What functions return, where that is a comparison, and nothing else.
    tests: HashMap<usize, Vec<Token>>,
}

/// What is asked of all statements again and again, by the numbers of these.
struct Index<'s> {
    statements: &'s [Placed],
    of_scope: HashMap<usize, Vec<usize>>,
    /// What statements put into collections, and where each gets something.
    puts: Vec<Vec<Collection>>,
    put_at: HashMap<Collection, Vec<usize>>,
    /// What is counted up.
    counts: HashSet<Collection>,
}

impl Index<'_> {
    /// Returns the numbers of the statements in one that begins a block.
    fn block(&self, at: usize) -> Range<usize> {
        let indent = self.statements[at].1;
        at + 1..at + 1 + self.statements[at + 1..].iter().take_while(|s| s.1 > indent).count()
    }

    /// Returns the numbers of the statements that run where a condition is not so: of its `else`, or of what follows a block that
    /// leaves this behind.
    fn otherwise(&self, at: usize) -> Option<Range<usize>> {
        let (block, indent) = (self.block(at), self.statements[at].1);
        let next = self.statements.get(block.end).filter(|next| next.1 == indent);
        if next.is_some_and(|(.., tokens)| tokens.first().is_some_and(|t| t.is_word("else"))) {
            return Some(self.block(block.end));
        }
        let leaves = self.ends_with(&block, &LEAVING);
        let rest = self.statements[block.end..].iter().take_while(|s| s.1 >= indent).count();
        leaves.then_some(block.end..block.end + rest)
    }

    /// Returns whether the last statement of a block begins with one of these words.
    fn ends_with(&self, block: &Range<usize>, words: &[&str]) -> bool {
        let last = self.statements[block.clone()].last().and_then(|(.., tokens)| tokens.first());
        last.is_some_and(|t| words.iter().any(|word| t.is_word(word)))
    }

    /// Returns the flags that must be set, or not, for a statement to run: those of the blocks that it is in, and those by which
    /// the function was left before.
    fn flags(&self, at: usize) -> Vec<Flag> {
        let (scope, mut indent, _) = self.statements[at];
        let mut flags = Vec::new();
        for (before, (of, its, tokens)) in self.statements[..at].iter().enumerate().rev() {
            let (Some(word), true) = (tokens.first(), *of == scope && *its <= indent) else { continue };
            if word.is_word("def") {
                break;
            }
            let (is_around, is_if) = (*its < indent, word.is_word("if"));
            indent = *its;
            let left = || {
                let block = self.block(before);
                self.ends_with(&block, &LEAVING) || self.ends_with(&block, &ENDING)
            };
            if is_if && (is_around || left()) {
                flags.extend(flag(&tokens[1..], is_around, false));
            }
        }
        flags
    }

    /// Returns the collections that get something in a block only.
    fn put_only_in(&self, block: Range<usize>) -> impl Iterator<Item = &Collection> {
        let puts = self.puts[block.clone()].iter().flatten();
        puts.filter(move |&c| self.put_at.get(c).is_some_and(|all| all.iter().all(|at| block.contains(at))))
    }
}

impl Assignments {
    fn index<'s>(&self, statements: &'s [Placed]) -> Index<'s> {
        let mut puts: Vec<Vec<Collection>> =
            statements.iter().map(|s| self.changed_by(s, &GATHERING, &PUTTING_INTO)).collect();
        // What nothing is appended to is a dict: it takes in what is set.
        let lists: HashSet<Collection> = puts.iter().flatten().cloned().collect();
        for ((scope, _, tokens), puts) in statements.iter().zip(&mut puts) {
            puts.extend(self.set_in(*scope, tokens).filter(|dict| !lists.contains(dict)));
        }
        let mut index = Index {
            statements,
            of_scope: HashMap::new(),
            puts,
            put_at: HashMap::new(),
            counts: HashSet::new(),
        };
        for (at, (scope, _, tokens)) in statements.iter().enumerate() {
            index.of_scope.entry(*scope).or_default().push(at);
            for collection in &index.puts[at] {
                index.put_at.entry(collection.clone()).or_default().push(at);
            }
            if let [count @ .., add, Token::Number(Some(1))] = &tokens[..]
                && add.is("+=")
            {
                index.counts.extend(self.collection(*scope, count));
            }
        }
        index
    }

    /// Returns the lengths that a collection is kept at: as a variable, as the attribute of an object of one of these classes, as
    /// such an object itself, and as a parameter that it is given as. It may be one of those that are in such a collection.
    pub fn limits_of(&self, collection: Variable<'_>, is_entry: bool, classes: &[String]) -> Vec<&Kept> {
        let mut all: Vec<&str> = classes.iter().map(String::as_str).collect();
        let mut at = 0;
        while let Some(class) = all.get(at) {
            let bases = self.limits.bases.get(*class).into_iter().flatten().map(String::as_str);
            let new: Vec<&str> = bases.filter(|base| !all.contains(base)).collect();
            all.extend(new);
            at += 1;
        }
        let of_class = |name: &str, class: &&str| Collection {
            class: Some((*class).to_owned()),
            name: (None, name.to_owned()),
            is_entry,
        };
        let mut wanted: Vec<Collection> = all.iter().map(|class| of_class(OWN, class)).collect();
        match collection {
            Variable::Attribute(name) => wanted.extend(all.iter().map(|class| of_class(name, class))),
            _ => {
                let names = self.keys_of(collection).into_iter().take(1);
                wanted.extend(names.filter_map(|name| self.variable(name, is_entry, MOST_NAMES)));
            }
        }
        let given = self.limits.given.iter().filter(|(_, given)| wanted.iter().any(|w| given.contains(w)));
        let parameters: Vec<Collection> = given
            .map(|(parameter, _)| Collection { class: None, name: parameter.clone(), is_entry: false })
            .collect();
        wanted.iter().chain(&parameters).filter_map(|key| self.limits.kept.get(key)).flatten().collect()
    }

    /// Returns the number that the source gives a name, if it gives it but one.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.limits.numbers.get(name).copied().flatten()
    }

    /// Takes in what statements keep at a length, what they give to functions, and the numbers that they name.
    pub(super) fn find_limits(&mut self, statements: &[Placed]) {
        statements.iter().for_each(|(scope, _, tokens)| self.find_names(*scope, tokens));
        let (named, index) = (names(statements), self.index(statements));
        for (at, (scope, _, tokens)) in statements.iter().enumerate() {
            for (i, token) in tokens.iter().enumerate() {
                if let Token::Name(name) | Token::Attribute(name) = token {
                    self.given_to(*scope, name, &tokens[i + 1..]);
                    if let Some(number) = number_given(&tokens[i + 1..]) {
                        self.has_number(name, number);
                    }
                }
            }
            if !self.is_called(*scope, &named) {
                continue;
            }
            let cut = self.cut(*scope, tokens).into_iter().chain(self.counted(&index, at));
            let cut = cut.chain(self.set_by_remainder(&index, at));
            let cut = cut.chain(self.emptied_by_remainder(&index, at));
            let mut kept: Vec<(Collection, Kept)> =
                cut.map(|(collection, limit)| (collection, Kept { limit, flags: Vec::new() })).collect();
            for condition in self.conditions(*scope, tokens) {
                if self.is_kept(&index, at, &condition) {
                    let others = self.changed_with(&index, at, &condition);
                    kept.extend(others.into_iter().map(|other| (other, condition.kept.clone())));
                    kept.push((condition.collection, condition.kept));
                }
            }
            let flags = if kept.is_empty() { Vec::new() } else { index.flags(at) };
            for (collection, mut kept) in kept {
                kept.flags.extend(flags.iter().cloned());
                self.limits.kept.entry(collection).or_default().push(kept);
            }
        }
    }

    fn has_number(&mut self, name: &str, number: u64) {
        let known = self.limits.numbers.entry(name.to_owned()).or_insert(Some(number));
        *known = known.filter(|&known| known == number);
    }

    /// Returns the collection that a statement cuts to a length: `x = x[-n:]`, `del x[:-n]`, `x = [y] + x[:n]`, `del x[n:]`.
    fn cut<'t>(&self, scope: usize, tokens: &'t [Token]) -> Option<(Collection, Limit)> {
        let part_of = |target: &'t [Token]| {
            let (of, part) = target.split_at(last_brackets(target)?);
            Some((of, self.collection(scope, of)?, between_brackets(part)))
        };
        if let [del, target @ ..] = tokens
            && del.is_word("del")
        {
            let (_, collection, part) = part_of(target)?;
            return Some((collection, length_without_part(part)?));
        }
        let (target, value) = tokens.split_at(tokens.iter().position(|t| t.is("="))?);
        let value = &value[1..];
        match (part_of(target), value) {
            // `x[:-n] = []`
            (Some((_, collection, part)), [open, close]) if open.is("[") && close.is("]") => {
                return Some((collection, length_without_part(part)?));
            }
            // `x[:] = x[-n:]`
            (Some((of, collection, [colon])), _) if colon.is(":") => {
                return Some((collection, length_of_itself(of, value)?));
            }
            _ => {}
        }
        Some((self.collection(scope, target)?, length_of_itself(target, value)?))
    }

    /// Returns the collections that get something only where a count is less than a limit: `if n < most: n += 1; x.append(…)`,
    /// and those that drop something where it is more.
    fn counted(&self, index: &Index<'_>, at: usize) -> Vec<(Collection, Limit)> {
        let (scope, _, tokens) = &index.statements[at];
        let [word, condition @ ..] = &tokens[..] else { return Vec::new() };
        let is_asked = word.is_word("if") || word.is_word("elif");
        let Some(of) = comparison(condition).filter(|c| is_asked && c.order != Order::Equal) else {
            return Vec::new();
        };
        let (count, most) = (self.collection(*scope, of.left), limit(of.right));
        let Some(most) = most.filter(|_| count.is_some_and(|count| index.counts.contains(&count))) else {
            return Vec::new();
        };
        let block = index.block(at);
        let kept: Vec<Collection> = match of.order {
            Order::Less => index.put_only_in(block).cloned().collect(),
            _ => index.statements[block].iter().flat_map(|s| self.dropped_by(s)).collect(),
        };
        kept.into_iter().map(|c| (c, most.clone())).collect()
    }

    /// Returns the collections that get, or drop, something along with that of a condition, and so have as many entries.
    fn changed_with(&self, index: &Index<'_>, at: usize, condition: &Condition) -> Vec<Collection> {
        let block = index.block(at);
        let mut others: Vec<Collection> = match condition.is_less {
            true => index.put_only_in(block).cloned().collect(),
            false => index.statements[block].iter().flat_map(|s| self.dropped_by(s)).collect(),
        };
        let is_changed = others.iter().any(|c| condition.collection.has(c));
        others.retain(|c| is_changed && !condition.collection.has(c) && index.put_at.contains_key(c));
        others
    }

    /// Returns the collections that a statement takes single entries out of, unless it puts something into one.
    fn dropped_by(&self, statement: &Placed) -> Vec<Collection> {
        if !self.changed_by(statement, &GATHERING, &PUTTING_INTO).is_empty() {
            return Vec::new();
        }
        let (scope, _, tokens) = statement;
        let mut dropped = self.changed_by(statement, &DROPPING, &DROPPING_FROM);
        let deleted = tokens.split_first().filter(|(del, _)| del.is_word("del")).map(|(_, target)| target);
        let of = deleted.and_then(|target| Some(&target[..last_brackets(target)?]));
        dropped.extend(of.and_then(|of| self.collection(*scope, of)));
        dropped
    }

    /// Takes in what a function is given as its parameters, where it is called with these tokens behind its name.
    fn given_to(&mut self, scope: usize, name: &str, behind: &[Token]) {
        let functions = self.functions_named(name).to_vec();
        if functions.is_empty() || !behind.first().is_some_and(|t| t.is("(")) {
            return;
        }
        let arguments: Vec<&[Token]> = between_brackets(behind).split(|t| t.is(",")).collect();
        for function in functions {
            let of = &self.scopes[function];
            let is_method = of.parent.is_some_and(|parent| self.scopes[parent].is_class);
            let names: Vec<String> = of.parameters.iter().skip(usize::from(is_method)).cloned().collect();
            for (name, argument) in names.into_iter().zip(&arguments) {
                if let [Token::Number(Some(number))] = argument {
                    self.has_number(&name, *number);
                }
                let given = self.collection(scope, argument);
                self.limits.given.entry((Some(function), name)).or_default().extend(given);
            }
        }
    }

    /// Returns whether a scope is a module's, or a function's that is named somewhere, or called without that.
    fn is_called(&self, scope: usize, named: &HashSet<&str>) -> bool {
        let name = self.scopes[scope].name.as_deref();
        name.is_none_or(|name| named.contains(name) || UNNAMED.iter().any(|begin| name.starts_with(begin)))
    }

    /// Returns the lengths that the head of a block asks for, where nothing else that it asks for may never be so.
    fn conditions(&self, scope: usize, tokens: &[Token]) -> Vec<Condition> {
        let [word, condition @ ..] = tokens else { return Vec::new() };
        if !["if", "elif", "while"].iter().any(|asking| word.is_word(asking)) {
            return Vec::new();
        }
        let parts = conjuncts(condition);
        let found = |at: usize| self.condition(scope, parts[at], MOST_NAMES).map(|condition| (at, condition));
        let is_harmless = |condition: &Condition, part: &[Token]| {
            let part = without_not(part).0;
            // That an entry is new.
            let is_of_it = |path: &[Token]| {
                self.collection(scope, path).is_some_and(|c| c == condition.collection)
                    || limit(path).is_some_and(|l| l == condition.kept.limit)
            };
            let name = part.iter().position(|t| t.is_word("is") || t.is(">")).map_or(part, |at| &part[..at]);
            part.iter().any(|t| t.is_word("in")) || is_of_it(name)
        };
        let all = (0..parts.len()).filter_map(found);
        let alone = |(at, mut condition): (usize, Condition)| {
            for other in (0..parts.len()).filter(|&other| other != at) {
                if !is_harmless(&condition, parts[other]) {
                    condition.kept.flags.push(flag(parts[other], true, true)?);
                }
            }
            Some(condition)
        };
        all.filter_map(alone).collect()
    }

    /// Returns the length that a condition asks for: by itself, by a variable, or by a function that returns nothing but that.
    fn condition(&self, scope: usize, tokens: &[Token], names: usize) -> Option<Condition> {
        let (tokens, is_not) = without_not(tokens);
        if let Some(of) = comparison(tokens) {
            // `excess > 0`, where that is `len(x) - most`.
            let (inner, left) = self.meaning(scope, of.left);
            let (scope, of) = match (difference(left), of.right) {
                (Some((left, right)), [Token::Number(Some(0))]) => (inner, Comparison { left, right, ..of }),
                _ => (scope, of),
            };
            let (collection, limit, is_turned) = match self.length(scope, of.left, MOST_NAMES) {
                Some(collection) => (collection, limit(of.right)?, false),
                None => (self.length(scope, of.right, MOST_NAMES)?, limit(of.left)?, true),
            };
            let is_less = (of.order == Order::Less) != is_turned;
            let kept = Kept { limit, flags: Vec::new() };
            return match of.order {
                // What is not equal to a limit may be more than that.
                Order::Equal if is_not => None,
                Order::Equal => Some(Condition { collection, kept, is_less: false }),
                _ => Some(Condition { collection, kept, is_less: is_less != is_not }),
            };
        }
        let (path, behind) = begins_with_path(tokens).filter(|_| names > 0)?;
        let (inner, tokens) = match &path[..] {
            [name] if behind.is_empty() => {
                let alias = self.limits.aliases.get(&self.resolved(scope, name))?.as_ref()?;
                (alias.scope, &alias.value)
            }
            [.., name] if behind.is_empty() || behind.len() == 2 && behind[0].is("(") => {
                let mut tests =
                    self.functions_named(name).iter().filter_map(|f| self.limits.tests.get_key_value(f));
                let (&function, tokens) = tests.next().filter(|_| tests.next().is_none())?;
                (function, tokens)
            }
            _ => return None,
        };
        let mut condition = self.condition(inner, tokens, names - 1)?;
        condition.is_less ^= is_not;
        Some(condition)
    }

    /// Returns what a variable stands for that is assigned once, and the scope of that; or the tokens themselves.
    fn meaning<'t>(&'t self, scope: usize, tokens: &'t [Token]) -> (usize, &'t [Token]) {
        let [Token::Name(name)] = tokens else { return (scope, tokens) };
        let alias = self.limits.aliases.get(&self.resolved(scope, name)).and_then(Option::as_ref);
        alias.map_or((scope, tokens), |alias| (alias.scope, &alias.value))
    }

    /// Returns the collection whose length some tokens are, or more than that.
    fn length(&self, scope: usize, tokens: &[Token], names: usize) -> Option<Collection> {
        match tokens {
            [Token::Name(_), mark, value @ ..] if mark.is(":=") => self.length(scope, value, names),
            [len, rest @ ..] if len.is_word("len") => {
                let inside = between_brackets(rest);
                let behind = rest.get(inside.len() + 2..)?;
                let is_length = behind.first().is_none_or(|t| t.is("+"));
                if is_length { self.collection(scope, inside) } else { None }
            }
            [Token::Name(name)] if names > 0 => {
                let alias = self.limits.aliases.get(&self.resolved(scope, name))?.as_ref()?;
                self.length(alias.scope, &alias.value, names - 1)
            }
            _ => None,
        }
    }

    /// Returns whether what follows if a length is less, or not less, than a limit keeps it there: where it is less something is
    /// put into the collection, and nowhere else; or else something is dropped.
    fn is_kept(&self, index: &Index<'_>, at: usize, condition: &Condition) -> bool {
        let (block, collection) = (index.block(at), &condition.collection);
        // The length of an object is that of one of its attributes.
        let is_put_only_in = |block: Range<usize>| index.put_only_in(block).any(|c| collection.has(c));
        let in_function = |function: &usize| {
            let all = index.of_scope.get(function).into_iter().flatten();
            all.into_iter().any(|&at| self.drops_from(&index.statements[at], collection))
        };
        let drops = |block: Range<usize>| {
            index.statements[block].iter().any(|statement| {
                self.drops_from(statement, collection)
                    || called(&statement.2).any(|name| self.functions_named(name).iter().any(in_function))
            })
        };
        let otherwise = index.otherwise(at);
        match condition.is_less {
            true => is_put_only_in(block) || otherwise.is_some_and(drops),
            false => drops(block) || otherwise.is_some_and(is_put_only_in),
        }
    }

    /// Returns whether a statement takes something out of a collection, or makes it anew, and does not put it into any. An object
    /// that is a collection itself may do so by a method of its base class, and of one of its attributes.
    fn drops_from(&self, statement: &Placed, collection: &Collection) -> bool {
        let (scope, _, tokens) = statement;
        if !self.changed_by(statement, &GATHERING, &PUTTING_INTO).is_empty() {
            return false;
        }
        let is_path = |tokens: &[Token]| self.collection(*scope, tokens).is_some_and(|c| collection.has(&c));
        let is_deleted = || {
            let target = tokens.split_first().filter(|(del, _)| del.is_word("del")).map(|(_, target)| target);
            target.is_some_and(|target| is_path(&target[..last_brackets(target).unwrap_or(target.len())]))
        };
        let is_assigned = || {
            tokens.iter().position(|t| t.is("=")).is_some_and(|at| {
                let target = &tokens[..at];
                match last_brackets(target).filter(|&part| target[part..].iter().any(|t| t.is(":"))) {
                    Some(part) => is_path(&target[..part]),
                    None => is_path(target),
                }
            })
        };
        let by_own = collection.is_object()
            && self.class_around(*scope) == collection.class
            && tokens.iter().any(|t| matches!(t, Token::Attribute(_)) && is_one_of(t, &DROPPING));
        by_own
            || is_deleted()
            || is_assigned()
            || self.changed_by(statement, &DROPPING, &DROPPING_FROM).iter().any(|c| collection.has(c))
    }

    /// Returns the collection that a statement sets an entry of.
    fn set_in(&self, scope: usize, tokens: &[Token]) -> Option<Collection> {
        let target = &tokens[..tokens.iter().position(|t| t.is("="))?];
        let (of, key) = target.split_at(last_brackets(target)?);
        let is_one = !key.iter().any(|t| t.is(":"));
        if is_one { self.collection(scope, of) } else { None }
    }

    /// Returns what one of some methods is called of in a statement, and what one of some functions is given first.
    fn changed_by(
        &self,
        (scope, _, tokens): &Placed,
        methods: &[&str],
        functions: &[&str],
    ) -> Vec<Collection> {
        let mut changed = Vec::new();
        for (at, pair) in tokens.windows(2).enumerate().filter(|(_, pair)| pair[1].is("(")) {
            if matches!(pair[0], Token::Attribute(_)) && is_one_of(&pair[0], methods) {
                changed.extend(self.collection(*scope, &tokens[begin_of_operand(&tokens[..at])..at]));
            }
            if is_one_of(&pair[0], functions) {
                let given = between_brackets(&tokens[at + 1..]).split(|t| t.is(",")).next();
                changed.extend(given.and_then(|given| self.collection(*scope, given)));
            }
        }
        changed
    }
}

/// Returns the flag that a condition is, if it is but that: to be `so`, or not.
fn flag(condition: &[Token], so: bool, is_required: bool) -> Option<Flag> {
    let (tokens, is_not) = without_not(condition);
    Some(Flag { path: path(tokens)?, is_set: so != is_not, is_required })
}

/// Returns the names that statements have, but for those that they give to functions and classes.
fn names(statements: &[Placed]) -> HashSet<&str> {
    let of = |tokens: &[Token], i: usize| {
        i > 0 && (tokens[i - 1].is_word("def") || tokens[i - 1].is_word("class"))
    };
    let all = statements.iter().flat_map(|(.., tokens)| {
        tokens.iter().enumerate().filter(move |&(i, _)| !of(tokens, i)).map(|(_, token)| token)
    });
    all.filter_map(|token| match token {
        Token::Name(name) | Token::Attribute(name) => Some(name.as_str()),
        _ => None,
    })
    .collect()
}
