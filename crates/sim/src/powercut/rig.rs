//! Recorded devices: QEMU's storage daemon serves each over vhost-user-blk, and writes its log to
//! this process.
//!
//! ```text
//!   load ── vhost-user ── (qpair target ──) vhost-user-blk ── blklogwrites ── file of the device
//!                                                                 └── nbd ── Recorder
//! ```
//!
//! The file is served with `cache.no-flush`: a flush becomes an entry of the log as soon as the
//! daemon sees it, and does not wait for a disk.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use qpair_block::BlockDevice;
use qpair_vhost_user::{VhostUserBlk, VhostUserOptions};

use super::image::Image;
use super::record::{Record, Shape};
use super::recorder::Recorder;

pub(super) const DAEMON: &str = "qemu-storage-daemon";
/// The time that a program may take until it listens.
const START: Duration = Duration::from_secs(30);

/// The time that a back end may take to answer: long enough for a busy machine.
const ANSWER: Duration = Duration::from_secs(60);

/// Returns the name by which the program opens a device.
pub(super) fn name(socket: &Path) -> String {
    format!("vhost-user:timeout_ms={}:{}", ANSWER.as_millis(), socket.display())
}

pub(super) struct Rig {
    pub(super) recorder: Recorder,
    shapes: Vec<Shape>,
    pub(super) sockets: Vec<PathBuf>,
    // Fields are dropped in this order: the target before the daemon that it uses.
    target: Option<Process>,
    daemon: Process,
}

/// A process that is killed when this is dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Rig {
    /// Serves devices with this content. With `target`, that program serves them again, as `qpair
    /// target`, on its own sockets.
    pub(super) fn start(
        folder: &Path,
        images: &[Image],
        target: Option<&Path>,
    ) -> Result<Self, String> {
        let said = |doing: &str, error: io::Error| format!("{doing}: {error}");
        // An earlier rig may have left files there.
        let _ = std::fs::remove_dir_all(folder);
        std::fs::create_dir_all(folder).map_err(|error| said("making a folder", error))?;
        let recorder = Recorder::new(images.len());
        let mut command = Command::new(DAEMON);
        let mut sockets = Vec::new();
        for (device, image) in images.iter().enumerate() {
            let (file, log) =
                (folder.join(format!("{device}.img")), folder.join(format!("{device}.nbd")));
            let socket = folder.join(format!("{device}.sock"));
            image.save(&file).map_err(|error| said("writing an image", error))?;
            recorder.listen(device, &log).map_err(|error| said("listening for a log", error))?;
            let block = image.shape.block_bytes;
            for node in [
                format!(
                    "driver=file,node-name=file{device},filename={},cache.no-flush=on,discard=unmap",
                    file.display()
                ),
                format!(
                    "driver=nbd,node-name=log{device},server.type=unix,server.path={}",
                    log.display()
                ),
                format!(
                    "driver=blklogwrites,node-name=disk{device},file=file{device},log=log{device},log-sector-size={block},discard=unmap"
                ),
            ] {
                command.arg("--blockdev").arg(node);
            }
            command.arg("--export").arg(format!(
                "type=vhost-user-blk,id=export{device},node-name=disk{device},addr.type=unix,addr.path={},writable=on,num-queues=4,logical-block-size={block}",
                socket.display()
            ));
            sockets.push(socket);
        }
        let mut daemon = start(&mut command, &folder.join("daemon.log"))?;
        let is_there = |socket: &PathBuf| socket.exists();
        wait_for(&mut daemon, &folder.join("daemon.log"), || sockets.iter().all(is_there))?;
        let mut rig = Self {
            recorder,
            shapes: images.iter().map(|image| image.shape).collect(),
            sockets,
            target: None,
            daemon,
        };
        if let Some(program) = target {
            rig.put_between(folder, program)?;
        }
        Ok(rig)
    }

    fn put_between(&mut self, folder: &Path, program: &Path) -> Result<(), String> {
        let mut command = Command::new(program);
        command.arg("target").arg("--folder").arg(folder);
        for (device, socket) in self.sockets.iter().enumerate() {
            command.arg("--disk").arg(format!("t{device}={}", name(socket)));
        }
        let said = folder.join("target.log");
        let mut target = start(&mut command, &said)?;
        let sockets: Vec<_> =
            (0..self.sockets.len()).map(|device| folder.join(format!("t{device}.sock"))).collect();
        wait_for(&mut target, &said, || sockets.iter().all(|socket| socket.exists()))?;
        (self.sockets, self.target) = (sockets, Some(target));
        Ok(())
    }

    /// Opens the devices in this process. Each device accepts one client at a time.
    pub(super) fn devices(&self) -> Result<Vec<Arc<dyn BlockDevice>>, String> {
        let options = VhostUserOptions { timeout: ANSWER, ..VhostUserOptions::default() };
        let open = |socket: &PathBuf| -> Result<Arc<dyn BlockDevice>, String> {
            let began = Instant::now();
            loop {
                match VhostUserBlk::open(socket, options.clone()) {
                    Ok(device) => return Ok(Arc::new(device)),
                    Err(error) if began.elapsed() >= START => {
                        return Err(format!("opening {}: {error}", socket.display()));
                    }
                    Err(_) => std::thread::sleep(Duration::from_millis(5)),
                }
            }
        };
        self.sockets.iter().map(open).collect()
    }

    pub(super) fn stop(self) -> Result<Record, String> {
        let Self { recorder, shapes, target, daemon, .. } = self;
        drop(target);
        drop(daemon);
        recorder.wait();
        Record::new(&recorder, &shapes)
    }
}

fn start(command: &mut Command, said: &Path) -> Result<Process, String> {
    let log = File::create(said).and_then(|log| Ok((log.try_clone()?, log)));
    let (out, err) = log.map_err(|error| format!("making {}: {error}", said.display()))?;
    let child = command.stdin(Stdio::null()).stdout(out).stderr(err).spawn();
    child
        .map(Process)
        .map_err(|error| format!("starting {}: {error}", command.get_program().display()))
}

fn wait_for(
    process: &mut Process,
    said: &Path,
    mut is_ready: impl FnMut() -> bool,
) -> Result<(), String> {
    let began = Instant::now();
    while !is_ready() {
        let ended =
            process.0.try_wait().map_err(|error| format!("waiting for a program: {error}"))?;
        if ended.is_some() || began.elapsed() >= START {
            // If the program printed nothing, the message below is all that is known.
            let text = std::fs::read_to_string(said).unwrap_or_default();
            return Err(format!("{} did not listen: {text}", said.display()));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}
