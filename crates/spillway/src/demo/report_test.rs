//! Tests of the summary with made-up phases.

use std::time::Duration;

use super::*;
use crate::demo::world::DemoFigures;

const START_MS: u64 = 1_000;

/// Builds a phase of these requests: the due time in milliseconds and the outcome of each.
fn phase(base: Instant, requests: &[(u64, SampleEnd)]) -> StageOutcome {
    let sample = |&(due_ms, end): &(u64, SampleEnd)| {
        let due = base + Duration::from_millis(due_ms);
        let (home, door) = (BUSY, BUSY);
        Sample { home, door, due, lag: Duration::ZERO, ended: due, end }
    };
    let samples = requests.iter().map(sample).collect();
    StageOutcome { samples, figures: [DemoFigures::default(); 3], loss: None }
}

fn served(by: DemoRegion, first_token_ms: u64) -> SampleEnd {
    SampleEnd::Served { by, first_token: Some(Duration::from_millis(first_token_ms)) }
}

fn scenes() -> Scenes {
    let (limit, stream) = (SharedLimit::sample(), Survival::sample());
    Scenes { control: Control::sample(), limit, stream }
}

/// Builds the third phase: a region is lost after a second, and the others know it 900 ms later.
fn outage(base: Instant, requests: &[(u64, SampleEnd)]) -> StageOutcome {
    let at = base + Duration::from_millis(START_MS);
    let noticed = Some(at + Duration::from_millis(900));
    let loss = Some(Loss { region: DemoRegion::ApNortheast, at, noticed });
    StageOutcome { loss, ..phase(base, requests) }
}

fn check(with: SampleEnd, lost: StageOutcome) -> Result<()> {
    let base = Instant::now();
    let without = phase(base, &[(0, served(BUSY, 1_000))]);
    DemoReport::new(base, [&without, &phase(base, &[(0, with)]), &lost], scenes()).check()
}

#[test]
fn it_has_shown_something_only_if_spilling_loses_nothing() {
    let calm = || outage(Instant::now(), &[]);
    assert!(check(served(BUSY, 500), calm()).is_ok());
    assert!(check(SampleEnd::Failed, calm()).is_err());
    assert!(check(SampleEnd::Shed, calm()).is_err());
    let unnoticed = phase(Instant::now(), &[]);
    assert!(check(served(BUSY, 500), unnoticed).is_err());
}

#[test]
fn what_is_lost_on_a_machine_that_can_not_keep_up_proves_nothing() {
    let base = Instant::now();
    let calm = || phase(base, &[(0, served(BUSY, 1_000))]);
    for (lag_ms, is_shown) in [(999, false), (1_001, true)] {
        let mut with = phase(base, &[(0, SampleEnd::Failed)]);
        with.samples[0].lag = Duration::from_millis(lag_ms);
        let report = DemoReport::new(base, [&calm(), &with, &outage(base, &[])], scenes());
        assert_eq!(report.check().is_ok(), is_shown, "{lag_ms} ms late");
    }
}

#[test]
fn failures_alone_do_not_hide_behind_fast_replies() {
    let base = Instant::now();
    let without = phase(base, &[(0, served(BUSY, 1_000))]);
    let with = phase(base, &[(0, served(BUSY, 10)), (0, SampleEnd::Failed)]);
    let report = DemoReport::new(base, [&without, &with, &outage(base, &[])], scenes());
    assert_eq!(report.p95_times_better, Some(100.0));
    assert!(report.check().unwrap_err().to_string().contains("1 requests failed"));
}

#[test]
fn the_way_costs_what_clients_abroad_waited_longer() {
    let base = Instant::now();
    let away = DemoRegion::EuCentral;
    let with = phase(base, &[(0, served(BUSY, 20)), (1, served(away, 115))]);
    let more = |delay: &Delay| (delay.served_by, delay.streams, delay.more_ms);
    let found: Vec<_> = delays(&with.samples).iter().map(more).collect();
    let expected = [
        (BUSY.name(), 1, Some(0.0)),
        (away.name(), 1, Some(95.0)),
        (DemoRegion::ApNortheast.name(), 0, None),
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_region_is_taken_over_when_the_others_know_and_nothing_fails_any_more() {
    let taken_over = |requests: &[(u64, SampleEnd)]| {
        let StageOutcome { samples, loss, .. } = outage(Instant::now(), requests);
        let outage = Outage::of(&samples, loss.expect("a loss"));
        (outage.taken_over_ms, outage.failed_under_way, outage.first_token_max_meanwhile_ms)
    };
    let under_way = (START_MS - 10, SampleEnd::Failed);
    assert_eq!(taken_over(&[under_way]), (Some(900.0), 1, None));
    let meanwhile = (START_MS + 100, served(BUSY, 1_900));
    let late = (START_MS + 1_500, SampleEnd::Failed);
    let after = (START_MS + 1_600, served(BUSY, 9_000));
    assert_eq!(taken_over(&[under_way, meanwhile, late, after]), (Some(1_500.0), 1, Some(1_900.0)));
}

#[test]
fn the_text_tells_both_phases_and_the_outage() {
    let base = Instant::now();
    let without = phase(base, &[(0, served(BUSY, 1_000))]);
    let with = phase(base, &[(0, served(BUSY, 100)), (0, served(BUSY, 100))]);
    let text = DemoReport::new(base, [&without, &with, &outage(base, &[])], scenes()).text();
    let row = text.lines().find(|line| line.starts_with("requests")).expect("a row");
    assert_eq!(row.split_whitespace().collect::<Vec<_>>(), ["requests", "1", "2"]);
    let claims = [
        "spill   us-east-1 first token p95: 1000 ms alone, 100 ms spilling, 10.0 x.",
        "caches  - % of prompt tokens were cached where requests went; - % alone.",
        "limit   60 requests admitted of 60 allowed: 20 + 20 + 20.",
        "stream  replica died after 50 of 160 tokens; the client got all, 40 ms later.",
    ];
    assert_eq!(text.lines().take(4).collect::<Vec<_>>(), claims);
    let places = ["voters agreed", "A limit of", "was lost", "crashed"].map(|it| text.find(it));
    assert!(places.is_sorted() && places[0].is_some(), "{text}");
    assert!(text.contains("noticed after   900 ms"), "{text}");
    let bar = |name: &str| {
        let line = text.lines().find(|line| line.contains(name) && line.contains('█'));
        let line = line.expect("a bar");
        line.chars().filter(|&cell| cell == '█').count()
    };
    assert_eq!([bar(" alone "), bar(" spilling ")], [42, 4], "{text}");
    let widest = text.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(80), "{text}");
}
