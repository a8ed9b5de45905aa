//! Lines of the demo where standard output is no terminal.

use super::*;
use crate::demo::snapshot::Flow;

#[test]
fn a_line_a_region_fits_80_columns_and_begins_with_the_time() {
    let region = |is_up| RegionNow {
        region: "ap-northeast-1",
        is_up,
        load_percent: 40,
        in_flight: 12,
        in_flight_max: 12,
        waiting: 140,
        p50_ms: Some(1_024.0),
        p95_ms: Some(10_000.0),
        served: 4_700,
        shed: 0,
        failed: 0,
    };
    let flow = Flow { from: "a", to: "b", rtt_ms: 93, requests: 34, recent: 3 };
    let regions = [region(true), region(true), region(false)];
    let text = text_of(&Snapshot { seconds: 12.34, regions, flows: vec![flow] });
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert!(lines[0].starts_with("   12 s "), "{text}");
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{text}");
    assert_eq!(lines[2].trim(), "ap-northeast-1  lost");
    assert_eq!(lines[3].trim(), "a -> b: 34 requests");
}
