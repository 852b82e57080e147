//! A controller that answers every SCSI command at once and moves no data, so that only the layers
//! above it take time. The soft HBA does the rest (registers, initialisation, discovery), and
//! everything until [`Stub::answer_at_once`].

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use qpair_block::Result;
use qpair_memory::DmaMemory;
use qpair_mpi_wire::descriptor::{DESCRIPTOR_BYTES, ReplyDescriptor, RequestDescriptor, request};
use qpair_mpi_wire::function::IOC_INIT;
use qpair_mpi_wire::init::Init;
use qpair_mpi_wire::message::function_of;
use qpair_mpi_wire::registers::{DOORBELL, REPLY_POST_HOST_INDEX, REQUEST_DESCRIPTOR_POST_LOW};
use qpair_pci::{PciDevice, PciWrapper, Stepped};
use qpair_softdev::{SoftHba, SoftHbaOptions};

/// The maximum number of requests that wait for a step.
const POSTED: usize = 64;

struct Replies {
    memory: DmaMemory,
    at: usize,
    entries: usize,
    queue: u8,
}

pub(crate) struct Stub {
    soft: Arc<SoftHba>,
    is_quick: AtomicBool,
    /// Requests posted and not answered. One thread posts and steps.
    posted: [AtomicU16; POSTED],
    tail: AtomicUsize,
    head: AtomicUsize,
    index: AtomicUsize,
    replies: OnceLock<Replies>,
    opened: Mutex<Vec<(u64, DmaMemory)>>,
    /// The words of the handshake in progress.
    words: Mutex<Vec<u32>>,
    init: Mutex<Option<Init>>,
    /// The index up to which the driver has taken replies, by queue.
    told: Mutex<[usize; 256]>,
    /// The time spent in [`PciDevice::step`], if it is measured.
    pub(crate) spent_ns: AtomicU64,
    is_timed: bool,
}

impl Stub {
    pub(crate) fn new(text: &str, is_timed: bool) -> Arc<Self> {
        Arc::new(Self {
            soft: SoftHba::new(SoftHbaOptions::parse(text).unwrap()).unwrap(),
            is_quick: AtomicBool::new(false),
            posted: [const { AtomicU16::new(0) }; POSTED],
            tail: AtomicUsize::new(0),
            head: AtomicUsize::new(0),
            index: AtomicUsize::new(0),
            replies: OnceLock::new(),
            opened: Mutex::default(),
            words: Mutex::default(),
            init: Mutex::default(),
            told: Mutex::new([0; 256]),
            spent_ns: AtomicU64::new(0),
            is_timed,
        })
    }

    /// Answers commands at once from now on, on the reply queue of the first one.
    pub(crate) fn answer_at_once(&self) {
        self.is_quick.store(true, Ordering::Release);
    }

    /// Finds the position for the answers: where the driver polls next.
    #[cold]
    fn find(&self, queue: u8) -> Replies {
        let init = self.init.lock().unwrap().unwrap();
        let entries = usize::from(init.reply_queue_entries);
        let iova = init.reply_queues + (usize::from(queue) * entries * DESCRIPTOR_BYTES) as u64;
        let opened = self.opened.lock().unwrap();
        let is_in = |(start, memory): &&(u64, DmaMemory)| {
            (*start..*start + memory.bytes().len() as u64).contains(&iova)
        };
        let (start, memory) = opened.iter().find(is_in).unwrap();
        self.index.store(self.told.lock().unwrap()[usize::from(queue)], Ordering::Relaxed);
        Replies { memory: memory.clone(), at: (iova - start) as usize, entries, queue }
    }

    #[inline(always)]
    fn run(&self, replies: &Replies) -> bool {
        let (mut head, tail) =
            (self.head.load(Ordering::Relaxed), self.tail.load(Ordering::Relaxed));
        let mut index = self.index.load(Ordering::Relaxed);
        let progress = head != tail;
        while head != tail {
            let smid = self.posted[head % POSTED].load(Ordering::Relaxed);
            let word = ReplyDescriptor::success(replies.queue, smid);
            let at = replies.at + index * DESCRIPTOR_BYTES;
            replies.memory.bytes().store_u64_release(at, word);
            index = if index + 1 == replies.entries { 0 } else { index + 1 };
            head += 1;
        }
        self.head.store(head, Ordering::Relaxed);
        self.index.store(index, Ordering::Relaxed);
        progress
    }

    /// Follows the handshake to learn the addresses of the driver's queues.
    fn listen(&self, word: u32) {
        let mut words = self.words.lock().unwrap();
        if word >> 24 == 0x42 && words.is_empty() {
            words.push(word);
            return;
        }
        let Some(head) = words.first() else { return };
        let count = (head >> 16 & 0xFF) as usize;
        words.push(word);
        if words.len() == count + 1 {
            let message: Vec<u8> = words[1..].iter().flat_map(|word| word.to_le_bytes()).collect();
            words.clear();
            if function_of(&message) == IOC_INIT {
                *self.init.lock().unwrap() = Some(Init::decode(&message));
            }
        }
    }
}

impl PciWrapper for Stub {
    fn wrapped(&self) -> &impl PciDevice {
        &*self.soft
    }

    #[inline(never)]
    fn write_bar(&self, bar: u8, offset: u64, bytes: &[u8]) -> bool {
        if self.is_quick.load(Ordering::Relaxed) {
            if offset != REQUEST_DESCRIPTOR_POST_LOW {
                // The index up to which replies were taken.
                return true;
            }
            let word = u64::from_le_bytes(bytes.try_into().unwrap());
            let posted = RequestDescriptor::decode(word);
            if posted.kind == request::SCSI_IO {
                self.replies.get_or_init(|| self.find(posted.queue));
                let tail = self.tail.load(Ordering::Relaxed);
                self.posted[tail % POSTED].store(posted.smid, Ordering::Relaxed);
                self.tail.store(tail + 1, Ordering::Relaxed);
                return true;
            }
        }
        if let Ok(word) = bytes.try_into().map(u32::from_le_bytes) {
            match offset {
                DOORBELL => self.listen(word),
                REPLY_POST_HOST_INDEX => {
                    self.told.lock().unwrap()[(word >> 24) as usize] = (word & 0xFF_FFFF) as usize;
                }
                _ => {}
            }
        }
        self.wrapped().write_bar(bar, offset, bytes)
    }

    fn map_dma(&self, iova: u64, memory: DmaMemory) -> Result<()> {
        self.opened.lock().unwrap().push((iova, memory.clone()));
        self.wrapped().map_dma(iova, memory)
    }

    fn unmap_dma(&self, iova: u64, len: u64) -> Result<()> {
        self.opened.lock().unwrap().retain(|(start, _)| !(iova..iova + len).contains(start));
        self.wrapped().unmap_dma(iova, len)
    }

    fn unmap_all(&self) {
        self.opened.lock().unwrap().clear();
        self.wrapped().unmap_all();
    }

    #[inline(never)]
    fn step(&self, queue: u16) -> Stepped {
        if let Some(replies) = self.replies.get()
            && u16::from(replies.queue) == queue
        {
            if !self.is_timed {
                return Stepped { progress: self.run(replies), due: None };
            }
            let start = Instant::now();
            let progress = self.run(replies);
            self.spent_ns.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
            return Stepped { progress, due: None };
        }
        self.wrapped().step(queue)
    }
}
