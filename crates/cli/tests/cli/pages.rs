//! Manual pages and completions are made of the same table as everything else.

use crate::harness::Directory;

/// Names of all options of `bench io`.
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
    // In roff a hyphen that is one has a backslash.
    let page = directory.run("man bench io").done().replace("\\-", "-");
    assert!(page.contains(".TH"), "{page}");
    for name in options(&directory) {
        assert!(page.contains(&format!("--{name}\\f")), "no --{name} in the page");
    }
    assert!(!page.contains("--zonemode"), "options that are refused are not offered");
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
