//! The rules for texts of errors.

use super::collect::{Role, Text};

/// Finite verbs that do not look like nouns.
const FINITE: &str = "
adds allows am answered answers are arrive arrives asks became becomes began begin begins belong
belongs binds came can cannot carries closed comes completed contradict could covers creates cross
decides describes destroys did differ differs divides do does drives ended ends erases exceed
exceeds exclude excludes exists expects failed fails finds finishes fit fits forbids gave gets
gives go goes got grants grows had happens has have hold holds include includes is joins keeps
knew knows lacks leaves left lets lies lists lost made makes may means met might misses moves must
names needs occurred offers opened opens overlaps owns panicked passes points polls put puts
raises reached receives recovers refers refused refuses removes replaces resets returns rises runs
said says sees sends serve serves shall should shows skips speaks starts stays stops take takes
tells told took transfers tries turns uses wait waits wants was went were will works would wrote
";

/// Verbs that can begin a piece of advice, and commands.
const ADVICE: &str = "
add allow ask bind build check choose close commit correct create delete end free get give go grow
install keep leave let limit load look lower make match mount move name open poll publish put
raise read rebuild redirect remove rename repair report reserve restore retry roll run salvage
save say see sell send set share shorten shrink sort spawn split start stop take tell trust try
turn unload unmount use wait write
blkparse chmod chown dmesg echo lscpu modprobe nproc qpair sudo sysctl ulimit
";

/// Phrases that hide the subject or the reason.
const AWKWARD: [&str; 11] = [
    "are no",
    "bad",
    "invalid",
    "is no",
    "is none",
    "is of no",
    "is neither 0 nor 1",
    "no such",
    "nobody",
    "somebody",
    "that is none",
];

/// Private words of the project: `PRIVATE` of `.ci/check-docs`.
const PRIVATE: [&str; 9] =
    ["berth", "berths", "moor", "moored", "mooring", "moors", "owed", "unasked", "untold"];

/// Texts that clients of JSON-RPC 2.0 and of SPDK's `rpc.py` expect verbatim.
const EXACT: [&str; 3] = ["Method not found", "Subsystem with NQN", "Transport type"];

/// Names of format arguments whose values say by themselves what is wrong.
const SPEAKING: [&str; 7] = ["cause", "damage", "error", "fault", "message", "what", "why"];

/// Whether a text begins with an identifier of the code, as in "epoll_ctl of a queue". An option or
/// a parameter that a verb follows is a subject, and does not count.
fn begins_with_code(text: &str) -> bool {
    let mut words = text.split_whitespace();
    let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let is_code = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_:".contains(c);
    (first.contains('_') || first.contains("::"))
        && first.chars().all(is_code)
        && ["", "at", "for", "in", "of", "on"].contains(&second)
}

/// Returns the words outside of format arguments and quotes, in lower case.
fn words(text: &str) -> Vec<String> {
    let (mut plain, mut depth, mut quoted) = (String::new(), 0, false);
    for c in text.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            '"' | '`' => quoted = !quoted,
            _ if depth > 0 || quoted => {}
            c => plain.push(c),
        }
        if matches!(c, '}' | '"' | '`') {
            plain.push_str(" \u{25a1} ");
        }
    }
    let parts = plain.split(|c: char| c.is_whitespace() || ",:;()".contains(c));
    parts.filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
}

fn is_one_of(list: &str, word: &str) -> bool {
    list.split_whitespace().any(|one| one == word)
}

fn is_gerund(word: &str) -> bool {
    word.len() > 5 && word.ends_with("ing") && !["nothing", "something"].contains(&word)
}

/// Whether a clause of a text begins with a verb of advice.
fn has_advice(text: &str) -> bool {
    let clauses = text.split([';', ',', ':', '(', '`']).flat_map(|part| part.split(" or "));
    let clauses =
        clauses.flat_map(|part| part.split(" and ")).flat_map(|part| part.split(" then "));
    clauses.into_iter().any(|clause| {
        let clause = clause.trim_start().trim_start_matches("or ");
        let first = clause.split_whitespace().next().unwrap_or_default().to_lowercase();
        is_one_of(ADVICE, &first)
    })
}

/// Whether a text has an awkward phrase. "There is no" is accepted.
fn awkward(words: &[String]) -> bool {
    let text =
        format!(" {} ", words.join(" ")).replace("there is no ", "").replace("there are no ", "");
    AWKWARD.iter().any(|turn| text.contains(&format!(" {turn} ")))
}

/// Returns the rules that a text breaks.
pub(crate) fn broken(text: &Text) -> impl Iterator<Item = &'static str> {
    let words = words(&text.text);
    let is_code = |word: &str| !word.chars().any(char::is_alphabetic);
    let first = words.iter().find(|word| !is_code(word)).map_or("", String::as_str);
    let has_words = !first.is_empty();
    let has_verb = words.iter().any(|word| is_one_of(FINITE, word));
    let speaks = SPEAKING.iter().any(|hole| text.text.contains(&format!("{{{hole}}}")));
    // The text is the operation: the cause follows, or the constructor makes a sentence of it.
    let is_operation =
        is_gerund(first) && (text.role == Role::Operation || !text.is_whole || text.is_named);
    let is_advice = (text.role == Role::Hint || !text.is_whole) && has_advice(&text.text);
    let is_name = text.is_named && !text.text.contains(' ');
    let is_exact = EXACT.iter().any(|exact| text.text.starts_with(exact));
    let is_complete = has_verb || speaks || is_operation || is_advice || is_name || is_exact;
    let begins = words.first().map_or("", String::as_str);
    let is_auxiliary = is_one_of("is are has have cannot does must needs", begins);
    let contains = |turns: &[&str]| turns.iter().any(|turn| text.text.contains(turn));
    [
        (has_words && !is_complete, "has no verb"),
        (
            text.role == Role::Sentence && text.is_whole && is_auxiliary,
            "has no subject before its verb",
        ),
        (
            contains(&["}: is ", "}: has ", "}: are ", "}: cannot "]),
            "has a colon between subject and verb",
        ),
        (awkward(&words), "has an awkward turn"),
        (words.iter().any(|word| PRIVATE.contains(&word.as_str())), "has a private word"),
        (text.text.ends_with('.') && !text.text.ends_with("..."), "ends with a full stop"),
        (text.role != Role::Hint && begins_with_code(&text.text), "begins with a name of the code"),
        (text.role == Role::Hint && text.text.trim().is_empty(), "is an empty way out"),
    ]
    .into_iter()
    .filter_map(|(breaks, rule)| breaks.then_some(rule))
}
