//! What a statement gives to what: its targets and values, what it runs over, and the parameters of a function's head. It must
//! not know what a name means.

use super::statements::Token;

/// Functions that make a collection of what they make of each part of another one.
const OF_EACH: [&str; 3] = ["map", "tree_map", "deepcopy"];
const ASSIGNING: [&str; 14] =
    ["=", "+=", "-=", "*=", "/=", "//=", "%=", "**=", "@=", "&=", "|=", "^=", ">>=", "<<="];

/// Returns the names that a function's head has between its brackets, as far as they are its parameters'.
pub fn parameters(head: &[Token]) -> Vec<String> {
    let mut depth = 0usize;
    let mut names = Vec::new();
    let mut before: Option<&Token> = None;
    for token in head {
        if token.opens() {
            depth += 1;
        } else if token.closes() {
            depth = depth.saturating_sub(1);
            if depth == 0 {
                break;
            }
        } else if let Token::Name(name) = token
            && depth == 1
            && before.is_some_and(|b| ["(", ",", "*", "**"].iter().any(|mark| b.is(mark)))
        {
            names.push(name.clone());
        }
        before = Some(token);
    }
    names
}

/// Returns the names of a target that a statement makes variables: no attributes, and not what something is put into.
pub fn plain(targets: &[Token]) -> impl Iterator<Item = &Token> {
    let parts = targets
        .split(|t| t.is(","))
        .filter(|part| !part.iter().any(|t| matches!(t, Token::Attribute(_)) || t.is("[")));
    parts.flatten()
}

/// Returns what a statement assigns to, each with the tokens that the value comes from.
pub fn flows(tokens: &[Token]) -> Vec<(&[Token], Vec<&Token>)> {
    let mut all = Vec::new();
    let position = |of: &[Token], word: &str| of.iter().position(|t| t.is_word(word));
    let head = if tokens.first().is_some_and(|t| t.is_word("async")) { &tokens[1..] } else { tokens };
    match head.first() {
        Some(first) if first.is_word("for") => {
            if let Some(at) = position(head, "in") {
                all.push((&head[1..at], head[at + 1..].iter().collect()));
            }
        }
        Some(first) if first.is_word("with") || first.is_word("import") || first.is_word("from") => {
            for (at, _) in head.iter().enumerate().filter(|(_, t)| t.is_word("as")) {
                let end =
                    head[at..].iter().position(|t| t.is(",") || t.is(")")).map_or(head.len(), |n| at + n);
                all.push((&head[at + 1..end], head[1..at].iter().collect()));
            }
        }
        Some(first) if first.is_word("def") || first.is_word("class") => return all,
        _ => {}
    }
    let (mut depth, mut begin) = (0usize, 0);
    for (at, token) in tokens.iter().enumerate() {
        depth = (depth + usize::from(token.opens())).saturating_sub(usize::from(token.closes()));
        if token.is(":=") && at > 0 {
            all.push((&tokens[at - 1..at], tokens[at + 1..].iter().collect()));
        }
        let Token::Mark(mark) = token else { continue };
        if depth == 0 && ASSIGNING.contains(&mark.as_str()) {
            let end = tokens[begin..at].iter().position(|t| t.is(":")).map_or(at, |n| begin + n);
            let own = if mark == "=" { begin..begin } else { begin..at };
            all.push((&tokens[begin..end], tokens[own].iter().chain(&tokens[at + 1..]).collect()));
            begin = at + 1;
        }
    }
    all
}

/// Returns what a statement runs over, one by one: of a `for`, of comprehensions, and of what makes a collection of all the parts
/// of another one.
pub fn run_over(tokens: &[Token]) -> Vec<Token> {
    let mut all = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let rest = &tokens[at + 1..];
        match token {
            Token::Name(word) if word == "for" => {
                let begin = rest.iter().position(|t| t.is_word("in")).map_or(rest.len(), |n| n + 1);
                let mut depth = 0i32;
                let iterable = rest[begin..].iter().take_while(|t| {
                    depth += i32::from(t.opens()) - i32::from(t.closes());
                    depth > 0 || depth == 0 && !["for", "if"].iter().any(|word| t.is_word(word))
                });
                all.extend(iterable.cloned());
            }
            Token::Name(name) | Token::Attribute(name) if OF_EACH.contains(&name.as_str()) => {
                all.extend_from_slice(between_brackets(rest));
            }
            _ => {}
        }
    }
    all
}

/// Returns what is between the brackets that some tokens begin with: none if they do not.
pub fn between_brackets(tokens: &[Token]) -> &[Token] {
    let mut depth = 0usize;
    let mut is_inside = |t: &&Token| {
        depth = (depth + usize::from(t.opens())).saturating_sub(usize::from(t.closes()));
        depth > 0
    };
    let end = tokens.iter().take_while(|t| is_inside(t)).count();
    tokens.get(1..end).unwrap_or_default()
}
