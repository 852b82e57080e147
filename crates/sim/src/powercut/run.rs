//! One run: the incarnations of a store. Each is recorded and cut at many moments, and each begins
//! with a state that a cut of the previous one left.

use qpair_block::locks::Mutex;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fastrand::Rng;

use super::cut::Cutter;
use super::files::judge_files;
use super::history::{Bounds, History};
use super::image::Image;
use super::judge::{Expected, judge, judge_made};
use super::load::Load;
use super::plan::{Action, Fault, Life, Plan};
use super::record::{Record, Step};
use super::recorder::Mark;
use super::rig::Rig;

/// One of this many states is also judged as files, by commands.
const FILES_EACH: u64 = 8;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) lives: u64,
    pub(super) commands: u64,
    pub(super) steps: u64,
    pub(super) flushes: u64,
    pub(super) states: u64,
    /// States in which an unfinished recovery was cut.
    pub(super) of_recoveries: u64,
    /// States that were cut during a command's operation.
    pub(super) of_commands: u64,
    /// States that the program also judged, as files.
    pub(super) as_files: u64,
    /// States with unflushed writes.
    pub(super) with_unflushed: u64,
}

pub(super) struct Run<'a> {
    pub(super) plan: &'a Plan,
    /// The number of states judged of each incarnation.
    pub(super) states: usize,
    pub(super) program: Option<&'a Path>,
    /// The folder for sockets, files of devices, and failed states.
    pub(super) folder: &'a Path,
    pub(super) interrupted: &'a AtomicBool,
}

/// The state at the beginning of an incarnation.
struct Before {
    images: Vec<Image>,
    history: History,
    /// `None` before there is a store.
    bounds: Option<Vec<Bounds>>,
}

struct Lived {
    base: Vec<Image>,
    record: Record,
    history: History,
}

struct Moment {
    steps: usize,
    seed: u64,
}

impl Run<'_> {
    /// Executes the run. The first wrong state ends it.
    pub(super) fn run(&self, counts: &mut Counts) -> Result<(), String> {
        let mut rng = Rng::with_seed(!self.plan.seed);
        let shapes = self.plan.shapes();
        let writers = self.plan.writers + 1;
        let mut before = Before {
            images: shapes.into_iter().map(Image::blank).collect(),
            history: History::new(writers),
            bounds: None,
        };
        let stamps = AtomicU64::new(1);
        for (number, life) in self.plan.lives.iter().enumerate() {
            let lived = self
                .live(life, &before, &stamps, &mut rng)
                .map_err(|wrong| format!("life {number}: {wrong}"))?;
            counts.lives += 1;
            counts.commands += u64::from(life.action.is_some());
            counts.steps += lived.record.steps.len() as u64;
            let is_flush = |step: &&Step| matches!(step, Step::Flush { .. });
            counts.flushes += lived.record.steps.iter().filter(is_flush).count() as u64;
            let next = self
                .judge_life(&before, &lived, life, counts, &mut rng)
                .map_err(|wrong| format!("life {number}, {wrong}"))?;
            match next {
                Some(next) => before = next,
                None => break,
            }
        }
        Ok(())
    }

    fn live(
        &self,
        life: &Life,
        before: &Before,
        stamps: &AtomicU64,
        rng: &mut Rng,
    ) -> Result<Lived, String> {
        let mut base = before.images.clone();
        let targets = life.action.map_or(0, Action::targets);
        base.extend((0..targets).map(|_| Image::blank(self.plan.target_shape())));
        let between = self.program.filter(|_| self.plan.through_target);
        let rig = Rig::start(&self.folder.join("rig"), &base, between)?;
        let history = Mutex::new(before.history.clone());
        let load = Load { plan: self.plan, recorder: &rig.recorder, history: &history, stamps };
        load.run(&rig, life, before.bounds.as_deref(), rng)?;
        if let (Some(action), Some(program)) = (life.action, self.program) {
            load.command(program, self.folder, &rig, action, rng)?;
        }
        let record = rig.stop()?;
        let history = history.into_inner();
        Ok(Lived { base, record, history })
    }

    /// Cuts the record of an incarnation at many moments and judges the states. Returns one of them
    /// for the next incarnation.
    fn judge_life(
        &self,
        before: &Before,
        lived: &Lived,
        life: &Life,
        counts: &mut Counts,
        rng: &mut Rng,
    ) -> Result<Option<Before>, String> {
        let mut moments = choose(&lived.record, self.states, rng);
        moments.sort_by_key(|moment| moment.steps);
        let next = rng.usize(..moments.len().max(1));
        let mut kept = None;
        let ignores_flushes = self.plan.fault == Some(Fault::LostFlush);
        let mut cutter = Cutter::new(&lived.record, &lived.base, ignores_flushes);
        for (number, moment) in moments.iter().enumerate() {
            if self.interrupted.load(Ordering::Relaxed) {
                return Ok(None);
            }
            cutter.advance(moment.steps);
            let (images, fate, unflushed) = cutter.cut(&mut Rng::with_seed(moment.seed));
            counts.states += 1;
            counts.with_unflushed += u64::from(unflushed > 0);
            let judged = self.judge_state(before, lived, life, moment, &images, counts);
            let after = judged.map_err(|wrong| {
                let place = format!(
                    "cut after step {} of {}, {unflushed} writes not flushed, {fate:?}",
                    moment.steps,
                    lived.record.steps.len()
                );
                let wrong = format!("{place}: {wrong}");
                // A state that a planted fault left cannot be continued.
                if self.plan.fault.is_some() {
                    return wrong;
                }
                match self.keep(&images, lived, &wrong) {
                    Ok(folder) => format!("{wrong}\nthe images are in {}", folder.display()),
                    Err(error) => format!("{wrong}\nthe images could not be kept: {error}"),
                }
            })?;
            // Without a store there is nothing to continue with.
            if let (true, None, Some((history, bounds))) = (number >= next, &kept, after) {
                let mut images = images;
                images.truncate(before.images.len());
                kept = Some(Before { images, history, bounds: Some(bounds) });
            }
        }
        Ok(kept)
    }

    /// Judges one state. If there is a store, returns its permitted history.
    fn judge_state(
        &self,
        before: &Before,
        lived: &Lived,
        life: &Life,
        moment: &Moment,
        images: &[Image],
        counts: &mut Counts,
    ) -> Result<Option<(History, Vec<Bounds>)>, String> {
        let has = |wanted: Mark| lived.record.marks(moment.steps).any(|mark| mark == wanted);
        let (own, made) = images.split_at(before.images.len());
        counts.of_commands += u64::from(has(Mark::Command));
        let is_open = has(Mark::Opened);
        counts.of_recoveries += u64::from(!is_open && before.bounds.is_some());
        let (history, bounds) = match (&before.bounds, is_open) {
            (Some(bounds), false) => (&before.history, bounds.clone()),
            _ => (&lived.history, lived.history.bounds(lived.record.marks(moment.steps))),
        };
        let is_made = is_open || before.bounds.is_some();
        let found = judge(self.plan, own, &Expected { history, bounds: &bounds, is_made })?;
        if let (Some(program), Some(found)) = (self.program, &found)
            && is_made
            && moment.seed.is_multiple_of(FILES_EACH)
        {
            counts.as_files += 1;
            judge_files(self.plan, program, &self.folder.join("files"), own, found)?;
        }
        if life.action.is_some_and(|action| action.targets() > 0) {
            let all = lived.history.bounds(lived.record.marks(usize::MAX));
            let expected =
                Expected { history: &lived.history, bounds: &all, is_made: has(Mark::Made) };
            judge_made(self.plan, made, &expected)
                .map_err(|wrong| format!("the store that was made: {wrong}"))?;
        }
        Ok(found.map(|_| (history.clone(), bounds)))
    }

    /// Keeps the evidence for a verdict: the images, and the record of the incarnation.
    fn keep(&self, images: &[Image], lived: &Lived, wrong: &str) -> std::io::Result<PathBuf> {
        let folder = self.folder.with_file_name(format!("powercut-failed-{}", self.plan.seed));
        std::fs::create_dir_all(&folder)?;
        for (device, image) in images.iter().enumerate() {
            image.save(&folder.join(format!("{device}.img")))?;
        }
        for (device, log) in lived.record.logs().iter().enumerate() {
            std::fs::write(folder.join(format!("{device}.log")), log)?;
        }
        for (device, image) in lived.base.iter().enumerate() {
            image.save(&folder.join(format!("{device}.base.img")))?;
        }
        let mut text = std::fs::File::create(folder.join("what.txt"))?;
        writeln!(text, "{}\n{wrong}", self.plan)?;
        for (number, step) in lived.record.steps.iter().enumerate() {
            writeln!(text, "{number} {step:?}")?;
        }
        Ok(folder)
    }
}

/// Chooses moments of a record: anywhere, just before or after a flush, after a mark, and during
/// the recovery and the command if there are any.
fn choose(record: &Record, count: usize, rng: &mut Rng) -> Vec<Moment> {
    let all = record.steps.len();
    let at = |wanted: &dyn Fn(&Step) -> bool| -> Vec<usize> {
        record.steps.iter().enumerate().filter(|(_, step)| wanted(step)).map(|(at, _)| at).collect()
    };
    let flushes = at(&|step| matches!(step, Step::Flush { .. }));
    let marks = at(&|step| matches!(step, Step::Mark(_)));
    let first = |mark: Mark| record.steps.iter().position(|step| *step == Step::Mark(mark));
    let (opened, command) = (first(Mark::Opened).unwrap_or(0), first(Mark::Command));
    let one_of = |of: &[usize], rng: &mut Rng| of.get(rng.usize(..of.len().max(1))).copied();
    let mut moment = |number: usize| {
        let steps = match number % 8 {
            0 => Some(rng.usize(..=opened)),
            1 | 2 => one_of(&flushes, rng),
            3 => one_of(&flushes, rng).map(|at| at + 1),
            4 => one_of(&marks, rng).map(|at| at + 1),
            5 | 6 => command.map(|command| rng.usize(command..=all)),
            _ => None,
        };
        Moment { steps: steps.unwrap_or_else(|| rng.usize(..=all)), seed: rng.u64(..) }
    };
    (0..count).map(&mut moment).collect()
}
