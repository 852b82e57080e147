//! The thread of an open device, and the requests that C's threads post to it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use qpair::completion::Completer;
use qpair::unstable::block::{
    Arena, BlockDevice, Buffer, ChannelOptions, Completion, IoChannel, Request, WaitOptions,
    WakeEvent,
};
use qpair::{Error, ErrorKind};

use crate::completion::{Finished, Outcome, Target};
use crate::error::Failure;
use crate::queue::{self, qpair_queue};

/// The bound on the memory of one device's requests, in bytes.
const MEMORY_BYTES_MAX: u64 = 4 << 30;

pub(super) struct Device {
    pub(super) device: Arc<dyn BlockDevice>,
    pub(super) arena: Arc<Arena>,
    pub(super) depth: u32,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    inbox: Mutex<Inbox>,
    wake: Arc<WakeEvent>,
    /// The number of requests that C has made and the device has not completed.
    in_flight: AtomicUsize,
}

#[derive(Default)]
struct Inbox {
    posted: Vec<Posted>,
    is_closed: bool,
}

/// A request of C. If it is dropped without a completion of the device, it fails.
struct Posted {
    request: Option<Request>,
    user_data: u64,
    operation: u32,
    target: Option<Target>,
    completer: Option<Completer<Finished>>,
    shared: Arc<Shared>,
}

impl Shared {
    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Posted {
    fn finish(&mut self, outcome: Result<Outcome, Failure>) {
        if let Some(completer) = self.completer.take() {
            // Before the completion is seen, so that its taker can make the next request.
            self.shared.in_flight.fetch_sub(1, Ordering::AcqRel);
            let (user_data, operation) = (self.user_data, self.operation);
            completer.complete(Finished { user_data, operation, outcome });
        }
    }

    fn end(mut self, completion: Completion) {
        let outcome = match (completion.result, completion.buffer, self.target.take()) {
            (Err(error), ..) => {
                let doing = format!("serving a request to a block device ({:?})", completion.op);
                Err(Failure::Store(Error::io(error, doing)))
            }
            (Ok(()), Some(buffer), Some(target)) => Ok(Outcome::Read(buffer, target)),
            (Ok(()), ..) => Ok(Outcome::Nothing),
        };
        self.finish(outcome);
    }
}

impl Drop for Posted {
    fn drop(&mut self) {
        self.finish(Err(Failure::Store(Error::new(
            ErrorKind::Closed,
            "the device was closed, or its thread has ended",
        ))));
    }
}

/// Closes the inbox when the thread ends, also by a panic, so that no request waits for it.
struct Ending(Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        let posted = {
            let mut inbox = self.0.inbox();
            inbox.is_closed = true;
            std::mem::take(&mut inbox.posted)
        };
        drop(posted);
    }
}

/// Serves one device until it is closed and has no requests.
fn serve(shared: &Shared, channel: &mut dyn IoChannel, depth: u32) {
    let mut waiting = VecDeque::new();
    let mut under_way: Vec<Option<Posted>> = (0..depth).map(|_| None).collect();
    let mut free: Vec<usize> = (0..under_way.len()).collect();
    let mut completions = Vec::new();
    loop {
        let is_closed = {
            let mut inbox = shared.inbox();
            waiting.extend(inbox.posted.drain(..));
            inbox.is_closed
        };
        while let Some(tag) = free.pop() {
            let Some(mut posted) = waiting.pop_front() else {
                free.push(tag);
                break;
            };
            // Requests are posted with their request, which only a full channel gives back.
            let Some(mut request) = posted.request.take() else { continue };
            request.tag = tag as u64;
            if let Err(request) = channel.submit(request) {
                posted.request = Some(request);
                waiting.push_front(posted);
                free.push(tag);
                break;
            }
            under_way[tag] = Some(posted);
        }
        if is_closed && waiting.is_empty() && channel.in_flight() == 0 {
            return;
        }
        channel.kick();
        if channel.poll(&mut completions) == 0 {
            shared.wake.prepare();
            let nothing_new = {
                let inbox = shared.inbox();
                inbox.posted.is_empty() && inbox.is_closed == is_closed
            };
            if nothing_new {
                let once = WaitOptions { want: 1, linger: Duration::ZERO, timeout: None };
                channel.wait(&mut completions, once);
            }
            shared.wake.awake();
        }
        for completion in completions.drain(..) {
            let tag = completion.tag as usize;
            if let Some(posted) = under_way.get_mut(tag).and_then(Option::take) {
                free.push(tag);
                posted.end(completion);
            }
        }
    }
}

pub(super) fn start(
    device: Arc<dyn BlockDevice>,
    depth: u32,
    transfer_bytes: u32,
) -> Result<Device, Failure> {
    let memory_bytes = u64::from(depth) * u64::from(transfer_bytes);
    if memory_bytes > MEMORY_BYTES_MAX {
        return Err(Failure::invalid(format!(
            "{depth} requests of {transfer_bytes} bytes take more than 4 GiB of memory"
        )));
    }
    let options = device.info().arena_options();
    let arena = Arena::new(transfer_bytes as usize, depth, options).map_err(|error| {
        Error::new(ErrorKind::NoMemory, format!("mapping memory for a device's requests: {error}"))
    })?;
    let wake = WakeEvent::new().map_err(|error| {
        Error::new(ErrorKind::Limit, format!("creating the event of a device: {error}"))
    })?;
    let shared = Arc::new(Shared {
        inbox: Mutex::default(),
        wake: Arc::new(wake),
        in_flight: AtomicUsize::new(0),
    });
    let (tell, told) = mpsc::channel();
    let (of, its_shared, its_arena) = (device.clone(), shared.clone(), arena.clone());
    let run = move || {
        let wake = Some(its_shared.wake.clone());
        let options = ChannelOptions { depth, arenas: vec![its_arena], wake };
        match of.open_channel(&options) {
            Ok(mut channel) => {
                let _ending = Ending(its_shared.clone());
                // The opener waits for this.
                let _ = tell.send(Ok(()));
                serve(&its_shared, &mut *channel, depth);
            }
            Err(error) => drop(tell.send(Err(Error::block(error, "opening a channel")))),
        }
    };
    let thread = std::thread::Builder::new().name("qpair-device".to_owned()).spawn(run);
    let thread = thread.map_err(|error| Error::thread(&error, "opening a device"))?;
    let ended = || Error::new(ErrorKind::Panicked, "the thread of the device has panicked");
    told.recv().map_err(|_| ended())??;
    Ok(Device { device, arena, depth, shared, thread: Some(thread) })
}

impl Device {
    pub(super) fn post(
        &self,
        queue: *mut qpair_queue,
        user_data: u64,
        operation: u32,
        request: Request,
        target: Option<Target>,
    ) -> Result<(), Failure> {
        let completer = queue::get(queue)?.completer();
        let before = self.shared.in_flight.fetch_add(1, Ordering::AcqRel);
        let mut posted = Posted {
            request: Some(request),
            user_data,
            operation,
            target,
            completer: Some(completer),
            shared: self.shared.clone(),
        };
        if before >= self.depth as usize {
            self.shared.in_flight.fetch_sub(1, Ordering::AcqRel);
            posted.completer = None;
            return Err(self.full());
        }
        let mut inbox = self.shared.inbox();
        if inbox.is_closed {
            // Dropped without the lock, the request completes with an error.
            drop(inbox);
            return Ok(());
        }
        inbox.posted.push(posted);
        drop(inbox);
        self.shared.wake.wake();
        Ok(())
    }

    #[cold]
    fn full(&self) -> Failure {
        Failure::Store(Error::with_hint(
            ErrorKind::Busy,
            format!("the device has {} requests in flight", self.depth),
            "take completions first, or open the device with a greater depth",
        ))
    }

    pub(super) fn buffer(&self, len: usize) -> Result<Buffer, Failure> {
        if len > self.arena.block_size() {
            return Err(Failure::invalid(format!(
                "the request has {len} bytes, and the device was opened for at most {}",
                self.arena.block_size()
            )));
        }
        self.arena.lease().ok_or_else(|| self.full())
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.shared.inbox().is_closed = true;
        self.shared.wake.wake();
        if let Some(thread) = self.thread.take() {
            // A thread that has panicked has completed its requests with an error.
            let _ = thread.join();
        }
    }
}
