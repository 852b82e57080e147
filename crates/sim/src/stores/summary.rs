//! A summary of many runs for people.

use std::fmt;
use std::ops::AddAssign;
use std::time::Duration;

use super::hba::Met;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) runs: u64,
    pub(crate) lives: u64,
    pub(crate) opened: u64,
    pub(crate) failed_opens: u64,
    pub(crate) full_opens: u64,
    pub(crate) crashes: u64,
    pub(crate) panics: u64,
    pub(crate) closes: u64,
    pub(crate) judged: u64,
    pub(crate) checks: u64,
    pub(crate) commits: u64,
    pub(crate) operations: u64,
    pub(crate) timed_out: u64,
    /// Transactions on lists that were reported to the judge of isolation.
    pub(crate) listed: u64,
    pub(crate) errands: u64,
    pub(crate) renames: u64,
    pub(crate) backups: u64,
    pub(crate) readers: u64,
    pub(crate) readers_lost: u64,
    pub(crate) compactions: u64,
    pub(crate) cut_off: u64,
    pub(crate) moved: u64,
    pub(crate) filled: u64,
    pub(crate) damaged: u64,
    pub(crate) noticed: u64,
    pub(crate) salvaged: u64,
    pub(crate) met: Met,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.runs += other.runs;
        self.lives += other.lives;
        self.opened += other.opened;
        self.failed_opens += other.failed_opens;
        self.full_opens += other.full_opens;
        self.crashes += other.crashes;
        self.panics += other.panics;
        self.closes += other.closes;
        self.judged += other.judged;
        self.checks += other.checks;
        self.commits += other.commits;
        self.operations += other.operations;
        self.timed_out += other.timed_out;
        self.listed += other.listed;
        self.errands += other.errands;
        self.renames += other.renames;
        self.backups += other.backups;
        self.readers += other.readers;
        self.readers_lost += other.readers_lost;
        self.compactions += other.compactions;
        self.cut_off += other.cut_off;
        self.moved += other.moved;
        self.filled += other.filled;
        self.damaged += other.damaged;
        self.noticed += other.noticed;
        self.salvaged += other.salvaged;
        self.met += other.met;
    }
}

pub(crate) struct Summary {
    pub(crate) counts: Counts,
    pub(crate) failures: u64,
    pub(crate) took: Duration,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts {
            runs,
            lives,
            opened,
            failed_opens,
            full_opens,
            crashes,
            panics,
            closes,
            judged,
            checks,
            commits,
            operations,
            timed_out,
            listed,
            errands,
            renames,
            backups,
            readers,
            readers_lost,
            compactions,
            cut_off,
            moved,
            filled,
            damaged,
            noticed,
            salvaged,
            met,
        } = self.counts;
        let Self { failures, took, .. } = self;
        writeln!(f, "{runs} runs, {failures} failed, in {:.1} s", took.as_secs_f64())?;
        writeln!(
            f,
            "  {lives} lives: {crashes} ended by a crash, {panics} by a planted panic, {closes} closed, {failed_opens} opens cut short"
        )?;
        if full_opens > 0 {
            writeln!(f, "  {full_opens} opens refused for want of room on a full device")?;
        }
        writeln!(f, "  {opened} opens, {judged} states judged, {checks} checks of every page")?;
        writeln!(
            f,
            "  {operations} operations, {commits} commits, {timed_out} waits for rows timed out, {errands} errands, {renames} tables renamed, {backups} backups, {readers} readers beside ({readers_lost} lost)"
        )?;
        writeln!(
            f,
            "  {compactions} compactions, {cut_off} of which cut the store off, {moved} pages moved"
        )?;
        writeln!(f, "  {listed} transactions on lists, whose isolation was judged")?;
        writeln!(f, "  {filled} stores on devices that were filled up, and emptied again")?;
        if !met.is_none() {
            return write!(f, "  {met}");
        }
        write!(
            f,
            "  {damaged} stores damaged, {noticed} of which said so, {salvaged} records salvaged from them"
        )
    }
}
