//! The judgement by the program itself: the images as files, checked and read by `qpair check` and
//! `qpair scan`.

use std::path::Path;
use std::process::{Command, Stdio};

use super::history::{Found, Place};
use super::image::Image;
use super::plan::Plan;

/// Judges an existing store. `found` is the data that the engine found in the same images.
pub(super) fn judge_files(
    plan: &Plan,
    program: &Path,
    folder: &Path,
    images: &[Image],
    found: &Found,
) -> Result<(), String> {
    std::fs::create_dir_all(folder).map_err(|error| format!("making a folder: {error}"))?;
    let mut names = Vec::new();
    for (device, image) in images.iter().enumerate() {
        let path = folder.join(format!("{device}.file"));
        image.save(&path).map_err(|error| format!("writing an image: {error}"))?;
        names.push(path.display().to_string());
    }
    let (members, log) = names.split_at(plan.members.min(names.len()));
    let mut store = Vec::new();
    for (number, member) in members.iter().enumerate() {
        store.extend((number > 0).then_some("--member"));
        store.push(member);
    }
    for log in log {
        store.extend(["--log-device", log]);
    }
    let key = plan.key_arguments(folder)?;
    store.extend(key.iter().map(String::as_str));
    // Pages may be smaller than the blocks of this file system.
    store.extend(["--buffered", "--workers", "1", "--memory", "8MiB"]);
    // The exit code is 1 also for a superblock that the cut tore whose second copy is whole.
    let (_, checked) = run(program, &["check", "--json"], &store)?;
    for wanted in ["\"faults\":[]", "\"log_faults\":[]"] {
        if !checked.contains(wanted) {
            return Err(format!("qpair check found something: {checked}"));
        }
    }
    let mut tables: Vec<&str> = found.keys().map(|place| place.table.as_str()).collect();
    tables.dedup();
    let mut read = Found::new();
    for table in tables {
        let (is_done, text) = run(program, &["scan", "--table", table], &store)?;
        if !is_done {
            return Err(format!("qpair scan failed: {text}"));
        }
        for line in text.lines() {
            let (key, value) = line.split_once('\t').unwrap_or((line, ""));
            let place = Place { table: table.to_owned(), key: key.to_owned() };
            read.insert(place, value.as_bytes().to_vec());
        }
    }
    match read == *found {
        true => Ok(()),
        false => Err(format!(
            "qpair scan found {} records, other than the {} of the engine",
            read.len(),
            found.len()
        )),
    }
}

/// Runs a command. Returns whether it succeeded, and its output; or the reason of the failure if it
/// printed nothing.
fn run(program: &Path, arguments: &[&str], store: &[&str]) -> Result<(bool, String), String> {
    let mut command = Command::new(program);
    command.args(arguments).args(store).stdin(Stdio::null());
    let output =
        command.output().map_err(|error| format!("running {}: {error}", program.display()))?;
    let text = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    Ok((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
}
