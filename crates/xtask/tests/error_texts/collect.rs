//! The texts of errors: literals that reach a constructor, directly, through `format!` and the
//! branches of an expression, or by a name that `let` or `const` gives them.

use super::source::{Is, Token};

/// The part of an error that a text forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// The whole error.
    Sentence,
    /// The operation that failed. The cause follows after a colon.
    Operation,
    /// The hint.
    Hint,
}

/// Constructors of errors: the name, the number of the argument, and the role of the argument.
const CONSTRUCTORS: [(&str, usize, Role); 36] = [
    ("Error::new", 1, Role::Sentence),
    ("Error::other", 0, Role::Sentence),
    ("Error::damaged", 0, Role::Sentence),
    ("Error::with_hint", 1, Role::Sentence),
    ("Error::with_hint", 2, Role::Hint),
    ("Error::with_remedy", 1, Role::Sentence),
    ("Error::with_remedy", 2, Role::Hint),
    ("Error::os", 1, Role::Operation),
    ("Error::block", 1, Role::Operation),
    ("Error::io", 1, Role::Operation),
    ("Error::thread", 1, Role::Operation),
    ("KvError::Other", 0, Role::Sentence),
    ("Failure::new", 1, Role::Sentence),
    ("Failure::usage", 0, Role::Sentence),
    ("Failure::params", 0, Role::Sentence),
    ("Failure::io", 1, Role::Operation),
    ("hint", 0, Role::Hint),
    ("or_hint", 0, Role::Hint),
    ("or_remedy", 0, Role::Hint),
    // Constructors of one file, most of which put a subject before the text.
    ("Err", 0, Role::Sentence),
    ("ok_or", 0, Role::Sentence),
    ("ok_or_else", 0, Role::Sentence),
    ("map_err", 0, Role::Operation),
    ("contradiction", 1, Role::Sentence),
    ("corrupt", 0, Role::Sentence),
    ("denied", 1, Role::Sentence),
    ("fail", 0, Role::Sentence),
    ("fail", 1, Role::Sentence),
    ("failed", 0, Role::Sentence),
    ("failed", 1, Role::Sentence),
    ("fault", 1, Role::Sentence),
    ("invalid", 0, Role::Sentence),
    ("invalid", 1, Role::Sentence),
    ("unreadable", 0, Role::Sentence),
    ("wrong", 0, Role::Sentence),
    ("wrong", 1, Role::Sentence),
];

/// A text of an error.
#[derive(Clone, Debug)]
pub(crate) struct Text {
    pub line: usize,
    pub text: String,
    pub role: Role,
    /// Whether the constructor adds no subject before the text.
    pub is_whole: bool,
    /// Whether the text has a name before it reaches the constructor.
    pub is_named: bool,
}

struct Frame {
    /// The function, macro or method before the bracket; empty for a plain bracket.
    name: String,
    bracket: char,
    /// The number of commas so far.
    argument: usize,
    /// The number of texts before the frame.
    first: usize,
    /// Names that `let` or `const` gives to the expression in the frame.
    names: Vec<String>,
}

/// The expression that a literal or a name is part of.
enum Reaches {
    Constructor(&'static str, Role),
    /// An expression with a name.
    Name(String),
    Nothing,
}

fn reaches(frames: &[Frame]) -> Reaches {
    // The position in a tuple, for patterns with several names.
    let mut position = None;
    for frame in frames.iter().rev() {
        let name = frame.name.as_str();
        if let [first, ..] = frame.names.as_slice() {
            let name = position.and_then(|at: usize| frame.names.get(at)).unwrap_or(first);
            return Reaches::Name(name.clone());
        }
        let known = |it: &&(&str, usize, Role)| {
            it.1 == frame.argument
                && match it.0.contains(':') {
                    true => name.ends_with(it.0),
                    false => name.trim_start_matches('.') == it.0,
                }
        };
        if let Some((name, _, role)) = CONSTRUCTORS.iter().find(known) {
            return Reaches::Constructor(name, *role);
        }
        match name {
            _ if frame.bracket == '{' => {}
            "" if frame.bracket == '(' => position = position.or(Some(frame.argument)),
            "format!" if frame.argument == 0 => {}
            "Some" | "String::from" | "if" | "match" => {}
            _ => return Reaches::Nothing,
        }
    }
    Reaches::Nothing
}

/// Returns the name before the bracket at `at`, with the word before `::`.
fn name_before(tokens: &[Token], at: usize) -> String {
    let before = |count: usize| at.checked_sub(count).map(|at| &tokens[at]);
    let is_mark = |count, mark| before(count).is_some_and(|it| it.is_mark(mark));
    let word = |count| before(count).and_then(Token::word).unwrap_or_default();
    match () {
        () if is_mark(1, '!') => format!("{}!", word(2)),
        () if is_mark(2, '.') => format!(".{}", word(1)),
        () if is_mark(2, ':') && is_mark(3, ':') => format!("{}::{}", word(4), word(1)),
        () => word(1).to_owned(),
    }
}

/// Whether `.caused_by` follows the call that closes at `at`, possibly after other methods.
fn has_cause(tokens: &[Token], mut at: usize) -> bool {
    while let [dot, name, open, ..] = &tokens[at + 1..] {
        if !dot.is_mark('.') || !open.is_mark('(') {
            return false;
        }
        if name.is_word("caused_by") {
            return true;
        }
        at += 3;
        let mut depth = 1;
        while depth > 0 && at + 1 < tokens.len() {
            at += 1;
            depth += i32::from(tokens[at].is_mark('(')) - i32::from(tokens[at].is_mark(')'));
        }
    }
    false
}

/// Returns the names that the `=` at `at` gives to the following expression.
fn names_before(tokens: &[Token], at: usize) -> Vec<String> {
    let begin = tokens[..at].iter().rposition(|it| {
        matches!(it.word(), Some("let" | "const" | "static"))
            || matches!(it.is, Is::Mark(';' | '{' | '}' | '='))
    });
    let Some(begin) = begin.filter(|begin| tokens[*begin].word().is_some()) else {
        return Vec::new();
    };
    let pattern = tokens[begin + 1..at].split(|it| it.is_mark(':')).next().unwrap_or_default();
    let names = pattern.iter().filter_map(Token::word).filter(|name| *name != "mut");
    names.map(str::to_owned).collect()
}

/// Whether the name at `at` is a whole argument, possibly converted.
fn is_argument(tokens: &[Token], at: usize) -> bool {
    let begins = at > 0 && matches!(tokens[at - 1].is, Is::Mark('(' | ',' | '&' | '{' | '>'));
    begins
        && match tokens.get(at + 1).map(|next| &next.is) {
            // `Err(why) =>` is a pattern.
            Some(Is::Mark(')')) => {
                tokens.get(at + 2).is_none_or(|it| !it.is_mark('=') && !it.is_word("if"))
            }
            Some(Is::Mark(',' | '}')) => true,
            Some(Is::Mark('.')) => ["clone", "into", "to_owned", "to_string"]
                .iter()
                .any(|it| tokens[at + 2].is_word(it)),
            _ => false,
        }
}

/// Collects the texts of a file.
pub(crate) fn collect(tokens: &[Token]) -> Vec<Text> {
    let mut found: Vec<Text> = Vec::new();
    let mut named: Vec<(String, usize, usize, String)> = Vec::new();
    let mut uses: Vec<(String, &'static str, Role)> = Vec::new();
    let mut frames: Vec<Frame> = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let is_next = |mark| tokens.get(at + 1).is_some_and(|next| next.is_mark(mark));
        let frame =
            |name, bracket, names| Frame { name, bracket, argument: 0, first: found.len(), names };
        match &token.is {
            Is::Mark(bracket @ ('(' | '[' | '{')) => {
                frames.push(frame(name_before(tokens, at), *bracket, Vec::new()));
            }
            Is::Mark(')' | ']' | '}') => {
                while frames.pop_if(|frame| !frame.names.is_empty()).is_some() {}
                let Some(frame) = frames.pop() else { continue };
                if frame.name.ends_with("Error::new") && has_cause(tokens, at) {
                    let sentences = found[frame.first..].iter_mut();
                    for text in sentences.filter(|text| text.role == Role::Sentence) {
                        text.role = Role::Operation;
                    }
                    for (_, _, role) in
                        uses.iter_mut().rev().take(1).filter(|it| it.1 == "Error::new")
                    {
                        *role = Role::Operation;
                    }
                }
            }
            Is::Mark(';') => {
                frames.pop_if(|frame| !frame.names.is_empty());
            }
            Is::Mark(',') => {
                if let Some(frame) = frames.last_mut() {
                    frame.argument += 1;
                }
            }
            Is::Mark('=') if !is_next('=') && !is_next('>') => {
                let names = names_before(tokens, at);
                if !names.is_empty() {
                    frames.push(frame(String::new(), '=', names));
                }
            }
            Is::Word(word) => {
                if is_argument(tokens, at)
                    && let Reaches::Constructor(name, role) = reaches(&frames)
                {
                    uses.push((word.clone(), name, role));
                }
            }
            // A pattern of `match` is not a text.
            Is::Text(_) if is_next('|') || is_next('=') => {}
            Is::Text(text) => match reaches(&frames) {
                Reaches::Constructor(name, role) => {
                    let (line, text, is_whole) = (token.line, text.clone(), name.contains(':'));
                    found.push(Text { line, text, role, is_whole, is_named: false });
                }
                Reaches::Name(name) => named.push((name, uses.len(), token.line, text.clone())),
                Reaches::Nothing => {}
            },
            Is::Mark(_) => {}
        }
    }
    for (name, after, line, text) in named {
        // A constant may be defined after its use.
        let mut candidates = uses[after..].iter().chain(&uses[..after]).filter(|it| it.0 == name);
        if let Some((_, constructor, role)) = candidates.next() {
            let is_whole = constructor.contains(':');
            found.push(Text { line, text, role: *role, is_whole, is_named: true });
        }
    }
    found
}
