//! `qpair scsi`, and the workload tool on a disk behind an emulated controller.

use crate::harness::Directory;

#[test]
fn disks_are_listed_and_say_what_they_are() {
    let directory = Directory::new();
    let host = "soft:disks=2,size=64MiB,block=4096,serial=T1";
    let all = directory.json(&format!("scsi list {host} --json"));
    assert_eq!(all.as_array().unwrap().len(), 2, "{all}");
    assert_eq!(all[1]["device"], format!("scsi:{host}/1"));
    assert_eq!(all[1]["size_bytes"], 64 << 20);
    assert_ne!(all[0]["name"], all[1]["name"]);
    let text = directory.run(&format!("scsi list {host}")).done();
    assert!(text.contains("QPAIR") && text.lines().count() == 2, "{text}");
    let name = all[1]["name"].as_str().unwrap();
    let text = directory.run(&format!("scsi info scsi:{host}/{name}")).done();
    assert!(text.contains(name) && text.contains("4.00 KiB logical"), "{text}");
    for (options, words) in [
        ("", "takes no write"),
        (",cache=on", "from a reset by its timestamp"),
        (",cache=on,timestamp=off", "no timestamp"),
    ] {
        let text = directory.run(&format!("scsi info {host}{options}/0")).done();
        let told = text.lines().find(|line| line.starts_with("loss of power")).unwrap();
        assert!(told.contains(words), "{text}");
    }
    directory.run(&format!("scsi info {host}/9")).failed(3, &["no target 9", "there are: 0, 1"]);
    directory.run("scsi list soft:disks=33").failed(2, &["expanders=on"]);
}

#[test]
fn sense_data_is_told_in_words() {
    let directory = Directory::new();
    let out = directory.run("scsi sense 72 05 24 00 00 00 00 08 02 06 00 00 c0 00 01 00").done();
    assert_eq!(out, "illegal request, 24/00 invalid field in CDB, byte 1 of the CDB\n");
    let out = directory.run("scsi sense f00003000004d20a0000000011000000").done();
    assert_eq!(out, "medium error, 11/00 unrecovered read error, at block 1234\n");
    directory.run("scsi sense 12 34").failed(2, &["not sense data", "70, 71, 72 or 73"]);
    directory.run("scsi sense xyz").failed(2, &["hexadecimal"]);
}

#[test]
fn verified_writes() {
    let directory = Directory::new();
    let out = directory
        .run("bench io --name=v --filename=scsi:soft/0 --rw=randwrite --bs=4k --iodepth=16 --size=8m --verify=crc32c")
        .done();
    assert!(out.contains("2,048 blocks read and checked, none wrong"), "{out}");
}

#[test]
fn a_disk_is_reset_and_located() {
    let directory = Directory::new();
    let host = "soft:disks=2,size=64MiB,serial=T2";
    let out = directory.run(&format!("scsi reset {host}/1")).done();
    assert!(out.contains("was reset; naa.") && out.contains("/1 "), "{out}");
    let out = directory.run(&format!("scsi reset {host}/1 --controller")).done();
    assert!(out.contains("the controller scsi:soft"), "{out}");
    directory.run(&format!("scsi reset {host}/2")).failed(3, &["no target 2", "there are: 0, 1"]);
    let out = directory.run(&format!("scsi locate {host}/0 --seconds 0.1")).done();
    assert!(out.contains("the lamp of naa."), "{out}");
}
