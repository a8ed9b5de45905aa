//! All nodes start for the first time, at about the same moment.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::cluster::TrialCluster;
use super::report::TrialReport;
use crate::plan::TrialPlan;

/// Bound of the random pauses between starts, in milliseconds.
const TOGETHER_MS: u64 = 400;

pub(crate) async fn run(
    plan: &TrialPlan,
    cluster: &mut TrialCluster,
) -> anyhow::Result<TrialReport> {
    let mut random = fastrand::Rng::with_seed(plan.seed);
    let (mut times_ms, mut wrong) = (Vec::new(), 0);
    let mut clusters = BTreeSet::new();
    for trial in 1..=plan.trials {
        cluster.wipe()?;
        let mut order: Vec<usize> = cluster.all().collect();
        random.shuffle(&mut order);
        for node in order {
            cluster.start(node)?;
            // wait: the nodes do not start at exactly the same moment
            sleep(Duration::from_millis(random.u64(..TOGETHER_MS / 2))).await;
        }
        let start = Instant::now();
        match cluster.settled().await {
            Ok(state) => {
                times_ms.push(start.elapsed().as_secs_f64() * 1e3);
                // Each boot must form a new cluster, so an id seen before is wrong.
                wrong += usize::from(!clusters.insert(state.cluster));
            }
            Err(error) => {
                wrong += 1;
                plan.say(&format!("no cluster was formed: {error:#}"));
            }
        }
        plan.say(&format!("boot: {trial} of {}", plan.trials));
    }
    let mut report = TrialReport::default();
    report.figure("first boot until every node takes writes", None, times_ms);
    report.check("a simultaneous first boot forms exactly one cluster", wrong, plan.trials);
    Ok(report)
}
