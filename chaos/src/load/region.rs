//! A region is killed while other regions send requests to it.

use std::time::{Duration, Instant};

use spillway_harness::{
    LoadAttempt, LoadClient, LoadGenerator, LoadRecord, LoadRequest, LoadSource, good_ms, kinds,
};
use tokio::time::sleep;

use super::request;
use crate::plan::{TrialPlan, Wan};
use crate::trial::TrialReport;
use crate::trial::cluster::TrialCluster;
use crate::trial::inside;
use crate::trial::site_profile::SiteProfile;

const LIMIT: Duration = Duration::from_secs(5);
/// Region to kill, with its node and replica.
const KILLED: usize = 0;
/// Region with more requests than its own replica serves.
const OVERLOADED: usize = 1;
const OTHER: usize = 2;
/// Replicas that serve about 45 requests of 32 tokens a second each.
const PROFILE: SiteProfile = SiteProfile {
    profile: "h100",
    time_scale: 1.0,
    slots: 16,
    drain_notice_ms: 0,
    listener: "trusted_proxies = [\"127.0.0.0/8\"]\nauth = \"headers\"\n",
};
const BEFORE: Duration = Duration::from_secs(10);
const AFTER: Duration = Duration::from_secs(20);
/// Time after the kill from which on new requests must be served.
const GRACE: Duration = Duration::from_secs(1);
/// Share of these requests that must be served, in percent.
const AIM: f64 = 99.9;

/// Load of the two regions that are left, in requests a second. Both together serve about 90.
#[derive(Clone, Copy)]
struct OfferedLoad {
    name: &'static str,
    overloaded: f64,
    other: f64,
    /// Share of urgent requests, in percent.
    urgent: u64,
}

const LOADS: [OfferedLoad; 2] = [
    OfferedLoad { name: "with room for all", overloaded: 54.0, other: 14.0, urgent: 50 },
    OfferedLoad { name: "in a squeeze", overloaded: 80.0, other: 40.0, urgent: 50 },
];

pub(crate) async fn run(plan: &TrialPlan) -> anyhow::Result<TrialReport> {
    let mut report = TrialReport::default();
    for load in LOADS {
        let [mut urgent, mut idle, mut urgent_ms]: [Vec<f64>; 3] = Default::default();
        for round in 1..=plan.trials {
            let attempts = once(plan, load, plan.seed + round as u64).await?;
            let [first, second] = [true, false].map(|is_urgent| served(&attempts, is_urgent));
            urgent.push(first);
            idle.push(second);
            let of_urgent = attempts.iter().filter(|(is_urgent, _)| *is_urgent);
            urgent_ms.push(good_ms(of_urgent.map(|(_, attempt)| attempt), 0.99));
        }
        let name = load.name;
        // In a squeeze the others have to give way, so they have no aim there.
        let aim = (load.name == LOADS[0].name).then_some(AIM);
        report.rate(format!("{name}: urgent requests served from 1 s on"), "%", Some(AIM), urgent);
        report.rate(format!("{name}: others served from 1 s on"), "%", aim, idle);
        report.figure(format!("{name}: p99 of urgent requests that are served"), None, urgent_ms);
    }
    Ok(report)
}

/// Returns the share of served requests in percent; NaN without requests.
fn served(attempts: &[(bool, LoadAttempt)], is_urgent: bool) -> f64 {
    let all = attempts.iter().filter(|(urgent, _)| *urgent == is_urgent);
    let good = all.clone().filter(|(_, attempt)| attempt.is_good()).count();
    100.0 * good as f64 / all.count() as f64
}

/// Runs one round. Returns the requests from 1 s after the kill on, each with true if it was
/// urgent.
async fn once(
    plan: &TrialPlan,
    load: OfferedLoad,
    seed: u64,
) -> anyhow::Result<Vec<(bool, LoadAttempt)>> {
    let topology = Wan::Uniform.topology()?;
    let mut cluster = TrialCluster::with_profile(topology, plan.programs(), &[], PROFILE)?;
    cluster.start_all()?;
    cluster.settled().await?;
    let client = |node: usize| -> anyhow::Result<LoadClient> {
        let site = &cluster.sites[node];
        Ok(inside::client(&site.namespace, site.data_address())?)
    };
    let overloaded = client(OVERLOADED)?;
    overloaded.ready("/readyz", LIMIT).await?;
    let source = move || LoadSource::new(move |number| request_of(number, load.urgent));
    let first = LoadGenerator::open(&overloaded, source(), load.overloaded, seed);
    let second = LoadGenerator::open(&client(OTHER)?, source(), load.other, seed + 1);
    let own = LoadGenerator::open(&client(KILLED)?, source(), load.other, seed + 2);
    // wait: requests are under way everywhere, some of the overloaded region's in the one to kill
    sleep(plan.time(BEFORE)).await;
    cluster.kill(KILLED)?;
    cluster.kill_replica(KILLED)?;
    let killed = Instant::now();
    // Clients of the killed region are gone with it, so only those of the others count.
    drop(own);
    // wait: this time is measured
    sleep(plan.time(AFTER)).await;
    let end = Instant::now();
    let patience = request::patience(LIMIT);
    let records = [first.end(patience).await, second.end(patience).await].concat();
    let before =
        records.iter().flat_map(|record| &record.attempts).filter(|attempt| attempt.due <= killed);
    plan.say(&format!("{}: before: {}", load.name, kinds(before.clone())));
    plan.say(&format!("{}: served by: {}", load.name, regions(before)));
    let in_grace = |attempt: &&LoadAttempt| attempt.due > killed && attempt.due <= killed + GRACE;
    let graced = records.iter().flat_map(|record| &record.attempts).filter(in_grace);
    plan.say(&format!("{}: in the first second: {}", load.name, kinds(graced)));
    let of = |record: &LoadRecord| {
        let attempt = record.attempts.first()?;
        let counts = attempt.due > killed + GRACE && attempt.due <= end;
        counts.then(|| (is_urgent(record.number, load.urgent), attempt.clone()))
    };
    let attempts: Vec<_> = records.iter().filter_map(of).collect();
    for urgent in [true, false] {
        let of = attempts
            .iter()
            .filter(|(is_urgent, _)| *is_urgent == urgent)
            .map(|(_, attempt)| attempt);
        plan.say(&format!("{}: later, urgent {urgent}: {}", load.name, kinds(of)));
    }
    if plan.keep {
        plan.say(&format!("logs and configs are kept in {}", cluster.keep_folder().display()));
    }
    Ok(attempts)
}

fn regions<'a>(attempts: impl Iterator<Item = &'a LoadAttempt>) -> String {
    let mut counts = std::collections::BTreeMap::<&str, usize>::new();
    for reply in attempts.filter_map(LoadAttempt::reply).filter(|reply| reply.status == 200) {
        *counts.entry(&reply.region).or_default() += 1;
    }
    format!("{counts:?}")
}

fn is_urgent(number: u64, percent: u64) -> bool {
    // A multiplicative hash spreads urgent requests evenly over the numbers.
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32 < (percent << 32) / 100
}

fn request_of(number: u64, urgent_percent: u64) -> LoadRequest {
    let (tenant, priority) =
        if is_urgent(number, urgent_percent) { ("one", 0) } else { ("two", 3) };
    request::chat(number, LIMIT)
        .header("x-spillway-tenant", tenant)
        .header("x-spillway-priority", priority)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_urgent_requests_is_as_asked() {
        for percent in [0, 30, 100] {
            let urgent = (0..1_000).filter(|number| is_urgent(*number, percent)).count();
            assert!(urgent.abs_diff(percent as usize * 10) < 20, "{percent}: {urgent}");
        }
    }
}
