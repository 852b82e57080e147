//! `load` reads back the output of `scan` byte for byte, and does not change its input.

use qpair::Options;

use crate::harness::Directory;

/// Makes a store with keys and values that contain every byte, and sequences that formats treat
/// specially.
fn store_of_odd_bytes(directory: &Directory) {
    let store = Options::new(directory.path("s")).memory_bytes(16 << 20).open().unwrap();
    let table = store.table("default").unwrap();
    let odd = [
        &b""[..],
        b"\t",
        b"\n",
        b"\r\n",
        b"\\",
        b"\\t",
        b"\\x41",
        b"\"",
        "\"a\",b".as_bytes(),
        b"\xef\xbb\xbf",
        b"\xef\xbb\xbfkey",
        b"\xff\xfe",
        b"\xc3",
        "ü\u{85}\u{200b}".as_bytes(),
        b"{\"a\":1}",
        b" blank ",
    ];
    for (index, key) in odd.iter().enumerate() {
        table.put(key, odd[(index * 7 + 3) % odd.len()]).unwrap();
    }
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 40) as u8
    };
    for len in 1..300 {
        let mut bytes = |len: usize| (0..len).map(|_| next()).collect::<Vec<u8>>();
        table.put(&bytes(len % 40 + 1), &bytes(len)).unwrap();
    }
    store.close().unwrap();
}

#[test]
fn all_formats_bring_all_bytes_back() {
    let directory = Directory::new();
    store_of_odd_bytes(&directory);
    let scan = |words: &str| directory.command(words).output().unwrap().stdout;
    let records = scan("scan s --json");
    assert_eq!(records.iter().filter(|byte| **byte == b'\n').count(), 16 + 299);
    for (print, read) in [
        ("", "--format tsv --key 1 --value 2"),
        ("--format tsv", "--format tsv --key 1 --value 2"),
        ("--format csv", "--format csv --key key --value value"),
        ("--format json", "--format json --key key --value value"),
        ("--json", "--format json --key key --value value"),
    ] {
        let printed = scan(&format!("scan s {print}"));
        let copy = format!("copy{}", print.replace(' ', ""));
        directory.run_on(&printed, &format!("load {copy} - {read} --empty-key")).done();
        assert_eq!(scan(&format!("scan {copy} --json")), records, "{print}");
        assert_eq!(scan(&format!("scan {copy} {print}")), printed, "{print}");
    }
    let keys = scan("scan s --format csv --keys-only");
    directory.run_on(keys, "load keys - --format csv --key key --value key --empty-key").done();
    assert_eq!(directory.run("scan keys --count").done(), "315\n");
}

#[test]
fn escapes_are_read_unless_raw_is_asked_for() {
    let directory = Directory::new();
    let input = "a\\tb\tone\\ntwo\\\\\\x00\n";
    let run = directory.run_on(input, "load s - --format tsv --value 2");
    assert!(
        run.err.contains("note: line 1 has escapes") && run.err.contains("--raw"),
        "{}",
        run.err
    );
    run.done();
    assert_eq!(directory.run("get s --key-hex 610962 --hex").done(), "6f6e650a74776f5c00\n");
    let run = directory.run_on(input, "load raw - --format tsv --value 2 --raw");
    assert!(!run.err.contains("escapes"), "{}", run.err);
    run.done();
    assert_eq!(directory.run("scan raw --raw").done(), input);
    // A value of the whole line, or of several columns, is in the same format.
    directory.run_on("k\tC:\\users\tx\\t\n", "load whole - --format tsv").done();
    assert_eq!(directory.run("get whole k").done(), "k\tC:\\users\tx\\t");
    directory
        .run_on("k\tC:\\users\tx\\t\n", "load whole - --format tsv --value 3 --value 2")
        .done();
    assert_eq!(directory.run("get whole k").done(), "x\\t\tC:\\users");
    let run = directory.run_on("k\tC:\\users\n", "load s - --format tsv --value 2");
    run.failed(3, &["line 1: \\u is not an escape", "--raw"]);
    directory.run_on("\\x41\tv\n", "load s - --format tsv --header --key A").done();
    for wrong in
        ["--format csv --raw", "--format json --key k --raw", "--format tsv --delimiter \\"]
    {
        directory.run_on("", &format!("load none - {wrong}")).failed(2, &["--raw"]);
    }
    assert!(!directory.path("none").exists());
    for wrong in
        ["--raw --json", "--raw --format csv", "--json --format tsv", "--count --format csv"]
    {
        assert_eq!(directory.run(&format!("scan s {wrong}")).code, Some(2), "{wrong}");
    }
    for help in ["scan --help", "load --help"] {
        let help = directory.run(help).done();
        for word in ["\\t \\n \\r \\\\", "\\x00", "--raw", "byte"] {
            assert!(help.contains(word), "no {word} in {help}");
        }
    }
}

/// A regression: numbers became floating-point numbers, objects were sorted, and two keys became
/// one.
#[test]
fn json_keeps_bytes_as_they_stand() {
    let directory = Directory::new();
    let lines = "\
        {\"id\":12345678901234567890123,\"v\":1.10}\n\
        {\"id\":12345678901234567890124,\"v\":{\"z\": 1e400, \"a\":[0.1000000000000000055511, -0]}}\n\
        {\"id\":1.0,\"v\":\"\\u00fc\\n\"}\n\
        {\"id\":1,\"v\":100000000000000000000000000000000000000000.5}\n\
        { \"id\" : \"x\" , \"v\" : true , \"w\":{\"b\":1,\"a\": [ 2 , {\"c\":3.30} ]} }\n";
    assert!(
        directory
            .run_on(lines, "load s - --format json --key id --value v")
            .done()
            .contains("5 records")
    );
    assert_eq!(directory.run("scan s --count").done(), "5\n");
    for (key, value) in [
        ("12345678901234567890123", "1.10"),
        ("12345678901234567890124", "{\"z\": 1e400, \"a\":[0.1000000000000000055511, -0]}"),
        ("1.0", "ü\n"),
        ("1", "100000000000000000000000000000000000000000.5"),
        ("x", "true"),
    ] {
        assert_eq!(directory.run(&format!("get s {key}")).done(), value, "{key}");
    }
    directory.run_on(lines, "load whole - --format json --key id").done();
    assert_eq!(directory.run("get whole x").done(), lines.lines().last().unwrap());
    let last = lines.lines().last().unwrap();
    directory.run_on(last, "load some - --format json --key w.a.1.c --value w.a --value id").done();
    assert_eq!(
        directory.run("get some 3.30").done(),
        "{\"w.a\":[ 2 , {\"c\":3.30} ],\"id\":\"x\"}"
    );
    assert!(directory.run("load --help").done().replace("\n", " ").contains("as its bytes stand"));
}

#[test]
fn json_reads_bytes_as_hexadecimal_digits() {
    let directory = Directory::new();
    let input = "{\"key_hex\":\"ff00\",\"value_hex\":\"0A\",\"more\":{\"value_hex\":\"ff\"}}\n";
    directory.run_on(input, "load s - --format json --key key --value value").done();
    assert_eq!(directory.run("get s --key-hex ff00 --hex").done(), "0a\n");
    directory.run_on(input, "load s - --format json --key key --value more.value").done();
    assert_eq!(directory.run("get s --key-hex ff00 --hex").done(), "ff\n");
    for (digits, why) in [("\"f\"", "key_hex"), ("\"fg\"", "hexadecimal"), ("12", "not a string")] {
        let input = format!("{{\"key_hex\":{digits}}}\n");
        directory.run_on(input, "load s - --format json --key key").failed(3, &["line 1", why]);
    }
    // The field itself takes precedence.
    directory.run_on("{\"k\":\"a\",\"k_hex\":\"62\"}", "load s - --format json --key k").done();
    directory.run("get s a").done();
    for doubled in ["{\"k\":1,\"k\":2}", "{\"o\":{\"k\":1,\"k\":2}}"] {
        let key = if doubled.contains('o') { "o.k" } else { "k" };
        let run = directory.run_on(doubled, &format!("load s - --format json --key {key}"));
        run.failed(3, &["line 1", "\"k\" is there more than once"]);
    }
    let run = directory.run_on("{}", "load s - --format json --key k --value v --value v");
    run.failed(2, &["\"v\" is asked for twice"]);
    for no_object in ["5", "\"x\"", "{\"k\":1} x", "{\"k\":1", "{\"k\":\"\\ud800\"}", "[1]x"] {
        let run =
            directory.run_on(format!("{{\"k\":1}}\n{no_object}"), "load s - --format json --key k");
        run.failed(3, &["line 2"]);
    }
    let run = directory.run_on(b"{\"k\":\"\xff\"}", "load s - --format json --key k");
    run.failed(3, &["line 1", "UTF-8"]);
}
