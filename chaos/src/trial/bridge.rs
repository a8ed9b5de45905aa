//! Bridge partition: two nodes cannot reach each other while a third reaches both.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::client_stream::{self, ClientStream};
use super::cluster::TrialCluster;
use super::report::TrialReport;
use crate::plan::TrialPlan;

/// Length of the partition: several leases. A follower without pre-vote would start an election in
/// this time.
const APART: Duration = Duration::from_secs(6);
/// Time in which writes are measured after the partition.
const AFTER: Duration = Duration::from_secs(2);

pub(crate) async fn run(
    plan: &TrialPlan,
    cluster: &mut TrialCluster,
) -> anyhow::Result<TrialReport> {
    let (mut pauses_ms, mut changed, mut failed, mut written) = (Vec::new(), 0, 0, 0);
    cluster.start_all()?;
    for trial in 1..=plan.trials {
        let before = cluster.settled().await?;
        let others = cluster.others(before.leader);
        let apart = others[trial % others.len()];
        // The node cut off from the leader may be unable to write, so only the others are measured.
        let bridged = others.iter().copied().filter(|node| *node != apart).chain([before.leader]);
        let stream =
            |node: usize| ClientStream::start(&cluster.sites[node].admin, format!("flow-{node}"));
        let streams: Vec<ClientStream> = bridged.map(stream).collect();
        cluster.part(before.leader, apart).await?;
        let start = Instant::now();
        // wait: the partition lasts this long
        sleep(APART).await;
        cluster.heal().await?;
        // wait: writes are measured for this long
        sleep(AFTER).await;
        let notes = client_stream::all(&streams);
        drop(streams);
        let pause = client_stream::longest_pause(&notes, start, start + APART + AFTER);
        pauses_ms.push(pause.as_secs_f64() * 1e3);
        written += notes.len();
        failed += notes.iter().filter(|note| !note.is_done()).count();
        let after = cluster.settled().await?;
        changed += usize::from(after.term != before.term || after.leader != before.leader);
        plan.say(&format!("bridge: {trial} of {}: term {}", plan.trials, after.term));
    }
    let mut report = TrialReport::default();
    report.figure("longest pause of commits in a bridge partition and its end", None, pauses_ms);
    report.check("a bridge partition leaves leader and term unchanged", changed, plan.trials);
    report.check("writes go on at both nodes that see each other and the leader", failed, written);
    Ok(report)
}
