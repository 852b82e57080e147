//! Packages of the command for users: a static program, a Debian package, an RPM, an image for
//! containers, and the list of the crates that the command is built of. See
//! docs/design/packages.md.
//!
//! Everything follows from the commit: files have its time, and no path of this machine is in them.

mod archives;
mod bill;
mod image;
mod program;
mod tree;

use std::error::Error;
use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::{fs, io};

use sha2::{Digest as _, Sha256};
use toml::de::DeTable;

use archives::Archives;
use bill::Bill;
use program::Program;

/// Options of `cargo xtask package`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Package this program instead of building a static one
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Profile of the build
    #[arg(long, default_value = "release")]
    profile: String,
    /// Source tree to build and to package [default: this one]
    #[arg(long, value_name = "FOLDER")]
    source: Option<PathBuf>,
    /// Folder for the packages; its content is replaced
    #[arg(long, value_name = "FOLDER", default_value = "target/packages")]
    out: PathBuf,
}

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The release that is packaged.
struct Release {
    /// The root of the source tree.
    source: PathBuf,
    version: String,
    commit: String,
    /// The time of the commit in seconds since 1970: the time of all files.
    time_s: u64,
}

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "this is a command")]
pub(crate) fn run(options: &Options) -> ExitCode {
    match make(options) {
        Ok(lines) => {
            println!("{}", lines.join("\n"));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("making the packages: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Makes the packages. Returns lines for people: a hash and a name each, and what was left out.
fn make(options: &Options) -> Result<Vec<String>> {
    let own = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let source = options.source.clone().unwrap_or_else(own).canonicalize()?;
    let release = Release::of(source)?;
    let mut notes = Vec::new();
    let file = match &options.binary {
        Some(file) => file.canonicalize()?,
        None => program::build(&release.source, &options.profile, &mut notes)?,
    };
    let program = Program::read(file)?;
    let out = &options.out;
    if out.exists() {
        fs::remove_dir_all(out)?;
    }
    fs::create_dir_all(out)?;
    let out = out.canonicalize()?;
    let bill = Bill::of(&release, program.target())?;
    let name = format!("qpair-{}", release.version);
    fs::write(out.join(format!("{name}.cdx.json")), bill.json(&release)?)?;

    let archives = Archives { release: &release, program: &program, bill: &bill, out: &out };
    archives.debian(&mut notes)?;
    archives.rpm(&mut notes)?;
    if program.is_static {
        fs::copy(&program.file, out.join(format!("{name}-{}", program.target())))?;
        image::write(&release, &program, &out.join(format!("{name}-oci")))?;
    } else {
        notes.push("left out: the image, because the program is not static".to_owned());
    }
    let mut lines = sums(&out)?;
    fs::write(out.join("SHA256SUMS"), lines.join("\n") + "\n")?;
    lines.append(&mut notes);
    Ok(lines)
}

impl Release {
    fn of(source: PathBuf) -> Result<Self> {
        let git = |words: &str| -> Result<String> {
            let mut git = Command::new("git");
            let text = output(git.arg("-C").arg(&source).args(words.split(' ')), b"")?;
            Ok(String::from_utf8(text)?.trim().to_owned())
        };
        let time_s = match std::env::var("SOURCE_DATE_EPOCH") {
            Ok(text) => text.parse()?,
            Err(_) => git("log -1 --format=%ct")?.parse()?,
        };
        let commit = git("rev-parse HEAD")?;
        let manifest = fs::read_to_string(source.join("Cargo.toml"))?;
        let manifest = DeTable::parse(&manifest)?;
        let mut of_all = manifest.get_ref().get("workspace");
        for name in ["package", "version"] {
            of_all = of_all.and_then(|table| table.get_ref().as_table()?.get(name));
        }
        let version = of_all.and_then(|version| version.get_ref().as_str());
        let version = version.ok_or("Cargo.toml has no version of the workspace")?.to_owned();
        Ok(Self { version, commit, time_s, source })
    }

    fn packaging(&self, file: &str) -> PathBuf {
        self.source.join("packaging").join(file)
    }

    /// Returns the time of the commit as ISO 8601 has it.
    fn time(&self) -> Result<String> {
        let at = format!("@{}", self.time_s);
        let text = output(Command::new("date").args(["-u", "-d", &at, "+%FT%TZ"]), b"")?;
        Ok(String::from_utf8(text)?.trim().to_owned())
    }
}

/// Runs a command with this input, and returns its output.
fn output(command: &mut Command, input: &[u8]) -> Result<Vec<u8>> {
    let what = command.get_program().to_string_lossy().into_owned();
    let failed = |why: &dyn std::fmt::Display| format!("{what} failed: {why}");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| failed(&error))?;
    let mut stdin = child.stdin.take();
    let output = std::thread::scope(|scope| {
        // A command that refuses its input closes it early, and its status says so.
        scope.spawn(move || stdin.as_mut().map(|stdin| stdin.write_all(input)));
        child.wait_with_output()
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(failed(&format_args!("{}, {}", output.status, said.trim())).into());
    }
    Ok(output.stdout)
}

fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    output(Command::new("gzip").arg("-9n"), bytes)
}

/// Whether a tool is installed. If it is not, a note says what is left out.
fn have(tool: &str, what: &str, notes: &mut Vec<String>) -> bool {
    let there = Command::new(tool).arg("--version").stdout(Stdio::null()).status().is_ok();
    if !there {
        notes.push(format!("left out: {what}, because {tool} is not installed"));
    }
    there
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Returns the files in a folder and below it, as paths from the folder, in order.
fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next)? {
            let path = entry?.path();
            match path.is_dir() {
                true => folders.push(path),
                false => found.extend(path.strip_prefix(folder).ok().map(Path::to_owned)),
            }
        }
    }
    found.sort();
    Ok(found)
}

fn sums(out: &Path) -> Result<Vec<String>> {
    let line =
        |file: PathBuf| Ok(format!("{}  {}", sha256(&fs::read(out.join(&file))?), file.display()));
    files(out)?.into_iter().map(line).collect()
}

/// Returns the variables of a command, which has only those that a package may depend on.
fn environment(release: &Release) -> Vec<(&'static str, String)> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    vec![
        ("PATH", OsStr::to_string_lossy(&path).into_owned()),
        ("SOURCE_DATE_EPOCH", release.time_s.to_string()),
        ("TZ", "UTC".to_owned()),
        ("LC_ALL", "C".to_owned()),
    ]
}
