//! The error ladder: the steps for a command that has exceeded its time limit.
//!
//! Abort, LUN reset, target reset, host reset, offline. Each step has a time limit, except the host
//! reset, which ends by itself: it reports all commands, whether the controller came back or not.

use crate::host::{HostQueue, Task};

/// The number of host resets without a good command in between after which the unit is given up.
const FRUITLESS_MAX: u32 = 2;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Step {
    #[default]
    Idle,
    /// The step has to begin as soon as there is room.
    Next(Rung),
    /// A task has been in progress since this time.
    Doing(Rung, u32),
    /// The task has ended. The value says whether it succeeded.
    Over(Rung, bool),
    Resetting,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rung {
    Abort,
    LunReset,
    TargetReset,
    HostReset,
}

impl Rung {
    fn next(self) -> Self {
        match self {
            Self::Abort => Self::LunReset,
            Self::LunReset => Self::TargetReset,
            Self::TargetReset | Self::HostReset => Self::HostReset,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Ladder {
    step: Step,
    victim: u16,
    /// The time at which the step that waits to begin could have begun.
    wanted_ms: u32,
    fruitless: u32,
}

impl Ladder {
    #[inline(always)]
    pub(crate) fn is_idle(&self) -> bool {
        self.step == Step::Idle
    }

    #[inline(always)]
    pub(crate) fn forget_fruitless(&mut self) {
        self.fruitless = 0;
    }

    pub(crate) fn victim(&self) -> u16 {
        self.victim
    }

    pub(crate) fn begin(&mut self, victim: u16) {
        self.victim = victim;
        self.step = Step::Next(Rung::Abort);
        self.wanted_ms = 0;
    }

    pub(crate) fn task_ended(&mut self, succeeded: bool) {
        if let Step::Doing(rung, _) = self.step {
            self.step = Step::Over(rung, succeeded);
        }
    }

    /// Whether the unit should not be used any more.
    pub(crate) fn gave_up(&self) -> bool {
        self.fruitless >= FRUITLESS_MAX
    }

    /// Moves the ladder on and returns the step that was begun, if any. `is_victim_over`: the
    /// command that caused it was reported.
    pub(crate) fn climb(
        &mut self,
        host: &mut dyn HostQueue,
        is_victim_over: bool,
        now_ms: u32,
        task_timeout_ms: u32,
    ) -> Option<Rung> {
        match self.step {
            Step::Idle => return None,
            Step::Next(_) if is_victim_over => self.step = Step::Idle,
            Step::Next(_) => {}
            Step::Doing(rung, since_ms) => {
                if now_ms.wrapping_sub(since_ms) < task_timeout_ms {
                    return None;
                }
                self.step = Step::Next(rung.next());
                self.wanted_ms = 0;
            }
            Step::Over(_, _) if is_victim_over => self.step = Step::Idle,
            Step::Over(rung, _) => {
                self.step = Step::Next(rung.next());
                self.wanted_ms = 0;
            }
            Step::Resetting => {
                if is_victim_over {
                    self.step = Step::Idle;
                }
                return None;
            }
        }
        let Step::Next(rung) = self.step else { return None };
        let task = match rung {
            Rung::Abort => Task::Abort(self.victim),
            Rung::LunReset => Task::LunReset,
            Rung::TargetReset => Task::TargetReset,
            Rung::HostReset => {
                self.fruitless += 1;
                self.step = Step::Resetting;
                host.begin_reset();
                return Some(rung);
            }
        };
        if host.begin_task(task).is_ok() {
            self.step = Step::Doing(rung, now_ms);
            return Some(rung);
        } else if self.wanted_ms == 0 {
            self.wanted_ms = now_ms.max(1);
        } else if now_ms.wrapping_sub(self.wanted_ms) >= task_timeout_ms {
            // There was no room for the task during all of its time.
            self.step = Step::Next(rung.next());
            self.wanted_ms = 0;
        }
        None
    }
}
