//! `spillway demo` as a program, in the shortest run that it allows.
#![expect(clippy::panic, reason = "a test's helper fails by panicking")]

use std::process::Command;

use serde_json::{Value, json};

/// Shortest time that the command line takes, in seconds.
const SECONDS: &str = "35";
/// Lag in milliseconds, at the 99th percentile, above which a machine is too slow for the demo.
const LAG_MAX_MS: f64 = 1_000.0;

fn number(report: &Value, path: &str) -> f64 {
    let found = report.pointer(path).and_then(Value::as_f64);
    found.unwrap_or_else(|| panic!("no number at {path} of {report:#}"))
}

/// Checks the scenes beside the load.
fn scenes_hold(report: &Value) {
    let at = |path: &str| number(report, path);
    // A limit holds while a region is cut off, which goes on with its part.
    let admitted = |region: usize| at(&format!("/limit/admitted/{region}"));
    assert!((0..3).map(admitted).sum::<f64>() <= at("/limit/allowed"), "{report:#}");
    assert!(admitted(2) > 0.0, "{report:#}");
    // A stream outlives its replica.
    assert_eq!(report["stream"]["is_whole"], true, "{report:#}");
}

#[test]
fn it_loses_nothing_and_survives_a_region() {
    let run = Command::new(env!("CARGO_BIN_EXE_spillway"))
        .args(["demo", "--once", "--json", "--seconds", SECONDS, "--listen", "127.0.0.1:0"])
        .output()
        .expect("it starts");
    let (text, log) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{}\n{text}\n{log}", run.status);
    let events: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let named = |name: &str| events.iter().filter(|line| line["event"] == name).count();
    assert_eq!([named("start"), named("phase"), named("summary")], [2, 5, 1], "{text}");
    assert!(named("tick") >= 9, "too few lines in three phases of five seconds: {text}");
    let ticks = events.iter().filter(|line| line["event"] == "tick");
    assert!(ticks.clone().any(|tick| tick["flows"] != json!([])), "no flow was seen: {text}");
    assert!(
        ticks.clone().any(|tick| tick["regions"][2]["is_up"] == false),
        "none was lost: {text}"
    );
    let report = events.last().expect("a summary");
    let at = |path: &str| number(report, path);

    // Figures depend on the machine; these checks hold at any speed.
    assert!(at("/seconds") > 0.0 && at("/lag_p99_ms") >= 0.0);
    let keeps_up = at("/lag_p99_ms") <= LAG_MAX_MS;
    // Both phases get equal requests: enough of them, and all are served.
    assert!(at("/with_spill/requests") > 100.0, "{report:#}");
    assert_eq!(at("/with_spill/requests"), at("/without_spill/requests"));
    if keeps_up {
        for phase in ["without_spill", "with_spill"] {
            let lost = (at(&format!("/{phase}/failed")), at(&format!("/{phase}/shed")));
            assert_eq!(lost, (0.0, 0.0), "{phase}: {report:#}");
        }
    }
    let p95_ms = |phase: &str| at(&format!("/{phase}/first_token/p95_ms"));
    let times = p95_ms("without_spill") / p95_ms("with_spill");
    assert!((times - at("/p95_times_better")).abs() < 0.01, "the summary says otherwise");
    assert_eq!(at("/without_spill/regions/0/spilled_out"), 0.0);
    assert!(at("/with_spill/regions/0/spilled_out") > 0.0, "none went elsewhere: {report:#}");
    assert_eq!(at("/control/voters"), 3.0);
    scenes_hold(report);

    // Only requests in flight in the lost region are lost with it, and the others take over.
    let lost = at("/outage/failed");
    if keeps_up {
        assert_eq!(lost, at("/outage/failed_under_way"), "{report:#}");
        assert_eq!(at("/outage/shed"), 0.0, "{report:#}");
    }
    assert!(lost * 2.0 < at("/outage/requests"), "{report:#}");
    assert!(at("/outage/noticed_ms") <= at("/outage/taken_over_ms"), "{report:#}");
    assert!(at("/outage/displaced") > 0.0, "nobody had to go elsewhere");
    assert!(at("/outage/displaced_first_token/p95_ms") > 0.0);
}
