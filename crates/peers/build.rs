//! Compiles the shims over what RocksDB and WiredTiger do not offer as functions of C, and links
//! the three libraries.

fn main() {
    println!("cargo:rerun-if-changed=src/wiredtiger/shim.c");
    println!("cargo:rerun-if-changed=src/rocksdb/shim.cc");
    cc::Build::new().file("src/wiredtiger/shim.c").std("c11").compile("qpair_peers_wiredtiger");
    cc::Build::new()
        .cpp(true)
        .file("src/rocksdb/shim.cc")
        .std("c++17")
        .compile("qpair_peers_rocksdb");
    for library in ["wiredtiger", "rocksdb", "lmdb"] {
        println!("cargo:rustc-link-lib={library}");
    }
}
