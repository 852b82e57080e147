//! S5: SPDK and `io_uring` as interchangeable block devices.

/// The experiments that take more than their name on the command line, or that other commands
/// repeat as well.
pub(super) static COMMANDS: [(&str, &[&str]); 2] = [
    (
        "s5-core",
        &[
            "qpair study --experiment s5-core --experiment s5-soft --device /dev/nvme0n1 --device /dev/nvme1n1",
        ],
    ),
    ("s5-layer", &["qpair study --experiment s5-layer", "qpair floor --user softnvme:size=1GiB"]),
];

pub(super) mod figure3;
pub(super) mod figure5;
pub(super) mod figure6;
pub(super) mod text;
