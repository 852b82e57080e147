//! The plan of a simulation, in addition to its seeds.

use std::fmt;

use qpair_engine::Canary;

/// The kind of devices of stores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Devices {
    /// Simulated devices.
    #[default]
    Sim,
    /// Disks behind a soft HBA.
    Hba,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Planted {
    Engine(Canary),
    Scsi(qpair_scsi::Canary),
}

impl Planted {
    /// Returns the bugs that can be planted in a kind of devices, or in the engine on them.
    pub(crate) fn all(devices: Devices) -> Box<dyn Iterator<Item = Self>> {
        match devices {
            Devices::Sim => Box::new(Canary::ALL.into_iter().map(Self::Engine)),
            Devices::Hba => Box::new(qpair_scsi::Canary::ALL.into_iter().map(Self::Scsi)),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Engine(canary) => canary.name(),
            Self::Scsi(canary) => canary.name(),
        }
    }

    pub(crate) fn parse(name: &str) -> Result<Self, String> {
        let all = || Self::all(Devices::Sim).chain(Self::all(Devices::Hba));
        all().find(|planted| planted.name() == name).ok_or_else(|| {
            let names: Vec<_> = all().map(Self::name).collect();
            format!("there are: {}", names.join(", "))
        })
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Plan {
    pub(crate) devices: Devices,
    pub(crate) planted: Option<Planted>,
    /// Whether every run has lists for the judge of isolation, and its tasks use nothing else.
    pub(crate) only_lists: bool,
}

impl Plan {
    pub(crate) fn engine_canary(self) -> Option<Canary> {
        match self.planted {
            Some(Planted::Engine(canary)) => Some(canary),
            _ => None,
        }
    }

    pub(crate) fn scsi_canary(self) -> Option<qpair_scsi::Canary> {
        match self.planted {
            Some(Planted::Scsi(canary)) => Some(canary),
            _ => None,
        }
    }
}

impl fmt::Display for Plan {
    /// Writes the plan as options of the command, each after a space.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.devices == Devices::Hba {
            f.write_str(" --device hba")?;
        }
        if self.only_lists {
            f.write_str(" --lists")?;
        }
        match self.planted {
            None => Ok(()),
            Some(planted) => write!(f, " --canary {}", planted.name()),
        }
    }
}
