//! Lets the program link with the RocksDB of a distribution, which is older than the bindings.

fn main() {
    println!("cargo:rerun-if-env-changed=ROCKSDB_LIB_DIR");
    let has_rocksstore = std::env::var_os("CARGO_FEATURE_ROCKSSTORE").is_some();
    if has_rocksstore && std::env::var_os("ROCKSDB_LIB_DIR").is_some() {
        // RocksDB 7.8 lacks a function that destroys what openraft-rocksstore never makes.
        println!("cargo:rustc-link-arg-bins=-Wl,--defsym=rocksdb_write_buffer_manager_destroy=0");
    }
}
