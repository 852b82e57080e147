//! Conversion of a configuration to the jobs that run it.

use std::time::Duration;

use qpair_block::{Error, ErrorKind, Result};
use qpair_workload::{BlockSizes, Extent, Form, Job, Measured, Order, Target, TargetOrder, Verbs};

use crate::config::{Assignment, Config, Pace};
use crate::lab::{Lab, is_soft, mode, soft_drive};
use crate::measure::SAMPLE_S;

/// The duration of a run in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Length {
    /// The time before the measurement.
    pub ramp_s: f64,
    /// The time of the measurement.
    pub run_s: f64,
}

/// Returns the jobs of a configuration, one for each thread.
///
/// # Errors
/// `Invalid` if the configuration names an unknown mode or device.
pub(crate) fn jobs(config: &Config, lab: &Lab, length: Length, seed: u64) -> Result<Vec<Job>> {
    (0..config.threads as usize).map(|thread| job(config, lab, length, seed, thread)).collect()
}

fn job(config: &Config, lab: &Lab, length: Length, seed: u64, thread: usize) -> Result<Job> {
    let (cpus, kernel_thread_cpu) = processors(config, lab, thread);
    let mode = mode(&config.interface, config.depth, kernel_thread_cpu)?;
    let first = config.first as usize;
    let drives = match is_soft(&config.interface) {
        true => config.drives as usize,
        false => (config.drives as usize).min(lab.devices.len().saturating_sub(first)),
    };
    if drives == 0 {
        let what = format!("{config}: there is no device number {}", first + 1);
        return Err(Error::new(ErrorKind::Invalid, what));
    }
    let mine = match config.assignment {
        Assignment::Own => vec![thread % drives],
        Assignment::All => (0..drives).collect(),
    };
    let targets = mine
        .into_iter()
        .map(|drive| {
            let spec = match soft_drive(&config.interface, drive) {
                Some(soft) => soft,
                None => lab.devices[first + drive].spec_under(&config.interface)?,
            };
            let spec = config.channels.over(spec);
            Ok(Target { spec, create_bytes: None, sparse: false })
        })
        .collect::<Result<Vec<Target>>>()?;
    // The beginning of the devices is kept for stores.
    let devices = lab.devices.iter().skip(first).take(drives);
    let reserved_bytes = match is_soft(&config.interface) {
        true => 0,
        false => devices.map(|device| device.reserved_bytes).max().unwrap_or(0),
    };
    let mut job = Job::new(config.to_string(), targets[0].spec.clone(), mode);
    job.targets = targets;
    job.offset = Extent::Bytes(reserved_bytes);
    job.target_order = TargetOrder::RoundRobin;
    job.clone = thread as u32;
    job.seed = seed.wrapping_add(thread as u64);
    job.read_only = !config.writes();
    job.verbs = match config.read_percent {
        100 => Verbs::Read,
        0 => Verbs::Write,
        read_percent => Verbs::Mixed { read_percent },
    };
    if config.sequential {
        job.order = Order::Sequential;
    }
    job.vector_len = config.pieces;
    let piece_bytes = config.block_bytes / u32::from(config.pieces.max(1));
    job.block_sizes = [const { BlockSizes::Fixed(0) }; 3].map(|_| BlockSizes::Fixed(piece_bytes));
    // A map of the visited places would cost memory and time, and short runs visit few of them.
    job.random_map = false;
    job.time_based = true;
    job.ramp = Duration::from_secs_f64(length.ramp_s);
    job.runtime = Some(Duration::from_secs_f64(length.run_s));
    job.depth = config.depth;
    job.batch_submit = config.depth.min(config.batch);
    job.direct = !config.cached;
    job.cpus = cpus;
    // Submission is timed where it may block.
    job.measured = Measured { slat: config.cached, clat: true, lat: false };
    match config.pace {
        Pace::Full => {}
        Pace::Interval { us } => {
            let interval = Duration::from_micros(us.into());
            job.form = Form::Messages { interval, producers: config.producers };
        }
        Pace::Prolonged { seconds } => {
            job.order = Order::Sequential;
            job.runtime = Some(Duration::from_secs(seconds.into()));
            job.ramp = Duration::ZERO;
            job.sample = Some(Duration::from_secs_f64(SAMPLE_S));
        }
    }
    Ok(job)
}

/// Returns the processors of a thread, and the processor of its kernel thread.
///
/// If there are two cores for each thread, a thread and its kernel thread get one core each;
/// otherwise all threads share all cores. The kernel thread does not follow the affinity of the
/// thread it works for, so its processor is set explicitly.
fn processors(config: &Config, lab: &Lab, thread: usize) -> (Vec<usize>, Option<usize>) {
    let cores = (config.cores as usize).min(lab.cpus.len()).max(1);
    let cpus = &lab.cpus[..cores.min(lab.cpus.len())];
    let threads = config.threads as usize;
    let helper = cpus[(threads + thread) % cores];
    if config.interface.contains("+k") && cores >= 2 * threads {
        return (vec![cpus[thread]], Some(helper));
    }
    (cpus.to_vec(), Some(helper))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Channels;

    const LENGTH: Length = Length { ramp_s: 0.1, run_s: 0.5 };

    fn lab(cpus: usize, devices: usize) -> Lab {
        Lab { cpus: (4..4 + cpus).collect(), ..crate::synthetic::lab(cpus, devices, &[]) }
    }

    #[test]
    fn one_core_is_one_core_for_the_kernel_too() {
        let config = Config::new("io_uring+k", 1).depth(16);
        let jobs = jobs(&config, &lab(2, 1), LENGTH, 1).unwrap();
        assert_eq!(jobs[0].cpus, [4]);
        assert_eq!(jobs[0].mode.submission_thread.unwrap().cpu, Some(4));
        assert!(jobs[0].read_only && jobs[0].batch_submit == 1);
        let many = Config::new("libaio", 1).depth(16).batch(32).cached();
        let job = super::jobs(&many, &lab(2, 1), LENGTH, 1).unwrap().remove(0);
        assert!(job.batch_submit == 16 && !job.direct && job.measured.slat);
    }

    #[test]
    fn with_two_cores_each_has_its_own() {
        let config = Config::new("io_uring+k", 2);
        let jobs = jobs(&config, &lab(4, 1), LENGTH, 1).unwrap();
        assert_eq!(
            (jobs[0].cpus.clone(), jobs[0].mode.submission_thread.unwrap().cpu),
            (vec![4], Some(5))
        );
        let config = Config::new("io_uring", 2);
        assert_eq!(super::jobs(&config, &lab(4, 1), LENGTH, 1).unwrap()[0].cpus, [4, 5]);
    }

    #[test]
    fn drives_are_assigned_or_shared() {
        let lab = lab(2, 3);
        let names = |assignment| -> Vec<Vec<String>> {
            let config = Config::new("io_uring", 2).threads(4).drives(3, assignment);
            jobs(&config, &lab, LENGTH, 1)
                .unwrap()
                .iter()
                .map(|job| job.targets.iter().map(|target| target.spec.to_string()).collect())
                .collect()
        };
        let own = names(Assignment::Own);
        assert_eq!(own.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 1, 1]);
        assert_eq!((&own[0], &own[1]), (&own[3], &vec!["ram:size=2MiB".to_owned()]));
        assert!(names(Assignment::All).iter().all(|targets| targets.len() == 3));
    }

    #[test]
    fn soft_drives_need_no_devices() {
        let config = Config::new("softnvme:profile=optane", 1).drives(3, Assignment::All);
        let job = jobs(&config, &lab(2, 1), LENGTH, 1).unwrap().remove(0);
        let names: Vec<String> = job.targets.iter().map(|one| one.spec.to_string()).collect();
        assert!(names.len() == 3 && names[0] != names[1], "{names:?}");
        assert!(names.iter().all(|name| name.contains("profile=optane")), "{names:?}");
    }

    #[test]
    fn a_drive_on_loan_has_a_name_under_each_driver() {
        let mut lab = lab(2, 1);
        lab.devices[0].own_driver_spec = Some("nvme:0000:01:00.0/ns1".to_owned());
        let of = |interface: &str| {
            let jobs = jobs(&Config::new(interface, 1), &lab, LENGTH, 1).unwrap();
            jobs[0].targets[0].spec.to_string()
        };
        assert_eq!((&*of("nvme"), &*of("io_uring")), ("nvme:0000:01:00.0/ns1", "ram:size=1MiB"));
    }

    #[test]
    fn shared_channels_are_a_layer() {
        let of = |channels| {
            let config = Config::new("io_uring", 2).channels(channels);
            jobs(&config, &lab(2, 1), LENGTH, 1).unwrap()[0].targets[0].spec.to_string()
        };
        let names = [Channels::Own, Channels::OneThread, Channels::OneLock].map(of);
        assert_eq!(names, ["ram:size=1MiB", "iothread:ram:size=1MiB", "onelock:ram:size=1MiB"]);
    }

    #[test]
    fn vectors_have_the_bytes_of_a_request() {
        let config = Config::new("io_uring", 1).block_bytes(65536).pieces(4).sequential();
        let job = jobs(&config, &lab(2, 1), LENGTH, 1).unwrap().remove(0);
        assert_eq!((job.vector_len, job.order), (4, Order::Sequential));
        assert!(matches!(job.block_sizes[0], BlockSizes::Fixed(16384)));
        // A soft drive has the size that its specifier gives.
        let config = Config::new("softnvme:size=32MiB,profile=tlc", 1);
        let job = jobs(&config, &lab(2, 1), LENGTH, 1).unwrap().remove(0);
        assert_eq!(job.targets[0].spec.to_string(), "softnvme:size=32MiB,profile=tlc");
    }

    #[test]
    fn writes_mixes_and_paces() {
        let make = |config: Config| jobs(&config, &lab(2, 1), LENGTH, 1).unwrap().remove(0);
        let job = make(Config::new("io_uring", 2).read_percent(75));
        assert!(job.verbs == Verbs::Mixed { read_percent: 75 } && !job.read_only);
        let job = make(Config::new("io_uring", 2).pace(Pace::Interval { us: 10 }));
        let interval = Duration::from_micros(10);
        assert_eq!(job.form, Form::Messages { interval, producers: 1 });
        let job =
            make(Config::new("io_uring", 2).read_percent(0).pace(Pace::Prolonged { seconds: 9 }));
        assert_eq!((job.runtime, job.order), (Some(Duration::from_secs(9)), Order::Sequential));
    }
}
