//! Features (Base §5.27): their values until the controller is reset.

use qpair_nvme_wire::Status;
use qpair_nvme_wire::command::feature;

/// Features that keep any value written to them, and their initial values.
const PLAIN: [(u8, u32); 6] = [
    (feature::ARBITRATION, 0),
    // 70 degrees Celsius, in kelvin.
    (feature::TEMPERATURE_THRESHOLD, 343),
    (feature::ERROR_RECOVERY, 0),
    (feature::INTERRUPT_COALESCING, 0),
    (feature::WRITE_ATOMICITY, 0),
    (feature::ASYNC_EVENT, 0),
];

/// The values of features.
#[derive(Clone, Debug)]
pub struct Features {
    plain: [u32; PLAIN.len()],
    /// Whether there is a volatile write cache, and whether it is on.
    cache: Option<bool>,
    queues_max: u16,
    /// The number of queue pairs that the driver was granted.
    pub(crate) granted: Option<u16>,
}

impl Features {
    pub(crate) fn new(has_cache: bool, queues_max: u16) -> Self {
        let plain = PLAIN.map(|(_, value)| value);
        Self { plain, cache: has_cache.then_some(true), queues_max, granted: None }
    }

    /// Whether writes may stay in the cache.
    #[must_use]
    pub fn is_cache_on(&self) -> bool {
        self.cache == Some(true)
    }

    /// Returns the highest number of a queue that the driver may make.
    #[must_use]
    pub fn queue_max(&self) -> u16 {
        self.granted.unwrap_or(self.queues_max)
    }

    fn queues(&self) -> u32 {
        let less_one = u32::from(self.queue_max()) - 1;
        less_one | less_one << 16
    }

    /// Returns the value of a feature.
    ///
    /// # Errors
    /// A status, if there is no such feature.
    pub fn get(&self, number: u8, dword11: u32, vectors: u32) -> Result<u32, Status> {
        if let Some(at) = PLAIN.iter().position(|(plain, _)| *plain == number) {
            return Ok(self.plain[at]);
        }
        match number {
            feature::POWER_MANAGEMENT => Ok(0),
            feature::VOLATILE_WRITE_CACHE => self.cache.map(u32::from).ok_or(Status::INVALID_FIELD),
            feature::NUMBER_OF_QUEUES => Ok(self.queues()),
            feature::INTERRUPT_VECTOR if (dword11 & 0xFFFF) < vectors => Ok(dword11 & 0xFFFF),
            _ => Err(Status::INVALID_FIELD),
        }
    }

    /// Sets a feature. Returns dword 0 of the completion.
    ///
    /// # Errors
    /// A status, if there is no such feature, or the value is wrong.
    pub fn set(
        &mut self,
        number: u8,
        value: u32,
        vectors: u32,
        any_queues: bool,
    ) -> Result<u32, Status> {
        if let Some(at) = PLAIN.iter().position(|(plain, _)| *plain == number) {
            self.plain[at] = value;
            return Ok(0);
        }
        match number {
            // There is only one power state.
            feature::POWER_MANAGEMENT if value & 0x1F == 0 => Ok(0),
            feature::VOLATILE_WRITE_CACHE if self.cache.is_some() => {
                self.cache = Some(value & 1 != 0);
                Ok(0)
            }
            feature::NUMBER_OF_QUEUES => {
                let (submission, completion) = (value & 0xFFFF, value >> 16);
                if submission == 0xFFFF || completion == 0xFFFF {
                    return Err(Status::INVALID_FIELD);
                }
                if any_queues {
                    return Err(Status::COMMAND_SEQUENCE_ERROR);
                }
                let wanted = submission.min(completion) + 1;
                self.granted = Some(wanted.min(self.queues_max.into()) as u16);
                Ok(self.queues())
            }
            feature::INTERRUPT_VECTOR if (value & 0xFFFF) < vectors => Ok(0),
            _ => Err(Status::INVALID_FIELD),
        }
    }

    /// Returns the capabilities of a feature: whether it can be changed.
    pub(crate) fn capabilities(&self, number: u8) -> Result<u32, Status> {
        self.get(number, 0, 1).map(|_| 1 << 2)
    }
}
