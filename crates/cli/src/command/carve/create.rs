//! `qpair carve create`.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use qpair_block::{BlockDevice, Carving, SerialChannel, SliceDevice};

use super::target::{Target, in_json};
use crate::failure::{Exit, Failure, Result};
use crate::interrupt::Interrupt;
use crate::parse::number::parse_size;
use crate::show::output::say;
use crate::show::text::size;

const COPY_BYTES: usize = 1 << 20;

/// Make a slice
///
/// Offset and size are exact, and multiples of the device's logical block. The command refuses a
/// device with other content, unless --force is given. It copies an image before it enters the
/// slice in the map.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  qpair carve create disk.img root --from debian.raw
  qpair carve create /dev/sdb data --size 400GiB --offset 1GiB")]
pub(crate) struct Create {
    #[command(flatten)]
    target: Target,

    /// Name of the slice: letters, digits, '-', '_' and '.'
    name: String,

    /// Size of the slice [default: the size of the image]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, required_unless_present = "from")]
    size: Option<u64>,

    /// Offset of the slice on the device [default: a place with enough room]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    offset: Option<u64>,

    /// Copy this raw disk image into the slice
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,

    /// Write to a device with other content; that content is lost
    #[arg(long)]
    force: bool,
}

impl Create {
    pub(super) fn run(self) -> Result<Exit> {
        let interrupt = Interrupt::install()?;
        let device = self.target.open(false)?;
        let mut carving = Carving::open_or_begin(&device, self.force)?;
        let image = self.from.as_deref().map(open_image).transpose()?;
        let block = u64::from(device.info().logical_block_bytes);
        let image_bytes = image.as_ref().map_or(0, |(_, bytes)| *bytes);
        let bytes = self.size.unwrap_or_else(|| image_bytes.next_multiple_of(block));
        if bytes < image_bytes {
            let message = format!(
                "an image of {} does not fit a slice of {}",
                size(image_bytes),
                size(bytes)
            );
            return Err(Failure::usage(message));
        }
        let slice = carving.plan(&self.name, self.offset, bytes)?;
        if let (Some((mut file, _)), Some(path)) = (image, &self.from)
            && !copy(&mut file, path, &carving.open_slice(&slice)?, &interrupt)?
        {
            return Ok(Exit::Interrupted);
        }
        carving.add(slice.clone())?;
        let (name, device) = (&slice.name, &self.target.device);
        say(match self.target.json {
            true => in_json(&slice).to_string(),
            false => format!(
                "carve:name={name}:{device}  {} from byte {} on",
                size(slice.size_bytes),
                slice.start_bytes
            ),
        })?;
        Ok(Exit::Done)
    }
}

fn open_image(path: &Path) -> Result<(File, u64)> {
    let failed = |error: std::io::Error| Failure::io(&error, path.display());
    let file = File::open(path).map_err(failed)?;
    let bytes = file.metadata().map_err(failed)?.len();
    if bytes == 0 {
        return Err(Failure::usage(format!("{} is empty", path.display())));
    }
    Ok((file, bytes))
}

/// Copies an image to the beginning of a slice. Returns false if interrupted.
fn copy(file: &mut File, path: &Path, slice: &SliceDevice, interrupt: &Interrupt) -> Result<bool> {
    let mut channel = SerialChannel::open(slice)?;
    let block = slice.info().logical_block_bytes as usize;
    let mut bytes = Vec::with_capacity(COPY_BYTES);
    let mut at = 0;
    loop {
        bytes.clear();
        let part = file.take(COPY_BYTES as u64).read_to_end(&mut bytes);
        part.map_err(|error| Failure::io(&error, path.display()))?;
        if interrupt.is_requested() {
            return Ok(false);
        }
        if bytes.is_empty() {
            channel.flush()?;
            return Ok(true);
        }
        bytes.resize(bytes.len().next_multiple_of(block), 0);
        channel.write(at, &bytes)?;
        at += bytes.len() as u64;
    }
}
