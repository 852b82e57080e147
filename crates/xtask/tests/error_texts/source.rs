//! Rust source as tokens: words, string literals and marks, without comments and unit tests.

/// A token, with its line from 1.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub line: usize,
    pub is: Is,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Is {
    /// An identifier, a keyword or a number.
    Word(String),
    /// A string literal, without its quotes and escapes.
    Text(String),
    Mark(char),
}

impl Token {
    pub(crate) fn is_mark(&self, mark: char) -> bool {
        self.is == Is::Mark(mark)
    }

    pub(crate) fn is_word(&self, word: &str) -> bool {
        self.word() == Some(word)
    }

    pub(crate) fn word(&self) -> Option<&str> {
        match &self.is {
            Is::Word(word) => Some(word),
            _ => None,
        }
    }
}

/// Splits a source file into tokens.
pub(crate) fn tokens(source: &str) -> Vec<Token> {
    let chars: Vec<char> = source.chars().collect();
    let (mut found, mut at, mut line) = (Vec::new(), 0, 1);
    while at < chars.len() {
        let begin = at;
        let next = chars.get(at + 1).copied().unwrap_or(' ');
        let is = match chars[at] {
            '/' if next == '/' => {
                at += chars[at..].iter().take_while(|c| **c != '\n').count();
                None
            }
            '/' if next == '*' => {
                at += 2;
                while at < chars.len() && !chars[at..].starts_with(&['*', '/']) {
                    at += 1;
                }
                at += 2;
                None
            }
            '"' => {
                let (text, len) = quoted(&chars[at + 1..]);
                at += len + 1;
                Some(Is::Text(text))
            }
            'r' | 'b' if raw_hashes(&chars[at..]).is_some() => {
                let (before, hashes) = raw_hashes(&chars[at..]).unwrap();
                at += before;
                let end: Vec<char> =
                    std::iter::once('"').chain("#".repeat(hashes).chars()).collect();
                let len = chars[at..].windows(end.len()).position(|it| it == end).unwrap();
                let text = chars[at..at + len].iter().collect();
                at += len + end.len();
                Some(Is::Text(text))
            }
            // A quote begins a character or a lifetime.
            '\'' => {
                let close = match next {
                    '\\' => chars[at + 3..].iter().position(|c| *c == '\'').map(|len| len + 4),
                    _ => (chars.get(at + 2) == Some(&'\'')).then_some(3),
                };
                at += close.unwrap_or(1);
                None
            }
            c if c.is_alphanumeric() || c == '_' => {
                let is_part = |c: &&char| c.is_alphanumeric() || **c == '_';
                at += chars[at..].iter().take_while(is_part).count();
                Some(Is::Word(chars[begin..at].iter().collect()))
            }
            c => {
                at += 1;
                (!c.is_whitespace()).then_some(Is::Mark(c))
            }
        };
        found.extend(is.map(|is| Token { line, is }));
        line += chars[begin..at.min(chars.len())].iter().filter(|c| **c == '\n').count();
    }
    found
}

/// Returns the text up to the closing quote, and the number of characters that it takes with the
/// quote.
fn quoted(chars: &[char]) -> (String, usize) {
    let (mut text, mut at) = (String::new(), 0);
    while chars[at] != '"' {
        if chars[at] != '\\' {
            text.push(chars[at]);
            at += 1;
            continue;
        }
        match chars[at + 1] {
            // The line continues after the white space.
            '\n' => at += chars[at + 2..].iter().take_while(|c| c.is_whitespace()).count(),
            'n' => text.push('\n'),
            c => text.push(c),
        }
        at += 2;
    }
    (text, at + 1)
}

/// Returns the length of the opening of a raw string (`r#"`), and the number of its hashes.
fn raw_hashes(chars: &[char]) -> Option<(usize, usize)> {
    let byte = usize::from(chars[0] == 'b');
    if chars.get(byte) != Some(&'r') {
        return None;
    }
    let hashes = chars[byte + 1..].iter().take_while(|c| **c == '#').count();
    (chars.get(byte + 1 + hashes) == Some(&'"')).then_some((byte + 2 + hashes, hashes))
}

/// Removes modules and items after `#[cfg(test)]`.
pub(crate) fn without_tests(tokens: Vec<Token>) -> Vec<Token> {
    let (mut kept, mut at) = (Vec::new(), 0);
    while at < tokens.len() {
        let ahead = &tokens[at..];
        let is_test = ahead.len() > 6
            && ahead[0].is_mark('#')
            && ahead[1].is_mark('[')
            && ahead[2].is_word("cfg")
            && ahead[3].is_mark('(')
            && ahead[4].is_word("test")
            && ahead[5].is_mark(')');
        if !is_test {
            kept.push(tokens[at].clone());
            at += 1;
            continue;
        }
        at += 7;
        let mut depth = 0;
        while at < tokens.len() {
            match tokens[at].is {
                Is::Mark('{' | '(' | '[') => depth += 1,
                Is::Mark('}' | ')' | ']') => depth -= 1,
                _ => {}
            }
            at += 1;
            let ends = tokens[at - 1].is_mark(';') || tokens[at - 1].is_mark('}');
            if depth <= 0 && ends {
                break;
            }
        }
    }
    kept
}
