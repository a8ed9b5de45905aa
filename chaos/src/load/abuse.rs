//! Attackers that try to exhaust the node's resources, beside honest clients.

use std::time::{Duration, Instant};

use spillway_harness::{LoadGenerator, LoadSource, ScrapedPage, good_ms, kinds};
use tokio::time::sleep;

use super::attack::{Attack, Attackers};
use super::overload::between;
use super::request;
use super::stage::{LoadStage, Setting};
use crate::plan::TrialPlan;
use crate::trial::TrialReport;

const LIMIT: Duration = Duration::from_secs(10);
const REPLICAS: u16 = 2;
/// Requests a second of the honest clients.
const RATE: f64 = 20.0;
const WARM_UP: Duration = Duration::from_secs(3);
const BEFORE: Duration = Duration::from_secs(15);
/// Time until all attackers have connected.
const COMING: Duration = Duration::from_secs(3);
const DURING: Duration = Duration::from_secs(20);
/// Interval between two readings of the node's memory.
const LOOK: Duration = Duration::from_millis(100);
/// Memory limit of the node in bytes.
const CEILING: u64 = 400 << 20;
const CEILING_MIB: f64 = (CEILING >> 20) as f64;
/// Share of slots that is kept from a single client (`tenant_room_percent`), in percent. Honest
/// clients need up to 40 % of the slots.
const ROOM_PERCENT: u32 = 50;
/// Largest change of the honest clients' p95, in percent.
const AIM: f64 = 20.0;

pub(crate) async fn run(plan: &TrialPlan) -> anyhow::Result<TrialReport> {
    let mut report = TrialReport::default();
    for attack in Attack::ALL {
        let name = attack.name();
        let (mut changes, mut peaks) = (Vec::new(), Vec::new());
        let (mut failed, mut sent, mut absent) = (0, 0, 0);
        for round in 1..=plan.trials {
            let seen = once(plan, attack, plan.seed + round as u64).await?;
            changes.push(seen.change_percent);
            peaks.push(seen.peak_bytes as f64 / f64::from(1 << 20));
            failed += seen.failed;
            sent += seen.sent;
            absent += usize::from(seen.came < attack.connections() as u64);
        }
        report.quantity(format!("{name}: change of honest p95"), "%", Some(AIM), changes);
        report.quantity(format!("{name}: memory of the node"), "MiB", Some(CEILING_MIB), peaks);
        report.check(format!("{name}: attackers came"), absent, plan.trials);
        report.check(format!("{name}: honest requests are served"), failed, sent);
    }
    Ok(report)
}

struct AbuseResults {
    change_percent: f64,
    peak_bytes: u64,
    failed: usize,
    sent: usize,
    /// Number of attackers that had a connection at least once.
    came: u64,
}

async fn once(plan: &TrialPlan, attack: Attack, seed: u64) -> anyhow::Result<AbuseResults> {
    let mut setting = Setting::usual(REPLICAS);
    setting.tables = format!(
        "[limits]\nmemory_bytes_max = {CEILING}\n[spill]\ntenant_room_percent = {ROOM_PERCENT}\n"
    );
    let stage = LoadStage::new(plan, setting).await?;
    let load = LoadGenerator::open(
        &stage.data,
        LoadSource::new(|it| request::chat(it, LIMIT)),
        RATE,
        seed,
    );
    // wait: latencies of replicas are learned during this time
    sleep(plan.time(WARM_UP)).await;
    let start = Instant::now();
    // wait: this time is measured
    sleep(plan.time(BEFORE)).await;
    let attacked = Instant::now();
    let attackers = Attackers::start(&stage.namespace()?, stage.data.address(), attack)?;
    let mut peak_bytes = 0;
    let end = attacked + COMING + plan.time(DURING);
    while Instant::now() < end {
        peak_bytes = peak_bytes.max(stage.node_bytes()?);
        // wait: until the next look
        sleep(LOOK).await;
    }
    let end = Instant::now();
    let closed = stage.page().await;
    let (opened, came) = (attackers.opened(), attackers.came());
    drop(attackers);
    let records = load.end(request::patience(LIMIT)).await;
    let (before, during) =
        (between(&records, start, attacked), between(&records, attacked + COMING, end));
    let [was, is] = [&before, &during].map(|attempts| good_ms(attempts.iter().copied(), 0.95));
    let failed = during.iter().filter(|attempt| !attempt.is_good()).count();
    plan.say(&format!(
        "{}: {opened} connections of {came} attackers, p95 {was:.0} ms, then {is:.0} ms, {} MiB; {}; closed: {}",
        attack.name(),
        peak_bytes >> 20,
        kinds(during.iter().copied()),
        closed.map_or_else(|error| error.to_string(), |page| closed_connections(&page)),
    ));
    let sent = during.len();
    stage.done(plan);
    Ok(AbuseResults { change_percent: 100.0 * (is - was) / was, peak_bytes, failed, sent, came })
}

/// Lists the causes for which the node closed connections of clients.
fn closed_connections(page: &ScrapedPage) -> String {
    let samples = page.samples.iter().filter(|sample| {
        sample.name.starts_with("spillway_client_connections_closed") && sample.value > 0.0
    });
    let lines: Vec<String> =
        samples.map(|sample| format!("{:?} {}", sample.labels, sample.value)).collect();
    lines.join(" ")
}
