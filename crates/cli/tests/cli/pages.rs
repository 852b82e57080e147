//! Manual pages and completions are generated from the same definitions as the commands.

use crate::harness::Directory;

/// Returns the names of all options of `bench io`.
fn options(directory: &Directory) -> Vec<String> {
    let all = directory.run("bench io --cmdhelp=all").done();
    let names = all.lines().filter_map(|line| line.split_whitespace().next());
    let names: Vec<String> = names.map(str::to_owned).collect();
    assert!(names.len() > 100);
    names
}

#[test]
fn the_page_of_bench_io_has_every_option() {
    let directory = Directory::new();
    // In roff, a literal hyphen has a backslash.
    let page = directory.run("man bench io").done().replace("\\-", "-");
    assert!(page.contains(".TH"), "{page}");
    for name in options(&directory) {
        assert!(page.contains(&format!("--{name}\\f")), "no --{name} in the page");
    }
    assert!(!page.contains("--zone_reset_threshold"), "options that are refused are not offered");
}

#[test]
fn pages_of_all_commands_are_written() {
    let directory = Directory::new();
    directory.run("man --dir pages").done();
    for name in
        ["qpair", "qpair-bench", "qpair-bench-io", "qpair-bench-peak", "qpair-load", "qpair-man"]
    {
        let page = std::fs::read_to_string(directory.path(&format!("pages/{name}.1"))).unwrap();
        assert!(page.contains(".SH NAME") && page.contains(".SH SYNOPSIS"), "{name}: {page}");
    }
    directory.run("man bench nothing").failed(2, &["no command bench nothing"]);
}

#[test]
fn the_version_names_the_build() {
    let directory = Directory::new();
    let said = directory.run("--version").done();
    let mut lines = said.lines();
    let short = concat!("qpair ", env!("CARGO_PKG_VERSION"));
    assert_eq!(lines.next(), Some(short));
    for (name, value) in [("commit: ", ""), ("target: ", "-linux-"), ("features: ", "drivers")] {
        let line = lines.next().unwrap();
        assert!(
            line.len() > name.len() && line.starts_with(name) && line.contains(value),
            "{said}"
        );
    }
    assert_eq!(directory.run("-V").done().trim(), short);
    assert!(!directory.run("man").done().contains("commit: "), "pages do not change with a commit");
}

#[test]
fn shells_complete_every_option() {
    let directory = Directory::new();
    let names = options(&directory);
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = directory.run(&format!("completions {shell}")).done();
        for name in &names {
            assert!(script.contains(name.as_str()), "{shell}: no {name}");
        }
    }
    directory.run("completions tcsh").failed(2, &["tcsh", "bash"]);
}

#[test]
fn help_and_bash_have_every_key_of_a_device() {
    let directory = Directory::new();
    let help = directory.run("bench peak --help").done();
    let target = directory.run("target --help").done();
    std::fs::write(directory.path("script"), directory.run("completions bash").done()).unwrap();
    let complete = |word: &str| {
        let line = format!("qpair bench peak {word}");
        let calls = "source ./script; COMP_LINE=$1 COMP_POINT=${#1} COMP_CWORD=3; \
                     COMP_WORDS=(qpair bench peak \"${1##* }\"); \
                     _qpair_devices qpair \"${1##*[:= ]}\" x; echo ${COMPREPLY[@]}";
        let mut bash = std::process::Command::new("bash");
        let output = bash.args(["-c", calls, "bash", &line]).current_dir(directory.path("."));
        String::from_utf8(output.output().unwrap().stdout).unwrap()
    };
    for section in qpair_drivers::sections() {
        let offered = complete(&section.prefix);
        for row in section.rows {
            let said = format!("- {}: ", row.name);
            assert!(help.contains(&said) && target.contains(&said), "{}", row.name);
            assert!(offered.split_whitespace().any(|key| key == format!("{}=", row.name)));
        }
    }
    assert_eq!(complete("d=delay:read_us=1:ram:size=4k,bl"), "4k,block=\n");
    assert_eq!(complete("--inter"), "--interface\n");
}

/// Collects the names of a command and of all commands below it.
fn commands(directory: &Directory, words: &str, all: &mut Vec<String>) {
    let help = directory.run(&format!("{words} --help")).done();
    all.push(words.to_owned());
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    for line in listed.take_while(|line| !line.is_empty()) {
        let name = line.split_whitespace().next().unwrap();
        // The text of a command may continue in the next line.
        if line.starts_with("  ") && !line.starts_with("   ") && name != "help" {
            commands(directory, &format!("{words} {name}"), all);
        }
    }
}

/// A regression: the synopsis listed all options without their values.
#[test]
fn a_synopsis_says_how_a_command_is_called() {
    let directory = Directory::new();
    let mut all = Vec::new();
    commands(&directory, "", &mut all);
    assert!(all.len() > 30, "{all:?}");
    for words in all {
        let page = directory.run(&format!("man {words}")).done();
        let synopsis = page.lines().skip_while(|line| *line != ".SH SYNOPSIS").nth(1).unwrap();
        let synopsis = ["\\fB", "\\fI", "\\fR", "\\"]
            .iter()
            .fold(synopsis.to_owned(), |text, code| text.replace(code, ""));
        let help = directory.run(&format!("{words} --help")).done();
        let usage = help.lines().find_map(|line| line.strip_prefix("Usage: ")).unwrap();
        assert_eq!(synopsis.trim(), usage, "{words}");
        assert!(page.lines().any(|line| line.starts_with(".TH ") && line.contains("qpair 0.")));
    }
}

/// A regression: paragraphs contained line ends, and the help broke them again at the terminal's
/// width, which left single words on lines.
#[test]
fn paragraphs_are_broken_once() {
    let directory = Directory::new();
    let mut all = Vec::new();
    commands(&directory, "", &mut all);
    for words in all {
        for width in [60, 80, 110] {
            let mut command = directory.command(&format!("{words} --help"));
            let output = command.env("COLUMNS", width.to_string()).output().unwrap();
            let help = String::from_utf8(output.stdout).unwrap();
            let lines: Vec<&str> = help.lines().collect();
            for pair in lines.windows(2) {
                let is_text = |line: &str| !line.is_empty() && !line.starts_with(' ');
                if !is_text(pair[0]) || !is_text(pair[1]) {
                    continue;
                }
                let word = pair[1].split(' ').next().unwrap();
                let fits = pair[0].chars().count() + 1 + word.chars().count() <= width.min(100);
                assert!(!fits, "{words} at {width}: \"{}\" / \"{}\"", pair[0], pair[1]);
            }
        }
    }
}
