//! The crates that the command is built of: a list for programs (CycloneDX), and the texts of their
//! licenses for people.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Release, Result, output};

pub(super) struct Bill {
    components: Vec<Value>,
    dependencies: Vec<Value>,
    pub(super) licenses: String,
}

/// A crate: its name and version.
type Crate = (String, String);

fn reference((name, version): &Crate) -> String {
    format!("pkg:cargo/{name}@{version}")
}

impl Bill {
    pub(super) fn of(release: &Release, target: String) -> Result<Self> {
        let cargo = |words: &str| {
            let mut cargo = Command::new(env!("CARGO"));
            cargo.args(words.split(' ')).args(["--locked"]).current_dir(&release.source);
            output(&mut cargo, b"")
        };
        // Of this command alone: the metadata of the workspace has crates that only tests build.
        let tree = cargo(&format!(
            "tree -p qpair-cli -e normal --target {target} --prefix none --no-dedupe"
        ))?;
        let built: BTreeSet<Crate> = String::from_utf8(tree)?.lines().filter_map(named).collect();
        let metadata: Value = serde_json::from_slice(&cargo("metadata --format-version 1")?)?;
        let sums = checksums(&fs::read_to_string(release.source.join("Cargo.lock"))?)?;

        let packages = metadata["packages"].as_array().into_iter().flatten();
        let packages: BTreeMap<Crate, &Value> = packages
            .map(|package| ((text(&package["name"]), text(&package["version"])), package))
            .filter(|(of, _)| built.contains(of))
            .collect();
        let ids: BTreeMap<&str, &Crate> = packages
            .iter()
            .filter_map(|(of, package)| Some((package["id"].as_str()?, of)))
            .collect();
        let mut bill =
            Self { components: Vec::new(), dependencies: Vec::new(), licenses: String::new() };
        for (of, package) in &packages {
            let mut component = json!({
                "type": if of.0 == "qpair-cli" { "application" } else { "library" },
                "bom-ref": reference(of),
                "name": of.0,
                "version": of.1,
                "licenses": [{ "expression": text(&package["license"]).replace('/', " OR ") }],
                "purl": reference(of),
            });
            if let Some(sum) = sums.get(of) {
                component["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
            }
            bill.components.push(component);
            if !package["source"].is_null() {
                bill.add_licenses(of, package)?;
            }
        }
        for node in metadata["resolve"]["nodes"].as_array().into_iter().flatten() {
            let Some(of) = node["id"].as_str().and_then(|id| ids.get(id)) else { continue };
            let needs = node["dependencies"].as_array().into_iter().flatten();
            let needs = needs.filter_map(|id| ids.get(id.as_str()?)).map(|of| reference(of));
            let needs: BTreeSet<String> = needs.collect();
            bill.dependencies.push(json!({ "ref": reference(of), "dependsOn": needs }));
        }
        Ok(bill)
    }

    fn add_licenses(&mut self, of: &Crate, package: &Value) -> Result<()> {
        let manifest = text(&package["manifest_path"]);
        let folder = Path::new(&manifest).parent().unwrap_or(Path::new("."));
        let mut found = Vec::new();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
            let words = ["LICENSE", "LICENCE", "COPYING", "NOTICE", "COPYRIGHT", "UNLICENSE"];
            if path.is_file() && words.iter().any(|word| name.starts_with(word)) {
                found.push(path);
            }
        }
        found.sort();
        // Writing to a string does not fail.
        let _ = writeln!(self.licenses, "==== {} {}: {}\n", of.0, of.1, text(&package["license"]));
        for path in found {
            let _ = writeln!(self.licenses, "{}", String::from_utf8_lossy(&fs::read(path)?));
        }
        Ok(())
    }

    /// Returns the list as CycloneDX 1.5.
    pub(super) fn json(&self, release: &Release) -> Result<Vec<u8>> {
        let (own, others): (Vec<&Value>, Vec<&Value>) =
            self.components.iter().partition(|one| one["type"] == "application");
        let bill = json!({
            "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
            "bomFormat": "CycloneDX",
            "specVersion": "1.5",
            "version": 1,
            "metadata": {
                "timestamp": release.time()?,
                "component": own.first(),
                "properties": [{ "name": "commit", "value": release.commit }],
            },
            "components": others,
            "dependencies": self.dependencies,
        });
        Ok(serde_json::to_vec_pretty(&bill)?)
    }
}

/// Returns the crate of a line of `cargo tree`: "name v1.2.3 (where)".
fn named(line: &str) -> Option<Crate> {
    let mut words = line.split(' ');
    Some((words.next()?.to_owned(), words.next()?.strip_prefix('v')?.to_owned()))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Returns the checksums in a `Cargo.lock`.
fn checksums(lock: &str) -> Result<BTreeMap<Crate, String>> {
    let lock = DeTable::parse(lock)?;
    let packages = lock.get_ref().get("package").and_then(|list| list.get_ref().as_array());
    let packages = packages.into_iter().flat_map(|list| list.iter());
    let of = |package: &Spanned<DeValue<'_>>, key: &str| {
        Some(package.get_ref().as_table()?.get(key)?.get_ref().as_str()?.to_owned())
    };
    let sums = packages.filter_map(|package| {
        Some(((of(package, "name")?, of(package, "version")?), of(package, "checksum")?))
    });
    Ok(sums.collect())
}
