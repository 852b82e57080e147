//! The options of fio that are not supported, listed to distinguish them from unknown words.

/// An unsupported option of fio.
#[derive(Debug)]
pub struct Unsupported {
    /// The option's name in fio.
    pub name: &'static str,
    /// Values that are accepted, because they ask for the behaviour that qpair has anyway.
    pub harmless: &'static [&'static str],
    /// Advice on what to do instead; empty if there is none.
    pub instead: &'static str,
}

const fn never(name: &'static str) -> Unsupported {
    Unsupported { name, harmless: &[], instead: "" }
}

const fn only(name: &'static str, harmless: &'static [&'static str]) -> Unsupported {
    Unsupported { name, harmless, instead: "" }
}

const fn instead(name: &'static str, instead: &'static str) -> Unsupported {
    Unsupported { name, harmless: &[], instead }
}

const OFF: &[&str] = &["0"];
const NONE: &[&str] = &["none", "0"];

/// All unsupported options.
pub static UNSUPPORTED: &[Unsupported] = &[
    // Jobs.
    only("nice", OFF),
    never("prio"),
    never("prioclass"),
    never("uid"),
    never("gid"),
    never("cgroup"),
    never("cgroup_weight"),
    only("cgroup_nodelete", OFF),
    never("flow_watermark"),
    never("exec_prerun"),
    never("exec_postrun"),
    never("profile"),
    only("lockmem", OFF),
    only("stats", &["1"]),
    // Files.
    only("lockfile", &["none"]),
    only("unique_filename", OFF),
    never("opendir"),
    instead("openfiles", "all files of a job are open while it runs"),
    only("create_only", OFF),
    only("pre_read", OFF),
    only("unlink_each_loop", OFF),
    only("file_append", OFF),
    only("fadvise_hint", &["0", "none"]),
    only("write_hint", &["none"]),
    never("ioscheduler"),
    instead("write_barrier", "fsync flushes after so many writes"),
    instead("sync_file_range", "fdatasync flushes after so many writes"),
    // Zones.
    only("zonecapacity", OFF),
    only("read_beyond_wp", OFF),
    only("max_open_zones", OFF),
    only("job_max_open_zones", OFF),
    only("ignore_zone_limits", OFF),
    never("zone_reset_threshold"),
    never("zone_reset_frequency"),
    // Pattern.
    only("bs_unaligned", OFF),
    only("blocksize_unaligned", OFF),
    only("bs_is_seq_rand", OFF),
    only("softrandommap", OFF),
    only("use_os_rand", OFF),
    only("offset_align", OFF),
    // Depth.
    instead("iodepth_low", "--mode=normal lets the queue run empty before it is filled again"),
    only("serialize_overlap", OFF),
    // Rate.
    only("rate_ignore_thinktime", OFF),
    only("thinktime_blocks_type", &["complete"]),
    only("thinktime_iotime", OFF),
    only("max_latency", OFF),
    // Content.
    instead("dedupe_working_set_percentage", "dedupe_mode=repeat needs no working set"),
    only("dedupe_global", OFF),
    // Verification.
    only("verify_offset", OFF),
    never("verify_async_cpus"),
    only("experimental_verify", OFF),
    only("verify_state_load", OFF),
    only("verify_state_save", OFF),
    only("trim_percentage", OFF),
    never("trim_verify_zero"),
    never("trim_backlog"),
    never("trim_backlog_batch"),
    // Traces.
    only("read_iolog_chunked", OFF),
    never("merge_blktrace_file"),
    never("merge_blktrace_scalars"),
    never("merge_blktrace_iters"),
    // Machine.
    instead("numa_cpu_nodes", "cpus_allowed names the processors of a node"),
    never("numa_mem_policy"),
    never("hugepage-size"),
    never("gpu_dev_id"),
    never("clocksource"),
    never("gtod_cpu"),
    // Measuring.
    never("log_entries"),
    only("log_max_value", OFF),
    only("log_prio", OFF),
    only("log_compression", OFF),
    never("log_compression_cpus"),
    only("log_store_compressed", OFF),
    only("log_unix_epoch", OFF),
    only("log_alternate_epoch", OFF),
    never("log_alternate_epoch_clock_id"),
    only("block_error_percentiles", OFF),
    only("unified_rw_reporting", NONE),
    never("significant_figures"),
    only("disk_util", OFF),
    only("unit_base", &["0", "8"]),
    // Of engines.
    instead("hipri_percentage", "hipri polls for all completions"),
    only("uncached", OFF),
    only("nowait", OFF),
    only("force_async", OFF),
    only("cmdprio_percentage", OFF),
    never("cmdprio_class"),
    never("cmdprio"),
    never("cmdprio_bssplit"),
    never("readfua"),
    never("writefua"),
    never("sg_write_mode"),
    never("stream_id"),
    never("cpuload"),
    never("cpuchunks"),
    never("cpumode"),
    never("exit_on_io_done"),
    never("namenode"),
    never("port"),
    never("hostname"),
    never("serverip"),
    never("direct_write_to_pmem"),
    never("busy_wait_polling"),
    never("nodelay"),
    never("protocol"),
    never("proto"),
    never("listen"),
    never("pingpong"),
    never("window_size"),
    never("mss"),
    never("ttl"),
    never("donorname"),
    never("inplace"),
    never("clustername"),
    never("rbdname"),
    never("clientname"),
    never("conf"),
    never("busy_poll"),
    never("touch_objects"),
    never("pool"),
    never("cont"),
    never("chunk_size"),
    never("object_class"),
    never("skip_bad"),
    never("hdfsdirectory"),
    never("verb"),
    never("bindname"),
    never("stat_type"),
    never("uri"),
    never("nfs_url"),
    never("volume"),
    never("brick"),
    never("http_host"),
    never("http_user"),
    never("http_pass"),
    never("http_mode"),
    never("http_verbose"),
    never("http_s3_region"),
    never("http_s3_key"),
    never("http_s3_keyid"),
    never("http_s3_storage_class"),
    never("http_s3_sse_customer_key"),
    never("http_s3_sse_customer_algorithm"),
    never("http_swift_auth_token"),
    never("https"),
    never("program"),
    never("arguments"),
    never("grace_time"),
    never("std_redirect"),
    never("gpu_dev_ids"),
    never("cuda_io"),
    never("xnvme_async"),
    never("xnvme_sync"),
    never("xnvme_admin"),
    never("xnvme_dev_nsid"),
    never("xnvme_iovec"),
];
