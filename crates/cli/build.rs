//! Gives the command the commit and the target that it is built from and for.
//!
//! A debug build does not name a commit, so that a commit does not make it stale.

#![allow(clippy::print_stdout, reason = "a build script speaks to cargo this way")]

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let variable = |name| std::env::var(name).unwrap_or_default();
    let commit = match variable("PROFILE").as_str() {
        "release" => of_package().or_else(of_repository).unwrap_or_else(|| "unknown".to_owned()),
        _ => "debug build".to_owned(),
    };
    println!("cargo::rustc-env=QPAIR_COMMIT={commit}");
    println!("cargo::rustc-env=QPAIR_TARGET={}", variable("TARGET"));
}

/// Returns the commit that cargo wrote into a published package.
fn of_package() -> Option<String> {
    let text = std::fs::read_to_string(".cargo_vcs_info.json").ok()?;
    let (_, rest) = text.split_once("\"sha1\": \"")?;
    rest.split_once('"').map(|(commit, _)| commit.to_owned())
}

/// Returns the commit of the repository, if this folder is in a repository of the project.
fn of_repository() -> Option<String> {
    // A source tree without history may be inside of another project's repository.
    if !Path::new("../../.git").exists() {
        return None;
    }
    // This file grows with each commit and each checkout.
    let moves = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    if Path::new(&moves).exists() {
        println!("cargo::rerun-if-changed={moves}");
    }
    git(&["rev-parse", "HEAD"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
