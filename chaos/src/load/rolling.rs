//! All nodes of three regions are restarted, one after the other, under load.

use std::time::{Duration, Instant};

use spillway_harness::{LoadClient, LoadGenerator, LoadRecord, LoadSource, kinds};
use tokio::time::sleep;

use super::request;
use crate::plan::{TrialPlan, Wan};
use crate::trial::TrialReport;
use crate::trial::client_stream::{self, ClientStream};
use crate::trial::cluster::TrialCluster;
use crate::trial::inside;
use crate::trial::patience::PATIENCE;
use crate::trial::site_profile::SiteProfile;

const LIMIT: Duration = Duration::from_secs(10);
/// A replica serves about 43 requests of 32 tokens a second, and is away while its node is. Two
/// regions then serve all requests, at about two thirds of their capacity. During the drain notice
/// the node asks clients to close their kept connections: if a connection ends under a request, the
/// client cannot know whether the request had arrived before.
const PROFILE: SiteProfile = SiteProfile {
    profile: "h100",
    time_scale: 1.0,
    slots: 16,
    drain_notice_ms: 1_000,
    listener: "",
};
/// Requests and streams a second in each region.
const RATE: f64 = 10.0;
const STREAM_RATE: f64 = 4.0;
/// Tokens of a stream: takes more than half a second, and less than a node waits when it drains.
const STREAM_TOKENS: u32 = 64;
/// Time before the first restart, and between two restarts.
const BETWEEN: Duration = Duration::from_secs(8);
/// Longest pause of writes. Without a transfer of leadership they would wait for an election, 1.4 s
/// or more.
const PAUSE_AIM_MS: f64 = 1_000.0;

/// Results of the restarts.
#[derive(Default)]
struct Restarts {
    /// Number of nodes that did not end with exit code 0.
    wrong: usize,
    count: usize,
    stop_ms: Vec<f64>,
    ready_ms: Vec<f64>,
    pause_ms: Vec<f64>,
    /// Number of restarts of a leader.
    leaders: usize,
}

pub(crate) async fn run(plan: &TrialPlan) -> anyhow::Result<TrialReport> {
    let mut restarts = Restarts::default();
    let [mut unary, mut streams] = [(0, 0); 2];
    for round in 1..=plan.trials {
        let topology = Wan::Uniform.topology()?;
        let mut cluster = TrialCluster::with_profile(topology, plan.programs(), &[], PROFILE)?;
        cluster.start_all()?;
        // The first node to stop is the leader, so that leadership is transferred at least once.
        cluster.led_by(0).await?;
        let seed = plan.seed + 100 * round as u64;
        let loads = loads(&cluster, seed).await?;
        for node in cluster.all() {
            // wait: requests are under way everywhere, and effects of the last restart are over
            sleep(plan.time(BETWEEN)).await;
            restart(plan, &mut cluster, node, &mut restarts).await?;
        }
        // wait: effects of the last restart are measured too
        sleep(plan.time(BETWEEN)).await;
        for (mine, is_stream) in loads {
            let records = mine.end(request::patience(LIMIT)).await;
            let attempts = records.iter().flat_map(|record| &record.attempts);
            plan.say(&format!("round {round}: {}", kinds(attempts)));
            let of = if is_stream { &mut streams } else { &mut unary };
            of.0 += records.iter().filter(|record| !is_whole(record, is_stream)).count();
            of.1 += records.len();
        }
        if plan.keep {
            plan.say(&format!("logs and configs are kept in {}", cluster.keep_folder().display()));
        }
    }
    Ok(restarts.report(unary, streams))
}

impl Restarts {
    fn report(self, unary: (usize, usize), streams: (usize, usize)) -> TrialReport {
        let mut report = TrialReport::default();
        report.figure("SIGTERM until the node has ended", None, self.stop_ms);
        report.figure("start until the node is ready", None, self.ready_ms);
        report.figure(
            "longest pause of writes at the others meanwhile",
            Some(PAUSE_AIM_MS),
            self.pause_ms,
        );
        report.check("unary requests are served while all nodes are restarted", unary.0, unary.1);
        report.check("streams come to their end", streams.0, streams.1);
        report.check("nodes end with 0", self.wrong, self.count);
        report.check("a node that led was restarted", usize::from(self.leaders == 0), 1);
        report
    }
}

/// Starts the clients of each region; true marks a load of streams. A client tries the next
/// region's node if its own refuses the connection, and repeats nothing else.
async fn loads(cluster: &TrialCluster, seed: u64) -> anyhow::Result<Vec<(LoadGenerator, bool)>> {
    let mut loads = Vec::new();
    for node in cluster.all() {
        let client = client(cluster, node)?;
        client.ready("/readyz", PATIENCE).await?;
        let unary = LoadSource::new(|number| request::chat(number, LIMIT));
        let streams = LoadSource::new(|number| request::stream(number, STREAM_TOKENS, LIMIT));
        let seed = seed + 2 * node as u64;
        loads.push((LoadGenerator::open(&client, unary, RATE, seed), false));
        loads.push((LoadGenerator::open(&client, streams, STREAM_RATE, seed + 1), true));
    }
    Ok(loads)
}

fn client(cluster: &TrialCluster, first: usize) -> anyhow::Result<LoadClient> {
    let count = cluster.sites.len();
    let site = |step: usize| &cluster.sites[(first + step) % count];
    let last = site(count - 1);
    let mut client = inside::client(&last.namespace, last.data_address())?;
    for step in (0..count - 1).rev() {
        let nearer = inside::client(&site(step).namespace, site(step).data_address())?;
        client = nearer.or(client);
    }
    Ok(client)
}

async fn restart(
    plan: &TrialPlan,
    cluster: &mut TrialCluster,
    node: usize,
    restarts: &mut Restarts,
) -> anyhow::Result<()> {
    let is_leader = cluster.settled().await?.leader == node;
    let others = cluster.others(node);
    let stream =
        |other: &usize| ClientStream::start(&cluster.sites[*other].admin, format!("roll-{other}"));
    let streams: Vec<ClientStream> = others.iter().map(stream).collect();
    // wait: until writes are under way
    sleep(client_stream::GAP * 10).await;
    let name = cluster.sites[node].name.clone();
    let told = Instant::now();
    let status = cluster.stop(node).await?;
    let ended = Instant::now();
    cluster.start(node)?;
    let site = &cluster.sites[node];
    let own = inside::client(&site.namespace, site.data_address())?;
    own.ready("/readyz", PATIENCE).await?;
    let ready = Instant::now();
    let pause = client_stream::longest_pause(&client_stream::all(&streams), told, ready);
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    plan.say(&format!(
        "{name} (led: {is_leader}) ended with {status} in {:.0} ms and was ready {:.0} ms later; \
         longest pause of writes {:.0} ms",
        ms(ended - told),
        ms(ready - ended),
        ms(pause)
    ));
    restarts.count += 1;
    restarts.wrong += usize::from(status.code() != Some(0));
    restarts.leaders += usize::from(is_leader);
    restarts.stop_ms.push(ms(ended - told));
    restarts.ready_ms.push(ms(ready - ended));
    restarts.pause_ms.push(ms(pause));
    Ok(())
}

fn is_whole(record: &LoadRecord, is_stream: bool) -> bool {
    let reply = record.attempts.last().and_then(|attempt| attempt.reply());
    let has_end = || reply.is_some_and(|reply| reply.stream().is_whole());
    record.is_good() && (!is_stream || has_end())
}

#[cfg(test)]
mod tests {
    use spillway_harness::{AttemptEnd, LoadAttempt, LoadReply};

    use super::*;

    #[test]
    fn a_stream_without_its_end_is_not_whole() {
        let record = |body: &'static str, status| {
            let reply = LoadReply { status, body: body.into(), ..LoadReply::default() };
            let now = Instant::now();
            LoadRecord {
                number: 1,
                attempts: vec![LoadAttempt::at_once(now, AttemptEnd::Whole(reply))],
            }
        };
        assert!(is_whole(&record("data: [DONE]\n\n", 200), true));
        assert!(!is_whole(&record("data: {}\n\n", 200), true));
        assert!(is_whole(&record("{}", 200), false));
        assert!(!is_whole(&record("data: [DONE]\n\n", 503), true));
    }
}
