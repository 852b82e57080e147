//! The counters of a server.

/// Counts of client activity since the server was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub clients: u64,
    /// Clients that were refused because there was one already.
    pub refused: u64,
    pub messages: u64,
    /// Commands that were answered with an error.
    pub errors: u64,
    /// Reads of regions over the socket.
    pub region_reads: u64,
    /// Writes of regions over the socket.
    pub region_writes: u64,
    /// Writes over the socket to the area that the device shares (doorbells). If the client had
    /// mapped the area, these writes would not be seen here.
    pub trapped_writes: u64,
    /// Ranges of memory that are open now.
    pub dma_maps: u64,
    /// The bytes of memory that is open now.
    pub dma_bytes: u64,
    pub resets: u64,
    /// Interrupts that could not be delivered because the client had filled their events.
    pub undelivered_irqs: u64,
}

impl Counters {
    pub(crate) fn add(&mut self, other: Self) {
        self.clients += other.clients;
        self.refused += other.refused;
        self.messages += other.messages;
        self.errors += other.errors;
        self.region_reads += other.region_reads;
        self.region_writes += other.region_writes;
        self.trapped_writes += other.trapped_writes;
        self.dma_maps += other.dma_maps;
        self.dma_bytes += other.dma_bytes;
        self.resets += other.resets;
        self.undelivered_irqs += other.undelivered_irqs;
    }
}
