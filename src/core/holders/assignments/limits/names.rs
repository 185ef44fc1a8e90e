//! What names and paths of a program's source stand for: a collection, or one of those that are in it, by the variables that are
//! assigned but once.

use super::super::flows::{between_brackets, flows};
use super::super::statements::Token;
use super::super::{Assignments, Key};
use super::expressions::{begins_with_path, comparison, path, without_not};
use super::{MOST_NAMES, OWN};

/// Methods that return an entry of what they are called of, and those that return all entries, or these with their keys.
const OF_ENTRY: [&str; 2] = ["get", "setdefault"];
const VALUES: &str = "values";
const ITEMS: &str = "items";

/// A collection: a variable, or an attribute of the objects of a class; [`OWN`] is such an object itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Collection {
    pub class: Option<String>,
    pub name: Key,
    /// It is what is in that, one by one.
    pub is_entry: bool,
}

impl Collection {
    pub fn is_object(&self) -> bool {
        self.name.1 == OWN && self.class.is_some()
    }

    /// Returns whether another one is this, or an attribute of the object that this is.
    pub fn has(&self, other: &Collection) -> bool {
        self == other || self.is_object() && self.class == other.class && self.is_entry == other.is_entry
    }
}

/// A variable that stands for something else.
pub(super) struct Alias {
    pub scope: usize,
    pub value: Vec<Token>,
    /// Not for the value itself, but for what is in it, one by one.
    is_entry: bool,
}

impl Assignments {
    /// Takes in the bases of a class, the names that stand for something else, and what a function returns.
    pub(super) fn find_names(&mut self, scope: usize, tokens: &[Token]) {
        if let [word, Token::Name(class), rest @ ..] = tokens
            && word.is_word("class")
        {
            let bases = between_brackets(rest).split(|t| t.is(",")).filter_map(path);
            let bases = bases.filter_map(|mut path| path.pop()).collect();
            self.limits.bases.insert(class.clone(), bases);
        }
        if let [word, value @ ..] = tokens
            && word.is_word("return")
            && comparison(without_not(value).0).is_some()
        {
            self.limits.tests.insert(scope, value.to_vec());
        }
        let is_loop = tokens.first().is_some_and(|t| t.is_word("for"));
        for (targets, values) in flows(tokens) {
            let mut targets: Vec<&[Token]> = targets.split(|t| t.is(",")).collect();
            let mut value: Vec<Token> = values.into_iter().cloned().collect();
            if let ([target], false) = (&targets[..], is_loop) {
                self.is_object(scope, target, &value);
            }
            let ends_with = |value: &[Token], method: &str| {
                let [.., Token::Attribute(name), open, close] = value else { return false };
                name == method && open.is("(") && close.is(")")
            };
            let is_whole = match targets.len() {
                1 if !is_loop => true,
                1 if ends_with(&value, VALUES) => {
                    value.truncate(value.len() - 3);
                    true
                }
                1 => true,
                2 if is_loop && ends_with(&value, ITEMS) => {
                    value.truncate(value.len() - 3);
                    targets.remove(0);
                    true
                }
                _ => false,
            };
            for target in targets {
                let [Token::Name(name)] = target else { continue };
                let alias = Alias { scope, value: value.clone(), is_entry: is_loop };
                let name = self.resolved(scope, name);
                let is_parameter = name.0.is_some_and(|at| self.scopes[at].parameters.contains(&name.1));
                let is_new = is_whole && !is_parameter && !self.limits.aliases.contains_key(&name);
                // What a class has are attributes.
                if name.0.is_some() {
                    self.limits.aliases.insert(name, is_new.then_some(alias));
                }
            }
        }
    }

    /// Takes in which class's object a variable is, or an attribute: what it is given is made by a call of that name.
    fn is_object(&mut self, scope: usize, target: &[Token], value: &[Token]) {
        let variable = match path(target).as_deref() {
            Some([name]) => {
                Some(Collection { class: None, name: self.resolved(scope, name), is_entry: false })
            }
            Some([own, name]) if own == OWN => self.attribute(scope, name, false),
            _ => None,
        };
        let Some(variable) = variable.filter(|_| !value.first().is_some_and(|t| t.is_word("None"))) else {
            return;
        };
        let class = begins_with_path(value).and_then(|(mut path, behind)| {
            let is_call = behind.first().is_some_and(|t| t.is("("));
            path.pop().filter(|_| is_call && between_brackets(behind).len() + 2 == behind.len())
        });
        let known = self.limits.objects.entry(variable).or_insert_with(|| class.clone());
        *known = class.filter(|class| known.as_ref() == Some(class));
    }

    /// Returns the class whose object a variable is, or an attribute, if the source has that class.
    fn class_of(&self, variable: &Collection) -> Option<&String> {
        let class = self.limits.objects.get(variable)?.as_ref()?;
        self.limits.bases.contains_key(class).then_some(class)
    }

    fn attribute(&self, scope: usize, name: &str, is_entry: bool) -> Option<Collection> {
        Some(Collection { class: Some(self.class_around(scope)?), name: (None, name.to_owned()), is_entry })
    }

    /// Returns the collection that some tokens lead to: a variable, an attribute of the object that a method is called of, or an
    /// entry of one of these.
    pub(super) fn collection(&self, scope: usize, tokens: &[Token]) -> Option<Collection> {
        self.collection_by(scope, tokens, MOST_NAMES)
    }

    fn collection_by(&self, scope: usize, tokens: &[Token], names: usize) -> Option<Collection> {
        let (mut path, behind) = begins_with_path(tokens)?;
        let inside = between_brackets(behind);
        let is_entry = match behind.first() {
            None => false,
            Some(_) if inside.is_empty() || inside.len() + 2 != behind.len() => return None,
            Some(open) if open.is("[") => !inside.iter().any(|t| t.is(":")),
            Some(open) => {
                open.is("(") && path.pop().is_some_and(|method| OF_ENTRY.contains(&method.as_str()))
            }
        };
        if !is_entry && !behind.is_empty() {
            return None;
        }
        let variable = match &path[..] {
            [own] if own == OWN => self.attribute(scope, own, is_entry),
            [own, name] if own == OWN => self.attribute(scope, name, is_entry),
            [name] => self.variable(self.resolved(scope, name), is_entry, names),
            [.., name] => {
                let object = self.collection_by(scope, &tokens[..path.len() - 1], names)?;
                let class = object.class.filter(|_| object.name.1 == OWN)?;
                Some(Collection { class: Some(class), name: (None, name.clone()), is_entry })
            }
            [] => None,
        }?;
        // An object of a class that the source has is that class's own.
        let class = self.class_of(&variable).cloned();
        Some(class.map_or(variable, |class| Collection {
            class: Some(class),
            name: (None, OWN.to_owned()),
            is_entry: false,
        }))
    }

    /// Returns what a variable is, or an entry of it: another collection that it stands for, if it does so.
    pub(super) fn variable(&self, name: Key, is_entry: bool, names: usize) -> Option<Collection> {
        let itself = Collection { class: None, name, is_entry };
        let alias = self.limits.aliases.get(&itself.name).and_then(Option::as_ref);
        let (Some(alias), true) = (alias, names > 0) else { return Some(itself) };
        let Some(mut other) = self.collection_by(alias.scope, &alias.value, names - 1) else {
            return (!alias.is_entry).then_some(itself);
        };
        let depth = usize::from(other.is_entry) + usize::from(alias.is_entry) + usize::from(is_entry);
        other.is_entry = depth == 1;
        (depth <= 1).then_some(other)
    }

    pub(super) fn class_around(&self, scope: usize) -> Option<String> {
        let mut around = std::iter::successors(Some(scope), |&at| self.scopes[at].parent);
        around.find(|&at| self.scopes[at].is_class).and_then(|class| self.scopes[class].name.clone())
    }
}
