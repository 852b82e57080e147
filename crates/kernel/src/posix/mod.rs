//! `posix`: synchronous calls, made by several threads of each channel so that more than one can be
//! in progress, or by the submitter itself.

mod call;
mod channel;
mod inline;
mod pool;

use std::sync::Arc;

use qpair_block::{ChannelOptions, IoChannel, Result};

use crate::file::File;
use crate::mode::Mode;

pub(crate) fn open(
    file: Arc<File>,
    mode: &Mode,
    options: &ChannelOptions,
) -> Result<Box<dyn IoChannel>> {
    Ok(match mode.threads {
        0 => Box::new(inline::Channel::open(file, mode, options)),
        _ => Box::new(channel::Channel::open(file, mode, options)?),
    })
}

pub(crate) fn try_open(file: Arc<File>, mode: &Mode, options: &ChannelOptions) -> Result<String> {
    open(file, mode, options)?;
    let calls = match mode.segments {
        0 => "pread and pwrite".to_owned(),
        segments => format!("preadv2 and pwritev2 of {segments} pieces"),
    };
    let who = match mode.threads {
        0 => "by the submitter itself".to_owned(),
        threads => format!("on up to {threads} threads a channel"),
    };
    Ok(format!("synchronous {calls} {who}"))
}
