//! The output of the command: how to use the drives, connecting and disconnecting clients, and
//! counters.

use std::path::Path;
use std::time::{Duration, Instant};

use qpair_vfio_user::{Counters, Host};
use serde_json::{Value, json};

use super::model::Model;
use crate::failure::Result;
use crate::show::output::{Output, say};
use crate::show::text::{count, size};

pub(super) struct Reporter {
    json: bool,
    status_every: Option<Duration>,
    status_at: Instant,
    known: Vec<Known>,
}

#[derive(Clone, Default)]
struct Known {
    here: bool,
    refused: u64,
    violations: u64,
}

impl Reporter {
    pub(super) fn new(json: bool, status_s: Option<f64>) -> Self {
        let status_every = status_s.map(Duration::from_secs_f64);
        Self { json, status_every, status_at: Instant::now(), known: Vec::new() }
    }

    pub(super) fn begin<D: Model>(&mut self, host: &mut Host<D>) -> Result<()> {
        let drives = host.drives();
        self.known = vec![Known::default(); drives.len()];
        if self.json {
            let drives: Vec<Value> = drives
                .iter()
                .map(|(drive, server)| {
                    let parts = drive.parts().into_iter();
                    let parts: Vec<Value> = parts
                        .map(|(size_bytes, logical_block_bytes)| {
                            json!({
                                "size_bytes": size_bytes,
                                "logical_block_bytes": logical_block_bytes,
                            })
                        })
                        .collect();
                    let mut about = json!({
                        "socket": server.path(),
                        "serial": drive.serial(),
                    });
                    about[D::PARTS] = json!(parts);
                    about
                })
                .collect();
            return say(json!({"event": "serving", "drives": drives}).to_string());
        }
        let mut out = Output::new();
        for (drive, server) in drives.iter() {
            let parts = drive.parts().into_iter();
            let parts: Vec<String> = parts
                .map(|(bytes, block)| format!("{} in blocks of {block}", size(bytes)))
                .collect();
            let path = server.path().display();
            out.line(format!("{path}  serial {}, {}", drive.serial(), parts.join(" and ")))?;
        }
        if let Some((_, server)) = drives.first() {
            for line in uses::<D>(server.path()) {
                out.line(line)?;
            }
        }
        out.line("Ctrl-C ends the drives.")?;
        out.finish()
    }

    pub(super) fn look<D: Model>(&mut self, host: &mut Host<D>, now: Instant) -> Result<()> {
        let is_one = host.drives().len() == 1;
        for (number, (drive, server)) in host.drives().iter_mut().enumerate() {
            let violations = drive.violations();
            let ended = server.take_ended();
            let here = server.has_client();
            let counters = server.counters();
            let Some(known) = self.known.get_mut(number) else { continue };
            let which = if is_one { String::new() } else { format!("drive {}: ", number + 1) };
            let mut told = Vec::new();
            let mut tell = |text: String, kind: &str, more: Value| {
                told.push((format!("{which}{text}"), event(kind, number, &counters, &more)));
            };
            if let Some(ended) = ended {
                known.here = false;
                let why = ended.to_string();
                let text = format!("the driver has gone: {why}; {}", words(&counters));
                tell(text, "gone", json!({ "why": why }));
            }
            if here && !known.here {
                known.here = true;
                tell("a driver is here".to_owned(), "here", Value::Null);
            }
            for what in violations.told.iter().skip(known.violations as usize) {
                tell(format!("violation: {what}"), "violation", json!({ "what": what }));
            }
            known.violations = violations.count;
            if counters.refused > known.refused {
                known.refused = counters.refused;
                let text = "another driver came, and was told that there is one".to_owned();
                tell(text, "refused", Value::Null);
            }
            told.into_iter().try_for_each(|(text, event)| self.tell(text, event))?;
        }
        if self.status_every.is_some_and(|every| now >= self.status_at + every) {
            self.status_at = now;
            self.status(host, "status")?;
        }
        Ok(())
    }

    pub(super) fn power_cut(&self) -> Result<()> {
        self.tell("the power failed, and came back".to_owned(), json!({"event": "power-cut"}))
    }

    pub(super) fn plugged(&self, what: &str) -> Result<()> {
        self.tell(format!("the last disk was {what}"), json!({"event": what.replace(' ', "-")}))
    }

    pub(super) fn end<D: Model>(&self, host: &mut Host<D>) -> Result<()> {
        self.status(host, "end")
    }

    fn status<D: Model>(&self, host: &mut Host<D>, name: &str) -> Result<()> {
        for (number, (_, server)) in host.drives().iter().enumerate() {
            let counters = server.counters();
            let text = format!("drive {}: {}", number + 1, words(&counters));
            self.tell(text, event(name, number, &counters, &Value::Null))?;
        }
        Ok(())
    }

    fn tell(&self, text: String, event: Value) -> Result<()> {
        say(if self.json { event.to_string() } else { text })
    }
}

fn words(counters: &Counters) -> String {
    let undelivered = match counters.undelivered_irqs {
        0 => String::new(),
        irqs => format!(", {} interrupts not delivered", count(irqs)),
    };
    format!(
        "{} drivers, {} messages, {} register writes of which {} doorbells, {} of memory open{undelivered}",
        count(counters.clients),
        count(counters.messages),
        count(counters.region_writes),
        count(counters.trapped_writes),
        size(counters.dma_bytes),
    )
}

fn event(name: &str, number: usize, counters: &Counters, more: &Value) -> Value {
    let mut event = json!({
        "event": name,
        "drive": number + 1,
        "clients": counters.clients,
        "refused": counters.refused,
        "messages": counters.messages,
        "errors": counters.errors,
        "region_reads": counters.region_reads,
        "region_writes": counters.region_writes,
        "trapped_doorbells": counters.trapped_writes,
        "dma_maps": counters.dma_maps,
        "dma_bytes": counters.dma_bytes,
        "resets": counters.resets,
        "undelivered_interrupts": counters.undelivered_irqs,
    });
    if let (Some(event), Some(more)) = (event.as_object_mut(), more.as_object()) {
        event.extend(more.clone());
    }
    event
}

fn uses<D: Model>(socket: &Path) -> Vec<String> {
    let path = socket.display().to_string();
    let mut lines = D::uses(socket);
    let device = json!({"driver": "vfio-user-pci", "socket": {"type": "unix", "path": path}});
    lines.push(format!("  QEMU    -device '{device}'"));
    lines.push(
        "          -object memory-backend-memfd,id=mem,size=1G,share=on -machine memory-backend=mem   (QEMU 10.1 or newer)"
            .to_owned(),
    );
    lines
}
