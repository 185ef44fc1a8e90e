//! The parts of conditions that say how long a collection may become: paths, numbers, comparisons. It must not know what a name means.

use super::super::flows::between_brackets;
use super::super::statements::Token;

/// What a length is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Limit {
    Number(u64),
    /// A variable, or attributes of one: `self.capacity` is `[self, capacity]`, as is `self["capacity"]`.
    Path(Vec<String>),
    Computed(Box<Limit>, Operator, Box<Limit>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
}

impl Limit {
    /// Returns the number that it is where paths have the numbers that `of` returns.
    pub fn value(&self, of: &mut impl FnMut(&[String]) -> Option<u64>) -> Option<u64> {
        match self {
            Limit::Number(number) => Some(*number),
            Limit::Path(path) => of(path),
            Limit::Computed(left, operator, right) => {
                let (left, right) = (left.value(of)?, right.value(of)?);
                match operator {
                    Operator::Add => left.checked_add(right),
                    Operator::Subtract => left.checked_sub(right),
                    Operator::Multiply => left.checked_mul(right),
                    Operator::Divide => left.checked_div(right),
                }
            }
        }
    }
}

/// A comparison of two operands: whether the left one is less, is more, or is as much.
pub(super) struct Comparison<'t> {
    pub left: &'t [Token],
    pub right: &'t [Token],
    pub order: Order,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Less,
    More,
    Equal,
}

/// Functions that return so many entries of what they are given next.
const SELECTING: [&str; 2] = ["nlargest", "nsmallest"];
/// An operand that has more of them is not read to its begin.
const MOST_BRACKETS: usize = 4;
/// The operators, those that bind least first.
const OPERATORS: [&[(&str, Operator)]; 2] = [
    &[("+", Operator::Add), ("-", Operator::Subtract)],
    &[("*", Operator::Multiply), ("//", Operator::Divide)],
];

/// Returns the positions of the tokens between no brackets that are wanted.
fn outside<'t>(
    tokens: &'t [Token],
    is_wanted: impl Fn(&Token) -> bool + 't,
) -> impl Iterator<Item = usize> + 't {
    let mut depth = 0usize;
    tokens.iter().enumerate().filter_map(move |(at, token)| {
        let outside = depth == 0;
        depth = (depth + usize::from(token.opens())).saturating_sub(usize::from(token.closes()));
        (outside && is_wanted(token)).then_some(at)
    })
}

/// Returns what is between the brackets that are all of some tokens, or else these.
fn without_brackets(tokens: &[Token]) -> &[Token] {
    let inside = between_brackets(tokens);
    let are_all = inside.len() + 2 == tokens.len() && tokens.first().is_some_and(|t| t.is("("));
    if are_all { inside } else { tokens }
}

/// Returns the parts of a condition that must all be so.
pub(super) fn conjuncts(condition: &[Token]) -> Vec<&[Token]> {
    let condition = without_brackets(condition);
    if outside(condition, |t| t.is_word("or")).next().is_some() {
        return vec![condition];
    }
    let (mut parts, mut begin) = (Vec::new(), 0);
    for at in outside(condition, |t| t.is_word("and")) {
        parts.push(&condition[begin..at]);
        begin = at + 1;
    }
    parts.push(&condition[begin..]);
    parts
}

/// Returns what is behind the `not` of a condition, or all of it, and whether there was one.
pub(super) fn without_not(condition: &[Token]) -> (&[Token], bool) {
    match without_brackets(condition) {
        [not, rest @ ..] if not.is_word("not") => (without_brackets(rest), true),
        all => (all, false),
    }
}

/// Returns a comparison, if that is all that some tokens are.
pub(super) fn comparison(tokens: &[Token]) -> Option<Comparison<'_>> {
    let order = |t: &Token| match t {
        Token::Mark(mark) => match mark.as_str() {
            "<" | "<=" => Some(Order::Less),
            ">" | ">=" => Some(Order::More),
            "==" => Some(Order::Equal),
            _ => None,
        },
        _ => None,
    };
    let mut all = outside(tokens, move |t| order(t).is_some());
    let (at, None) = (all.next()?, all.next()) else { return None };
    let (left, right) = (without_brackets(&tokens[..at]), without_brackets(&tokens[at + 1..]));
    Some(Comparison { left, right, order: order(&tokens[at])? })
}

/// Returns an expression of numbers and paths.
pub(super) fn limit(tokens: &[Token]) -> Option<Limit> {
    let tokens = without_brackets(tokens);
    for operators in OPERATORS {
        let operator =
            |t: &Token| operators.iter().find(|(mark, _)| t.is(mark)).map(|&(_, operator)| operator);
        if let Some(at) = outside(tokens, |t| operator(t).is_some()).last() {
            let (left, right) = (limit(&tokens[..at])?, limit(&tokens[at + 1..])?);
            return Some(Limit::Computed(Box::new(left), operator(&tokens[at])?, Box::new(right)));
        }
    }
    match tokens {
        [Token::Number(number)] => number.map(Limit::Number),
        _ => keyed_path(tokens).map(Limit::Path),
    }
}

/// Returns what is divided, and how many remainders there may be: `n % most`. With more to it, there may be any number of values.
pub(super) fn remainder(tokens: &[Token]) -> Option<(&[Token], Limit)> {
    let tokens = without_brackets(tokens);
    let at = outside(tokens, |t| t.is("%")).next()?;
    let is_more = |t: &Token| ["+", "-", "%", ","].iter().any(|mark| t.is(mark)) || t.is_word("if");
    let is_text = tokens[..at].iter().any(|t| matches!(t, Token::Text(_)));
    let is_alone = outside(tokens, is_more).count() == 1;
    if is_alone && !is_text { Some((&tokens[..at], limit(&tokens[at + 1..])?)) } else { None }
}

/// Returns what a difference is made of.
pub(super) fn difference(tokens: &[Token]) -> Option<(&[Token], &[Token])> {
    let tokens = without_brackets(tokens);
    let (at, None) = ({
        let mut all = outside(tokens, |t| t.is("-") || t.is("+"));
        (all.next()?, all.next())
    }) else {
        return None;
    };
    tokens[at].is("-").then(|| (without_brackets(&tokens[..at]), without_brackets(&tokens[at + 1..])))
}

/// Returns the names of a variable, or of attributes of one; `None` if the tokens are anything else.
pub(super) fn path(tokens: &[Token]) -> Option<Vec<String>> {
    let (path, []) = begins_with_path(tokens)? else { return None };
    Some(path)
}

/// Returns the path that some tokens begin with, and what is behind it.
pub(super) fn begins_with_path(tokens: &[Token]) -> Option<(Vec<String>, &[Token])> {
    let Some(Token::Name(first)) = tokens.first() else { return None };
    let attribute = |t: &Token| if let Token::Attribute(name) = t { Some(name.clone()) } else { None };
    let mut path = vec![first.clone()];
    path.extend(tokens[1..].iter().map_while(attribute));
    let behind = &tokens[path.len()..];
    Some((path, behind))
}

/// Returns a path, some of whose names are keys: `config["cache"].most`.
fn keyed_path(tokens: &[Token]) -> Option<Vec<String>> {
    let (mut path, mut behind) = begins_with_path(tokens)?;
    while let [first, rest @ ..] = behind {
        behind = match (first, rest) {
            (Token::Attribute(name), _) => {
                path.push(name.clone());
                rest
            }
            (open, [Token::Text(key), close, rest @ ..]) if open.is("[") && close.is("]") => {
                path.push(key.clone());
                rest
            }
            _ => return None,
        };
    }
    Some(path)
}

/// Returns the length that a part of a sequence keeps: `-n:`, `:n`.
pub(super) fn length_of_part(part: &[Token]) -> Option<Limit> {
    match part {
        [minus, number @ .., colon] if minus.is("-") && colon.is(":") => limit(number),
        [colon, number @ ..] if colon.is(":") => limit(number),
        _ => None,
    }
}

/// Returns the length that is kept where a part is taken out: `:-n`, `n:`, `:len(x) - n`.
pub(super) fn length_without_part(part: &[Token]) -> Option<Limit> {
    match part {
        [colon, minus, number @ ..] if colon.is(":") && minus.is("-") => limit(number),
        [colon, rest @ ..] if colon.is(":") => {
            let (len, most) = difference(not_negative(rest))?;
            if len.first().is_some_and(|t| t.is_word("len")) { limit(most) } else { None }
        }
        [number @ .., colon] if colon.is(":") => limit(number),
        _ => None,
    }
}

/// Returns a number that `max(0, n)` makes 0 where it is less, or all tokens.
fn not_negative(tokens: &[Token]) -> &[Token] {
    let is_zero = |part: &&[Token]| matches!(part, [Token::Number(Some(0))]);
    let [max, given @ ..] = tokens else { return tokens };
    let inside = between_brackets(given);
    let at = outside(inside, |t| t.is(","))
        .next()
        .filter(|_| max.is_word("max") && inside.len() + 2 == given.len());
    let parts = at.map(|at| [&inside[..at], &inside[at + 1..]]);
    match parts {
        Some([zero, number]) | Some([number, zero]) if is_zero(&zero) => number,
        _ => tokens,
    }
}

/// Returns the number that a name is given which these tokens follow: `= 10`, `: int = 10`.
pub(super) fn number_given(rest: &[Token]) -> Option<u64> {
    let value = match rest {
        [mark, value, ..] if mark.is("=") => (value, &rest[2..]),
        [colon, Token::Name(_), mark, value, ..] if colon.is(":") && mark.is("=") => (value, &rest[4..]),
        _ => return None,
    };
    let goes_on = |t: &Token| ["(", "[", "+", "-", "*", "/", "//", "%", "**", "."].iter().any(|m| t.is(m));
    match value {
        (Token::Number(number), behind) if !behind.first().is_some_and(goes_on) => *number,
        _ => None,
    }
}

pub(super) fn is_one_of(token: &Token, names: &[&str]) -> bool {
    matches!(token, Token::Name(name) | Token::Attribute(name) if names.contains(&name.as_str()))
}

/// Returns where the operand begins that some tokens end with: a path, with what a few brackets take of it or give to it.
pub(super) fn begin_of_operand(tokens: &[Token]) -> usize {
    let (mut at, mut brackets) = (tokens.len(), 0);
    while let Some(token) = tokens[..at].last() {
        match token {
            Token::Attribute(_) => at -= 1,
            Token::Name(_) => return at - 1,
            close if close.closes() && brackets < MOST_BRACKETS => {
                let Some(open) = opening(&tokens[..at]) else { return at };
                (at, brackets) = (open, brackets + 1);
            }
            _ => return at,
        }
    }
    at
}

/// Returns the length that a collection has as this value, which is made of a part of it: `x[-n:]`, `(x + [y])[-n:]`,
/// `[y] + x[:n]`, `nlargest(n, x)`.
pub(super) fn length_of_itself(collection: &[Token], value: &[Token]) -> Option<Limit> {
    let places: Vec<usize> = (0..value.len()).filter(|&at| value[at..].starts_with(collection)).collect();
    let first = *places.first()?;
    let selecting = value.iter().position(|t| is_one_of(t, &SELECTING));
    if let Some(at) = selecting.filter(|&at| at < first) {
        return limit(between_brackets(&value[at + 1..]).split(|t| t.is(",")).next()?);
    }
    // All of it is a part, or else each time that the collection is named.
    let whole = last_brackets(value).filter(|&open| begin_of_operand(&value[..open]) == 0);
    if let Some(limit) = whole.and_then(|open| length_of_part(between_brackets(&value[open..]))) {
        return Some(limit);
    }
    let mut parts = places.iter().map(|&at| {
        let behind = &value[at + collection.len()..];
        let part = if behind.first().is_some_and(|t| t.is("[")) { between_brackets(behind) } else { &[] };
        length_of_part(part)
    });
    let limit = parts.next()??;
    parts.all(|other| other.is_some()).then_some(limit)
}

/// Returns where the square brackets begin that some tokens end with.
pub(super) fn last_brackets(tokens: &[Token]) -> Option<usize> {
    opening(tokens).filter(|&open| tokens[open].is("["))
}

/// Returns where the brackets begin that some tokens end with; their last, if that is none.
fn opening(tokens: &[Token]) -> Option<usize> {
    let mut depth = 0usize;
    tokens.iter().rposition(|t| {
        depth = (depth + usize::from(t.closes())).saturating_sub(usize::from(t.opens()));
        depth == 0
    })
}

/// Returns the functions and methods that a statement calls.
pub(super) fn called(tokens: &[Token]) -> impl Iterator<Item = &str> {
    tokens.windows(2).filter_map(|pair| match (&pair[0], &pair[1]) {
        (Token::Name(name) | Token::Attribute(name), open) if open.is("(") => Some(name.as_str()),
        _ => None,
    })
}
