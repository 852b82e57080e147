//! A controller: opening it, its namespaces, and shutting it down.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use qpair_block::{Error, ErrorKind, Result};
use qpair_nvme_wire::command::cns;
use qpair_nvme_wire::registers::{CAP, Capabilities, DOORBELLS, VS};
use qpair_nvme_wire::{Command, IDENTIFY_BYTES, IdentifyController, NSID_ALL, PAGE_BYTES};
use qpair_pci::{Maps, PciFunction, Step};

use crate::admin::Outcome;
use crate::core::{Core, CoreOptions, Hub};
use crate::device::NvmeDevice;
use crate::identify::{Limits, NamespaceInfo};
use crate::options::{ControllerOptions, WaitMode};
use crate::registers::{Doorbells, Registers, Shadow};
use crate::state::State;

/// PCI class of NVMe I/O controllers: mass storage, non-volatile memory, NVM Express.
const PCI_CLASS: u32 = 0x01_08_02;
const QUEUE_ENTRIES_MAX: u32 = 4096 + 1;
/// The number of namespaces to probe if a controller has no list of the active ones.
const NAMESPACES_PROBED_MAX: u32 = 1024;
/// OACS bit: the controller supports Doorbell Buffer Config (Base §5.17.2.1).
const DOORBELL_BUFFERS: u16 = 1 << 8;
const NAMESPACES_MAX: usize = 4096;

#[derive(Clone, Debug)]
pub struct ControllerInfo {
    pub name: String,
    /// The transport: `vfio`, `vfio-user`, `in-process`.
    pub transport: &'static str,
    pub identify: IdentifyController,
    /// The version register: major in bits 31:16, minor in 15:8.
    pub version: u32,
    pub queue_entries_max: u32,
    /// The number of I/O queue pairs that the controller granted: the maximum number of channels
    /// that can be open at once, over all namespaces.
    pub queues: u16,
    /// Whether doorbells are stores to mapped registers.
    pub doorbells_mapped: bool,
    /// Whether doorbells are stores to memory that the controller polls (Doorbell Buffer Config).
    /// The register is then written only if the controller asks for it.
    pub doorbells_shadowed: bool,
    pub interrupts: u32,
    pub command_bytes_max: u32,
}

/// A controller that this program drives. It is shut down when it and everything that was opened on
/// it have been dropped.
pub struct Controller {
    pub(crate) hub: Hub,
    pub(crate) maps: Arc<Maps>,
    pub(crate) doorbells: Doorbells,
    pub(crate) limits: Limits,
    pub(crate) options: ControllerOptions,
    pub(crate) stepper: Option<Arc<dyn Step>>,
    pub(crate) function: Arc<dyn PciFunction>,
    info: ControllerInfo,
    namespaces: Vec<NamespaceInfo>,
}

impl fmt::Debug for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Controller {}", self.info.name)
    }
}

impl Controller {
    /// Opens a function: resets it, sets it up, and reads its Identify data.
    ///
    /// # Errors
    /// `Gone` if the function was removed; `Invalid` if it is not an NVMe controller; `Unsupported`
    /// if it lacks a feature that the driver needs; `Io` if it does not work correctly.
    pub fn open(function: Arc<dyn PciFunction>, options: ControllerOptions) -> Result<Arc<Self>> {
        let name = function.name().to_owned();
        let capabilities = check_function(function.as_ref())?;
        if options.wait == WaitMode::Sleep {
            check_interrupts(&*function)?;
        }
        let stride = capabilities.doorbell_stride_bytes();
        let room = Doorbells::queues_max(function.bar_bytes(0), stride).saturating_sub(1);
        let queues = u64::from(options.queues.max(1)).min(room) as u16;
        let mut doorbells = Doorbells::open(&function, stride, queues)?;
        let maps = Maps::new(function.clone());
        let core_options = CoreOptions {
            ready_timeout: ready_timeout(capabilities, &options),
            timeout: options.timeout(),
            queues,
            timeout_policy: options.timeout_policy.clone(),
        };
        let state = Arc::new(State::new());
        let core = Core::new(function.clone(), maps.clone(), state, &doorbells, &core_options)?;
        let hub = Hub::start(core)?;
        let identify = IdentifyController::parse(&identify(&hub, &name, cns::CONTROLLER, 0)?);
        let limits = Limits::of(&identify);
        hub.lock().arm_events(limits.event_requests, event_mask(identify.async_events));
        let mut namespaces = Vec::new();
        for nsid in active_namespaces(&hub, &name, &identify)? {
            match self::identify(&hub, &name, cns::NAMESPACE, nsid) {
                Ok(data) => namespaces.extend(NamespaceInfo::read(nsid, &data, &limits)),
                // A namespace without Identify data cannot be opened; the others can.
                Err(error) if error.kind() == ErrorKind::Io => {}
                Err(error) => return Err(error),
            }
        }
        if !doorbells.are_mapped() && identify.admin_commands & DOORBELL_BUFFERS != 0 {
            doorbells = shadowed(&hub, &maps, doorbells)?;
        }
        let version = Registers::new(function.clone()).read_u32(VS)?;
        let info = ControllerInfo {
            name,
            transport: function.transport(),
            version,
            queue_entries_max: capabilities.queue_entries_max(),
            queues: hub.lock().queues_granted(),
            doorbells_mapped: doorbells.are_mapped(),
            doorbells_shadowed: doorbells.are_shadowed(),
            interrupts: function.irq_count(),
            command_bytes_max: limits.piece_bytes_max,
            identify,
        };
        Ok(Arc::new(Self {
            hub,
            maps,
            doorbells,
            limits,
            options,
            stepper: function.stepper(),
            function,
            info,
            namespaces,
        }))
    }

    /// Returns the option by which channels wait.
    #[must_use]
    pub fn wait(&self) -> WaitMode {
        self.options.wait
    }

    #[must_use]
    pub fn has_interrupts(&self) -> bool {
        self.info.interrupts > 0
    }

    pub(crate) fn check_interrupts(&self) -> Result<()> {
        check_interrupts(&*self.function)
    }

    #[must_use]
    pub fn info(&self) -> &ControllerInfo {
        &self.info
    }

    /// Returns the active namespaces, including those that cannot be used.
    #[must_use]
    pub fn namespaces(&self) -> &[NamespaceInfo] {
        &self.namespaces
    }

    /// Opens a namespace.
    ///
    /// # Errors
    /// `NotFound` if there is no such namespace; `Unsupported` if it has a format that the driver
    /// cannot use.
    pub fn open_namespace(self: &Arc<Self>, nsid: u32) -> Result<NvmeDevice> {
        let name = &self.info.name;
        let Some(namespace) = self.namespaces.iter().find(|it| it.nsid == nsid) else {
            return Err(Error::new(ErrorKind::NotFound, format!("{name} has no namespace {nsid}"))
                .hint(self.listed()));
        };
        namespace.check(name)?;
        Ok(NvmeDevice::new(self.clone(), namespace))
    }

    /// Opens the namespace `nsid`, or the only one of the controller if `nsid` is `None`.
    ///
    /// # Errors
    /// As [`Controller::open_namespace`]; `Invalid` if `nsid` is `None` and there are several
    /// namespaces.
    pub fn open_default_namespace(self: &Arc<Self>, nsid: Option<u32>) -> Result<NvmeDevice> {
        let name = &self.info.name;
        match (nsid, &self.namespaces[..]) {
            (Some(nsid), _) => self.open_namespace(nsid),
            (None, [only]) => self.open_namespace(only.nsid),
            (None, []) => Err(Error::new(ErrorKind::NotFound, format!("{name} has no namespaces"))
                .hint("make one: nvme create-ns, nvme attach-ns")),
            (None, _) => {
                let context = format!("{name} has several namespaces");
                Err(Error::new(ErrorKind::Invalid, context).hint(self.listed()))
            }
        }
    }

    /// Resets the controller. Requests in flight on any channel end with an error that can be
    /// retried, and the channels continue to work.
    ///
    /// # Errors
    /// `Gone` or `Io` if the controller does not come back.
    pub fn reset(&self) -> Result<()> {
        self.hub.lock().reset("a reset was asked for");
        self.hub.settle().map(|_| ())
    }

    #[must_use]
    pub fn resets(&self) -> u64 {
        self.hub.lock().resets()
    }

    /// Returns the number of asynchronous events so far (health, errors, changed namespaces).
    #[must_use]
    pub fn events(&self) -> u64 {
        self.hub.lock().events()
    }

    pub(crate) fn queue_entries_max(&self) -> u32 {
        let most = self.info.queue_entries_max.min(QUEUE_ENTRIES_MAX);
        self.options.queue_entries.map_or(most, |entries| entries.clamp(2, most))
    }

    fn listed(&self) -> String {
        let words: Vec<String> =
            self.namespaces.iter().map(|it| format!("/ns{}", it.nsid)).collect();
        match words.is_empty() {
            true => "it has none".to_owned(),
            false => format!("it has {}", words.join(", ")),
        }
    }
}

/// Returns the time limit for the controller to stop or to start.
fn ready_timeout(capabilities: Capabilities, options: &ControllerOptions) -> Duration {
    // Some controllers report 0, meaning that they do not know.
    let said = capabilities.ready_timeout_ms().max(1000);
    Duration::from_millis(options.ready_timeout_ms.unwrap_or(said).max(1).into())
}

fn check_interrupts(function: &dyn PciFunction) -> Result<()> {
    if function.irq_count() > 0 {
        return Ok(());
    }
    let context = format!("{} has no interrupts to sleep for", function.name());
    Err(Error::new(ErrorKind::Unsupported, context).hint("use wait=poll"))
}

fn check_function(function: &dyn PciFunction) -> Result<Capabilities> {
    let name = function.name();
    let mut class = [0; 4];
    function.read_config(8, &mut class)?;
    let class = u32::from_le_bytes(class);
    if class == u32::MAX {
        return Err(crate::registers::gone(name));
    }
    if class >> 8 != PCI_CLASS {
        let context =
            format!("{name} is not an NVMe controller: its PCI class is {:06x}", class >> 8);
        return Err(Error::new(ErrorKind::Invalid, context).hint("NVMe controllers have 010802"));
    }
    let unsupported =
        |what: String| Err(Error::new(ErrorKind::Unsupported, format!("{name} {what}")));
    let bar_bytes = function.bar_bytes(0);
    if bar_bytes < DOORBELLS + 16 {
        return unsupported(format!(
            "has {bar_bytes} bytes of registers: too few for a queue's doorbells"
        ));
    }
    let mut bytes = [0; 8];
    function.read_bar(0, CAP, &mut bytes)?;
    let capabilities = Capabilities(u64::from_le_bytes(bytes));
    if capabilities.0 == u64::MAX {
        return Err(crate::registers::gone(name));
    }
    let stride = capabilities.doorbell_stride_bytes();
    if Doorbells::queues_max(bar_bytes, stride) < 2 {
        return unsupported(format!(
            "has {bar_bytes} bytes of registers: too few for the doorbells of an I/O queue, {stride} bytes apart"
        ));
    }
    if !capabilities.nvm_command_set() {
        return unsupported("does not have the NVM command set".to_owned());
    }
    if capabilities.page_bytes_min() > PAGE_BYTES as u64 {
        let page = capabilities.page_bytes_min();
        return unsupported(format!(
            "takes no memory pages under {page} bytes; the driver has 4096"
        ));
    }
    if capabilities.queue_entries_max() < 2 {
        return unsupported("has queues of one entry, which is too few".to_owned());
    }
    Ok(capabilities)
}

/// Returns the events to request: critical health warnings, and changes of namespaces if the
/// controller reports them (Base §5.27.1.8).
fn event_mask(optional: u32) -> u32 {
    const CRITICAL_WARNINGS: u32 = 0x1F;
    const NAMESPACES_CHANGED: u32 = 1 << 8;
    CRITICAL_WARNINGS | optional & NAMESPACES_CHANGED
}

/// Reads Identify data. Returns an `Io` error if the controller refuses.
fn identify(hub: &Hub, name: &str, what: u8, nsid: u32) -> Result<[u8; IDENTIFY_BYTES]> {
    hub.call(
        |core| {
            core.clear_data();
            let data = core.data_iova();
            Command::identify(what, nsid, data)
        },
        |core, outcome| match outcome {
            Outcome::Done(_) => Ok(core.data()),
            Outcome::Failed(status) => {
                let context =
                    format!("{name}: Identify {what} of namespace {nsid} failed with {status:?}");
                Err(Error::new(ErrorKind::Io, context))
            }
            Outcome::Lost => Err(core.failure()),
        },
    )?
}

/// Adds shadow doorbells in memory if the controller accepts them. If it refuses, the driver works
/// without them.
fn shadowed(hub: &Hub, maps: &Arc<Maps>, doorbells: Doorbells) -> Result<Doorbells> {
    let shadow = Arc::new(Shadow::new(maps)?);
    let (shadows, events) = shadow.iovas();
    let told = hub.call(
        |_| Command::doorbell_buffers(shadows, events),
        |core, outcome| match outcome {
            Outcome::Done(_) => {
                core.keep_shadow(shadow.clone());
                Ok(true)
            }
            Outcome::Failed(_) => Ok(false),
            Outcome::Lost => Err(core.failure()),
        },
    )??;
    Ok(if told { doorbells.with_shadow(shadow) } else { doorbells })
}

fn active_namespaces(hub: &Hub, name: &str, controller: &IdentifyController) -> Result<Vec<u32>> {
    let mut found: Vec<u32> = Vec::new();
    loop {
        let last = found.last().copied().unwrap_or(0);
        let data = match identify(hub, name, cns::ACTIVE_NAMESPACES, last) {
            Ok(data) => data,
            // Controllers of version 1.0 do not support the list: the namespaces are numbered from
            // 1 on.
            Err(error) if error.kind() == ErrorKind::Io && found.is_empty() => {
                return Ok((1..=controller.namespaces.min(NAMESPACES_PROBED_MAX)).collect());
            }
            Err(error) => return Err(error),
        };
        let ids = data.chunks_exact(4).map(|it| u32::from_le_bytes([it[0], it[1], it[2], it[3]]));
        let before = found.len();
        // A valid list ascends.
        for nsid in ids.take_while(|&nsid| nsid != 0 && nsid < NSID_ALL - 1) {
            if found.last().is_some_and(|&last| nsid <= last) {
                return Ok(found);
            }
            found.push(nsid);
        }
        if found.len() - before < IDENTIFY_BYTES / 4 || found.len() >= NAMESPACES_MAX {
            found.truncate(NAMESPACES_MAX);
            return Ok(found);
        }
    }
}
