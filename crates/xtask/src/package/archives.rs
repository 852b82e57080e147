//! The Debian package and the RPM. Their own tools write them, from one tree and one set of
//! scripts.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::bill::Bill;
use super::program::Program;
use super::tree::{CONFIGURATION, Tree};
use super::{Release, Result, environment, files, have, output};

pub(super) struct Archives<'a> {
    pub(super) release: &'a Release,
    pub(super) program: &'a Program,
    pub(super) bill: &'a Bill,
    pub(super) out: &'a Path,
}

/// The scripts of a package, in `packaging/scripts`, and their names in a Debian package.
const SCRIPTS: [(&str, &str); 3] =
    [("installed", "postinst"), ("removing", "prerm"), ("removed", "postrm")];

impl Archives<'_> {
    fn tree(&self, name: &str, zsh: &str) -> Result<Tree> {
        let root = self.out.join(name);
        Tree::lay(&root, zsh, self.release, self.program, self.bill)
    }

    pub(super) fn debian(&self, notes: &mut Vec<String>) -> Result<()> {
        if !have("dpkg-deb", "the Debian package", notes) {
            return Ok(());
        }
        let tree = self.tree("deb.tree", "usr/share/zsh/vendor-completions/_qpair")?;
        let mut sums = Vec::new();
        let mut bytes = 0;
        for file in files(&tree.root)? {
            bytes += fs::metadata(tree.root.join(&file))?.len();
            if file != Path::new(CONFIGURATION) {
                let sum = Command::new("md5sum").arg(&file).current_dir(&tree.root).output()?;
                sums.extend(sum.stdout);
            }
        }
        let depends = if self.program.is_static { "" } else { "Depends: libc6, libgcc-s1\n" };
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let control = format!(
            "Package: qpair\n\
             Version: {version}\n\
             Architecture: {architecture}\n\
             Maintainer: The qpair authors\n\
             Installed-Size: {kib}\n\
             {depends}\
             Suggests: qemu-system\n\
             Section: admin\n\
             Priority: optional\n\
             Description: key-value stores on block devices, and block devices for VMs\n \
             The command qpair loads, reads, checks, backs up and repairs key-value\n \
             stores on files and block devices, measures devices, and serves block\n \
             devices to virtual machines with no kernel in the data path.\n",
            version = self.release.version,
            kib = bytes.div_ceil(1024),
        );
        tree.add("DEBIAN/control", control.as_bytes(), 0o644)?;
        tree.add("DEBIAN/conffiles", format!("/{CONFIGURATION}\n").as_bytes(), 0o644)?;
        tree.add("DEBIAN/md5sums", &sums, 0o644)?;
        for (script, name) in SCRIPTS {
            let bytes = fs::read(self.release.packaging("scripts").join(script))?;
            tree.add(&format!("DEBIAN/{name}"), &bytes, 0o755)?;
        }
        let file = format!("qpair_{}_{architecture}.deb", self.release.version);
        let mut dpkg = Command::new("dpkg-deb");
        dpkg.args(["--root-owner-group", "-Zgzip", "--build"]).arg(&tree.root);
        dpkg.arg(self.out.join(file)).env_clear().envs(environment(self.release));
        output(&mut dpkg, b"")?;
        fs::remove_dir_all(tree.root)?;
        Ok(())
    }

    pub(super) fn rpm(&self, notes: &mut Vec<String>) -> Result<()> {
        if !have("rpmbuild", "the RPM", notes) {
            return Ok(());
        }
        let tree = self.tree("rpm.tree", "usr/share/zsh/site-functions/_qpair")?;
        let mut list = String::from("%dir /etc/qpair\n%dir /usr/share/doc/qpair\n");
        for file in files(&tree.root)? {
            if file == Path::new(CONFIGURATION) {
                list.push_str("%config(noreplace) ");
            }
            list.push_str(&format!("/{}\n", file.display()));
        }
        let work = self.out.join("rpm.work");
        fs::create_dir_all(&work)?;
        let listed = work.join("files");
        fs::write(&listed, list)?;
        let mut rpmbuild = Command::new("rpmbuild");
        rpmbuild.args(["-bb", "--quiet", "--target", std::env::consts::ARCH]);
        let packaging = self.release.packaging("");
        let mut define = |name: &str, value: &dyn std::fmt::Display| {
            rpmbuild.args(["--define", &format!("{name} {value}")]);
        };
        define("of_version", &self.release.version);
        define("of_tree", &tree.root.display());
        define("of_files", &listed.display());
        define("of_packaging", &packaging.display());
        define("_topdir", &work.display());
        define("_rpmdir", &self.out.display());
        define("_rpmfilename", &"%{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}.rpm");
        if !self.program.is_static {
            define("of_requires", &"libc.so.6()(64bit)");
        }
        rpmbuild.arg(self.release.packaging("qpair.spec"));
        rpmbuild.env_clear().envs(environment(self.release)).env("HOME", &work);
        output(&mut rpmbuild, b"")?;
        fs::remove_dir_all(tree.root)?;
        fs::remove_dir_all(work)?;
        Ok(())
    }
}
