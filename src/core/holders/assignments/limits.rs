//! The lengths that the program's source keeps collections at: what it compares them with, where it drops or refuses entries by that.
//! It does not ask whether that is right: that a number is not passed shows in the heap.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::flows::between_brackets;
use super::statements::Token;
use super::{Assignments, GATHERING, Key, Variable};

/// A statement, the scope that it is in, and how far it is indented.
pub(super) type Placed = (usize, usize, Vec<Token>);

/// What a length is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Limit {
    Number(u64),
    /// A variable, or attributes of one: `self.capacity` is `[self, capacity]`.
    Path(Vec<String>),
}

/// The name that methods have for their object.
pub const OWN: &str = "self";
/// What is not equal to a limit may be more than that.
const COMPARING: [&str; 5] = ["<", "<=", ">", ">=", "=="];
/// What an operand goes on with, if it is more than a number or a variable.
const OPERATORS: [&str; 10] = ["(", "[", "+", "-", "*", "/", "//", "%", "**", "."];
/// Methods, and functions, that take something out of what they are called of, or given.
const DROPPING: [&str; 6] = ["pop", "popleft", "popitem", "remove", "discard", "clear"];
const DROPPING_FROM: [&str; 3] = ["heappop", "heapreplace", "heappushpop"];
const PUTTING_INTO: [&str; 1] = ["heappush"];
/// How names of methods begin that are called without being named.
const UNNAMED: [&str; 2] = ["__", "forward"];

/// A collection: a variable, or an attribute of the objects of a class; [`OWN`] is such an object itself.
type Collection = (Option<String>, Key);

/// Collections that are kept at a length, and numbers that have names.
#[derive(Default)]
pub(super) struct Limits {
    kept: HashMap<Collection, Vec<Limit>>,
    /// By parameters, what functions are given as these.
    given: HashMap<Key, HashSet<Collection>>,
    /// The classes that a class is made of.
    bases: HashMap<String, Vec<String>>,
    /// A name that is given several numbers has none.
    numbers: HashMap<String, Option<u64>>,
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
        let deeper = |(_, indent, _): &&Placed| *indent > self.statements[at].1;
        at + 1..at + 1 + self.statements[at + 1..].iter().take_while(deeper).count()
    }

    fn is_put_only_in(&self, block: &Range<usize>, collection: &Collection) -> bool {
        self.put_at.get(collection).is_some_and(|all| all.iter().all(|at| block.contains(at)))
    }
}

impl Assignments {
    fn index<'s>(&self, statements: &'s [Placed]) -> Index<'s> {
        let puts: Vec<Vec<Collection>> =
            statements.iter().map(|s| self.changed_by(s, &GATHERING, &PUTTING_INTO)).collect();
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
                index.counts.extend(path(count).and_then(|path| self.collection(*scope, &path)));
            }
        }
        index
    }

    /// Returns the lengths that a collection is kept at: as a variable, as the attribute of an object of one of these classes, as
    /// such an object itself, and as a parameter that it is given as.
    pub fn limits_of(&self, collection: Variable<'_>, classes: &[String]) -> Vec<&Limit> {
        let mut all: Vec<&str> = classes.iter().map(String::as_str).collect();
        let mut at = 0;
        while let Some(class) = all.get(at) {
            let bases = self.limits.bases.get(*class).into_iter().flatten().map(String::as_str);
            let new: Vec<&str> = bases.filter(|base| !all.contains(base)).collect();
            all.extend(new);
            at += 1;
        }
        let of_class = |name: &str, class: &&str| (Some((*class).to_owned()), (None, name.to_owned()));
        let mut wanted: Vec<Collection> = all.iter().map(|class| of_class(OWN, class)).collect();
        match collection {
            Variable::Attribute(name) => wanted.extend(all.iter().map(|class| of_class(name, class))),
            _ => wanted.extend(self.keys_of(collection).into_iter().take(1).map(|key| (None, key))),
        }
        let given = self.limits.given.iter().filter(|(_, given)| wanted.iter().any(|w| given.contains(w)));
        let parameters: Vec<Collection> = given.map(|(parameter, _)| (None, parameter.clone())).collect();
        wanted.iter().chain(&parameters).filter_map(|key| self.limits.kept.get(key)).flatten().collect()
    }

    /// Returns the number that the source gives a name, if it gives it but one.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.limits.numbers.get(name).copied().flatten()
    }

    /// Takes in what statements keep at a length, what they give to functions, and the numbers that they name.
    pub(super) fn find_limits(&mut self, statements: &[Placed]) {
        let (named, index) = (names(statements), self.index(statements));
        for (at, (scope, _, tokens)) in statements.iter().enumerate() {
            if let [word, Token::Name(class), rest @ ..] = &tokens[..]
                && word.is_word("class")
            {
                let bases = between_brackets(rest).split(|t| t.is(",")).filter_map(path);
                let bases = bases.filter_map(|mut path| path.pop()).collect();
                self.limits.bases.insert(class.clone(), bases);
            }
            if self.is_called(*scope, &named) {
                let kept = self.cut(*scope, tokens).into_iter().chain(self.counted(&index, at));
                let kept: Vec<(Collection, Limit)> = kept.collect();
                kept.into_iter().for_each(|(c, limit)| self.limits.kept.entry(c).or_default().push(limit));
            }
            for (i, token) in tokens.iter().enumerate() {
                let rest = &tokens[i + 1..];
                if let Token::Name(name) | Token::Attribute(name) = token {
                    self.given_to(*scope, name, rest);
                    if let Some(number) = number_given(rest) {
                        let known = self.limits.numbers.entry(name.clone()).or_insert(Some(number));
                        *known = known.filter(|&known| known == number);
                    }
                }
                if !token.is_word("len") {
                    continue;
                }
                let inside = between_brackets(rest);
                let behind = rest.get(inside.len() + 2..).unwrap_or_default();
                let (Some(path), Some((limit, is_less))) = (path(inside), compared(&tokens[..i], behind))
                else {
                    continue;
                };
                if let Some(collection) = self.collection(*scope, &path)
                    && self.is_called(*scope, &named)
                    && self.is_kept(&index, at, &collection, is_less)
                {
                    self.limits.kept.entry(collection).or_default().push(limit);
                }
            }
        }
    }

    /// Returns the collection that a statement cuts to a length: `x = x[-n:]`, `del x[:-n]`, `x = x[:n]`, `del x[n:]`.
    fn cut(&self, scope: usize, tokens: &[Token]) -> Option<(Collection, Limit)> {
        let (is_deleted, part) = match tokens.split_first()? {
            (del, part) if del.is_word("del") => (true, part),
            _ => {
                let (target, value) = tokens.split_at(tokens.iter().position(|t| t.is("="))?);
                let of_itself = value.get(1..=target.len()).is_some_and(|of| of == target);
                (false, value.get(1..).filter(|_| of_itself)?)
            }
        };
        let open = part.iter().position(|t| t.is("["))?;
        let kept = match (is_deleted, between_brackets(&part[open..])) {
            (false, [minus, number @ .., colon]) if minus.is("-") && colon.is(":") => number,
            (false, [colon, number @ ..]) if colon.is(":") => number,
            (true, [colon, minus, number @ ..]) if colon.is(":") && minus.is("-") => number,
            (true, [number @ .., colon]) if colon.is(":") => number,
            _ => return None,
        };
        Some((self.collection(scope, &path(&part[..open])?)?, limit(kept)?))
    }

    /// Returns the collections that get something only where a count is less than a limit: `if n < most: n += 1; x.append(…)`.
    fn counted(&self, index: &Index<'_>, at: usize) -> Vec<(Collection, Limit)> {
        let (scope, _, tokens) = &index.statements[at];
        let Some((word, condition)) = tokens.split_first() else { return Vec::new() };
        let Some(less) = condition.iter().position(|t| t.is("<") || t.is("<=")) else { return Vec::new() };
        let (count, most) = (path(&condition[..less]), limit(&condition[less + 1..]));
        let (Some(count), Some(most), true) = (count, most, word.is_word("if") || word.is_word("elif"))
        else {
            return Vec::new();
        };
        if !self.collection(*scope, &count).is_some_and(|count| index.counts.contains(&count)) {
            return Vec::new();
        }
        let block = index.block(at);
        let put = index.puts[block.clone()].iter().flatten().filter(|c| index.is_put_only_in(&block, c));
        put.map(|c| (c.clone(), most.clone())).collect()
    }

    /// Takes in what a function is given as its parameters, where it is called with these tokens behind its name.
    fn given_to(&mut self, scope: usize, name: &str, behind: &[Token]) {
        let functions = self.functions_named(name).to_vec();
        if functions.is_empty() || !behind.first().is_some_and(|t| t.is("(")) {
            return;
        }
        let arguments: Vec<Option<Collection>> = between_brackets(behind)
            .split(|t| t.is(","))
            .map(|argument| path(argument).and_then(|path| self.collection(scope, &path)))
            .collect();
        for function in functions {
            let of = &self.scopes[function];
            let is_method = of.parent.is_some_and(|parent| self.scopes[parent].is_class);
            let names: Vec<String> = of.parameters.iter().skip(usize::from(is_method)).cloned().collect();
            for (name, given) in names.into_iter().zip(&arguments) {
                let known = self.limits.given.entry((Some(function), name)).or_default();
                known.extend(given.clone());
            }
        }
    }

    /// Returns the collection that a path leads to: a variable, or an attribute of the object that a method is called of.
    fn collection(&self, scope: usize, path: &[String]) -> Option<Collection> {
        match path {
            [own] if own == OWN => Some((Some(self.class_around(scope)?), (None, own.clone()))),
            [name] => Some((None, self.resolved(scope, name))),
            [own, name] if own == OWN => Some((Some(self.class_around(scope)?), (None, name.clone()))),
            _ => None,
        }
    }

    fn class_around(&self, scope: usize) -> Option<String> {
        let mut around = std::iter::successors(Some(scope), |&at| self.scopes[at].parent);
        around.find(|&at| self.scopes[at].is_class).and_then(|class| self.scopes[class].name.clone())
    }

    /// Returns whether a scope is a module's, or a function's that is named somewhere, or called without that.
    fn is_called(&self, scope: usize, named: &HashSet<&str>) -> bool {
        let name = self.scopes[scope].name.as_deref();
        name.is_none_or(|name| named.contains(name) || UNNAMED.iter().any(|begin| name.starts_with(begin)))
    }

    /// Returns whether what follows if a length is less, or not less, than a limit keeps it there: where it is less something is
    /// put into the collection, and nowhere else; or else something is dropped.
    fn is_kept(&self, index: &Index<'_>, at: usize, collection: &Collection, is_less: bool) -> bool {
        let head = &index.statements[at].2;
        let asks = head.first().is_some_and(|t| ["if", "elif", "while"].iter().any(|word| t.is_word(word)));
        // What else must be so may never be; but that an entry is new is.
        let is_alone = !head.iter().any(|t| t.is_word("and")) || head.iter().any(|t| t.is_word("in"));
        if !asks || !is_alone {
            return false;
        }
        let block = index.block(at);
        if is_less {
            // The length of an object is that of one of its attributes.
            let of_it = |c: &&Collection| *c == collection || collection.1.1 == OWN && c.0 == collection.0;
            let mut put = index.puts[block.clone()].iter().flatten();
            return put.find(of_it).is_some_and(|c| index.is_put_only_in(&block, c));
        }
        let in_function = |function: &usize| {
            let all = index.of_scope.get(function).into_iter().flatten();
            all.into_iter().any(|&at| self.drops_from(&index.statements[at], collection))
        };
        index.statements[block].iter().any(|statement| {
            self.drops_from(statement, collection)
                || called(&statement.2).any(|name| self.functions_named(name).iter().any(in_function))
        })
    }

    /// Returns whether a statement takes something out of a collection, or makes it anew, and does not put it into any. An object
    /// that is a collection itself may do so by a method of its base class, and of one of its attributes.
    fn drops_from(&self, statement: &Placed, collection: &Collection) -> bool {
        let (scope, _, tokens) = statement;
        if !self.changed_by(statement, &GATHERING, &PUTTING_INTO).is_empty() {
            return false;
        }
        let is_own = collection.1.1 == OWN;
        let is_it = |c: &Collection| c == collection || is_own && c.0 == collection.0;
        let is_path = |tokens: &[Token]| {
            path(tokens).and_then(|p| self.collection(*scope, &p)).is_some_and(|c| is_it(&c))
        };
        let up_to = |end: usize| tokens[..end].iter().position(|t| t.is("[")).unwrap_or(end);
        let is_deleted =
            || tokens.first().is_some_and(|t| t.is_word("del")) && is_path(&tokens[1..up_to(tokens.len())]);
        let is_assigned = || {
            tokens.iter().position(|t| t.is("=")).is_some_and(|at| {
                let part = up_to(at);
                (part == at || tokens[part..at].iter().any(|t| t.is(":"))) && is_path(&tokens[..part])
            })
        };
        let by_own = is_own
            && self.class_around(*scope) == collection.0
            && tokens.iter().any(|t| matches!(t, Token::Attribute(_)) && is_one_of(t, &DROPPING));
        by_own
            || is_deleted()
            || is_assigned()
            || self.changed_by(statement, &DROPPING, &DROPPING_FROM).iter().any(is_it)
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
                let attributes =
                    tokens[..at].iter().rev().take_while(|t| matches!(t, Token::Attribute(_))).count();
                let begin = at.saturating_sub(attributes + 1);
                changed.extend(path(&tokens[begin..at]).and_then(|path| self.collection(*scope, &path)));
            }
            if is_one_of(&pair[0], functions) {
                let given = between_brackets(&tokens[at + 1..]).split(|t| t.is(",")).next().and_then(path);
                changed.extend(given.and_then(|path| self.collection(*scope, &path)));
            }
        }
        changed
    }
}

fn is_one_of(token: &Token, names: &[&str]) -> bool {
    matches!(token, Token::Name(name) | Token::Attribute(name) if names.contains(&name.as_str()))
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

/// Returns the functions and methods that a statement calls.
fn called(tokens: &[Token]) -> impl Iterator<Item = &str> {
    tokens.windows(2).filter_map(|pair| match (&pair[0], &pair[1]) {
        (Token::Name(name) | Token::Attribute(name), open) if open.is("(") => Some(name.as_str()),
        _ => None,
    })
}

/// Returns the number that a name is given which these tokens follow: `= 10`, `: int = 10`.
fn number_given(rest: &[Token]) -> Option<u64> {
    let value = match rest {
        [mark, value, ..] if mark.is("=") => (value, &rest[2..]),
        [colon, Token::Name(_), mark, value, ..] if colon.is(":") && mark.is("=") => (value, &rest[4..]),
        _ => return None,
    };
    match value {
        (Token::Number(number), behind) if !goes_on(behind) => *number,
        _ => None,
    }
}

fn goes_on(behind: &[Token]) -> bool {
    behind.first().is_some_and(|t| OPERATORS.iter().any(|mark| t.is(mark)))
}

/// Returns what a length between some tokens is compared with, and whether it is asked to be less.
fn compared(before: &[Token], behind: &[Token]) -> Option<(Limit, bool)> {
    let compares = |token: &Token| COMPARING.iter().any(|mark| token.is(mark));
    let is_less = |token: &Token| token.is("<") || token.is("<=");
    let is_more = |token: &Token| token.is(">") || token.is(">=");
    if let Some((mark, operand)) = behind.split_first().filter(|(mark, _)| compares(mark)) {
        let length = match operand.first()? {
            Token::Number(_) => 1,
            Token::Name(_) => {
                1 + operand[1..].iter().take_while(|t| matches!(t, Token::Attribute(_))).count()
            }
            _ => return None,
        };
        let limit = limit(&operand[..length]).filter(|_| !goes_on(&operand[length..]))?;
        return Some((limit, is_less(mark)));
    }
    let (mark, operand) = before.split_last()?;
    if !compares(mark) || goes_on(behind) {
        return None;
    }
    let attributes = operand.iter().rev().take_while(|t| matches!(t, Token::Attribute(_))).count();
    let begin = operand.len().checked_sub(attributes + 1)?;
    let is_part = begin > 0 && OPERATORS[2..].iter().any(|mark| operand[begin - 1].is(mark));
    let limit = limit(&operand[begin..]).filter(|_| !is_part)?;
    Some((limit, is_more(mark)))
}

fn limit(tokens: &[Token]) -> Option<Limit> {
    match tokens {
        [Token::Number(number)] => number.map(Limit::Number),
        _ => path(tokens).map(Limit::Path),
    }
}

/// Returns the names of a variable, or of attributes of one; `None` if the tokens are anything else.
fn path(tokens: &[Token]) -> Option<Vec<String>> {
    let (first, attributes) = tokens.split_first()?;
    let Token::Name(first) = first else { return None };
    let attributes =
        attributes.iter().map(|t| if let Token::Attribute(name) = t { Some(name) } else { None });
    std::iter::once(Some(first)).chain(attributes).map(|name| name.cloned()).collect()
}
