//! Runs jobs: stages, threads and their results.
//!
//! - `open`: opens devices by name;
//! - `offsets`, `permutation`, `sizes`: choose requests; `arrivals`, `flow`: choose their times;
//! - `ending`: jobs that wait for others or end others; `floor`, `target`, `steady`: rates,
//!   latencies and steady throughput that end a job;
//! - `status`: the state of a run in progress;
//! - `thread`: the loop of a job; `record`, `histograms`, `cpu`: its measurements; `verify`,
//!   `fill`: the content of blocks.
//!
//! Invariants:
//! - all devices are open and all jobs checked before the first request of any job;
//! - a job's channels and memory belong to its thread, which runs on the job's processors from its
//!   first allocation on.
//!
//! Long, because the stages of a run share their threads, results and reasons to stop.

mod arrivals;
pub(crate) mod cpu;
mod disks;
mod ending;
mod fill;
mod floor;
mod flow;
pub(crate) mod histograms;
mod lay_out;
pub(crate) mod offsets;
mod open;
mod permutation;
pub(crate) mod record;
mod sizes;
mod status;
mod steady;
mod target;
mod thread;
mod verify;

pub use lay_out::prefill;

use qpair_block::locks::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant, SystemTime};

use qpair_block::{DeviceInfo, Error, ErrorKind, Result, TickClock, WakeEvent};
use qpair_drivers::Drivers;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::job::{CpuPolicy, FlowShare, Form, Job};
use crate::observer::{Live, Observer};
use crate::report::{
    CpuReport, DirectionReport, Incidents, JobError, JobReport, Passed, RunReport, SteadyReport,
    VerifyReport,
};

use cpu::Usage;
use disks::Disks;
use ending::Ending;
use flow::Share;
use open::{Devices, Opened};
use record::{Record, Shown};
use status::{Desk, Schedule};
use steady::Judges;
use thread::{Common, Messages, Outcome, Thread, produce};

/// Interval at which the observer is called.
const TICK: Duration = Duration::from_millis(250);

/// Runs jobs, stage by stage. Devices that bypass the kernel are opened by `drivers`.
///
/// # Errors
/// Returns the first problem of a job or its devices that is found before any job runs. Later
/// errors are in [`JobReport::error`] of the job that they happened to; the other jobs continue.
pub fn run(drivers: &Drivers, jobs: &[Job], observer: &dyn Observer) -> Result<RunReport> {
    let begun = SystemTime::now();
    let mut devices = Devices::new(drivers);
    let mut opened: Vec<Vec<Opened>> = jobs
        .iter()
        .map(|job| devices.of(job, observer))
        .collect::<Result<_>>()
        .inspect_err(|_| devices.remove_made())?;
    mark_shared(jobs, &mut opened);
    devices.notes.iter().for_each(|note| observer.note(note));
    let stop = AtomicBool::new(false);
    let paths = jobs.iter().flat_map(|job| job.targets.iter().flat_map(|one| one.spec.paths()));
    let about = About {
        begun,
        config_hash: config_hash(jobs),
        machine: machine(),
        disks: Disks::under(paths),
    };
    let clock = TickClock::start();
    let mut schedule = Schedule::new(observer.status_every(), Instant::now());
    let ending = Ending::new(jobs);
    let flows = flow::flows(jobs);
    let stages = jobs.iter().map(|job| job.stage).max().map_or(0, |last| last + 1);
    let mut reports: Vec<Option<JobReport>> = jobs.iter().map(|_| None).collect();
    for stage in 0..stages {
        if stop.load(Ordering::Relaxed) || observer.stop() {
            stop.store(true, Ordering::Relaxed);
            break;
        }
        let (members, skipped): (Vec<usize>, Vec<usize>) = (0..jobs.len())
            .filter(|at| jobs[*at].stage == stage)
            .partition(|at| !ending.of(*at).load(Ordering::Relaxed));
        for at in skipped {
            let note = format!("{} did not run: another job's end was its end", jobs[at].name);
            if !devices.notes.contains(&note) {
                devices.notes.push(note);
            }
            ending.is_over(at, false);
        }
        let members_of: Vec<Member<'_>> = members
            .iter()
            .map(|at| Member {
                at: *at,
                job: &jobs[*at],
                targets: &opened[*at],
                common: Common { stop: &stop, end: ending.of(*at), clock },
                desk: schedule.is_on().then(Desk::new),
                ending: &ending,
                flow: jobs[*at].flow.and_then(|share| Some((flows.get(&share.flow)?, share))),
                share: Mutex::new(None),
            })
            .collect();
        let judges = Judges::new(members.iter().map(|at| &jobs[*at]).collect());
        let infos = |at: usize| -> Vec<DeviceInfo> {
            opened[at].iter().map(|target| target.device.info().clone()).collect()
        };
        let mut tell = |now: Vec<State>| {
            let mut jobs_now: Vec<Option<JobReport>> =
                reports.iter_mut().map(|report| report.as_mut().map(without_histograms)).collect();
            for (nth, outcome, steady) in now {
                let at = members[nth];
                jobs_now[at] = Some(JobReport { steady, ..report(&jobs[at], infos(at), outcome) });
            }
            let is_stopped = stop.load(Ordering::Relaxed);
            let mut state = about.report(jobs_now, notes_now(&devices), is_stopped);
            state.so_far = Some(clock.elapsed());
            observer.status(&state);
        };
        let told = Told { observer, stage: (stage, stages), tell: &mut tell };
        let (outcomes, judges) = run_stage(&members_of, judges, &stop, &mut schedule, told);
        for (nth, (at, outcome)) in members.iter().copied().zip(outcomes).enumerate() {
            let steady = judges.report(nth);
            reports[at] = Some(JobReport { steady, ..report(&jobs[at], infos(at), outcome) });
        }
    }
    Ok(about.report(reports, notes_now(&devices), stop.load(Ordering::Relaxed)))
}

/// Returns the notes of the run, with what became of interfaces that may change.
fn notes_now(devices: &Devices<'_>) -> Vec<String> {
    devices.notes.iter().cloned().chain(devices.adapted()).collect()
}

struct About {
    begun: SystemTime,
    config_hash: String,
    machine: serde_json::Value,
    disks: Disks,
}

impl About {
    fn report(
        &self,
        jobs: Vec<Option<JobReport>>,
        notes: Vec<String>,
        interrupted: bool,
    ) -> RunReport {
        RunReport {
            begun: self.begun,
            so_far: None,
            jobs: jobs.into_iter().flatten().collect(),
            config_hash: self.config_hash.clone(),
            machine: self.machine.clone(),
            notes,
            disks: self.disks.since(),
            interrupted,
        }
    }
}

/// Removes the histograms from a copy for a state, because they are large and only the logs at the
/// end use them.
fn without_histograms(report: &mut JobReport) -> JobReport {
    let histograms = std::mem::take(&mut report.histograms);
    let copy = report.clone();
    report.histograms = histograms;
    copy
}

/// Marks the targets that other jobs of the same stage write to.
fn mark_shared(jobs: &[Job], opened: &mut [Vec<Opened>]) {
    let writers: Vec<(usize, u32, String)> = jobs
        .iter()
        .enumerate()
        .filter(|(_, job)| job.writes())
        .flat_map(|(at, job)| opened[at].iter().map(move |one| (at, job.stage, one.name.clone())))
        .collect();
    for (at, targets) in opened.iter_mut().enumerate() {
        for target in targets {
            target.is_shared = writers.iter().any(|(other, stage, name)| {
                *other != at && *stage == jobs[at].stage && *name == target.name
            });
        }
    }
}

struct Member<'a> {
    /// The index of the job among all jobs.
    at: usize,
    job: &'a Job,
    targets: &'a [Opened],
    common: Common<'a>,
    /// The desk at which the job's state is requested; `None` if no states are wanted.
    desk: Option<Desk>,
    ending: &'a Ending<'a>,
    flow: Option<(&'a Arc<flow::Flow>, FlowShare)>,
    /// The job's share of its flow, if the job joined the flow before the threads of the stage
    /// began.
    share: Mutex<Option<Share>>,
}

impl Member<'_> {
    fn join(&self) -> Option<Share> {
        self.flow.map(|(flow, share)| Share::join(flow, share))
    }
}

/// The state of a member of a stage: its index in the stage, and its results so far.
type State = (usize, Outcome, Option<SteadyReport>);

struct Told<'a> {
    observer: &'a dyn Observer,
    /// The stage, from 0, and the number of stages.
    stage: (u32, u32),
    /// Receives the states of the members, by their index in the stage.
    tell: &'a mut dyn FnMut(Vec<State>),
}

fn run_stage<'a>(
    members: &[Member<'_>],
    mut judges: Judges<'a>,
    stop: &AtomicBool,
    schedule: &mut Schedule,
    told: Told<'_>,
) -> (Vec<Outcome>, Judges<'a>) {
    let shown: Vec<Shown> = members.iter().map(|_| Shown::default()).collect();
    // Jobs that begin together share from the first request on, whichever job makes it.
    for member in members {
        if member.job.wait_for.is_none() && member.job.start_delay.is_zero() {
            *member.share.lock() = member.join();
        }
    }
    let watcher = std::thread::current();
    let process_before = Usage::of_process().since(Usage::of_thread());
    let (mut outcomes, usages): (Vec<Outcome>, Vec<Usage>) = std::thread::scope(|scope| {
        let running: Vec<_> = members
            .iter()
            .zip(&shown)
            .map(|(member, shown)| {
                let watcher = watcher.clone();
                let started = std::thread::Builder::new().spawn_scoped(scope, move || {
                    let outcome = run_member(member, shown, scope);
                    if let Some(desk) = &member.desk {
                        desk.leave_last(outcome.copy());
                    }
                    member.ending.is_over(member.at, outcome.error.is_some());
                    watcher.unpark();
                    (outcome, Usage::of_thread())
                });
                if started.is_err() {
                    member.ending.is_over(member.at, true);
                }
                started
            })
            .collect();
        schedule.close();
        let stage = Stage { members, shown: &shown, stop, process_before };
        watch(&stage, &mut judges, schedule, told, || {
            running.iter().flatten().all(|thread| thread.is_finished())
        });
        running
            .into_iter()
            .map(|thread| match thread {
                Err(cause) => {
                    (failed_with(&Error::thread(cause, "starting the job")), Usage::default())
                }
                Ok(thread) => thread.join().unwrap_or_else(|_| {
                    (failed("the job's thread panicked, which is a bug in qpair"), Usage::default())
                }),
            })
            .unzip()
    });
    let process = Usage::of_process().since(Usage::of_thread()).since(process_before);
    let own = usages.into_iter().fold(Usage::default(), Usage::plus);
    let shares = outcomes.iter_mut().zip(members.iter().map(|member| member.job));
    share_helpers(shares, process.since(own));
    (outcomes, judges)
}

/// Divides among the jobs the processor time of other threads that worked for them: threads of a
/// pool, the kernel's submission threads and workers. Time before the measurement is left out in
/// proportion.
fn share_helpers<'a>(
    outcomes: impl ExactSizeIterator<Item = (&'a mut Outcome, &'a Job)>,
    helpers: Usage,
) {
    let count = outcomes.len().max(1) as u32;
    for (outcome, job) in outcomes {
        let measured_ns = outcome.end_ns.saturating_sub(outcome.begin_ns) as f64;
        let ramp_ns = job.ramp.as_nanos() as f64;
        let part = measured_ns / (measured_ns + ramp_ns).max(1.0) / f64::from(count);
        let (user, system) = (helpers.user.mul_f64(part), helpers.system.mul_f64(part));
        // Less time than this is due to starting threads and to rounding of clocks.
        if (user + system).as_secs_f64() * 1e9 < measured_ns / 200.0 {
            continue;
        }
        let cpu = &mut outcome.cpu;
        cpu.helpers_user += user;
        cpu.helpers_system += system;
        cpu.switches_voluntary += (helpers.voluntary as f64 * part) as u64;
        cpu.switches_involuntary += (helpers.involuntary as f64 * part) as u64;
    }
}

fn run_member<'scope>(
    member: &'scope Member<'scope>,
    shown: &'scope Shown,
    scope: &'scope std::thread::Scope<'scope, '_>,
) -> Outcome {
    let (job, targets, common) = (member.job, member.targets, &member.common);
    let begun = (|| {
        stay_on(job)?;
        member.ending.wait(member.at, || common.is_stopped(), TICK);
        let wake = match job.form {
            Form::Messages { .. } => Some(Arc::new(
                WakeEvent::new()
                    .map_err(|cause| Error::os(cause, "creating an event for messages"))?,
            )),
            _ => None,
        };
        let delay_end = Instant::now() + job.start_delay;
        let mut thread = Thread::new(job, targets, common, shown, wake.clone())?;
        if thread.is_foreseeable() {
            let chunks = thread.foresee();
            thread = Thread::new(job, targets, common, shown, wake.clone())?.knowing(chunks);
        }
        while Instant::now() < delay_end && !common.is_stopped() {
            std::thread::sleep(delay_end.saturating_duration_since(Instant::now()).min(TICK));
        }
        let joined = member.share.lock().take();
        thread.share = joined.or_else(|| member.join());
        thread.desk = member.desk.as_ref();
        Ok((thread, wake))
    })();
    match (begun, job.form) {
        (Err(error), _) => {
            *member.share.lock() = None;
            failed_with(&error)
        }
        (Ok((thread, Some(wake))), Form::Messages { interval, producers }) => {
            let (sender, receiver) = sync_channel(job.depth as usize);
            let over = Arc::new(AtomicBool::new(false));
            let producers = (0..producers).map(|_| {
                let (sender, wake, over) = (sender.clone(), wake.clone(), over.clone());
                std::thread::Builder::new()
                    .spawn_scoped(scope, move || produce(&sender, &wake, interval, common, &over))
            });
            let producers = producers.collect::<std::io::Result<Vec<_>>>();
            let outcome = match &producers {
                Ok(_) => thread.run(Some(&Messages { queue: &receiver, wake: &wake })),
                Err(cause) => failed(&format!("starting a thread that sends messages: {cause}")),
            };
            over.store(true, Ordering::Relaxed);
            for producer in producers.into_iter().flatten() {
                let _ = producer.join();
            }
            outcome
        }
        (Ok((thread, _)), _) => thread.run(None),
    }
}

/// Pins the thread, and the threads that it will create, to the job's processors.
fn stay_on(job: &Job) -> Result<()> {
    if job.cpus.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    let mut chosen: Vec<usize> = job.cpus.clone();
    if job.cpu_policy == CpuPolicy::Split {
        chosen = vec![job.cpus[job.clone as usize % job.cpus.len()]];
    }
    for cpu in &chosen {
        if *cpu >= CpuSet::MAX_CPU {
            let what = format!("job {}: there is no processor {cpu}", job.name);
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        set.set(*cpu);
    }
    sched_setaffinity(None, &set).map_err(|cause| {
        Error::os(cause.into(), format!("running job {} on processors {chosen:?}", job.name))
            .hint("cpus_allowed may name only processors of this machine that the process may use")
    })
}

struct Stage<'a> {
    members: &'a [Member<'a>],
    shown: &'a [Shown],
    stop: &'a AtomicBool,
    /// Resources that the process had used before the stage, without the watcher's.
    process_before: Usage,
}

impl Stage<'_> {
    /// Requests a state if one is due, and reports it once it is complete.
    fn status(&self, judges: &Judges<'_>, schedule: &mut Schedule, told: &mut Told<'_>) {
        let desks = self.members.iter().zip(self.shown);
        let desks = desks.filter_map(|(member, shown)| Some((member.desk.as_ref()?, shown)));
        let desks = desks.map(|(desk, shown)| (desk, shown.is_running()));
        let Some(process) = schedule.step(Instant::now(), desks) else { return };
        let desks = self.members.iter().map(|member| member.desk.as_ref());
        let mut answers: Vec<_> =
            desks.enumerate().filter_map(|(nth, desk)| Some((nth, desk?.last()?))).collect();
        let own = answers.iter().map(|(_, answer)| answer.usage);
        let own = own.fold(Usage::default(), Usage::plus);
        let process = process.since(Usage::of_thread()).since(self.process_before);
        let shares = answers.iter_mut();
        let shares = shares.map(|(nth, answer)| (&mut answer.outcome, self.members[*nth].job));
        share_helpers(shares, process.since(own));
        let answers = answers.into_iter();
        let state = answers.map(|(nth, answer)| (nth, answer.outcome, judges.report(nth)));
        (told.tell)(state.collect());
    }
}

fn watch(
    of: &Stage<'_>,
    judges: &mut Judges<'_>,
    schedule: &mut Schedule,
    mut told: Told<'_>,
    all_over: impl Fn() -> bool,
) {
    let Stage { members, shown, stop, .. } = *of;
    let (observer, stage) = (told.observer, told.stage);
    let begin = Instant::now();
    let (mut before, mut at) = (([0u64; 3], [0u64; 3]), Instant::now());
    while !all_over() {
        let most = schedule.wait(Instant::now()).min(TICK);
        std::thread::park_timeout(judges.every().map_or(most, |every| every.min(most)));
        let now_ns = begin.elapsed().as_nanos() as u64;
        judges.look(now_ns, shown, |at| members[at].ending.end(members[at].at));
        of.status(judges, schedule, &mut told);
        if observer.stop() {
            stop.store(true, Ordering::Relaxed);
        }
        let elapsed = at.elapsed();
        if elapsed < TICK / 2 {
            continue;
        }
        let sum = |of: fn(&Shown) -> &[std::sync::atomic::AtomicU64; 3]| {
            let mut sum = [0; 3];
            for one in shown {
                for (sum, value) in sum.iter_mut().zip(of(one)) {
                    *sum += value.load(Ordering::Relaxed);
                }
            }
            sum
        };
        let (ios, bytes) = (sum(|one| &one.ios), sum(|one| &one.bytes));
        let per_s = |now: [u64; 3], before: [u64; 3]| {
            // Smaller than before: the counters were reset, because the ramp is over.
            std::array::from_fn(|at| {
                now[at].saturating_sub(before[at]) as f64 / elapsed.as_secs_f64()
            })
        };
        let phases: Vec<u64> = shown.iter().map(|one| one.phase.load(Ordering::Relaxed)).collect();
        let phase = match phases.iter().filter(|phase| **phase < 4).max() {
            Some(3) => "verifying",
            Some(2) => "running",
            Some(1) => "ramp",
            _ => "starting",
        };
        let total = members
            .iter()
            .map(|member| Some(member.job.runtime? + member.job.ramp + member.job.start_delay))
            .collect::<Option<Vec<_>>>()
            .and_then(|totals| totals.into_iter().max());
        observer.tick(&Live {
            phase: phase.to_owned(),
            stage,
            jobs: phases.iter().filter(|phase| **phase < 4).count() as u32,
            elapsed: begin.elapsed(),
            total,
            fraction: total.map(|total| {
                (begin.elapsed().as_secs_f64() / total.as_secs_f64().max(1e-9)).min(1.0)
            }),
            ios_per_s: per_s(ios, before.0),
            bytes_per_s: per_s(bytes, before.1),
        });
        (before, at) = ((ios, bytes), Instant::now());
    }
}

fn failed(what: &str) -> Outcome {
    Outcome {
        record: Record::new(
            crate::job::Measured { slat: false, clat: false, lat: false },
            Duration::from_secs(1),
        ),
        cpu: CpuReport::default(),
        error: Some(JobError { errno: 5, what: what.to_owned() }),
        verify: VerifyReport::default(),
        passed: Passed::default(),
        incidents: Incidents::default(),
        depth_found: None,
        begin_ns: 0,
        end_ns: 0,
        in_ramp: false,
    }
}

fn failed_with(error: &Error) -> Outcome {
    failed(&error.to_string())
}

fn report(job: &Job, devices: Vec<DeviceInfo>, outcome: Outcome) -> JobReport {
    let Outcome {
        record,
        cpu,
        error,
        verify,
        passed,
        incidents,
        depth_found,
        begin_ns,
        end_ns,
        in_ramp,
    } = outcome;
    JobReport {
        job: job.clone(),
        devices,
        error,
        begin: Duration::from_nanos(begin_ns),
        elapsed: Duration::from_nanos(end_ns.saturating_sub(begin_ns)),
        in_ramp,
        directions: record.directions,
        flushes: DirectionReport { ..record.flushes },
        cpu,
        depth_classes: record.depth_classes,
        submit_classes: record.submit_classes,
        complete_classes: record.complete_classes,
        verify,
        passed,
        incidents,
        depth_found,
        steady: None,
        series: record.series,
        histograms: record.histograms.map(|some| some.done).unwrap_or_default(),
        late_max: Duration::from_nanos(record.late_ns_max),
    }
}

fn config_hash(jobs: &[Job]) -> String {
    let text = format!("{jobs:?}");
    format!("{:016x}", crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, text.as_bytes()))
}

fn machine() -> serde_json::Value {
    // This is plain data, which JSON can always represent.
    serde_json::to_value(qpair_machine::Machine::read()).unwrap_or_default()
}
