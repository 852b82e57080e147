//! Starting the workers of a store, each with its channel.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use qpair_block::{Arena, ChannelOptions, IoChannel, format_bytes, open_pair};
use qpair_format::{Error, ErrorKind, Result};

use super::chores::Chores;
use super::{StoreOptions, WorkerSet};
use crate::shared::Shared;
use crate::sync::WorkerHandle;
use crate::task::{Runtime, Worker, WorkerOptions, log_arena, stepped};
use crate::tx::Tx;

pub(super) fn start_workers(
    shared: &Arc<Shared>,
    tx: &Arc<Tx>,
    options: &StoreOptions,
) -> Result<WorkerSet> {
    let depth = options.depth.min(shared.device.info().depth_max).max(1);
    let worker_options = WorkerOptions {
        depth,
        reads: match &options.runtime {
            // Throughput differs between runs with the same seed.
            Runtime::Stepped { .. } if options.reads == 0 => depth,
            _ => options.reads,
        },
        batch: options.batch.min(depth),
        linger: Duration::from_micros(u64::from(options.linger_us)),
        cycles: options.cycles,
        clock: match &options.runtime {
            Runtime::Stepped { clock, .. } => Some(clock.clone()),
            Runtime::Threads => None,
        },
        upkeep: Arc::new(Chores { tx: tx.clone() }),
    };
    match &options.runtime {
        Runtime::Threads => {
            start_threads(shared, worker_options, options.prefault).map(WorkerSet::Threads)
        }
        Runtime::Stepped { seed, clock } => {
            let workers: Result<Vec<_>> = shared
                .worker_handles
                .iter()
                .map(|handle| {
                    let (channel, log) = open_channel(shared, handle, &worker_options)?;
                    Ok(Worker::new(
                        shared.clone(),
                        handle.clone(),
                        worker_options.clone(),
                        channel,
                        log,
                    ))
                })
                .collect();
            stepped::enlist(shared, workers?, *seed, clock.clone());
            Ok(WorkerSet::Stepped)
        }
    }
}

/// Opens a worker's channel, on the thread that will use it, and allocates memory for the worker's
/// log.
fn open_channel(
    shared: &Shared,
    handle: &WorkerHandle,
    options: &WorkerOptions,
) -> Result<(Box<dyn IoChannel>, Arc<Arena>)> {
    let log = log_arena(shared.log_info(), shared.wal.options.geometry.block_bytes)?;
    let mut channel_options = ChannelOptions {
        depth: options.depth,
        arenas: vec![shared.pool.frames.arena().clone(), log.clone()],
        wake: Some(handle.wake.clone()),
    };
    let channel = match &shared.wal.device {
        None => shared.device.open_channel(&channel_options),
        Some(log_device) => {
            let device = log_device.device.as_ref();
            channel_options.arenas.truncate(1);
            let depth = options.depth.min(device.info().depth_max).max(1);
            let log_options = ChannelOptions { depth, arenas: vec![log.clone()], wake: None };
            open_pair((shared.device.as_ref(), &channel_options), (device, &log_options))
        }
    };
    channel
        .map(|channel| (channel, log))
        .map_err(|error| Error::block(error, "opening a worker's channel"))
}

/// Prefaults a worker's part of the memory for pages.
fn prefault_part(shared: &Shared, worker: usize) -> Result<()> {
    let pool = &shared.pool;
    pool.prefault(worker, shared.worker_handles.len()).map_err(|error| match error.kind() {
        std::io::ErrorKind::InvalidInput => Error::with_hint(
            ErrorKind::Unsupported,
            format!("prefaulting memory: {error}"),
            "prefault needs Linux 5.14 or later; open the store without it",
        ),
        _ => Error::with_hint(
            ErrorKind::NoMemory,
            format!(
                "prefaulting {} of memory: {error}",
                format_bytes(pool.frames.arena().mapped_bytes() as u64)
            ),
            "give the store less memory",
        ),
    })
}

fn start_threads(
    shared: &Arc<Shared>,
    worker_options: WorkerOptions,
    prefault: bool,
) -> Result<Vec<std::thread::JoinHandle<qpair_block::ChannelStatistics>>> {
    let (started, starting) = mpsc::channel();
    let mut threads = Vec::new();
    for (index, handle) in shared.worker_handles.iter().enumerate() {
        let (shared, handle, report) = (shared.clone(), handle.clone(), started.clone());
        let worker_options = worker_options.clone();
        let thread =
            std::thread::Builder::new().name(format!("qpair-worker-{index}")).spawn(move || {
                let ready = match prefault {
                    true => prefault_part(&shared, index),
                    false => Ok(()),
                };
                match ready.and_then(|()| open_channel(&shared, &handle, &worker_options)) {
                    Ok((channel, log)) => {
                        let _ = report.send(Ok(()));
                        drop(report);
                        Worker::run(shared, handle, worker_options, channel, log)
                    }
                    Err(error) => {
                        let _ = report.send(Err(error));
                        qpair_block::ChannelStatistics::default()
                    }
                }
            });
        match thread {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                let _ = started.send(Err(Error::thread(&error, "starting a worker")));
            }
        }
    }
    drop(started);
    let outcome: Result<()> = starting.iter().take(shared.worker_handles.len()).collect();
    if let Err(error) = outcome {
        shared.worker_handles.iter().for_each(|handle| handle.stop());
        for thread in threads {
            let _ = thread.join();
        }
        return Err(error);
    }
    Ok(threads)
}
