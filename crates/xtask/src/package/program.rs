//! The program that is packaged.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Result;

pub(super) struct Program {
    pub(super) file: PathBuf,
    /// Whether the program needs no other file to start: no loader and no libraries.
    pub(super) is_static: bool,
}

/// The type of the program header that names the loader.
const PT_INTERP: u32 = 3;

impl Program {
    pub(super) fn read(file: PathBuf) -> Result<Self> {
        let bytes = fs::read(&file)?;
        let is_static = !has_loader(&bytes)
            .ok_or_else(|| format!("{} is not a program for 64-bit Linux", file.display()))?;
        Ok(Self { file, is_static })
    }

    /// Returns the name of the target, as the compiler has it.
    pub(super) fn target(&self) -> String {
        let library = if self.is_static { "musl" } else { "gnu" };
        format!("{}-unknown-linux-{library}", std::env::consts::ARCH)
    }
}

/// Whether an ELF file names a loader; `None` if it is not a little-endian ELF file of 64 bits.
fn has_loader(bytes: &[u8]) -> Option<bool> {
    let half = |at: usize| Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    if !bytes.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    // Program headers follow the header of the file, far below 4 GiB.
    let (first, size, count) = (word(32)? as usize, half(54)? as usize, half(56)? as usize);
    let kinds = (0..count).map(|i| word(first + i * size));
    Some(kinds.collect::<Option<Vec<u32>>>()?.contains(&PT_INTERP))
}

/// Builds the static program, without paths of this machine in it. With cargo-auditable it holds
/// the list of its crates, which `cargo audit bin` reads.
pub(super) fn build(source: &Path, profile: &str, notes: &mut Vec<String>) -> Result<PathBuf> {
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let folder = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let folder = folder.unwrap_or_else(|| source.join("target"));
    let registry = match std::env::var_os("CARGO_HOME") {
        Some(home) => PathBuf::from(home),
        None => PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cargo"),
    };
    let registry = registry.join("registry/src");
    let renamed = [(source, "/qpair"), (&*folder, "/target"), (&*registry, "/registry")];
    let flags = renamed.map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display()));

    let mut cargo = Command::new(env!("CARGO"));
    let auditable = Command::new("cargo-auditable").arg("--version").stdout(Stdio::null()).status();
    if auditable.is_ok() {
        cargo.arg("auditable");
    } else {
        let what = "the program has no list of its crates, because cargo-auditable is missing";
        notes.push(what.to_owned());
    }
    cargo.args(["build", "--locked", "-p", "qpair-cli", "--profile", profile, "--target", &target]);
    cargo.current_dir(source).env("CARGO_TARGET_DIR", &folder).env("CARGO_INCREMENTAL", "0");
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
    let of_profile = profile.to_uppercase().replace('-', "_");
    cargo.env(format!("CARGO_PROFILE_{of_profile}_STRIP"), "symbols");
    cargo.env(format!("CARGO_PROFILE_{of_profile}_DEBUG"), "0");
    let status = cargo.status()?;
    if !status.success() {
        return Err(format!("the build of the static program failed: {status}").into());
    }
    Ok(folder.join(target).join(profile).join("qpair"))
}

#[cfg(test)]
mod tests {
    use super::has_loader;

    #[test]
    fn a_program_with_a_loader_is_not_static() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let expected = !cfg!(target_env = "musl");
        assert_eq!(has_loader(&own), Some(expected));
        assert_eq!(has_loader(&own[..100]), None, "its program headers are cut off");
        assert_eq!(has_loader(b"#!/bin/sh"), None);
    }
}
