//! An image for containers, as the OCI image layout describes it: a folder of blobs with the
//! program as the only layer. No container engine takes part.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::program::Program;
use super::{Release, Result, gzip, sha256};

/// The user of the program, and the owner of its folders. The image has no accounts.
const USER: u32 = 65_532;
/// The size of a block of a tar file.
const BLOCK: usize = 512;

pub(super) fn write(release: &Release, program: &Program, folder: &Path) -> Result<()> {
    let layer = layer(release, program)?;
    let packed = gzip(&layer)?;
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let labels = json!({
        "org.opencontainers.image.title": "qpair",
        "org.opencontainers.image.version": release.version,
        "org.opencontainers.image.revision": release.commit,
        "org.opencontainers.image.licenses": "Apache-2.0 OR MIT",
    });
    let config = json!({
        "created": release.time()?,
        "architecture": architecture,
        "os": "linux",
        "config": {
            "User": format!("{USER}:{USER}"),
            "Entrypoint": ["/usr/bin/qpair"],
            "Cmd": ["--help"],
            "WorkingDir": "/data",
            "Labels": labels,
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", sha256(&layer))] },
        "history": [{ "created": release.time()?, "created_by": "cargo xtask package" }],
    });
    let blobs = folder.join("blobs/sha256");
    fs::create_dir_all(&blobs)?;
    let blob = |bytes: &[u8], kind: &str| -> Result<Value> {
        let sum = sha256(bytes);
        fs::write(blobs.join(&sum), bytes)?;
        let kind = format!("application/vnd.oci.image.{kind}");
        Ok(json!({ "mediaType": kind, "digest": format!("sha256:{sum}"), "size": bytes.len() }))
    };
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob(&serde_json::to_vec(&config)?, "config.v1+json")?,
        "layers": [blob(&packed, "layer.v1.tar+gzip")?],
        "annotations": labels,
    });
    let mut described = blob(&serde_json::to_vec(&manifest)?, "manifest.v1+json")?;
    described["platform"] = json!({ "architecture": architecture, "os": "linux" });
    described["annotations"] = json!({ "org.opencontainers.image.ref.name": release.version });
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [described],
    });
    fs::write(folder.join("index.json"), serde_json::to_vec(&index)?)?;
    fs::write(folder.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)?;
    Ok(())
}

fn layer(release: &Release, program: &Program) -> Result<Vec<u8>> {
    let mut tar = Tar { bytes: Vec::new(), time_s: release.time_s };
    for (name, owner) in
        [("data", USER), ("run", 0), ("run/qpair", USER), ("usr", 0), ("usr/bin", 0)]
    {
        tar.folder(name, owner);
    }
    tar.file("usr/bin/qpair", &fs::read(&program.file)?, 0o755);
    for (name, of) in [("LICENSE-APACHE", "apache"), ("LICENSE-MIT", "mit")] {
        tar.file(&format!("license-{of}"), &fs::read(release.source.join(name))?, 0o644);
    }
    Ok(tar.end())
}

/// A tar file in the format of POSIX.1-1988 (ustar).
struct Tar {
    bytes: Vec<u8>,
    time_s: u64,
}

impl Tar {
    fn folder(&mut self, name: &str, owner: u32) {
        self.header(&format!("{name}/"), b'5', 0o755, owner, 0);
    }

    fn file(&mut self, name: &str, content: &[u8], mode: u32) {
        self.header(name, b'0', mode, 0, content.len());
        self.bytes.extend_from_slice(content);
        self.bytes.resize(self.bytes.len().next_multiple_of(BLOCK), 0);
    }

    fn header(&mut self, name: &str, kind: u8, mode: u32, owner: u32, len: usize) {
        let mut block = [0; BLOCK];
        let mut put =
            |at: usize, text: &str| block[at..at + text.len()].copy_from_slice(text.as_bytes());
        put(0, name);
        put(100, &format!("{mode:07o}"));
        put(108, &format!("{owner:07o}"));
        put(116, &format!("{owner:07o}"));
        put(124, &format!("{len:011o}"));
        put(136, &format!("{:011o}", self.time_s));
        // The sum of the block is that with spaces in its own place.
        put(148, "        ");
        put(257, "ustar\x0000");
        block[156] = kind;
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.bytes.extend_from_slice(&block);
    }

    fn end(mut self) -> Vec<u8> {
        self.bytes.resize(self.bytes.len() + 2 * BLOCK, 0);
        self.bytes
    }
}
