//! The lengths that remainders of a division keep collections at: keys that are one, and entries that go whenever one comes round.
//! It does not ask what is divided: whatever that counts, the heap shows whether the number is passed.

use super::super::flows::between_brackets;
use super::super::statements::Token;
use super::expressions::{Limit, Order, comparison, conjuncts, last_brackets, remainder, without_not};
use super::names::Collection;
use super::{Assignments, Index, Placed};

impl Assignments {
    /// Returns the dict that a statement sets entries of under so many keys only: `x[n % most] = y`.
    pub(super) fn set_by_remainder(&self, index: &Index<'_>, at: usize) -> Option<(Collection, Limit)> {
        let (scope, _, tokens) = &index.statements[at];
        let target = &tokens[..tokens.iter().position(|t| t.is("="))?];
        let (dict, key) = target.split_at(last_brackets(target)?);
        let (_, key) = self.meaning(*scope, between_brackets(key));
        let (_, limit) = remainder(key)?;
        let dict = self.collection(*scope, dict).filter(|dict| index.puts[at].contains(dict))?;
        Some((dict, limit))
    }

    /// Returns the collections that are emptied each so many times: `if n % most == 0: x.clear()`.
    pub(super) fn emptied_by_remainder(&self, index: &Index<'_>, at: usize) -> Vec<(Collection, Limit)> {
        let [word, condition @ ..] = &index.statements[at].2[..] else { return Vec::new() };
        let parts =
            if word.is_word("if") || word.is_word("elif") { conjuncts(condition) } else { Vec::new() };
        let found = parts.iter().find_map(|part| {
            let (part, is_not) = without_not(part);
            match comparison(part) {
                Some(of) if of.order == Order::Equal && !is_not => remainder(of.left),
                None if is_not => remainder(part),
                _ => None,
            }
        });
        let Some((divided, limit)) = found else { return Vec::new() };
        // What else is asked for may never be so, unless it is asked of the same.
        let is_of_it = |t: &Token| !matches!(t, Token::Name(_) | Token::Attribute(_)) || divided.contains(t);
        if !parts.iter().filter(|part| !part.iter().any(|t| t.is("%"))).all(|part| part.iter().all(is_of_it))
        {
            return Vec::new();
        }
        let emptied = index.statements[index.block(at)].iter().flat_map(|s| self.emptied_by(s));
        emptied.filter(|c| index.put_at.contains_key(c)).map(|c| (c, limit.clone())).collect()
    }

    /// Returns the collections that have no entry behind a statement.
    fn emptied_by(&self, statement: &Placed) -> Vec<Collection> {
        let (scope, _, tokens) = statement;
        let mut emptied = self.changed_by(statement, &["clear"], &[]);
        let (target, value) = match tokens.iter().position(|t| t.is("=")) {
            Some(at) => (&tokens[..at], &tokens[at + 1..]),
            None if tokens.first().is_some_and(|t| t.is_word("del")) => (&tokens[1..], &[][..]),
            None => return emptied,
        };
        let part =
            last_brackets(target).filter(|&at| matches!(&target[at..], [_, colon, _] if colon.is(":")));
        let is_none = matches!(value, [open, close] if open.opens() && close.closes());
        match part {
            Some(at) if is_none || value.is_empty() => emptied.extend(self.collection(*scope, &target[..at])),
            None if is_none => emptied.extend(self.collection(*scope, target)),
            _ => {}
        }
        emptied
    }
}
