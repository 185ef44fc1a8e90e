//! Python's text as statements: their tokens, and how far each is indented. It must not know what any of them means.

/// The words that begin what has other statements in it.
const COMPOUND: [&str; 13] = [
    "if", "elif", "else", "for", "while", "with", "try", "except", "finally", "def", "class", "match", "case",
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    Name(String),
    /// A name behind a dot.
    Attribute(String),
    Mark(String),
    /// A string, without its quotes.
    Text(String),
    /// Its value, where that is a whole number, written as digits.
    Number(Option<u64>),
}

impl Token {
    pub fn is(&self, mark: &str) -> bool {
        matches!(self, Token::Mark(m) if m == mark)
    }

    pub fn is_word(&self, word: &str) -> bool {
        matches!(self, Token::Name(name) if name == word)
    }

    pub fn opens(&self) -> bool {
        ["(", "[", "{"].iter().any(|mark| self.is(mark))
    }

    pub fn closes(&self) -> bool {
        [")", "]", "}"].iter().any(|mark| self.is(mark))
    }
}

/// A statement, or the head of one that has others in it.
pub struct Statement {
    pub indent: usize,
    pub tokens: Vec<Token>,
}

/// Returns the statements of a text, and the heads of those that have others in them.
pub fn statements(text: &str) -> Vec<Statement> {
    let mut all = Vec::new();
    let mut indent = 0;
    let (mut tokens, mut depth): (Vec<Token>, usize) = (Vec::new(), 0);
    let mut rest = text;
    let mut begins = true;
    while let Some(c) = rest.chars().next() {
        if begins {
            let blank = rest.len() - rest.trim_start_matches([' ', '\t']).len();
            indent = blank;
            rest = &rest[blank..];
            begins = false;
            continue;
        }
        match c {
            '\n' => {
                rest = &rest[1..];
                if depth == 0 {
                    if !tokens.is_empty() {
                        all.push(Statement { indent, tokens: std::mem::take(&mut tokens) });
                    }
                    begins = true;
                }
            }
            '#' => rest = &rest[rest.find('\n').unwrap_or(rest.len())..],
            '\\' => {
                rest = rest[1..]
                    .strip_prefix("\r\n")
                    .or_else(|| rest[1..].strip_prefix('\n'))
                    .unwrap_or(&rest[1..])
            }
            ';' if depth == 0 => {
                rest = &rest[1..];
                if !tokens.is_empty() {
                    all.push(Statement { indent, tokens: std::mem::take(&mut tokens) });
                }
            }
            '"' | '\'' => {
                let behind = behind_string(rest, c);
                let text = rest[..rest.len() - behind.len()].trim_matches(c);
                tokens.push(Token::Text(text.to_owned()));
                rest = behind;
            }
            c if c.is_alphabetic() || c == '_' => {
                let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
                let (name, behind) = rest.split_at(end);
                rest = behind;
                // The letters before a string say what it is.
                if name.len() <= 2 && behind.starts_with(['"', '\'']) {
                    continue;
                }
                let is_attribute = tokens.last().is_some_and(|t| t.is("."));
                if is_attribute {
                    tokens.pop();
                }
                let of = if is_attribute { Token::Attribute } else { Token::Name };
                tokens.push(of(name.to_owned()));
            }
            c if c.is_ascii_digit() => {
                let end =
                    rest.find(|c: char| !c.is_alphanumeric() && c != '_' && c != '.').unwrap_or(rest.len());
                let (digits, behind) = rest.split_at(end);
                rest = behind;
                tokens.push(Token::Number(digits.replace('_', "").parse().ok()));
            }
            c if c.is_whitespace() => rest = &rest[c.len_utf8()..],
            _ => {
                const LONG: [&str; 21] = [
                    "**=", "//=", ">>=", "<<=", "**", "//", "->", ":=", "==", "!=", "<=", ">=", "+=", "-=",
                    "*=", "/=", "%=", "@=", "&=", "|=", "^=",
                ];
                let mark = LONG.iter().find(|mark| rest.starts_with(**mark)).copied();
                let mark = mark.unwrap_or(&rest[..c.len_utf8()]);
                rest = &rest[mark.len()..];
                let token = Token::Mark(mark.to_owned());
                depth = (depth + usize::from(token.opens())).saturating_sub(usize::from(token.closes()));
                if token.is(":") && depth == 0 && is_head(&tokens) {
                    all.push(Statement { indent, tokens: std::mem::take(&mut tokens) });
                    // What follows in the same line is in it.
                    indent += 1;
                    continue;
                }
                tokens.push(token);
            }
        }
    }
    if !tokens.is_empty() {
        all.push(Statement { indent, tokens });
    }
    all
}

/// Returns whether a `:` ends what these tokens begin, and is not that of a `lambda`.
fn is_head(tokens: &[Token]) -> bool {
    let head = if tokens.first().is_some_and(|t| t.is_word("async")) { &tokens[1..] } else { tokens };
    let lambdas = tokens.iter().filter(|t| t.is_word("lambda")).count();
    let ended = tokens.iter().filter(|t| t.is(":")).count();
    lambdas <= ended && head.first().is_some_and(|t| COMPOUND.iter().any(|word| t.is_word(word)))
}

/// Returns what follows the string that a text begins with.
fn behind_string(text: &str, quote: char) -> &str {
    let three: String = [quote; 3].iter().collect();
    let is_long = text.starts_with(&three);
    let (mark, mut rest) = if is_long { (three.as_str(), &text[3..]) } else { (&three[..1], &text[1..]) };
    loop {
        match rest.find([quote, '\\', '\n']) {
            None => return "",
            Some(at) if rest[at..].starts_with('\\') => {
                let behind = rest[at + 1..].chars().next().map_or(0, char::len_utf8);
                rest = &rest[at + 1 + behind..];
            }
            Some(at) if rest[at..].starts_with(mark) => return &rest[at + mark.len()..],
            // A line ends a short one.
            Some(at) if rest[at..].starts_with('\n') && !is_long => return &rest[at..],
            Some(at) => rest = &rest[at + 1..],
        }
    }
}
