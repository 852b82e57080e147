//! Runs the conformance suite over a namespace that a target serves: `HOST:PORT/NQN[/nsN]` and the
//! digests (0 none, 1 of headers, 2 of data, 3 both).

use std::error::Error;
use std::sync::Arc;

use qpair_block::BlockDevice;
use qpair_conformance::{Options, run};
use qpair_nvme_tcp::wire::Digests;
use qpair_nvme_tcp::{NvmeTcpDevice, NvmeTcpOptions};

#[allow(clippy::print_stdout, reason = "it is a command")]
fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let name = words.next().ok_or("a name is missing")?;
    let digests = Digests::of(words.next().unwrap_or_default().parse().unwrap_or(0));
    let options = NvmeTcpOptions { digests, ..NvmeTcpOptions::default() };
    // The first failure is told with its reason; the suite opens the device often.
    drop(NvmeTcpDevice::open(&name, options.clone())?);
    let make = || -> Arc<dyn BlockDevice> {
        match NvmeTcpDevice::open(&name, options.clone()) {
            Ok(device) => Arc::new(device),
            Err(error) => panic!("{error}"),
        }
    };
    let report = run(make, Options { rounds: 40, ..Options::default() });
    println!("{report}");
    report.assert_passed();
    Ok(())
}
