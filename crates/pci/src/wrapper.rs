//! Devices made of another device.

use std::os::fd::OwnedFd;

use qpair_block::Result;
use qpair_memory::DmaMemory;

use crate::device::{Listened, PciDevice, SharedArea};
use crate::function::Stepped;
use crate::irq_event::IrqEvent;

/// A device that passes to another one all calls that it does not take itself.
///
/// A wrapper is a [`PciDevice`]. These are the methods of that trait which it may take.
#[allow(missing_docs, reason = "PciDevice describes them")]
pub trait PciWrapper: Send + Sync {
    /// Returns the device that is wrapped.
    fn wrapped(&self) -> &impl PciDevice;

    fn read_config(&self, offset: u32, into: &mut [u8]) -> bool {
        self.wrapped().read_config(offset, into)
    }

    fn bar_bytes(&self, bar: u8) -> u64 {
        self.wrapped().bar_bytes(bar)
    }

    fn read_bar(&self, bar: u8, offset: u64, into: &mut [u8]) -> bool {
        self.wrapped().read_bar(bar, offset, into)
    }

    #[inline]
    fn write_bar(&self, bar: u8, offset: u64, bytes: &[u8]) -> bool {
        self.wrapped().write_bar(bar, offset, bytes)
    }

    fn listen(&self) -> Listened {
        self.wrapped().listen()
    }

    fn shared_file(&self, bar: u8) -> Result<OwnedFd> {
        self.wrapped().shared_file(bar)
    }

    fn map_dma(&self, iova: u64, memory: DmaMemory) -> Result<()> {
        self.wrapped().map_dma(iova, memory)
    }

    fn unmap_dma(&self, iova: u64, len: u64) -> Result<()> {
        self.wrapped().unmap_dma(iova, len)
    }

    fn unmap_all(&self) {
        self.wrapped().unmap_all();
    }

    fn reset(&self) {
        self.wrapped().reset();
    }

    fn end_session(&self) {
        self.wrapped().end_session();
    }

    #[inline]
    fn step(&self, queue: u16) -> Stepped {
        self.wrapped().step(queue)
    }

    fn step_all(&self) -> Stepped {
        self.wrapped().step_all()
    }
}

impl<W: PciWrapper> PciDevice for W {
    fn kind(&self) -> &'static str {
        self.wrapped().kind()
    }

    fn config_bytes(&self) -> u32 {
        self.wrapped().config_bytes()
    }

    fn read_config(&self, offset: u32, into: &mut [u8]) -> bool {
        PciWrapper::read_config(self, offset, into)
    }

    fn write_config(&self, offset: u32, bytes: &[u8]) -> bool {
        self.wrapped().write_config(offset, bytes)
    }

    fn bar_bytes(&self, bar: u8) -> u64 {
        PciWrapper::bar_bytes(self, bar)
    }

    fn read_bar(&self, bar: u8, offset: u64, into: &mut [u8]) -> bool {
        PciWrapper::read_bar(self, bar, offset, into)
    }

    #[inline]
    fn write_bar(&self, bar: u8, offset: u64, bytes: &[u8]) -> bool {
        PciWrapper::write_bar(self, bar, offset, bytes)
    }

    fn shared_area(&self, bar: u8) -> Option<SharedArea> {
        self.wrapped().shared_area(bar)
    }

    fn prefers_calls(&self) -> bool {
        self.wrapped().prefers_calls()
    }

    fn is_doorbell(&self, bar: u8, offset: u64) -> bool {
        self.wrapped().is_doorbell(bar, offset)
    }

    fn listen(&self) -> Listened {
        PciWrapper::listen(self)
    }

    fn shared_file(&self, bar: u8) -> Result<OwnedFd> {
        PciWrapper::shared_file(self, bar)
    }

    fn map_dma(&self, iova: u64, memory: DmaMemory) -> Result<()> {
        PciWrapper::map_dma(self, iova, memory)
    }

    fn unmap_dma(&self, iova: u64, len: u64) -> Result<()> {
        PciWrapper::unmap_dma(self, iova, len)
    }

    fn unmap_all(&self) {
        PciWrapper::unmap_all(self);
    }

    fn irq_count(&self) -> u32 {
        self.wrapped().irq_count()
    }

    fn set_irq(&self, vector: u32, event: Option<IrqEvent>) -> bool {
        self.wrapped().set_irq(vector, event)
    }

    fn reset(&self) {
        PciWrapper::reset(self);
    }

    fn end_session(&self) {
        PciWrapper::end_session(self);
    }

    #[inline]
    fn step(&self, queue: u16) -> Stepped {
        PciWrapper::step(self, queue)
    }

    fn step_all(&self) -> Stepped {
        PciWrapper::step_all(self)
    }
}
