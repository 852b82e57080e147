//! Three members under load, of which some are killed or cut off all the time.

use crate::clients::{self, History, ask_once};
use crate::member::{Answer, Ask};
use crate::proxy::Way;
use crate::{Failure, Words};
use openraft_0_10::BasicNode;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};

const MEMBERS: usize = 3;

struct Cluster {
    folder: PathBuf,
    fault: String,
    addresses: Vec<String>,
    /// The way from a member to another, at `MEMBERS * from + to`.
    ways: Vec<Way>,
    children: Vec<Option<Child>>,
}

impl Cluster {
    async fn new(folder: &Path, fault: &str) -> Result<Self, Failure> {
        let mut addresses = Vec::new();
        for _ in 0..MEMBERS {
            let free = TcpListener::bind("127.0.0.1:0").await?;
            addresses.push(free.local_addr()?.to_string());
        }
        let mut ways = Vec::new();
        for _ in 0..MEMBERS {
            for address in &addresses {
                ways.push(Way::to(address.clone()).await?);
            }
        }
        let children = (0..MEMBERS).map(|_| None).collect();
        Ok(Self { folder: folder.to_owned(), fault: fault.to_owned(), addresses, ways, children })
    }

    fn start(&mut self, member: usize) -> Result<(), Failure> {
        if self.children[member].is_some() {
            return Ok(());
        }
        let peers: Vec<_> = (0..MEMBERS)
            .filter(|&to| to != member)
            .map(|to| format!("{}={}", to + 1, self.ways[MEMBERS * member + to].address))
            .collect();
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.folder.join(format!("member-{}.log", member + 1)))?;
        let child = Command::new(std::env::current_exe()?)
            .args(["member", "--id", &(member + 1).to_string()])
            .arg("--store")
            .arg(self.folder.join(format!("member-{}.qpair", member + 1)))
            .args(["--listen", &self.addresses[member], "--peers", &peers.join(",")])
            .args(["--fault", &self.fault])
            .stderr(log)
            .kill_on_drop(true)
            .spawn()?;
        self.children[member] = Some(child);
        Ok(())
    }

    async fn kill(&mut self, members: &[usize]) -> Result<(), Failure> {
        // All signals first: what is in memory is lost at the same time.
        for &member in members {
            if let Some(child) = &mut self.children[member] {
                // Fails if the member has ended by itself.
                let _ = child.start_kill();
            }
        }
        for &member in members {
            if let Some(mut child) = self.children[member].take() {
                child.wait().await?;
            }
        }
        Ok(())
    }

    fn cut(&self, member: usize, cut: bool) {
        for other in 0..MEMBERS {
            self.ways[MEMBERS * member + other].cut(cut);
            self.ways[MEMBERS * other + member].cut(cut);
        }
    }

    async fn ask(&self, member: usize, ask: &Ask) -> Result<Answer, Failure> {
        let asked = async {
            let mut stream = TcpStream::connect(&self.addresses[member]).await?;
            ask_once(&mut stream, ask).await
        };
        tokio::time::timeout(Duration::from_secs(1), asked).await?
    }

    async fn leader(&self) -> Option<usize> {
        for member in 0..MEMBERS {
            if let Ok(Answer::Leader(Some(leader))) = self.ask(member, &Ask::Leader).await {
                return usize::try_from(leader - 1).ok();
            }
        }
        None
    }

    /// Members that ended without having been killed.
    fn fallen(&mut self) -> Vec<usize> {
        let ended = |child: &mut Option<Child>| {
            child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(Some(_))))
        };
        (0..MEMBERS).filter(|&member| ended(&mut self.children[member])).collect()
    }
}

pub(crate) async fn run(words: &Words) -> Result<(), Failure> {
    let folder = PathBuf::from(words.get("folder")?);
    let fault = words.get("fault").unwrap_or("none");
    let seconds = words.number("seconds", 20)?;
    let seed = words.number("seed", 1)?;
    std::fs::create_dir_all(&folder)?;
    for entry in std::fs::read_dir(&folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "qpair" || end == "log" || end == "json") {
            std::fs::remove_file(path)?;
        }
    }
    let mut cluster = Cluster::new(&folder, fault).await?;
    for member in 0..MEMBERS {
        cluster.start(member)?;
    }
    let members = (1..).zip(&cluster.addresses).map(|(id, addr)| (id, BasicNode::new(addr)));
    let members = Ask::Found(members.collect());
    let began = Instant::now();
    while !matches!(cluster.ask(0, &members).await, Ok(Answer::Done)) {
        if began.elapsed() > Duration::from_secs(20) {
            return Err("the members do not start: see their logs in the folder".into());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    let history = Arc::new(History::new(&folder.join("history.json"))?);
    let clients: Vec<_> = (0..words.number("clients", 8)?)
        .map(|client| {
            let addresses = cluster.addresses.clone();
            let seed = seed * 1_000 + client;
            tokio::spawn(clients::run(history.clone(), addresses, fault == "stale-read", seed))
        })
        .collect();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut panics = 0;
    let began = Instant::now();
    let mut turn = 0;
    while began.elapsed() < Duration::from_secs(seconds) {
        tokio::time::sleep(Duration::from_millis(random.u64(700..1_500))).await;
        panics += cluster.fallen().len();
        let leader = cluster.leader().await.unwrap_or(0);
        let any = random.usize(..MEMBERS);
        let (what, hit): (_, Vec<usize>) = match turn % 5 {
            0 => ("kill the leader", vec![leader]),
            1 => ("cut off the leader", vec![leader]),
            2 => ("kill all", (0..MEMBERS).collect()),
            3 => ("kill any", vec![any]),
            _ => ("cut off any", vec![any]),
        };
        turn += 1;
        let known = history.known.load(Ordering::Relaxed);
        println!("{:6.2} s  {known} calls; {what}: {hit:?}", began.elapsed().as_secs_f64());
        if what.starts_with("cut") {
            cluster.cut(hit[0], true);
            tokio::time::sleep(Duration::from_millis(random.u64(500..2_000))).await;
            cluster.cut(hit[0], false);
        } else {
            cluster.kill(&hit).await?;
            tokio::time::sleep(Duration::from_millis(random.u64(50..1_000))).await;
        }
        let fallen = cluster.fallen();
        panics += fallen.len();
        cluster.kill(&fallen).await?;
        for member in 0..MEMBERS {
            cluster.start(member)?;
        }
    }
    // The last reads: what was acknowledged is there when all is well again.
    tokio::time::sleep(Duration::from_secs(3)).await;
    history.ended.store(true, Ordering::Relaxed);
    for client in clients {
        client.await??;
    }
    history.finish()?;
    let all = Ask::Range(String::new(), 1_000);
    let mut keys = None;
    for member in 0..MEMBERS {
        if let Ok(Answer::Records(records)) = cluster.ask(member, &all).await {
            keys =
                Some(records.windows(2).all(|pair| pair[0].0 < pair[1].0).then_some(records.len()));
        }
    }
    let (known, unknown) =
        (history.known.load(Ordering::Relaxed), history.unknown.load(Ordering::Relaxed));
    println!(
        "{known} calls with a known outcome, {unknown} without; keys in order at the end: {keys:?}; members that ended by themselves: {panics}"
    );
    cluster.kill(&[0, 1, 2]).await?;
    if panics > 0 {
        return Err(format!(
            "{panics} members ended by themselves: see their logs in {}",
            folder.display()
        )
        .into());
    }
    match keys {
        Some(Some(_)) => Ok(()),
        Some(None) => Err("the keys of a range are not in order".into()),
        None => Err("no member serves at the end, although all run and nothing is cut".into()),
    }
}
