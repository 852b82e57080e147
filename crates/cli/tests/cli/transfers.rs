//! `export` and `import`: all tables and bytes come back, damage is noticed, and other stores'
//! dumps are read.

use qpair::Options;

use crate::harness::{Directory, patch};

/// Makes a store of pages of 8 KiB with three tables: one of odd bytes, one with a long value, one
/// without records.
fn store_of_tables(directory: &Directory) {
    let options = Options::new(directory.path("s")).memory_bytes(16 << 20).page_size(8 << 10);
    let store = options.open().unwrap();
    let odd = store.table("odd \"name\"\n").unwrap();
    for (index, key) in [&b""[..], b"\t", b"\n", b"\\", b"\"", b"\xff\xfe", b"key", "ü".as_bytes()]
        .iter()
        .enumerate()
    {
        odd.put(key, &vec![index as u8; index * 1000]).unwrap();
    }
    let long = store.table("long").unwrap();
    // As JSON text each byte would take six.
    long.put(b"k", &vec![1; 16 << 20]).unwrap();
    for i in 0..5000_u32 {
        long.put(&i.to_be_bytes(), format!("value {i}").as_bytes()).unwrap();
    }
    store.table("empty").unwrap();
    store.close().unwrap();
}

#[test]
fn all_tables_come_back_in_each_format() {
    let directory = Directory::new();
    store_of_tables(&directory);
    let json = directory.command("export s").output().unwrap().stdout;
    for format in ["json", "binary"] {
        let export = directory.command(&format!("export s --format {format}")).output().unwrap();
        let said = String::from_utf8_lossy(&export.stderr);
        assert!(said.ends_with("qpair: exported 5,009 records in 3 tables (16.1 MiB)\n"), "{said}");
        let run = directory.run_on(&export.stdout, &format!("import {format}"));
        assert!(run.done().starts_with("imported 5,009 records (16.1 MiB) into 3 tables of new "));
        // The checksums in it are those of the records that were read.
        assert_eq!(directory.command(&format!("export {format}")).output().unwrap().stdout, json);
        assert_eq!(directory.json(&format!("stat {format} --json"))["page_size"], 8192);
        directory.run(&format!("check {format}")).done();
    }
    // An import into tables with records replaces them.
    let run = directory.run_on(&json, "import json --json").json();
    assert_eq!((&run["records"], &run["replaced"]), (&5009.into(), &5009.into()));
    let one = directory.command("export s --table empty --table long -q").output().unwrap();
    assert!(one.stderr.is_empty());
    let run =
        directory.run_on(&one.stdout, "import one --table long --page-size 4KiB --json").json();
    assert_eq!((&run["records"], &run["tables"]), (&5001.into(), &serde_json::json!(["long"])));
    assert_eq!(directory.run("tables one").done(), "long\n");
    assert_eq!(directory.json("stat one --json")["page_size"], 4096);
    directory
        .run_on(&one.stdout, "import other --table none")
        .failed(1, &["no table \"none\"", "empty, long"]);
    directory.run("export s --table none").failed(1, &["no table \"none\"", "long"]);
}

#[test]
fn truncated_and_damaged_exports_are_refused() {
    let directory = Directory::new();
    let store = Options::new(directory.path("s")).memory_bytes(16 << 20).open().unwrap();
    for name in ["a", "b"] {
        let table = store.table(name).unwrap();
        for i in 0..9_u8 {
            table.put(&[b'k', b'0' + i], b"value").unwrap();
        }
    }
    store.close().unwrap();
    for format in ["json", "binary"] {
        let whole = directory.command(&format!("export s --format {format}")).output().unwrap();
        let whole = whole.stdout;
        let cut = &whole[..whole.len() - 60];
        directory.run_on(cut, "import cut").failed(3, &["truncated", "\"b\"", "are in the store"]);
        // A value that was changed is found by the checksum of its table.
        let mut changed = whole.clone();
        let at = whole.windows(5).position(|window| window == b"value" as &[u8]).unwrap();
        let at = at + whole[at..].windows(5).rposition(|window| window == b"value").unwrap();
        changed[at] ^= 1;
        directory
            .run_on(&changed, "import changed")
            .failed(3, &["table \"b\"", "damaged", "checksum"]);
        let more = [&whole[..], b"x\n"].concat();
        directory.run_on(&more, "import more").failed(3, &["end"]);
    }
    let json = String::from_utf8(directory.command("export s").output().unwrap().stdout).unwrap();
    let newer = json.replacen("\"qpair_export\":1", "\"qpair_export\":2", 1);
    directory.run_on(newer, "import newer").failed(3, &["version 2", "reads 1"]);
    let one_less = json.replacen("{\"key\":\"k4\",\"value\":\"value\"}\n", "", 1);
    directory.run_on(one_less, "import less").failed(3, &["\"a\"", "8 records", "says 9"]);
    assert!(!directory.path("newer").exists());
}

/// The output of `mdb_dump -a` and `mdb_dump -p` of LMDB 0.9.24.
#[test]
fn dumps_of_lmdb_are_read_and_written() {
    let directory = Directory::new();
    let dump = "VERSION=3\nformat=bytevalue\ndatabase=other\ntype=btree\nmapsize=1048576\n\
                maxreaders=126\ndb_pagesize=4096\nHEADER=END\n 00ff\n \nDATA=END\n\
                VERSION=3\nformat=print\ndatabase=users\ntype=btree\nmapsize=1048576\n\
                maxreaders=126\ndb_pagesize=4096\nHEADER=END\n a\n 1\\0a\n two words\n \\5c\n\
                DATA=END\n";
    let run = directory.run_on(dump, "import s");
    assert!(run.done().starts_with("imported 3 records (15 B) into 2 tables of new store s"));
    assert_eq!(directory.run("scan s --table users").done(), "a\t1\\n\ntwo words\t\\\\\n");
    assert_eq!(directory.run("scan s --table other").done(), "\\x00\\xff\t\n");
    let export = directory.command("export s --format mdb").output().unwrap().stdout;
    let text = String::from_utf8(export.clone()).unwrap();
    assert!(
        text.ends_with("HEADER=END\n 61\n 310a\n 74776f20776f726473\n 5c\nDATA=END\n"),
        "{text}"
    );
    directory.run_on(&export, "import again").done();
    assert_eq!(directory.run("export again").done(), directory.run("export s").done());
    for (change, with, words) in [
        ("format=print", "duplicates=1\nformat=print", "several values for a key"),
        ("format=print", "dupsort=1\nformat=print", "several values for a key"),
        (" \\5c\nDATA=END\n", " \\5c\n", "truncated"),
        (" \\5c\n", "", "without a value"),
        (" \\5c\n", " \\5\n", "dump without -p"),
        (" 00ff", " 00f", "hexadecimal"),
        ("type=btree", "type=recno", "recno"),
        (" a\n", " z\n", "--unsorted"),
    ] {
        let dump = dump.replacen(change, with, if change.contains("type") { 2 } else { 1 });
        directory.run_on(dump, "import wrong").failed(3, &[words]);
    }
    // Keys that other rules put in order are loaded one by one.
    let dump = dump.replacen("format=print", "integerkey=1\nformat=print", 1);
    let dump = dump.replacen(" a\n", " z\n", 1);
    let run = directory.run_on(dump, "import integers");
    assert!(run.err.contains("note: table \"users\": its keys are integers"), "{}", run.err);
    assert_eq!(directory.run("scan integers --table users --keys-only").done(), "two words\nz\n");
}

/// The output of `ldb` and `sst_dump` of RocksDB 7.8.3, and of `ldb scan` of older and newer ones.
#[test]
fn dumps_of_rocksdb_are_read() {
    let directory = Directory::new();
    for (name, dump) in [
        ("scan", "0x6B00FF : 0x00FF\n0x6B32 : 0x6E6577\n0x6B33 : 0x\n"),
        ("dump", "0x6B00FF ==> 0x00FF\n0x6B32 ==> 0x6E6577\n0x6B33 ==> 0x\nKeys in range: 3\n"),
        (
            "sst",
            "options.env is 0x7ff42c2ed5a0\nProcess db/000040.sst\nSst file format: block-based\n\
             from [] to []\n'6B00FF' seq:4, type:1 => 00FF\n'6B31' seq:5, type:0 => \n\
             '6B31' seq:1, type:1 => 7631\n'6B32' seq:6, type:1 => 6E6577\n\
             '6B32' seq:2, type:1 => 762032\n'6B33' seq:3, type:1 => \n",
        ),
    ] {
        directory.run_on(dump, &format!("import {name} --table t")).done();
        let scan = directory.run(&format!("scan {name} --table t")).done();
        assert_eq!(scan, "k\\x00\\xff\t\\x00\\xff\nk2\tnew\nk3\t\n", "{name}");
    }
    directory.run_on("0x61 : 0x62\n", "import unnamed").done();
    assert_eq!(directory.run("get unnamed a").done(), "b");
    for (dump, words) in [
        ("0x61 ==> 0x62\nKeys in range: 2\n", "lines are missing"),
        ("0x61\n", "--no_value"),
        ("0x61 ==> 0x6\n", "not one of"),
        ("'61' seq:1, type:2 => 62\n", "type 2"),
        ("0x62 : 0x\n0x61 : 0x\n", "--unsorted"),
        ("0x61 : 0x62\nk : v\n", "not one of"),
    ] {
        directory.run_on(dump, "import wrong").failed(3, &[words]);
    }
    directory.run_on("0x62 : 0x\n0x61 : 0x\n", "import any --unsorted").done();
}

#[test]
fn files_that_are_no_dumps_lead_to_the_command_that_makes_one() {
    let directory = Directory::new();
    let lmdb = [&[0; 16][..], b"\xde\xc0\xef\xbe"].concat();
    for (content, words) in [
        (&b"SQLite format 3\0"[..], "json_object"),
        (&lmdb, "mdb_dump"),
        (b"a\tb\n", "qpair load"),
        (b"", "is empty"),
    ] {
        directory.file("input", content);
        directory.run("import s input").failed(2, &[words]);
    }
    directory.run_on("a\tb\n", "load store - --format tsv").done();
    directory.run("import s store").failed(2, &["qpair copy store"]);
    directory.run("import s missing").failed(3, &["missing"]);
    std::fs::create_dir(directory.path("rocks")).unwrap();
    directory.run("import s rocks").failed(2, &["directory"]);
    assert!(!directory.path("s").exists());
    directory.run("export missing").failed(3, &["missing"]);
    // The records of a store with a damaged page are exported up to the damage.
    let records: String = (0..20_000).map(|i| format!("k{i:05}\tv\n")).collect();
    directory.run_on(records, "load damaged - --format tsv --sorted").done();
    patch(&directory.path("damaged"), |bytes| {
        let places = bytes.windows(6).enumerate().filter(|(_, window)| *window == b"k10000");
        let places: Vec<usize> = places.map(|(at, _)| at).collect();
        places.into_iter().for_each(|at| bytes[at] ^= 1);
    });
    let run = directory.run("export damaged");
    assert!(!run.out.contains("\"end\":\"export\""), "{}", run.err);
    let (code, out) = (run.code, run.out);
    assert_eq!(code, Some(3), "{}", run.err);
    directory.run_on(out, "import part").failed(3, &["truncated"]);
}
