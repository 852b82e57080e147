//! S2: the cost of the layers between a program and its drive.

/// The experiments that take more than their name on the command line, or that other commands
/// repeat as well.
pub(super) static COMMANDS: [(&str, &[&str]); 5] = [
    (
        "s2-floor",
        &[
            "sudo qpair study --experiment s2-floor --device /dev/sdb --rebind",
            "sudo qpair floor /dev/sdb --paper table2",
        ],
    ),
    ("s2-fs", &["sudo qpair study --experiment s2-fs"]),
    ("s2-scsi", &["sudo qpair study --experiment s2-scsi --device /dev/sdb --rebind", TABLE3]),
    (
        "s2-scsi-128k",
        &["sudo qpair study --experiment s2-scsi-128k --device /dev/sdb --rebind", TABLE3],
    ),
    (
        "s2-guest",
        &[
            "qpair study --experiment s2-guest --device /dev/vda --device /dev/sda --allow-writes",
            "qpair bench files --profile webserver /mnt",
        ],
    ),
];

/// The loads of both figures on one disk, over the kernel's stack and over this program's.
const TABLE3: &str = "sudo qpair floor /dev/sdb --without-module --paper table3";

pub(super) mod figure12;
pub(super) mod figure3;
pub(super) mod figure8;
pub(super) mod figure9;
pub(super) mod section5;
