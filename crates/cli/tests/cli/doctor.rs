//! `qpair doctor` on the machine that runs the tests, whatever it is.

use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::harness::Directory;

#[test]
fn the_machine() {
    let directory = Directory::new();
    let out = directory.run("doctor").done();
    for word in [
        "Linux",
        "kernel\n",
        "memory and limits\n",
        "interfaces on .\n",
        "posix",
        "nothing was changed",
    ] {
        assert!(out.contains(word), "no \"{word}\" in: {out}");
    }
    // Output for programs has no colour, and no file is left behind.
    assert!(!out.contains('\x1b'), "{out}");
    assert_eq!(std::fs::read_dir(directory.path("")).unwrap().count(), 0);
}

#[test]
fn json_is_complete() {
    let directory = Directory::new();
    directory.file("data", vec![7; 64 << 10]);
    let value = directory.json("doctor data . --json");
    assert!(value["machine"]["kernel"].is_string(), "{value}");
    assert_eq!(value["devices"][0]["path"], "data");
    assert_eq!(value["devices"][0]["size_bytes"], 64 << 10);
    assert!(value["devices"][0]["mount"]["file_system"].is_string(), "{value}");
    assert_eq!(value["devices"][0]["mount"], value["devices"][1]["mount"]);
    assert_eq!(value["devices"][1]["kind"], "directory");
    let modes = |at: usize| -> Vec<&str> {
        let modes = value["interfaces"][at]["modes"].as_array().unwrap();
        modes.iter().filter_map(|trial| trial["mode"].as_str()).collect()
    };
    let all = [
        "posix",
        "libaio",
        "io_uring",
        "io_uring+p",
        "io_uring+k",
        "io_uring_cmd",
        "io_uring_cmd+p",
    ];
    assert_eq!((modes(0), modes(1)), (all.to_vec(), all.to_vec()));
    let posix = &value["interfaces"][0]["modes"][0];
    assert_eq!(posix["outcome"], "works", "{posix}");
    let findings = value["findings"].as_array().unwrap();
    assert!(findings.iter().any(|finding| finding["subject"] == "file system"), "{value}");
    for finding in findings {
        assert!(
            ["info", "good", "hint", "problem"].contains(&finding["severity"].as_str().unwrap())
        );
        for mend in finding["mend"].as_array().unwrap() {
            assert!(!mend["command"].as_str().unwrap().is_empty());
        }
    }
}

#[test]
fn a_path_that_is_not_there() {
    let directory = Directory::new();
    directory.run("doctor nothing").failed(3, &["examining nothing", "No such file", "hint"]);
    directory.run("doctor file:nothing").failed(3, &["hint: give the path alone"]);
}

#[test]
fn a_directory_that_cannot_be_written() {
    let directory = Directory::new();
    std::fs::set_permissions(directory.path(""), std::fs::Permissions::from_mode(0o500)).unwrap();
    if std::fs::write(directory.path("x"), "").is_ok() {
        eprintln!("skipped: permissions do not bind this user");
        return;
    }
    let out = directory.run("doctor .").done();
    assert!(out.contains("no file could be made in ."), "{out}");
}

#[test]
fn no_place_for_a_file() {
    let directory = Directory::new();
    // Not even root can create files in /proc.
    let mut command = directory.command("doctor --json");
    command.current_dir("/proc").env("TMPDIR", "/proc");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(
        value["no_file"].as_str().unwrap().contains("no file could be made in /proc"),
        "{value}"
    );
    assert_eq!(value["interfaces"][0]["modes"].as_array().unwrap().len(), 3);
}
