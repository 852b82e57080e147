//! The methods and their parameters. Most of this file is the table, with one entry for each
//! method.
//!
//! Invariant: a call is checked against this table before its method runs, so a parameter that is
//! not in it reaches no method.
//!
//! Long, because the table has an entry for each method.

use serde_json::{Map, Value};

use super::params::{Failure, Result};

/// The kind of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Number,
    /// A number, or -1.
    Choice,
    Flag,
    Texts,
    /// Parameters of their own.
    Fields(&'static [Param]),
    /// A parameter for a feature that does not exist here. It is accepted as long as it asks for
    /// nothing.
    Nothing,
}

use Kind::{Choice, Fields, Flag, Nothing, Number, Text, Texts};

/// A parameter.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Param {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) is_needed: bool,
    pub(super) about: &'static str,
}

const fn need(name: &'static str, kind: Kind, about: &'static str) -> Param {
    Param { name, kind, is_needed: true, about }
}

const fn may(name: &'static str, kind: Kind, about: &'static str) -> Param {
    Param { name, kind, is_needed: false, about }
}

const fn no(name: &'static str) -> Param {
    Param { name, kind: Nothing, is_needed: false, about: "" }
}

/// A method.
#[derive(Debug)]
pub(super) struct Schema {
    pub(super) method: &'static str,
    pub(super) about: &'static str,
    pub(super) params: &'static [Param],
    pub(super) result: &'static str,
}

const fn of(
    method: &'static str,
    about: &'static str,
    params: &'static [Param],
    result: &'static str,
) -> Schema {
    Schema { method, about, params, result }
}

const NAME: Param = need("name", Text, "The device.");
const NEW_NAME: Param = need("name", Text, "What it is called.");
const UUID: Param = may("uuid", Text, "Its UUID; one made of its name if left out.");
const BLOCKS: Param = need("num_blocks", Number, "How many blocks it has.");
const BLOCK_SIZE: Param = need("block_size", Number, "Bytes of a block.");
const FILENAME: Param = need("filename", Text, "The file or block device.");
const FILE_BLOCK_SIZE: Param = may(
    "block_size",
    Number,
    "Bytes of a block, which must be what the file has; 0: whatever that is.",
);
const READ_ONLY: Param = may("readonly", Flag, "It is only read.");

const CONTROLLER: Param = need("ctrlr", Text, "The name of the socket.");
const NQN: Param = need("nqn", Text, "The subsystem's name.");
const TRTYPE: Param = need("trtype", Text, "`VFIOUSER` or `TCP`.");
const BY_FORCE: Param = may("force", Flag, "Also if a driver has it. qpair's own.");
const ANA_STATES: &str =
    "`optimized`, `non_optimized`, `inaccessible`, `persistent_loss` or `change`.";
const ANA_STATE_IF_GIVEN: Param = may("ana_state", Text, ANA_STATES);
const LISTEN_ADDRESS: Param = need(
    "listen_address",
    Fields(&[
        TRTYPE,
        need(
            "traddr",
            Text,
            "The socket; or a folder, where it is called `cntrl`. From the target's folder on. Of TCP: an address of this machine.",
        ),
        may("adrfam", Text, "Accepted and ignored."),
        may("trsvcid", Text, "The port of TCP; 4420 if left out."),
    ]),
    "Where it is.",
);

const DHCHAP_KEY: Param = may(
    "dhchap_key",
    Text,
    "The key by which the host proves who it is, a name of `keyring_file_add_key`; without it, the host need not.",
);
const DHCHAP_CTRLR_KEY: Param = may(
    "dhchap_ctrlr_key",
    Text,
    "The key by which the target proves who it is, if the host asks; a name of `keyring_file_add_key`.",
);

const NBD_ADDRESS: Param =
    need("address", Text, "Where the server listens: `unix:PATH` or `tcp:HOST[:PORT]`.");

const TRUE: &str = "true";
const ITS_NAME: &str = "its name";

/// All methods, sorted by name.
pub(super) const SCHEMAS: &[Schema] = &[
    of(
        "bdev_aio_create",
        "Opens a file or block device over libaio, which knows no discards and no write-zeroes.",
        &[NEW_NAME, FILENAME, FILE_BLOCK_SIZE, READ_ONLY, UUID, no("fallocate"), no("nowait")],
        ITS_NAME,
    ),
    of("bdev_aio_delete", "Closes a device of `bdev_aio_create`.", &[NAME], TRUE),
    of(
        "bdev_delay_create",
        "Makes a device later by the same time at each request.",
        &[
            NEW_NAME,
            need("base_bdev_name", Text, "The device below."),
            need("avg_read_latency", Number, "Added to reads, microseconds."),
            need("p99_read_latency", Number, "The same."),
            need("avg_write_latency", Number, "Added to writes, microseconds."),
            need("p99_write_latency", Number, "The same."),
            UUID,
        ],
        ITS_NAME,
    ),
    of("bdev_delay_delete", "Takes such a layer away.", &[NAME], TRUE),
    of(
        "bdev_error_create",
        "Makes a device that fails when told to: `EE_` and the name of the one below.",
        &[need("base_name", Text, "The device below."), UUID],
        TRUE,
    ),
    of("bdev_error_delete", "Takes such a layer away.", &[NAME], TRUE),
    of(
        "bdev_error_inject_error",
        "Has the next requests of a device of `bdev_error_create` fail.",
        &[
            NAME,
            need(
                "io_type",
                Text,
                "`read`, `write` (discards and write-zeroes with it), `flush` or `all`; `clear`: none any more.",
            ),
            need("error_type", Text, "`failure`."),
            may("num", Number, "How many; 1 if left out."),
            no("queue_depth"),
            no("corrupt_offset"),
            no("corrupt_value"),
            no("nvme_sct"),
            no("nvme_sc"),
        ],
        TRUE,
    ),
    of(
        "bdev_get_bdevs",
        "Tells of all devices.",
        &[
            may("name", Text, "Of this one alone."),
            may("timeout", Number, "Nothing is waited for."),
        ],
        "a list of devices",
    ),
    of(
        "bdev_get_iostat",
        "Tells what guests did with devices.",
        &[
            may("names", Texts, "Of these alone."),
            may("name", Text, "Of this one alone."),
            may("reset_mode", Text, "`none`: counters are not reset."),
            no("per_channel"),
        ],
        "the time in ticks of a nanosecond, and counters for each device",
    ),
    of(
        "bdev_malloc_create",
        "Makes a disk in memory.",
        &[
            BLOCKS,
            BLOCK_SIZE,
            may("name", Text, "What it is called; `Malloc` and a number if left out."),
            UUID,
            no("optimal_io_boundary"),
            no("md_size"),
            no("md_interleave"),
            no("dif_type"),
            no("dif_is_head_of_md"),
            no("dif_pi_format"),
            no("physical_block_size"),
            no("numa_id"),
        ],
        ITS_NAME,
    ),
    of("bdev_malloc_delete", "Deletes a disk in memory, and all that is on it.", &[NAME], TRUE),
    of(
        "bdev_null_create",
        "Makes a device that keeps nothing.",
        &[
            NEW_NAME,
            BLOCKS,
            BLOCK_SIZE,
            UUID,
            no("physical_block_size"),
            no("md_size"),
            no("dif_type"),
            no("dif_is_head_of_md"),
            no("dif_pi_format"),
            no("preferred_write_alignment"),
            no("preferred_write_granularity"),
            no("optimal_write_size"),
            no("preferred_unmap_alignment"),
            no("preferred_unmap_granularity"),
        ],
        ITS_NAME,
    ),
    of("bdev_null_delete", "Deletes such a device.", &[NAME], TRUE),
    of(
        "bdev_nvme_attach_controller",
        "Drives an NVMe controller in this process. Its namespaces are devices: the name, `n`, and their number.",
        &[
            need("name", Text, "What the controller is called."),
            need("trtype", Text, "`PCIe`, for a function that vfio-pci has, or `VFIOUSER`."),
            need("traddr", Text, "The function's address, or the socket or its folder."),
            no("prchk_reftag"),
            no("prchk_guard"),
            no("hdgst"),
            no("ddgst"),
            no("allow_unrecognized_csi"),
            no("disable_sq_flow_control"),
            no("multipath"),
            no("num_io_queues"),
            no("max_bdevs"),
        ],
        "the names of its devices",
    ),
    of(
        "bdev_nvme_detach_controller",
        "Lets a controller go.",
        &[
            need("name", Text, "The controller."),
            may("trtype", Text, "It has one path."),
            may("traddr", Text, "The same."),
            may("adrfam", Text, "The same."),
            may("trsvcid", Text, "The same."),
            may("subnqn", Text, "The same."),
        ],
        TRUE,
    ),
    of(
        "bdev_nvme_get_controllers",
        "Tells of NVMe controllers.",
        &[may("name", Text, "Of this one alone.")],
        "a list of controllers",
    ),
    of(
        "bdev_raid_create",
        "Stripes devices.",
        &[
            NEW_NAME,
            need("raid_level", Text, "`raid0` or `0`."),
            need("base_bdevs", Texts, "The devices, in order."),
            may("strip_size_kb", Number, "Bytes of a strip, KiB; 64 if left out."),
            UUID,
            no("superblock"),
        ],
        TRUE,
    ),
    of("bdev_raid_delete", "Takes a stripe apart.", &[NAME, no("clear_sb")], TRUE),
    of(
        "bdev_raid_get_bdevs",
        "Tells of stripes.",
        &[need("category", Text, "`all`, `online`, `configuring` or `offline`.")],
        "a list of stripes",
    ),
    of(
        "bdev_scsi_attach_controller",
        "Drives a SCSI host in this process. Its units are devices: the name, `t`, and the number of the target; of a unit that is not the \
         target's first also `l` and its own number. Units that come later become devices, and those of units that go are deleted once \
         nothing claims them. qpair's own.",
        &[
            need("name", Text, "What the host is called."),
            need(
                "traddr",
                Text,
                "A function that vfio-pci has, `0000:3b:00.0`; `vfio-user:` and a socket; or `soft:` and options, a host made of \
                 software. Options of disks may stand before it, as in `timeout_ms=5000:0000:3b:00.0`.",
            ),
        ],
        "the names of its devices",
    ),
    of(
        "bdev_scsi_create",
        "Carves a disk from any device, by the map on it; one that the map has already is opened as it is. qpair's own.",
        &[
            need("name", Text, "What the disk is called, on the device too."),
            need("device", Text, "The device that it is carved from."),
            may("size_gb", Number, "How large it is, in units of 2^30 bytes."),
            may("blocks", Number, "How large it is, in blocks of the device."),
            may(
                "offset",
                Number,
                "Where it begins, in blocks of the device; where there is room if left out.",
            ),
            may("force", Flag, "Carve the device though something else is on it, which is lost."),
        ],
        ITS_NAME,
    ),
    of(
        "bdev_scsi_delete",
        "Deletes a carved disk, on its device too. qpair's own.",
        &[NAME, may("keep", Flag, "Close it, and leave it on its device.")],
        TRUE,
    ),
    of(
        "bdev_scsi_detach_controller",
        "Lets a SCSI host and its devices go, of which none may be in use. qpair's own.",
        &[need("name", Text, "The host.")],
        TRUE,
    ),
    of(
        "bdev_scsi_get_controllers",
        "Tells of SCSI hosts, their units, and why a unit is no device. qpair's own.",
        &[may("name", Text, "Of this one alone.")],
        "a list of hosts",
    ),
    of(
        "bdev_scsi_get_devices",
        "Tells of devices that can be carved: their disks, and what is free. Offsets and sizes are in blocks. qpair's own.",
        &[may("name", Text, "Of this one alone.")],
        "a list of devices",
    ),
    of(
        "bdev_set_qos_limit",
        "Limits a device, at once and for all who use it. What is left out stays; 0 is no limit.",
        &[
            NAME,
            may("rw_ios_per_sec", Number, "Reads and writes a second, rounded up to thousands."),
            may("rw_mbytes_per_sec", Number, "MiB read and written a second."),
            may("r_mbytes_per_sec", Number, "MiB read a second."),
            may("w_mbytes_per_sec", Number, "MiB written a second."),
        ],
        TRUE,
    ),
    of(
        "bdev_split_create",
        "Splits a device into equal parts: its name, `p`, and a number.",
        &[
            need("base_bdev", Text, "The device."),
            need("split_count", Number, "How many parts; fewer if there is no room."),
            may("split_size_mb", Number, "MiB of each; as much as there is if left out."),
        ],
        "the names of the parts",
    ),
    of(
        "bdev_split_delete",
        "Takes the parts away; the data stay.",
        &[need("base_bdev", Text, "The device.")],
        TRUE,
    ),
    of(
        "bdev_uring_create",
        "Opens a file or block device over io_uring.",
        &[NEW_NAME, FILENAME, FILE_BLOCK_SIZE, READ_ONLY, UUID, no("fallocate"), no("nowait")],
        ITS_NAME,
    ),
    of("bdev_uring_delete", "Closes a device of `bdev_uring_create`.", &[NAME], TRUE),
    of(
        "bdev_virtio_attach_controller",
        "Makes devices of what another process or a function gives by virtio: of a vhost-user-blk back end one that is called as the \
         controller, of a SCSI host one for each unit, as `bdev_scsi_attach_controller`.",
        &[
            need("name", Text, "What the controller is called."),
            need(
                "trtype",
                Text,
                "`user`, for vhost-user-blk; `pci` or `vfio-user`, for a SCSI host.",
            ),
            need(
                "traddr",
                Text,
                "The socket, or its folder with `vfio-user`; the function's address with `pci`.",
            ),
            need("dev_type", Text, "`blk` with `user`; `scsi` with `pci` and `vfio-user`."),
            may(
                "vq_count",
                Number,
                "Accepted for compatibility and ignored: each thread takes a queue.",
            ),
            may(
                "vq_size",
                Number,
                "Accepted for compatibility and ignored: a queue is as long as its user asks.",
            ),
        ],
        "the names of its devices",
    ),
    of(
        "bdev_virtio_detach_controller",
        "Lets a controller of `bdev_virtio_attach_controller` and its devices go, of which none may be in use.",
        &[need("name", Text, "The controller.")],
        TRUE,
    ),
    of(
        "framework_get_config",
        "Gives the calls by which a subsystem is made again.",
        &[need("name", Text, "The subsystem."), may("with_batches", Flag, "There are none.")],
        "a list of calls",
    ),
    of(
        "framework_get_reactors",
        "Tells of workers: how long each was busy, and idle.",
        &[],
        "workers, and the ticks that they are counted in",
    ),
    of(
        "framework_get_subsystems",
        "Names the subsystems that have a configuration.",
        &[],
        "a list of subsystems",
    ),
    of(
        "keyring_file_add_key",
        "Names a file with a key, which only its owner may read.",
        &[need("name", Text, "What the key is called."), need("path", Text, "The file.")],
        TRUE,
    ),
    of(
        "keyring_file_remove_key",
        "Forgets a key. Hosts that were added with it keep it.",
        &[need("name", Text, "The key.")],
        TRUE,
    ),
    of("keyring_get_keys", "Lists the keys, by their names and files.", &[], "a list of keys"),
    of("log_get_level", "Tells how much the target logs.", &[], "the level"),
    of(
        "log_set_level",
        "Sets how much the target logs: of all crates that `--log` or `log` of the configuration gives no level of their own.",
        &[need(
            "level",
            Text,
            "`ERROR`, `WARNING`, `NOTICE`, `INFO` (as much as `NOTICE`) or `DEBUG`.",
        )],
        TRUE,
    ),
    of(
        "nbd_create_server",
        "Serves devices by NBD, under their names. qpair's own.",
        &[
            NBD_ADDRESS,
            need("bdev_names", Texts, "The devices; the first is also the default export."),
            may("readonly", Flag, "Clients cannot write."),
            may(
                "tls_certificate",
                Text,
                "A file with the server's certificate in PEM. With it, clients must use TLS.",
            ),
            may("tls_key", Text, "The file with the certificate's private key."),
            may(
                "tls_client_ca",
                Text,
                "A file with the certificate authorities of clients; without it, clients need no certificate.",
            ),
        ],
        "the address; with the port that was chosen if the port was 0",
    ),
    of(
        "nbd_delete_server",
        "Ends a server of `nbd_create_server`. qpair's own.",
        &[NBD_ADDRESS, may("force", Flag, "Also if it has clients.")],
        TRUE,
    ),
    of(
        "nbd_get_servers",
        "Lists the servers of `nbd_create_server`. qpair's own.",
        &[],
        "addresses, exports, the numbers of connections, and whether clients must use TLS",
    ),
    of(
        "nvmf_create_subsystem",
        "Makes an NVMe subsystem: namespaces, and controllers that all have them.",
        &[
            need("nqn", Text, "Its name, an NQN."),
            may("serial_number", Text, "20 characters at most; made of its name if left out."),
            may("model_number", Text, "40 characters at most."),
            may("max_namespaces", Number, "Up to 1024; 32 if left out."),
            may(
                "allow_any_host",
                Flag,
                "Any host may connect over TCP. Any process that reaches a socket may in any case.",
            ),
            may(
                "ana_reporting",
                Flag,
                "Hosts over TCP are told of the states of their ways to the namespaces (ANA).",
            ),
            no("passthrough"),
            no("enable_nssr"),
            no("min_cntlid"),
            no("max_cntlid"),
            no("dmrsl"),
            no("wzsl"),
            no("tgt_name"),
        ],
        TRUE,
    ),
    of(
        "nvmf_create_transport",
        "Says what controllers are like that come after it; without it there are none.",
        &[
            TRTYPE,
            may("max_queue_depth", Number, "Entries of a queue; 1024 if left out."),
            may("max_io_qpairs_per_ctrlr", Number, "Pairs of I/O queues; 32 if left out."),
            may("max_io_size", Number, "Bytes of a transfer, 8192 to 1048576; 131072 if left out."),
            may(
                "disable_mappable_bar0",
                Flag,
                "No driver maps doorbells: each that is rung is a message.",
            ),
            may(
                "disable_shadow_doorbells",
                Flag,
                "Drivers are not offered doorbells in their own memory.",
            ),
            may("c2h_success", Flag, "Of TCP."),
            no("tgt_name"),
            no("in_capsule_data_size"),
            no("io_unit_size"),
            no("max_aq_depth"),
            no("num_shared_buffers"),
            no("buf_cache_size"),
            no("iobuf_small_cache_size"),
            no("iobuf_large_cache_size"),
            no("zcopy"),
            no("no_srq"),
            no("dif_insert_or_strip"),
            no("no_wr_batching"),
            no("disable_adaptive_irq"),
            no("disable_command_passthru"),
            no("abort_timeout_sec"),
        ],
        TRUE,
    ),
    of(
        "nvmf_delete_subsystem",
        "Deletes a subsystem: its controllers end, and its devices are free.",
        &[NQN, BY_FORCE, no("tgt_name")],
        TRUE,
    ),
    of("nvmf_delete_transport", "Forgets that. qpair's own.", &[TRTYPE], TRUE),
    of(
        "nvmf_get_subsystems",
        "Tells of subsystems.",
        &[may("nqn", Text, "Of this one alone."), no("tgt_name")],
        "a list of subsystems",
    ),
    of(
        "nvmf_set_config",
        "Sets by which hash functions and groups hosts prove who they are (DH-HMAC-CHAP).",
        &[
            may(
                "dhchap_digests",
                Texts,
                "`sha256`, `sha384`, `sha512`, the preferred one first; all if left out.",
            ),
            may(
                "dhchap_dhgroups",
                Texts,
                "`null`, `ffdhe2048`, `ffdhe3072`, `ffdhe4096`, `ffdhe6144`, `ffdhe8192`, the preferred one first; all if left out, null last.",
            ),
            no("poll_groups_mask"),
            no("passthru_identify_ctrlr"),
            no("discovery_filter"),
        ],
        TRUE,
    ),
    of(
        "nvmf_subsystem_add_host",
        "Lets a host connect over TCP.",
        &[
            NQN,
            need("host", Text, "Its name, an NQN."),
            may(
                "psk",
                Text,
                "The key by which the host uses TLS, a name of `keyring_file_add_key`; with it, the host cannot connect without TLS.",
            ),
            DHCHAP_KEY,
            DHCHAP_CTRLR_KEY,
            no("tgt_name"),
        ],
        TRUE,
    ),
    of(
        "nvmf_subsystem_add_listener",
        "Makes a controller, for one driver at a time, over vfio-user; or serves hosts over TCP.",
        &[
            NQN,
            LISTEN_ADDRESS,
            may(
                "secure_channel",
                Flag,
                "Hosts must use TLS, by the keys of `nvmf_subsystem_add_host`. All subsystems of an address have it, or none. Needs a build with the feature `nvme-tls`.",
            ),
            ANA_STATE_IF_GIVEN,
            no("sock_impl"),
            no("numa_id"),
            no("tgt_name"),
        ],
        TRUE,
    ),
    of(
        "nvmf_subsystem_add_ns",
        "Makes a device a namespace. Drivers that are there are told.",
        &[
            NQN,
            need(
                "namespace",
                Fields(&[
                    need("bdev_name", Text, "The device."),
                    may("nsid", Number, "Its number; the first that is free if left out."),
                    may("uuid", Text, "Its UUID; the device's if left out."),
                    no("nguid"),
                    no("eui64"),
                    no("ptpl_file"),
                    no("anagrpid"),
                    no("no_auto_visible"),
                    no("hide_metadata"),
                ]),
                "The namespace.",
            ),
            no("tgt_name"),
        ],
        "the namespace's number",
    ),
    of(
        "nvmf_subsystem_get_listeners",
        "Lists where a subsystem is served, with the states of access there.",
        &[NQN, no("tgt_name")],
        "a list of addresses and states",
    ),
    of(
        "nvmf_subsystem_listener_set_ana_state",
        "Sets the state of access to all namespaces by an address of TCP. Hosts are told.",
        &[
            NQN,
            LISTEN_ADDRESS,
            need("ana_state", Text, ANA_STATES),
            may("anagrpid", Number, "1, the group of all namespaces."),
            no("tgt_name"),
        ],
        TRUE,
    ),
    of(
        "nvmf_subsystem_remove_host",
        "Lets a host connect no more. Its connections stay.",
        &[NQN, need("host", Text, "Its name, an NQN."), no("tgt_name")],
        TRUE,
    ),
    of(
        "nvmf_subsystem_remove_listener",
        "Ends a controller.",
        &[NQN, LISTEN_ADDRESS, BY_FORCE, no("tgt_name")],
        TRUE,
    ),
    of(
        "nvmf_subsystem_remove_ns",
        "Takes a namespace away, when its requests are done. Drivers that are there are told.",
        &[NQN, need("nsid", Number, "Its number."), BY_FORCE, no("tgt_name")],
        TRUE,
    ),
    of(
        "nvmf_subsystem_set_keys",
        "Gives a host other keys, or none. Its connections stay.",
        &[
            NQN,
            need("host", Text, "The host, an NQN."),
            DHCHAP_KEY,
            DHCHAP_CTRLR_KEY,
            no("tgt_name"),
        ],
        TRUE,
    ),
    of(
        "rpc_get_methods",
        "Names all methods.",
        &[
            may("current", Flag, "All can be called at any time."),
            may("include_aliases", Flag, "None has another name."),
        ],
        "a list of names",
    ),
    of(
        "rpc_get_schema",
        "Gives the JSON Schema of the parameters of all methods. qpair's own.",
        &[],
        "schemas by the names of methods",
    ),
    of("spdk_get_version", "Tells the version.", &[], "the version, as text and in parts"),
    of(
        "thread_get_stats",
        "Tells of workers: their queues, and how long each was busy, and idle.",
        &[],
        "workers, and the ticks that they are counted in",
    ),
    of(
        "vhost_create_blk_controller",
        "Gives a device to a guest, by vhost-user-blk.",
        &[
            need("ctrlr", Text, "The name of the socket, in the target's folder."),
            need("dev_name", Text, "The device."),
            may("readonly", Flag, "The guest cannot write."),
            no("packed_ring"),
            no("cpumask"),
            no("transport"),
        ],
        TRUE,
    ),
    of(
        "vhost_create_scsi_controller",
        "Gives a SCSI host to a guest, by vhost-user-scsi: 8 targets, at first none.",
        &[
            need("ctrlr", Text, "The name of the socket, in the target's folder."),
            no("delay"),
            no("cpumask"),
        ],
        TRUE,
    ),
    of(
        "vhost_delete_controller",
        "Ends giving a guest a disk or a SCSI host.",
        &[
            CONTROLLER,
            may("force", Flag, "Also if a guest has it, or it has targets. qpair's own."),
        ],
        TRUE,
    ),
    of(
        "vhost_get_controllers",
        "Tells of all that guests are given.",
        &[may("name", Text, "Of this one alone.")],
        "a list of controllers",
    ),
    of(
        "vhost_scsi_controller_add_target",
        "Makes a device a target of a SCSI host, with the unit 0. The guest is told.",
        &[
            CONTROLLER,
            need("scsi_target_num", Choice, "Its number, 0 to 7; -1: the first that is free."),
            need("bdev_name", Text, "The device."),
        ],
        "the target's number",
    ),
    of(
        "vhost_scsi_controller_remove_target",
        "Takes a target away once its commands have ended. The guest is told.",
        &[CONTROLLER, need("scsi_target_num", Number, "Its number.")],
        TRUE,
    ),
];

/// Refuses a parameter that the method does not have, and removes parameters that ask for nothing.
pub(super) fn check(method: &str, params: &mut Value) -> Result<()> {
    let schema = SCHEMAS.iter().find(|schema| schema.method == method);
    match (schema, params.as_object_mut()) {
        (Some(schema), Some(params)) => check_all(schema.params, params),
        _ => Ok(()),
    }
}

fn check_all(known: &[Param], given: &mut Map<String, Value>) -> Result<()> {
    for (name, value) in given.iter_mut().filter(|(_, value)| !value.is_null()) {
        let param = known.iter().find(|param| param.name == name.as_str());
        let param =
            param.ok_or_else(|| Failure::params(format!("there is no parameter {name}")))?;
        match (param.kind, &mut *value) {
            (Fields(params), Value::Object(fields)) => check_all(params, fields)?,
            (Nothing, Value::Bool(false)) => *value = Value::Null,
            (Nothing, value) if value.as_u64() == Some(0) => *value = Value::Null,
            (Nothing, value) => {
                return Err(Failure::new(-95, format!("{name} is not supported: {value}")));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::rpc::Manager;
    use crate::target::{Target, TargetOptions};

    /// Every method reads each of its parameters in the table with the type stated there: a value
    /// of another type is refused by the parameter's name. The reverse needs no test, because a
    /// parameter that is not in the table reaches no method.
    #[test]
    fn methods_read_what_the_table_has() {
        let names: Vec<_> = SCHEMAS.iter().map(|schema| schema.method).collect();
        assert_eq!(names, Manager::methods());
        let folder = tempfile::tempdir().unwrap();
        let target = Target::new(TargetOptions::default()).unwrap();
        let open = Box::new(|_: &std::path::Path, _: &str, _| {
            Err(qpair_block::Error::new(qpair_block::ErrorKind::NotFound, "no files"))
        });
        let manager = Manager::new(Arc::new(target), open, folder.path().to_owned(), "0");
        for Schema { method, params, .. } in SCHEMAS {
            let call = |given: Map<String, Value>| {
                manager.call(method, Some(Value::Object(given))).unwrap_err().message
            };
            for path in paths(params) {
                let name = path.last().unwrap();
                let said = call(given(params, &path, Some(json!({"odd": 1}))));
                assert!(said.starts_with(&format!("{name} is no")), "{method}: {said}");
                if is_needed(params, &path) {
                    let said = call(given(params, &path, None));
                    assert_eq!(said, format!("{name} is missing"), "{method}");
                }
            }
            let said = call(Map::from_iter([("odd".to_owned(), json!(1))]));
            assert_eq!(said, "there is no parameter odd", "{method}");
        }
    }

    /// Returns the paths of all parameters, each after its enclosing parameter.
    fn paths(params: &[Param]) -> Vec<Vec<&'static str>> {
        let mut all = Vec::new();
        for param in params {
            all.push(vec![param.name]);
            let Fields(fields) = param.kind else { continue };
            let within = |path: Vec<&'static str>| [vec![param.name], path].concat();
            all.extend(paths(fields).into_iter().map(within));
        }
        all
    }

    fn is_needed(params: &[Param], path: &[&str]) -> bool {
        let param = params.iter().find(|param| param.name == path[0]).unwrap();
        match (param.kind, &path[1..]) {
            (_, []) => param.is_needed,
            (Fields(fields), rest) => is_needed(fields, rest),
            _ => false,
        }
    }

    /// Returns all required parameters. At `path`, the value is `odd`, or missing if `odd` is
    /// `None`.
    fn given(params: &[Param], path: &[&str], odd: Option<Value>) -> Map<String, Value> {
        let mut all = Map::new();
        for param in params {
            let is_in = path.first() == Some(&param.name);
            let rest = if is_in { &path[1..] } else { &[] };
            let value = match (param.kind, &odd) {
                (Fields(_), Some(_)) if is_in && rest.is_empty() => Some(json!("odd")),
                _ if is_in && rest.is_empty() => odd.clone(),
                _ if !is_in && !param.is_needed => None,
                (Text, _) => Some(json!("x")),
                (Number | Choice, _) => Some(json!(1)),
                (Flag | Nothing, _) => Some(json!(false)),
                (Texts, _) => Some(json!(["x"])),
                (Fields(fields), _) => Some(Value::Object(given(fields, rest, odd.clone()))),
            };
            all.extend(value.map(|value| (param.name.to_owned(), value)));
        }
        all
    }
}
