//! CPU, memory and gossip of nodes without requests, one in each region of a cluster.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use spillway_harness::ScrapedPage;

use crate::member::{ClusterSpec, Member, start_all};
use crate::scale::figures::{ScaleFigures, progress};
use crate::scale::memory::Memory;
use crate::scale::site::{SHORT_ANSWER, ScaleSite};
use crate::stats::median;
use crate::usage::{TreeUsage, busy_share, each_descendants_usage, machine_time};

/// Longest wait until all nodes know each other: fifty share the machine with each other's starts.
const MEETING_MAX: Duration = Duration::from_secs(180);
/// Pause between two looks.
const LOOK: Duration = Duration::from_secs(1);
/// Time between that and the window, for slow starts and ramps to end.
const CALM: Duration = Duration::from_secs(20);

/// Metric with a series for each other region, 1 if requests could be sent there.
const REACHABLE: &str = "spillway_region_reachable";

/// Most voters of a cluster.
const VOTERS_MAX: usize = 5;

/// Role of a node in the agreed state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Leader,
    Voter,
    NonVoter,
}

/// Figures of one node.
#[derive(Clone, Copy, Debug)]
struct Seen {
    cpu_ms_per_s: f64,
    memory: Memory,
    gossip_bytes_per_s: f64,
    /// Other regions that requests could be sent to, at the end.
    reached: f64,
}

/// Measures idle clusters of so many regions, for `window_s` seconds each.
pub(super) async fn measure(
    spillway: &Path,
    regions: &[u8],
    window_s: u64,
) -> anyhow::Result<ScaleFigures> {
    let columns = &[
        ("nodes", 0),
        ("CPU, ms/s: mean", 2),
        ("CPU, ms/s: most", 2),
        ("resident, MiB: median", 1),
        ("resident, MiB: most", 1),
        ("anonymous, MiB: median", 1),
        ("gossip sent, bytes/s: mean", 0),
        ("regions reached: least", 0),
    ];
    let mut figures = ScaleFigures::new("regions", columns);
    for count in regions {
        for (part, nodes) in measure_one(spillway, *count, window_s).await? {
            figures.push(format!("{count}, {}", part.text()), &row(&nodes));
        }
        // A larger cluster may fail.
        progress(&figures.grid().text());
    }
    Ok(figures)
}

fn row(nodes: &[Seen]) -> [f64; 8] {
    let of = |pick: fn(&Seen) -> f64| nodes.iter().map(pick).collect::<Vec<_>>();
    let (cpu, resident) = (of(|seen| seen.cpu_ms_per_s), of(|seen| seen.memory.resident_mib));
    let anonymous = of(|seen| seen.memory.anonymous_mib);
    [
        nodes.len() as f64,
        mean(&cpu),
        most(&cpu),
        median(resident.iter().copied()).unwrap_or(f64::NAN),
        most(&resident),
        median(anonymous).unwrap_or(f64::NAN),
        mean(&of(|seen| seen.gossip_bytes_per_s)),
        -most(&of(|seen| -seen.reached)),
    ]
}

async fn measure_one(
    spillway: &Path,
    count: u8,
    window_s: u64,
) -> anyhow::Result<BTreeMap<Part, Vec<Seen>>> {
    let site = ScaleSite::start(SHORT_ANSWER)?;
    let replicas = site.backends().chunks(1).cycle().take(count.into()).collect();
    let (folder, replica) = (site.folder(), String::new());
    let spec = ClusterSpec { spillway, folder, replicas, replica, route: "" };
    let mut members = start_all(&spec).await?;
    progress(&format!("{count} regions: started"));
    meet(&mut members.0).await?;
    progress(&format!("{count} regions: all know each other"));
    // wait: for slow starts and ramps
    tokio::time::sleep(CALM).await;
    let guards: Vec<u32> = members.0.iter().map(Member::guard).collect();
    let pages = scrape(&members.0).await?;
    let (machine, before) = (machine_time()?, each_descendants_usage(&guards)?);
    // wait: the window of the measurement
    tokio::time::sleep(Duration::from_secs(window_s)).await;
    let after = each_descendants_usage(&guards)?;
    let busy = busy_share(&machine, &machine_time()?);
    progress(&format!("{count} regions: the machine was busy for {:.0} %", busy * 100.0));
    let pages_after = scrape(&members.0).await?;
    let mut seen: BTreeMap<Part, Vec<Seen>> = BTreeMap::new();
    for (index, guard) in guards.iter().enumerate() {
        let pages = [&pages[index], &pages_after[index]];
        let part = Part::of(pages[1])?;
        let usage = [&before[index], &after[index]];
        seen.entry(part).or_default().push(Seen::of(usage, pages, *guard, window_s)?);
    }
    Ok(seen)
}

/// Waits until all nodes know each other, and as many vote as will.
async fn meet(members: &mut [Member]) -> anyhow::Result<()> {
    let deadline = Instant::now() + MEETING_MAX;
    loop {
        members.iter_mut().try_for_each(Member::check_alive)?;
        let Err(missing) = all_know_each_other(members).await else { return Ok(()) };
        if Instant::now() > deadline {
            return Err(missing.context("the nodes do not know each other"));
        }
        // wait: until the next look
        tokio::time::sleep(LOOK).await;
    }
}

/// Returns an error that names the missing nodes.
async fn all_know_each_other(members: &[Member]) -> anyhow::Result<()> {
    let mut voting = 0;
    for page in scrape(members).await? {
        let known = page.samples.iter().filter(|sample| sample.name == REACHABLE).count();
        anyhow::ensure!(known + 1 >= members.len(), "a node knows {known} other regions");
        voting += usize::from(Part::of(&page)? != Part::NonVoter);
    }
    let due = members.len().min(VOTERS_MAX);
    anyhow::ensure!(voting == due, "{voting} of {due} nodes vote");
    Ok(())
}

async fn scrape(members: &[Member]) -> anyhow::Result<Vec<ScrapedPage>> {
    let mut pages = Vec::with_capacity(members.len());
    for member in members {
        pages.push(member.metrics().await?);
    }
    Ok(pages)
}

impl Part {
    fn of(page: &ScrapedPage) -> anyhow::Result<Self> {
        let is = |role| page.sum("spillway_control_role", &[("role", role)]) > 0.0;
        // On a machine that is too busy a leader loses its lead now and then.
        let parts = [
            ("leader", Self::Leader),
            ("isolated_leader", Self::Leader),
            ("candidate", Self::Voter),
            ("follower", Self::Voter),
            ("learner", Self::NonVoter),
        ];
        let part = parts.into_iter().find(|(role, _)| is(*role)).map(|(_, part)| part);
        part.context("a node without a part in the cluster")
    }

    fn text(self) -> &'static str {
        match self {
            Self::Leader => "leader",
            Self::Voter => "other voters",
            Self::NonVoter => "non-voters",
        }
    }
}

impl Seen {
    /// Returns the figures of a node from the readings at the ends of the window.
    fn of(
        [before, after]: [&TreeUsage; 2],
        pages: [&ScrapedPage; 2],
        guard: u32,
        window_s: u64,
    ) -> anyhow::Result<Self> {
        let [sent_before, sent] =
            pages.map(|page| page.sum("spillway_gossip_sent_bytes_total", &[]));
        let seconds = window_s as f64;
        Ok(Self {
            cpu_ms_per_s: after.cpu_s_since(before) * 1e3 / seconds,
            memory: Memory::below(guard)?,
            gossip_bytes_per_s: (sent - sent_before) / seconds,
            reached: pages[1].sum(REACHABLE, &[]),
        })
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}
