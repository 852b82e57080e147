//! `qpair bench io`: options, job files, and results of runs.

use crate::harness::{Directory, number, patch};

#[test]
fn a_job_of_options_runs() {
    let directory = Directory::new();
    let words = "bench io --filename=ram:size=1m --rw randread --bs=8k --direct --json --eta=never";
    let json = directory.json(words);
    assert_eq!(number(&json, "/jobs/0/read/total_ios"), 128.0);
    assert_eq!(number(&json, "/jobs/0/read/io_bytes"), 1_048_576.0);
    let table = directory.run("bench io --filename=ram:size=1m").done();
    assert!(table.contains("256") && table.contains("read"), "{table}");
}

/// One dash is enough, because people paste fio's command lines.
#[test]
fn one_dash_does_as_well_as_two() {
    let directory = Directory::new();
    let json = directory.json("bench io -name=x -filename=ram:size=1m -rw=write -bs 64k --json");
    assert_eq!(number(&json, "/jobs/0/write/total_ios"), 16.0);
    directory.run("bench io -iodpeth=4").failed(2, &["iodepth"]);
}

/// The jobs of a group with different workloads are named in every format.
#[test]
fn jobs_of_a_group_are_named() {
    let directory = Directory::new();
    directory.file(
        "g.fio",
        "[global]\nfilename=ram:size=4m\ngroup_reporting\n[small]\nrw=randread\nbs=4k\n\
         [large]\nrw=write\nbs=1m\nnumjobs=2\niodepth=4\n",
    );
    let table = directory.run("bench io g.fio").done();
    for words in [
        "small, large: ",
        "1 job small: random reads of 4 KiB",
        "2 jobs large: sequential writes of 1",
    ] {
        assert!(table.contains(words), "no \"{words}\" in:\n{table}");
    }
    let csv = directory.run("bench io g.fio --output-format=csv").done();
    for words in ["small large,0,0,3,read,randread write,4096,4096,1 4,", "write,1048576,1048576,"]
    {
        assert!(csv.contains(words), "no \"{words}\" in:\n{csv}");
    }
    let json = directory.json("bench io g.fio --json");
    let members = json.pointer("/jobs/0/qpair/members").unwrap();
    assert_eq!(members[0]["jobnames"][0], "small");
    assert_eq!((&members[1]["jobnames"][0], &members[1]["jobs"]), (&"large".into(), &2.into()));
    assert_eq!(json["global options"]["filename"], "ram:size=4m");
    assert_eq!(json["jobs"][0]["job options"].get("filename"), None);
}

/// Blocks that were not read are not reported as verified.
#[test]
fn what_was_not_verified_is_not_praised() {
    let directory = Directory::new();
    let run = "bench io --filename=ram:size=1m --rw=write --verify=md5";
    assert!(directory.run(run).done().contains("256 blocks read and checked, none wrong"));
    let table = directory.run(&format!("{run} --do_verify=0")).done();
    assert!(table.contains("none was read (do_verify=0)"), "{table}");
    assert!(!table.contains("buffered") && !table.contains("direct"), "{table}");
}

/// One error names all unsupported options.
#[test]
fn everything_refused_is_named_at_once() {
    let directory = Directory::new();
    directory.file("bad.fio", "[a]\nlockmem=1\nrw=read\n[b]\nprio=2\niodpeth=4\n");
    directory.run("bench io bad.fio").failed(
        2,
        &[
            "bad.fio:2: fio's option lockmem",
            "bad.fio:5: fio's option prio",
            "bad.fio:6: there is no option",
        ],
    );
    directory
        .run("bench io --filename=ram:size=1m --cpus_allowed=0,4000")
        .failed(2, &["there is no processor 4000"]);
}

#[test]
fn a_job_file_runs_with_options_for_all() {
    let directory = Directory::new();
    directory
        .file(
            "a.fio",
            "[global]\nfilename=ram:size=1m\n[one]\n[two]\nstonewall\nrw=write\nbs=16k\n",
        )
        .file("b.fio", "[three]\nfilename=ram:size=1m\nsize=64k\n");
    let json = directory.json("bench io --bs=32k a.fio b.fio --output-format=json");
    let ios =
        |job: u32, direction: &str| number(&json, &format!("/jobs/{job}/{direction}/total_ios"));
    assert_eq!((ios(0, "read"), ios(1, "write"), ios(2, "read")), (32.0, 64.0, 2.0));
    let only = directory.run("bench io a.fio --section=two --output-format=csv --output=r.csv");
    assert_eq!(only.done(), "");
    let csv = directory.text("r.csv");
    assert!(csv.contains("two") && !csv.contains("one"), "{csv}");
}

#[test]
fn jobs_are_shown_without_running() {
    let directory = Directory::new();
    let shown = directory
        .run("bench io --direct=1 --name=a --filename=x --size=1g --numjobs=2 --name=b --filename=y --size=4k --parse-only")
        .done();
    assert!(
        shown.contains("[a] clone 1, stage 0, group 0") && shown.contains("[b] clone 0"),
        "{shown}"
    );
    assert!(!directory.path("x").exists() && !directory.path("y").exists());
}

#[test]
fn wrong_use_is_told_with_its_place() {
    let directory = Directory::new();
    directory
        .file("bad.fio", "[a]\nrw=read\niodpeth=4\n")
        .file("bs.fio", "[a]\nfilename=/dev/null\ndirect=1\n\nbs=1000\n");
    let run = |words: &str| directory.run(&format!("bench io {words}"));
    run("bad.fio")
        .failed(2, &["bad.fio:3: there is no option \"iodpeth\"", "did you mean iodepth"]);
    run("bs.fio").failed(2, &["bs.fio:5: job a", "multiples of 512"]);
    run("missing.fio").failed(3, &["missing.fio"]);
    run("--iodpeth=4").failed(2, &["--iodpeth", "--iodepth"]);
    run("--filename=x --zone_reset_threshold=1")
        .failed(2, &["fio's option zone_reset_threshold is not supported"]);
    run("--filename=x --minimal").failed(2, &["--minimal is not supported", "json"]);
    run("--filename=x --size=4k --ioengine=mmap").failed(2, &["engine mmap is not supported"]);
    run("--filename=ram:size=1m --section=b --name=a")
        .failed(2, &["names a job that does not exist"]);
    run("").failed(2, &["no job is given"]);
    run("--readonly --filename=ram:size=1m --rw=write").failed(2, &["only reading is allowed"]);
    run("--interface=io_uring+k:task_run=defer --filename=x --size=4k")
        .failed(2, &["cannot be combined"]);
    run("--filename=x --rw=read").failed(2, &["x does not exist", "size"]);
    assert!(!directory.path("x").exists());
}

#[test]
fn a_corrupted_block_is_found() {
    let directory = Directory::new();
    let job = "bench io --name=v --filename=v.bin --size=256k --bs=4k --rw=randwrite --verify=crc32c --eta=never";
    directory.run(&format!("{job} --do_verify=0")).done();
    directory.run(&format!("{job} --verify_only")).done();
    patch(&directory.path("v.bin"), |bytes| bytes[70_000] ^= 1);
    directory.run(&format!("{job} --verify_only --json")).failed(1, &[]);
}

#[test]
fn files_of_the_run_are_removed_on_request() {
    let directory = Directory::new();
    directory.file("mine", vec![7; 8192]);
    directory.run("bench io --name=a --rw=write --size=64k --unlink=1 --name=b --filename=mine --size=8k --unlink=1").done();
    assert!(!directory.path("a.0.0").exists());
    assert_eq!(directory.read("mine"), vec![7; 8192]);
}

#[test]
fn logs_and_histograms_are_files() {
    let directory = Directory::new();
    directory
        .run("bench io --name=a --filename=ram:size=1m --write_bw_log=x --log_avg_msec=10 --hgrm=h --runtime=100ms --time_based")
        .done();
    assert!(directory.path("x_bw.1.log").exists());
    assert!(directory.path("h_read_clat.1.hgrm").exists());
}

#[test]
fn options_explain_themselves() {
    let directory = Directory::new();
    let run = |words: &str| directory.run(&format!("bench io {words}"));
    assert!(run("--cmdhelp=blocksize").done().contains("bs="));
    assert!(run("--cmdhelp=all").done().lines().count() > 100);
    assert!(run("--cmdhelp=zone_reset_threshold").done().contains("not supported"));
    run("--cmdhelp=nothing").failed(2, &["there is no option nothing"]);
    let help = run("--help").done();
    for word in ["--iodepth", "[default: psync]", "[unit: s]", "[example:", "Verification:"] {
        assert!(help.contains(word), "no {word} in the help");
    }
}

#[test]
fn a_report_that_cannot_be_written_is_told_before_the_run() {
    let directory = Directory::new();
    directory.file("data", vec![1; 1 << 20]);
    let failed = directory.run("bench io --filename=data --output=missing/report");
    assert_eq!(failed.code, Some(3));
    assert!(failed.err.contains("missing/report"), "{}", failed.err);
    for option in ["--write_bw_log=missing/log", "--hgrm=missing/h", "--write_lat_log=data/log"] {
        let failed =
            directory.run(&format!("bench io --filename=data --rw=write {option} --force"));
        assert_eq!(failed.code, Some(3), "{option}: {}", failed.err);
        assert_eq!(directory.read("data"), vec![1; 1 << 20], "{option}");
    }
    let refused = directory.run("bench io --filename=data --output=./data");
    assert_eq!(refused.code, Some(2));
    assert!(refused.err.contains("overwrite"), "{}", refused.err);
    assert_eq!(directory.read("data"), vec![1; 1 << 20]);
}

#[test]
fn a_map_that_memory_cannot_hold_is_an_error() {
    let directory = Directory::new();
    let failed =
        directory.run("bench io --filename=null:size=8p --rw=randread --bsrange=4k-8k --runtime=1");
    assert_eq!(failed.code, Some(3), "{}{}", failed.out, failed.err);
    assert!(failed.err.contains("norandommap"), "{}", failed.err);
}

/// An open store is locked. A regression: a closed store was overwritten.
#[test]
fn stores_are_not_written_over() {
    let directory = Directory::new();
    directory.run("put s k v --log-device s.log").done();
    let before = [directory.read("s"), directory.read("s.log")];
    // One remaining superblock is enough to recognize a store.
    patch(&directory.path("s"), |bytes| bytes[..4096].fill(0));
    let mut one_label = before.clone();
    one_label[0][..4096].fill(0);
    directory.file("jobs", "[r]\nfilename=s\nrw=randread\n[w]\nfilename=s.log\nrw=randtrim\n");
    for words in [
        "--name=w --filename=s --rw=write --size=64k",
        "--name=w --filename=s --rw=randrw --size=64k",
        "--name=w --filename=s.log --rw=randwrite --size=64k",
        "--name=w --filename=new:s --rw=write --size=64k",
        "--name=w --filename=stripe:new2+s --rw=write --size=64k",
        "--name=w --filename=s --rw=write --size=64k --verify=crc32c",
        "jobs --size=64k",
    ] {
        let run = directory.run(&format!("bench io {words}"));
        run.failed(3, &["job w writes to s", "which holds a qpair store", "--force"]);
        let now = [directory.read("s"), directory.read("s.log")];
        assert!(now == one_label, "{words}");
        assert!(!directory.path("new").exists(), "{words}");
    }
    directory.run("bench io --name=r --filename=s --rw=read --size=64k").done();
    assert_eq!(directory.run("get s k").done(), "v");
    for force in ["--force", "--allow_mounted_write=1"] {
        directory
            .run(&format!("bench io --name=w --filename=s --rw=write --size=128k {force}"))
            .done();
    }
    directory.run("get s k").failed(3, &["not a qpair store"]);
}

#[test]
fn a_device_in_use_is_named_once() {
    let directory = Directory::new();
    directory.file("plain", vec![0; 1 << 16]);
    let mut options = qpair_kernel::FileOptions::new(directory.path("plain"));
    options.direct = false;
    let lock = qpair_kernel::open(&options, qpair_kernel::Interface::Posix).unwrap();
    let run = directory.run("bench io --name=w --filename=plain --rw=write --size=64k");
    let error = run.err.lines().find(|line| line.contains("error")).unwrap_or_default().to_owned();
    assert_eq!(error.matches("plain").count(), 1, "{error}");
    run.failed(3, &["job w may write: plain is already open elsewhere", "--force"]);
    drop(lock);
}
