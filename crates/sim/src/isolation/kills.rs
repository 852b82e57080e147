//! Kills a process that runs transactions at random moments, again and again. Its acknowledged
//! transactions are judged together with the data found when the store is opened again; the history
//! continues from there.

use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fastrand::Rng;
use qpair_engine::{Store, StoreOptions};
use qpair_isolation::{History, State, Transaction, judge};

use super::plan::{On, Plan, file};
use super::text::Line;
use super::{Options, Runs};

/// The number of kills of one store before another store is made.
const KILLS_OF_A_STORE: u64 = 20;

/// Returns the plan of incarnation `life` of a store. The lists and pages of the store do not
/// change.
pub(super) fn plan_of(seed: u64, life: u64) -> Plan {
    let options = Options {
        seed,
        runs: 1,
        transactions: usize::MAX,
        seconds: 0,
        kills: 0,
        canary: None,
        verbose: false,
        dir: None,
        life_of: None,
        life: 0,
    };
    let (store, mut plan) = (
        Plan::new(seed, &options),
        Plan::new(seed ^ life.wrapping_mul(0x9E37_79B9_7F4A_7C15), &options),
    );
    plan.page_size = store.page_size;
    plan.on = On::File;
    plan.habits.layout = store.habits.layout;
    plan.habits.has_heads = true;
    plan
}

/// The output of a process before it ended.
#[derive(Default)]
struct Said {
    state: Option<State>,
    transactions: Vec<Transaction>,
    wrong: Option<String>,
}

impl Said {
    fn read(from: impl Read) -> io::Result<Self> {
        let mut said = Self::default();
        let mut reader = BufReader::new(from);
        let mut line = String::new();
        while reader.read_line(&mut line)? > 0 {
            // The last one may be cut off.
            let Some(whole) = line.strip_suffix('\n') else { break };
            match Line::parse(whole) {
                Some(Line::State(state)) => said.state = Some(state),
                Some(Line::Asks(_, transaction)) => said.transactions.push(transaction),
                Some(Line::Ends(number, outcome, ended)) => {
                    let transaction = said.transactions.get_mut(number);
                    if let Some(transaction) = transaction {
                        (transaction.outcome, transaction.ended) = (outcome, ended);
                    }
                }
                None => said.wrong = Some(format!("a line that is none: {whole}")),
            }
            line.clear();
        }
        Ok(said)
    }
}

pub(super) fn run(options: &Options, folder: &Path, runs: &mut Runs) {
    let mut left = options.kills;
    let mut seed = options.seed;
    while left > 0 && !runs.console.is_over() {
        let kills = left.min(KILLS_OF_A_STORE);
        if let Err(wrong) = kill_a_store(seed, kills, folder, runs)
            && !runs.console.is_interrupted()
        {
            runs.take(Err(wrong), again(seed, kills));
        }
        left -= kills;
        seed = seed.wrapping_add(1);
    }
}

fn again(seed: u64, kills: u64) -> String {
    format!("--runs 0 --kills {kills} --seed {seed} ({})", plan_of(seed, 0))
}

fn kill_a_store(seed: u64, kills: u64, folder: &Path, runs: &mut Runs) -> Result<(), String> {
    let path = folder.join(format!("killed-{seed}"));
    make(seed, &path)?;
    let mut rng = Rng::with_seed(!seed);
    // The incarnations that have not been judged yet.
    let mut history = History::default();
    for life in 1..=kills + 1 {
        if runs.console.is_over() {
            break;
        }
        let is_last = life > kills;
        let said = live((seed, life), &path, is_last, &mut rng)?;
        runs.counts.kills += u64::from(!is_last);
        if let Some(wrong) = said.wrong {
            return Err(wrong);
        }
        // A process that was killed before it had read anything changed nothing.
        let Some(state) = said.state else { continue };
        if life > 1 {
            history.recovered = Some(state.clone());
            runs.take(Ok(judge(&history)), again(seed, kills));
        }
        history = History { base: state, transactions: said.transactions, recovered: None };
    }
    std::fs::remove_file(&path).map_err(|error| format!("removing {}: {error}", path.display()))
}

fn make(seed: u64, path: &Path) -> Result<(), String> {
    let options = StoreOptions { format: true, ..plan_of(seed, 0).store_options() };
    let store = Store::open(vec![file(path, true)?], &options);
    let store = store.map_err(|error| format!("making a store: {error}"))?;
    store.close().map_err(|error| format!("closing a new store: {error}"))
}

/// Runs one process, and returns its output after its end. The last process ends by itself.
fn live(
    (seed, life): (u64, u64),
    path: &Path,
    is_last: bool,
    rng: &mut Rng,
) -> Result<Said, String> {
    let failed = |error: io::Error| format!("running life {life}: {error}");
    let mut child = begin(seed, life, path, is_last).map_err(failed)?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let said = std::thread::scope(|scope| {
        let said = scope.spawn(move || out.map_or(Ok(Said::default()), Said::read));
        let complaint = scope.spawn(move || {
            let mut text = String::new();
            // Output that is not text is not an error message.
            let _ = err.map(|mut err| err.read_to_string(&mut text));
            text
        });
        let ended = match is_last {
            true => Some(child.wait()?),
            false => {
                // Half of the kills come early, while the store is recovered; the others at any
                // later time.
                let most_ms = 16 << rng.u8(0..7);
                std::thread::sleep(Duration::from_millis(2 + rng.u64(0..most_ms)));
                let ended = child.try_wait()?;
                child.kill()?;
                child.wait()?;
                ended
            }
        };
        let mut said =
            said.join().unwrap_or_else(|_| Err(io::Error::other("its reader panicked")))?;
        let complaint = complaint.join().unwrap_or_default();
        if let Some(status) = ended.filter(|status| !is_last || !status.success()) {
            said.wrong = Some(format!("life {life} ended by itself, {status}: {complaint}"));
        }
        Ok(said)
    });
    said.map_err(failed)
}

fn begin(seed: u64, life: u64, path: &Path, is_last: bool) -> io::Result<Child> {
    let program: PathBuf = std::env::current_exe()?;
    let mut command = Command::new(program);
    command.arg("isolation").arg("--life-of").arg(path);
    command.args(["--seed", &seed.to_string(), "--life", &life.to_string()]);
    command.args(["--transactions", if is_last { "0" } else { "1" }]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
}

#[cfg(test)]
mod tests {
    use qpair_isolation::Outcome;

    use super::*;

    #[test]
    fn a_line_that_was_cut_off_is_as_if_it_had_not_been_written() {
        let text = "s 1:5\nt 0 3 12 P d ? 0 a1:8\nt 1 3 13 S - ? 0 a1:9\ne 0 C 15\ne 1 C 1";
        let said = Said::read(text.as_bytes()).unwrap();
        let outcomes: Vec<_> = said.transactions.iter().map(|one| one.outcome).collect();
        assert_eq!(outcomes, [Outcome::Committed, Outcome::Unknown]);
        assert_eq!(said.state.map(|state| state.len()), Some(1));
        assert!(said.wrong.is_none());
    }
}
