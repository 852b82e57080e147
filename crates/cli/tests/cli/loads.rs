//! `qpair load`.

use crate::harness::{Directory, Run};

#[test]
fn tab_separated() {
    let directory = Directory::new();
    directory.file("in.tsv", "k1\tone \"quoted\"\t1\nk2\ttwo\t2\r\n\nk1\tthree\t3\n");
    let summary = directory.run("load s in.tsv").done();
    assert!(summary.starts_with("loaded 3 records"), "{summary}");
    assert!(summary.contains("1 of them in place of others"), "{summary}");
    assert_eq!(directory.run("scan s --raw").done(), "k1\tk1\tthree\t3\nk2\tk2\ttwo\t2\n");
    directory.run("load s in.tsv --table t --key 2 --value 3 --value 1").done();
    assert_eq!(directory.run("get s two --table t").done(), "2\tk2");
    assert_eq!(directory.run("get s --table t").code, Some(2));
    let run =
        directory.run_on("id\tname\n7\tseven\n", "load s - --format tsv --key name --value id");
    run.done();
    assert_eq!(directory.run("get s seven").done(), "7");
    assert_eq!(directory.run("scan s --prefix name --count").done(), "0\n");
}

#[test]
fn comma_separated() {
    let directory = Directory::new();
    directory
        .file("in.csv", "id,name,note\n1,\"a, b\",\"say \"\"x\"\"\"\n2,c,\"two\nlines\"\n3,d,\n");
    directory.run("load s in.csv --key id --value name").done();
    assert_eq!(directory.run("get s 1").done(), "a, b");
    directory.run("load s in.csv --table whole").done();
    assert_eq!(directory.run("get s 1 --table whole").done(), "1,\"a, b\",\"say \"\"x\"\"\"");
    directory.run("load s in.csv --table pair --key 2 --value 3 --value id").done();
    assert_eq!(directory.run("get s c --table pair").done(), "\"two\nlines\",2");
    directory
        .run("load s in.csv --key nobody")
        .failed(2, &["no column has the name \"nobody\"", "id, name, note"]);
    directory.run("load s in.csv --key id --no-header").failed(2, &["without a header line"]);
    directory
        .run_on("x;1\ny;2\n", "load s - --format csv --no-header --delimiter ; --value 2")
        .done();
    assert_eq!(directory.run("get s y").done(), "2");
}

#[test]
fn wrong_use_makes_no_store() {
    let directory = Directory::new();
    directory.file("in.csv", "id,name\n1,x\n").file("in.tsv", "id\tname\n1\tx\n");
    for words in ["in.csv --key nobody", "in.tsv --key nobody", "in.csv --workers 0", "missing.csv"]
    {
        let run = directory.run(&format!("load s {words}"));
        assert!(run.code == Some(2) || words == "missing.csv", "{words}: {}", run.err);
    }
    let mut command = directory.command("load s in.csv --table");
    assert_eq!(command.arg("").output().unwrap().status.code(), Some(2));
    assert!(!directory.path("s").exists());
    // A header without records is not an error.
    directory.file("in.csv", "id,name\n");
    assert!(directory.run("load s in.csv --key name").done().starts_with("loaded 0 records"));
    directory.file("in.csv", "");
    assert!(directory.run("load s in.csv --key name").done().starts_with("loaded 0 records"));
}

#[test]
fn a_full_device_ends_it() {
    let directory = Directory::new();
    let lines: String = (0..60_000).map(|i| format!("{i:06}\t{:0100}\n", i)).collect();
    directory.file("in.tsv", lines);
    directory
        .run("load ram:size=4MiB,growable=false in.tsv")
        .failed(3, &[" of the first ", " records are in the store"]);
}

#[test]
fn json_lines() {
    let directory = Directory::new();
    directory.file("in.jsonl", "{\"id\":7,\"user\":{\"name\":\"ada\"},\"tags\":[\"x\",\"y\"]}\n");
    directory.run("load s in.jsonl --key user.name").done();
    assert_eq!(
        directory.run("get s ada").done(),
        "{\"id\":7,\"user\":{\"name\":\"ada\"},\"tags\":[\"x\",\"y\"]}"
    );
    directory.run("load s in.jsonl --key id --value tags.1").done();
    assert_eq!(directory.run("get s 7").done(), "y");
    directory.run("load s in.jsonl --key id --value tags --value id").done();
    assert_eq!(directory.run("get s 7").done(), "{\"tags\":[\"x\",\"y\"],\"id\":7}");
    directory.run("load s in.jsonl").failed(2, &["--key FIELD"]);
    directory.run("load s in.jsonl --key user").failed(3, &["line 1", "not a string or number"]);
    directory.run_on("[{}]", "load s - --format json --key id").failed(2, &["array", "jq"]);
    directory
        .run_on("{\"id\":1}\n{\"id\":", "load s - --format json --key id")
        .failed(3, &["line 2"]);
}

#[test]
fn bad_lines() {
    let directory = Directory::new();
    let long = "x".repeat(70_000);
    directory.file("in.tsv", format!("a\t1\nonly\n\t3\n{long}\t4\nb\t5\n"));
    directory
        .run("load s in.tsv --value 2")
        .failed(3, &["in.tsv line 2: column 2 is wanted", "--skip-bad", "1 record before that"]);
    assert_eq!(directory.run("scan s").done(), "a\t1\n");
    let run = directory.run("load s in.tsv --value 2 --skip-bad --json");
    assert!(run.err.contains("left out 3 bad lines; the first: in.tsv line 2"), "{}", run.err);
    assert!(run.done().contains("\"skipped_bad\":3"));
    assert_eq!(directory.run("scan s").done(), "a\t1\nb\t5\n");
    directory
        .run_on("a,1\nb\n", "load s - --format csv --no-header")
        .failed(3, &["line 2", "1 columns"]);
    directory.run("load s none.tsv").failed(3, &["none.tsv", "No such file"]);
    directory.run("load other none.tsv").failed(3, &[]);
    assert!(!directory.path("other").exists(), "a store was made for input that is not there");
    directory.run("load s none.txt").failed(2, &["--format"]);
}

/// A quote that is not closed would make all of the remaining input one value.
#[test]
fn a_quote_that_is_not_closed() {
    let directory = Directory::new();
    let unclosed = "id,v\n1,ok\n2,\"oops\n3,fine\n4,\"\"\n";
    let said = [
        "line 3: a quote is not closed",
        "the 2 lines after it are left out",
        "1 record before that",
    ];
    for flags in ["", " --skip-bad"] {
        directory
            .run_on(unclosed, &format!("load q - --format csv --key id{flags}"))
            .failed(3, &said);
        assert_eq!(directory.run("scan q --keys-only").done(), "1\n");
    }
    let run = directory.run_on("id,\"v\n1,ok\n", "load h - --format csv --key id --skip-bad");
    run.failed(3, &["line 1: a quote is not closed", "the 1 line after it"]);
    // The load does not read all of a large input into memory either.
    let mut large = b"id,v\n1,ok\n2,\"oops\n".to_vec();
    large.resize(65 << 20, b'\n');
    directory
        .run_on(large, "load q - --format csv --key id --skip-bad")
        .failed(3, &["line 3", "67108864 bytes", "this line and all after it are left out"]);
    // A quote that is closed later includes the lines between: they are counted.
    let closed = "id,v\n1,ok\n2,\"oops\n3,fine\n4,\"a,b\n5,ok\n";
    let run = directory.run_on(closed, "load c - --format csv --key id --skip-bad");
    assert!(
        run.err.contains("left out 3 bad lines; the first: standard input line 3"),
        "{}",
        run.err
    );
    run.done();
    assert_eq!(directory.run("scan c --keys-only").done(), "1\n5\n");
}

#[test]
fn a_doubled_name_in_a_header_is_asked_about() {
    let directory = Directory::new();
    for (format, tab) in [("csv", ","), ("tsv", "\t")] {
        let input = "id,name,id\n1,x,7\n".replace(',', tab);
        let load = |words: &str| {
            directory.run_on(&input, &format!("load {format} - --format {format} {words}"))
        };
        let said = ["2 columns have the name \"id\"", "by its number, 1 or 3, with --header"];
        load("--key id").failed(2, &said);
        load("--key name --value id").failed(2, &said);
        assert!(!directory.path(format).exists(), "a store was made");
        load("--key 3 --value 2 --header").done();
        load("--key name --value 1").done();
        assert_eq!(directory.run(&format!("scan {format}")).done(), "7\tx\nx\t1\n");
    }
}

#[test]
fn an_empty_key_is_taken_if_asked_for() {
    let directory = Directory::new();
    let mut put = directory.command("put s");
    let refused = Run::from_output(put.args(["", "v"]).output().unwrap());
    refused.failed(2, &["the key is empty (--empty-key"]);
    assert!(!directory.path("s").exists());
    directory
        .run_on("\tv\n", "load s - --format tsv --value 2")
        .failed(3, &["line 1: the key is empty (--empty-key takes it)"]);
    directory.run_on("\tv\n", "load s - --format tsv --value 2 --empty-key").done();
    assert_eq!(directory.run("scan s").done(), "\tv\n");
    let mut put = directory.command("put s --empty-key");
    assert!(put.args(["", "w"]).status().unwrap().success());
    assert_eq!(directory.run("scan s").done(), "\tw\n");
}

#[test]
fn sorted() {
    let directory = Directory::new();
    let mut input: String = (0..40_000).map(|i| format!("{i:08}\tvalue {i}\n")).collect();
    input.push_str("00039999\tthe last one wins\n");
    directory.file("in.tsv", &input);
    let summary = directory.run("load s in.tsv --sorted --value 2 --json").done();
    assert!(
        summary.contains("\"sorted_load\":true") && summary.contains("\"records\":40000"),
        "{summary}"
    );
    assert_eq!(directory.run("get s 00012345").done(), "value 12345");
    assert_eq!(directory.run("get s 00039999").done(), "the last one wins");
    assert!(directory.run("check s").done().contains("no damage found"));
    // The table is not empty any more: the result is the same, but slower.
    let summary = directory.run("load s in.tsv --sorted --value 2 --json").done();
    assert!(summary.contains("\"sorted_load\":false"), "{summary}");
    let run = directory.run_on("b\t1\nc\t2\na\t3\n", "load s - --format tsv --sorted --table t");
    run.failed(3, &["line 3: key a comes after c", "LC_ALL=C sort", "2 records before that"]);
    assert_eq!(directory.run("scan s --table t --count").done(), "2\n");
}

#[test]
fn more_data_than_memory() {
    let directory = Directory::new();
    let value = "v".repeat(300);
    let input: String =
        (0..20_000).map(|i| format!("{}\t{value}{i}\n", i * 7919 % 20_011)).collect();
    directory.run_on(&input, "load s - --format tsv --value 2 --memory 1MiB").done();
    assert_eq!(directory.run("scan s --count --memory 1MiB").done(), "20000\n");
    assert_eq!(directory.run("get s 7919").done(), format!("{value}1"));
    assert!(directory.run("check s").done().contains("no damage found"));
}

/// A load in a process with a small address space limit is refused or succeeds. A regression: the
/// first failed mapping ended the process.
#[test]
fn a_load_with_little_memory_to_map_ends_with_an_error() {
    let directory = Directory::new();
    let mut records = String::new();
    for i in 0..200_000u64 {
        records += &format!(
            "k{}\tvalue number {i} with some more bytes behind it\n",
            i * 7919 % 1_500_007
        );
    }
    directory.file("in.tsv", records);
    for limit_kib in [310_000, 330_000, 360_000, 400_000, 440_000] {
        let load = format!("load s{limit_kib} --format tsv in.tsv");
        let Run { code, err, .. } = directory.shell(&format!("ulimit -v {limit_kib}"), &load);
        // Exit code 3: the machine does not support this.
        assert!(matches!(code, Some(0 | 3)), "{limit_kib} KiB: {code:?}: {err}");
        assert!(code == Some(0) || err.contains("error: "), "{err}");
    }
}
