//! `qpair nvme` on the machine that runs the tests. Nothing here changes the machine.

use serde_json::Value;

use crate::harness::Directory;

#[test]
fn lists_what_there_is() {
    let directory = Directory::new();
    let all = directory.json("nvme list --json");
    let all = all.as_array().unwrap();
    let text = directory.run("nvme list").done();
    if all.is_empty() {
        assert_eq!(text, "no NVMe controllers\n");
    }
    for function in all {
        assert!(text.contains(function["address"].as_str().unwrap()), "{text}");
        assert!(function["class"].as_str().unwrap().starts_with("0108"), "{function}");
    }
}

#[test]
fn words_that_name_no_drive() {
    let directory = Directory::new();
    for command in ["bind", "unbind"] {
        directory.run(&format!("nvme {command}")).failed(2, &["ADDRESS"]);
        let run = directory.run(&format!("nvme {command} /dev/nvme0"));
        run.failed(2, &["not the address of a PCI function", "0000:3b:00.0"]);
        let run = directory.run(&format!("nvme {command} fffe:00:00.0"));
        run.failed(3, &["no PCI function fffe:00:00.0", "hint: qpair nvme list"]);
    }
    let run = directory.run("nvme bind 0000:3b:00.0 --owner nobody-of-this-name");
    run.failed(2, &["no user nobody-of-this-name"]);
}

#[test]
fn help_says_how_to_undo() {
    let directory = Directory::new();
    let out = directory.run("nvme bind --help").done();
    assert!(out.contains("Undo: sudo qpair nvme unbind"), "{out}");
    assert!(directory.run("nvme --help").done().contains("identify"));
}

#[test]
fn a_soft_drive_says_what_it_is() {
    let directory = Directory::new();
    let drive = "softnvme:size=1MiB+2MiB,block=512+4096,serial=abc";
    let text = directory.run(&format!("nvme identify {drive}")).done();
    for word in
        ["in-process", "serial      abc", "namespace 2: 2.00 MiB, blocks of 4096 bytes", "mapped"]
    {
        assert!(text.contains(word), "no \"{word}\" in: {text}");
    }
    let said = directory.json(&format!("nvme identify {drive} --json"));
    assert_eq!(said["serial"], "abc");
    assert_eq!(said["namespaces"][1]["logical_block_bytes"], 4096);
    assert_eq!(said["namespaces"][1]["unusable"], Value::Null);
    let text = directory.run(&format!("nvme format-check {drive}")).done();
    assert!(text.contains("namespace 2: has format 0, which can be used"), "{text}");
    let said = directory.json(&format!("nvme format-check {drive} --json"));
    assert_eq!(said[1]["formats"][0]["data_bytes"], 4096);
}

#[test]
fn controllers_that_cannot_be_had() {
    let directory = Directory::new();
    for command in ["identify", "format-check"] {
        let run = |what: &str| directory.run(&format!("nvme {command} {what}"));
        run("/dev/nvme0n1").failed(2, &["belongs to the kernel's driver", "qpair nvme list"]);
        run("fffe:00:00.0").failed(3, &["no PCI function fffe:00:00.0"]);
        run("vfio-user:nothing.sock").failed(3, &["nothing.sock"]);
        run("softnvme:sise=1MiB").failed(2, &["sise"]);
        run("nvme0").failed(2, &["0000:3b:00.0"]);
    }
}
