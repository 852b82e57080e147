//! The tree of files that the Debian package and the RPM install.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::bill::Bill;
use super::program::Program;
use super::{Release, Result, files, gzip, output};

/// The configuration file, which an upgrade does not replace.
pub(super) const CONFIGURATION: &str = "etc/qpair/target.toml";
const DOCUMENTS: &str = "usr/share/doc/qpair";

pub(super) struct Tree {
    pub(super) root: PathBuf,
}

impl Tree {
    /// Lays the tree. `zsh` is the folder of a distribution for functions of zsh.
    pub(super) fn lay(
        root: &Path,
        zsh: &str,
        release: &Release,
        program: &Program,
        bill: &Bill,
    ) -> Result<Self> {
        let tree = Self { root: root.to_owned() };
        let read = |file: &str| fs::read(release.packaging(file));
        let say =
            |words: &str| output(Command::new(&program.file).args(words.split_whitespace()), b"");
        tree.add("usr/bin/qpair", &fs::read(&program.file)?, 0o755)?;
        tree.add(CONFIGURATION, &read("target.toml")?, 0o644)?;
        tree.add(
            "usr/lib/systemd/system/qpair-target.service",
            &read("qpair-target.service")?,
            0o644,
        )?;
        tree.add("usr/lib/sysusers.d/qpair.conf", &read("qpair.sysusers")?, 0o644)?;
        tree.add("usr/lib/udev/rules.d/60-qpair-vfio.rules", &read("60-qpair-vfio.rules")?, 0o644)?;

        let pages = root.with_extension("pages");
        say(&format!("man --dir {}", pages.display()))?;
        for page in files(&pages)? {
            let name = format!("usr/share/man/man1/{}.gz", page.display());
            tree.add(&name, &gzip(&fs::read(pages.join(page))?)?, 0o644)?;
        }
        fs::remove_dir_all(pages)?;
        let completions = [
            ("bash", "usr/share/bash-completion/completions/qpair"),
            ("fish", "usr/share/fish/vendor_completions.d/qpair.fish"),
            ("zsh", zsh),
        ];
        for (shell, name) in completions {
            tree.add(name, &say(&format!("completions {shell}"))?, 0o644)?;
        }

        let changes = fs::read(release.source.join("CHANGELOG.md"))?;
        let documents = [
            ("changelog.gz", gzip(&changes)?),
            ("copyright", read("copyright")?),
            ("licenses.gz", gzip(bill.licenses.as_bytes())?),
            ("sbom.cdx.json", bill.json(release)?),
        ];
        for (name, bytes) in documents {
            tree.add(&format!("{DOCUMENTS}/{name}"), &bytes, 0o644)?;
        }
        Ok(tree)
    }

    pub(super) fn add(&self, name: &str, bytes: &[u8], mode: u32) -> Result<()> {
        let path = self.root.join(name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&path, bytes)?;
        // Whatever umask this runs with.
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        let folders = path.ancestors().skip(1).take_while(|path| path.starts_with(&self.root));
        for folder in folders {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
        }
        Ok(())
    }
}
