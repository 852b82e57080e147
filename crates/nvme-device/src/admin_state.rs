//! The part of admin commands that needs neither queues nor a driver's memory (Base §5).

use std::collections::BTreeSet;

use qpair_nvme_wire::command::{admin, cns, feature};
use qpair_nvme_wire::{
    Command, IDENTIFY_BYTES, IdentifyController, IdentifyNamespace, NSID_ALL, Status,
};

use crate::backend::{Counts, NamespaceInfo};
use crate::device::{FIRMWARE, IDENTITY, VERSION};
use crate::events::{Event, Events, NAMESPACES_CHANGED, REQUESTS_MAX};
use crate::features::Features;
use crate::logs;
use crate::options::ControllerOptions;

/// The bit of OACS for Doorbell Buffer Config (Base §5.17.2.1).
const DOORBELL_BUFFERS: u16 = 1 << 8;

/// The abilities of a controller that its options do not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traits {
    pub compares: bool,
    pub shadow_doorbells: bool,
}

/// The state of a controller that a reset clears.
#[derive(Debug)]
pub struct AdminState {
    pub features: Features,
    pub events: Events,
    /// The namespaces that have changed since the driver last read the log of changed namespaces.
    pub changed: BTreeSet<u32>,
}

impl AdminState {
    /// Makes the state after a reset.
    #[must_use]
    pub fn new(options: &ControllerOptions) -> Self {
        Self {
            features: Features::new(options.volatile_write_cache, options.queues_max),
            events: Events::default(),
            changed: BTreeSet::new(),
        }
    }

    /// Returns the data of an Identify command.
    ///
    /// # Errors
    /// The status of a command that asks for other data.
    pub fn identify(
        command: &Command,
        options: &ControllerOptions,
        namespaces: &[NamespaceInfo],
        traits: Traits,
    ) -> Result<[u8; IDENTIFY_BYTES], Status> {
        let nsid = command.nsid();
        let found = namespaces.iter().find(|it| it.nsid == nsid);
        Ok(match command.cdw(10) as u8 {
            cns::NAMESPACE => match found {
                Some(namespace) => namespace.identify(options.is_shared),
                // A valid number without a namespace has Identify data of zeroes.
                None if (1..=options.namespaces_max).contains(&nsid) => {
                    IdentifyNamespace::default()
                }
                None => return Err(Status::INVALID_NAMESPACE),
            }
            .encode(),
            cns::CONTROLLER => identify_controller(options, namespaces, traits).encode(),
            cns::ACTIVE_NAMESPACES if nsid >= NSID_ALL - 1 => {
                return Err(Status::INVALID_NAMESPACE);
            }
            cns::ACTIVE_NAMESPACES => {
                logs::active_namespaces(namespaces.iter().map(|it| it.nsid), nsid)
            }
            cns::NAMESPACE_DESCRIPTORS => {
                logs::descriptors(&found.ok_or(Status::INVALID_NAMESPACE)?.names)
            }
            // The NVM command set has no further data.
            cns::CONTROLLER_OF_COMMAND_SET if command.cdw(11) >> 24 == 0 => [0; IDENTIFY_BYTES],
            _ => return Err(Status::INVALID_FIELD),
        })
    }

    /// Returns the value that a Get Features command asks for. `first` has the values after a
    /// reset.
    ///
    /// # Errors
    /// The status of a command for an unknown feature.
    pub fn get_features(
        &self,
        command: &Command,
        first: &Features,
        vectors: u32,
    ) -> Result<u32, Status> {
        const DEFAULT: u32 = 1;
        const CAPABILITIES: u32 = 3;
        let (number, dword11) = (command.cdw(10) as u8, command.cdw(11));
        match command.cdw(10) >> 8 & 7 {
            DEFAULT => first.get(number, dword11, vectors),
            CAPABILITIES => first.capabilities(number),
            _ => self.features.get(number, dword11, vectors),
        }
    }

    /// Returns the bytes that a Get Log Page command asks for. `other` returns whole pages that
    /// only some transports have.
    ///
    /// # Errors
    /// The status of a command for an unknown page, or for bytes outside it.
    pub fn log_page(
        &self,
        command: &Command,
        options: &ControllerOptions,
        counts: Counts,
        traits: Traits,
        other: impl FnOnce(u8) -> Option<Vec<u8>>,
    ) -> Result<Vec<u8>, Status> {
        let page = command.cdw(10) as u8;
        let dwords = u64::from(command.cdw(10) >> 16) | u64::from(command.cdw(11) & 0xFFFF) << 16;
        let len = (dwords + 1) * 4;
        let offset = u64::from(command.cdw(12)) | u64::from(command.cdw(13)) << 32;
        if len > u64::from(options.transfer_bytes_max()) || !offset.is_multiple_of(4) {
            return Err(Status::INVALID_FIELD);
        }
        let whole = if page == logs::CHANGED_NAMESPACES && options.is_shared {
            logs::changed_namespaces(self.changed.iter().copied())
        } else if let Some(whole) = other(page) {
            whole
        } else {
            let more: &[u8] =
                if traits.shadow_doorbells { &[admin::DOORBELL_BUFFER_CONFIG] } else { &[] };
            logs::log_page(page, counts, FIRMWARE, more)?
        };
        let start = usize::try_from(offset).ok().filter(|start| *start < whole.len());
        let mut data = whole[start.ok_or(Status::INVALID_FIELD)?..].to_vec();
        // Bytes beyond a page read as zeroes.
        data.resize(len as usize, 0);
        Ok(data)
    }

    /// Notes that a Get Log Page command has succeeded.
    pub fn log_was_read(&mut self, command: &Command) {
        const RETAIN_EVENT: u32 = 1 << 15;
        let page = command.cdw(10) as u8;
        if command.cdw(10) & RETAIN_EVENT == 0 {
            self.events.log_was_read(page);
            if page == logs::CHANGED_NAMESPACES {
                self.changed.clear();
            }
        }
    }

    /// Notes which namespaces have changed. Returns whether a request can be answered.
    pub fn namespaces_changed(&mut self, before: &[NamespaceInfo], now: &[NamespaceInfo]) -> bool {
        let differs = |these: &[NamespaceInfo], others: &[NamespaceInfo]| {
            these.iter().filter(|it| !others.contains(it)).map(|it| it.nsid).collect::<Vec<_>>()
        };
        let changed = [differs(before, now), differs(now, before)].concat();
        if changed.is_empty() {
            return false;
        }
        self.changed.extend(changed);
        self.happen(Event::NamespacesChanged)
    }

    /// Notes an event, if the driver has enabled it. Returns whether a request can be answered.
    pub fn happen(&mut self, event: Event) -> bool {
        let wanted = self.features.get(feature::ASYNC_EVENT, 0, 0).unwrap_or(0);
        event.is_wanted(wanted) && self.events.happen(event)
    }
}

fn identify_controller(
    options: &ControllerOptions,
    namespaces: &[NamespaceInfo],
    traits: Traits,
) -> IdentifyController {
    const SEVERAL_CONTROLLERS: u8 = 1 << 1;
    const COMPARE: u16 = 1;
    const DATASET_MANAGEMENT: u16 = 1 << 2;
    const WRITE_ZEROES: u16 = 1 << 3;
    // Drivers read this once, and namespaces may be added later.
    let deallocates = namespaces.is_empty() || namespaces.iter().any(|it| it.deallocates);
    let verb = |is_there: bool, bit: u16| if is_there { bit } else { 0 };
    IdentifyController {
        vendor: IDENTITY.vendor,
        subsystem_vendor: IDENTITY.vendor,
        serial: options.serial.clone(),
        model: options.model.clone(),
        firmware: FIRMWARE.into(),
        mdts: options.mdts,
        version: VERSION,
        controller_id: options.controller_id,
        multi_path: if options.is_shared { SEVERAL_CONTROLLERS } else { 0 },
        async_events: if options.is_shared { NAMESPACES_CHANGED } else { 0 },
        abort_limit: 3,
        async_event_limit: REQUESTS_MAX as u8 - 1,
        // The log of effects is supported, and logs can be read in parts.
        log_pages: 0b110,
        namespaces: options.namespaces_max,
        nvm_commands: WRITE_ZEROES
            | verb(deallocates, DATASET_MANAGEMENT)
            | verb(traits.compares, COMPARE),
        admin_commands: verb(traits.shadow_doorbells, DOORBELL_BUFFERS),
        // These bits include the behaviour of a flush for all namespaces.
        volatile_write_cache: if options.volatile_write_cache { 0b111 } else { 0b110 },
        subsystem: options.subsystem.clone(),
        ..IdentifyController::default()
    }
}
