//! A tenant or a replica misbehaves; another tenant's requests are measured.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use spillway_harness::{
    LoadAttempt, LoadGenerator, LoadRecord, LoadRequest, LoadSource, good_ms, kinds,
};
use tokio::time::sleep;

use super::request;
use super::stage::{LoadStage, Setting};
use crate::plan::TrialPlan;
use crate::trial::TrialReport;

const LIMIT: Duration = Duration::from_secs(10);
const REPLICAS: u16 = 4;
/// Index of the replica that may get a fault.
const SICK: usize = 0;
/// Requests a second of the measured (calm) tenant: a tenth of the capacity of the replicas.
const CALM_RATE: f64 = 18.0;
const BEFORE: Duration = Duration::from_secs(20);
/// Time until latencies are known, and until the trouble has its full effect.
const SETTLING: Duration = Duration::from_secs(4);
/// Longest time until the node must notice a replica's fault.
const KNOWN_MAX: Duration = Duration::from_secs(15);
/// Interval between two looks at the node's metrics.
const LOOK: Duration = Duration::from_millis(50);
const DURING: Duration = Duration::from_secs(20);
/// Most failed requests of the calm tenant that may be probes of the sick replica: this number, or
/// `TRIES_PERCENT` of the requests if that is more.
const TRIES_MAX: usize = 3;
const TRIES_PERCENT: usize = 2;
/// Largest change of the calm tenant's p95, in percent.
const AIM: f64 = 20.0;
/// Trusts a proxy in front for the tenant's header.
const LISTENER: &str = "trusted_proxies = [\"127.0.0.0/8\"]\nauth = \"headers\"";

/// Requests of the calm tenant, by phase.
struct SickReport {
    before: Vec<LoadAttempt>,
    /// Requests sent after the node knew of the trouble, or after it had lasted for a while.
    during: Vec<LoadAttempt>,
    /// Requests sent between the start of the trouble and `during`.
    first: Vec<LoadAttempt>,
    /// Time until the node noticed the sick replica; `None` if it did not.
    known: Option<Duration>,
}

/// Results of all rounds of a trouble.
#[derive(Default)]
struct SickResults {
    changes: Vec<f64>,
    failed: usize,
    sent: usize,
    /// Number of rounds in which the node did not notice.
    unknown: usize,
    known_ms: Vec<f64>,
    lost: Vec<f64>,
    tries: Vec<f64>,
}

#[derive(Clone)]
enum Trouble {
    /// A tenant sends this many requests a second.
    Flood(f64),
    /// A tenant sends prompts: requests a second, and tokens of each.
    Long(f64, usize),
    /// A tenant reads this many long streams as slowly as possible.
    Slow(u64),
    /// A replica gets a fault.
    Replica(Value),
}

fn troubles() -> Vec<(&'static str, Trouble)> {
    vec![
        ("a tenant sends five times what the replicas serve", Trouble::Flood(900.0)),
        ("a tenant sends prompts of 8,000 tokens", Trouble::Long(4.0, 8_000)),
        ("a tenant reads 100 streams slowly", Trouble::Slow(100)),
        (
            "a replica is 10 times slower",
            Trouble::Replica(json!({ "kind": "slow", "factor": 10.0 })),
        ),
        ("a replica hangs", Trouble::Replica(json!({ "kind": "hang" }))),
        ("a replica answers 500", Trouble::Replica(json!({ "kind": "status", "code": 500 }))),
        (
            "a replica breaks off its replies",
            Trouble::Replica(json!({ "kind": "cut", "after_events": 0 })),
        ),
    ]
}

pub(crate) async fn run(plan: &TrialPlan) -> anyhow::Result<TrialReport> {
    let mut report = TrialReport::default();
    for (name, trouble) in troubles() {
        let mut seen = SickResults::default();
        for round in 1..=plan.trials {
            let told = once(plan, &trouble, plan.seed + round as u64).await?;
            let [was, is] = told.p95_ms();
            plan.say(&format!(
                "{name}: p95 {was:.0} ms, then {is:.0} ms; {}",
                kinds(told.during.iter())
            ));
            seen.add(&told);
        }
        seen.report(name, &trouble, &mut report);
    }
    Ok(report)
}

impl SickResults {
    fn add(&mut self, told: &SickReport) {
        let [was, is] = told.p95_ms();
        self.changes.push(100.0 * (is - was) / was);
        self.failed += told.failed();
        self.sent += told.during.len();
        self.unknown += usize::from(told.known.is_none());
        self.known_ms.extend(told.known.map(|known| known.as_secs_f64() * 1e3));
        self.lost.push(bad(&told.first) as f64);
        self.tries.push(told.tries() as f64);
    }

    fn report(self, name: &str, trouble: &Trouble, report: &mut TrialReport) {
        report.quantity(format!("{name}: change of another's p95"), "%", Some(AIM), self.changes);
        // A tenant's trouble is no fault of a replica, so there is nothing to find out.
        if let Trouble::Replica(_) = trouble {
            let rounds = self.tries.len();
            report.figure(format!("{name}: until that is known"), None, self.known_ms);
            let what = format!("{name}: requests of another that came until then and failed");
            report.quantity(what, "", None, self.lost);
            let what = format!("{name}: such that tried later whether it is well, and failed");
            report.quantity(what, "", None, self.tries);
            report.check(format!("{name}: is found out"), self.unknown, rounds);
        }
        report.check(format!("{name}: another's requests are served"), self.failed, self.sent);
    }
}

impl SickReport {
    /// Returns the p95 before the trouble and during it, in milliseconds.
    fn p95_ms(&self) -> [f64; 2] {
        [&self.before, &self.during].map(|attempts| good_ms(attempts, 0.95))
    }

    /// Counts the failed requests, without the few that may probe the sick replica.
    fn failed(&self) -> usize {
        let allowed = TRIES_MAX.max(self.during.len() * TRIES_PERCENT / 100);
        bad(&self.during) - self.tries().min(allowed)
    }

    /// Counts the failed requests at a replica that is known to be sick.
    fn tries(&self) -> usize {
        let is_try = |attempt: &&LoadAttempt| {
            self.known.is_some() && !attempt.is_good() && is_of_sick(attempt)
        };
        self.during.iter().filter(is_try).count()
    }
}

fn bad(attempts: &[LoadAttempt]) -> usize {
    attempts.iter().filter(|attempt| !attempt.is_good()).count()
}

/// Returns true if the sick replica replied.
fn is_of_sick(attempt: &LoadAttempt) -> bool {
    attempt.reply().is_some_and(|reply| reply.replica == format!("gpu-{SICK}"))
}

async fn once(plan: &TrialPlan, trouble: &Trouble, seed: u64) -> anyhow::Result<SickReport> {
    let setting = Setting { listener: LISTENER, ..Setting::usual(REPLICAS) };
    let stage = LoadStage::new(plan, setting).await?;
    let calm = LoadSource::new(|number| of("calm", request::chat(number, LIMIT)));
    let load = LoadGenerator::open(&stage.data, calm, CALM_RATE, seed);
    // wait: latencies of replicas are learned in the first seconds
    sleep(plan.time(SETTLING)).await;
    let start = Instant::now();
    // wait: this time is measured
    sleep(plan.time(BEFORE)).await;
    let trouble_began = Instant::now();
    let was_open = is_open(&stage).await?;
    let wild = begin(&stage, trouble, seed + 7).await?;
    let known = match trouble {
        // A replica that was left out already before the fault shows nothing.
        Trouble::Replica(_) if was_open => known(&stage).await?,
        _ => None,
    };
    if known.is_none() {
        // wait: a trouble that the node cannot know of takes a while to show its full effect
        sleep(SETTLING.saturating_sub(trouble_began.elapsed())).await;
    }
    let settled = Instant::now();
    // wait: this time is measured
    sleep(plan.time(DURING)).await;
    let end = Instant::now();
    let records = load.end(request::patience(LIMIT)).await;
    if let Some(wild) = wild {
        let records = wild.end(Duration::ZERO).await;
        let attempts = records.iter().flat_map(|record| &record.attempts);
        plan.say(&format!("the wild one: {}", kinds(attempts)));
    }
    stage.done(plan);
    Ok(SickReport {
        before: within(&records, start, trouble_began),
        during: within(&records, settled, end),
        first: within(&records, trouble_began, settled),
        known,
    })
}

/// Waits until the node leaves the sick replica out, and returns the time that this took; `None` if
/// it takes longer than `KNOWN_MAX`.
async fn known(stage: &LoadStage) -> anyhow::Result<Option<Duration>> {
    let start = Instant::now();
    while start.elapsed() < KNOWN_MAX {
        if !is_open(stage).await? {
            return Ok(Some(start.elapsed()));
        }
        // wait: until the next look
        sleep(LOOK).await;
    }
    Ok(None)
}

/// Returns true if the node sends requests to the replica that gets the fault.
async fn is_open(stage: &LoadStage) -> anyhow::Result<bool> {
    let (page, replica) = (stage.page().await?, format!("gpu-{SICK}"));
    let labels = [("replica", replica.as_str()), ("admission", "open")];
    Ok(page.sum("spillway_replica_admission", &labels) > 0.0)
}

fn within(records: &[LoadRecord], start: Instant, end: Instant) -> Vec<LoadAttempt> {
    let attempts = records.iter().flat_map(|record| &record.attempts);
    attempts.filter(|attempt| attempt.due > start && attempt.due <= end).cloned().collect()
}

/// Adds the tenant's header to a request.
fn of(tenant: &str, request: LoadRequest) -> LoadRequest {
    request.header("x-spillway-tenant", tenant)
}

async fn begin(
    stage: &LoadStage,
    trouble: &Trouble,
    seed: u64,
) -> anyhow::Result<Option<LoadGenerator>> {
    const OTHERS: u64 = 1_000_000;
    let data = &stage.data;
    Ok(match trouble {
        Trouble::Flood(rate) => {
            let source =
                LoadSource::new(|number| of("wild", request::chat(OTHERS + number, LIMIT)));
            Some(LoadGenerator::open(data, source, *rate, seed))
        }
        Trouble::Long(rate, tokens) => {
            let tokens = *tokens;
            let source = LoadSource::new(move |number| {
                of("wild", request::long(OTHERS + number, tokens, LIMIT))
            });
            Some(LoadGenerator::open(data, source, *rate, seed))
        }
        Trouble::Slow(streams) => {
            let source = LoadSource::new(|number| {
                let request = request::stream(OTHERS + number, 4_000, Duration::from_secs(600));
                let read_pause = Some(Duration::from_secs(5));
                of("wild", LoadRequest { read_pause, ..request })
            });
            Some(LoadGenerator::closed(data, source, *streams, Duration::from_secs(1)))
        }
        Trouble::Replica(fault) => {
            stage.fault(SICK, fault).await?;
            None
        }
    })
}

#[cfg(test)]
mod tests {
    use spillway_harness::{AttemptEnd, LoadReply};

    use super::*;

    fn attempts(count: usize, status: u16, replica: &str) -> Vec<LoadAttempt> {
        let due = Instant::now();
        let reply = LoadReply { status, replica: replica.to_owned(), ..LoadReply::default() };
        vec![LoadAttempt::at_once(due, AttemptEnd::Whole(reply)); count]
    }

    fn told(during: Vec<LoadAttempt>, known: Option<Duration>) -> SickReport {
        SickReport { before: Vec::new(), during, first: Vec::new(), known }
    }

    #[test]
    fn only_a_few_failures_at_a_sick_replica_are_tries() {
        let known = Some(Duration::from_secs(1));
        let of =
            |good, tries| [attempts(good, 200, "gpu-1"), attempts(tries, 500, "gpu-0")].concat();
        assert_eq!(told(of(97, 3), known).failed(), 0);
        assert_eq!(told(of(90, 10), known).failed(), 7);
        assert_eq!(told(of(980, 20), known).failed(), 0);
        assert_eq!(told(of(970, 30), known).failed(), 10);
        assert_eq!(told(attempts(2, 500, "gpu-1"), known).failed(), 2);
    }

    #[test]
    fn a_sick_replica_that_is_never_found_out_is_broken_and_has_no_tries() {
        let mut seen = SickResults::default();
        seen.add(&told(attempts(2, 500, "gpu-0"), None));
        assert_eq!((seen.unknown, seen.failed, seen.known_ms.len()), (1, 2, 0));
        let mut report = TrialReport::default();
        seen.report("it", &Trouble::Replica(Value::Null), &mut report);
        assert_eq!(report.checks.iter().map(|check| check.wrong).collect::<Vec<_>>(), [1, 2]);
    }
}
