//! Plot of the comparison: times to first token by workload and policy.
//!
//! Written by hand: a crate for charts would be one more dependency for one fixed chart.

use std::fmt::Write;

use super::Study;
use super::batch::Row;

const WIDTH: f64 = 900.0;
const LEFT: f64 = 190.0;
const RIGHT: f64 = 70.0;
const BAR: f64 = 15.0;
const GAP: f64 = 34.0;
/// Shortest and longest time on the scale, in milliseconds.
const SCALE_MS: [f64; 2] = [50.0, 30_000.0];

/// Returns an SVG with bars from the median to the 99th percentile, a mark at the 90th, and a
/// logarithmic scale.
pub(super) fn plot(parts: &[(Study, Vec<Row>)]) -> String {
    let rows: Vec<&Row> = parts
        .iter()
        .filter(|(study, _)| matches!(study, Study::Policies { .. } | Study::Trace { .. }))
        .flat_map(|(_, rows)| rows)
        .collect();
    let mut body = String::new();
    let mut y = 40.0;
    let mut workload = "";
    for row in rows {
        if row.workload != workload {
            workload = &row.workload;
            y += GAP;
            let _infallible = writeln!(
                body,
                r#"<text x="8" y="{:.0}" font-weight="bold">{workload}</text>"#,
                y - 8.0
            );
        }
        bar(&mut body, row, y);
        y += BAR + 4.0;
    }
    let height = y + 20.0;
    format!(
        concat!(
            r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w} {h:.0}" "##,
            r##"font-family="sans-serif" font-size="12"><rect width="100%" height="100%" "##,
            r##"fill="#fff"/>"##,
            r##"<text x="8" y="20">time to the first token: median to 99th percentile, "##,
            r##"with the 90th marked (ms, logarithmic)</text>{grid}{body}</svg>"##,
            "\n"
        ),
        w = WIDTH,
        h = height,
        grid = grid(height),
        body = body
    )
}

fn bar(body: &mut String, row: &Row, y: f64) {
    let first = &row.figures.first_token_ms;
    let (from, to) = (at(first.p50), at(first.p99));
    let colour = match row.setup.as_str() {
        "predicted_latency" => "#0b6e4f",
        "omniscient" => "#9a9a9a",
        _ => "#7aa6c2",
    };
    let base = y + BAR - 4.0;
    let _infallible = writeln!(
        body,
        r##"<text x="{:.0}" y="{base:.0}" text-anchor="end">{}</text><rect x="{from:.1}" y="{y:.0}" width="{:.1}" height="{BAR}" fill="{colour}"/><rect x="{:.1}" y="{y:.0}" width="2" height="{BAR}" fill="#000"/><text x="{:.0}" y="{base:.0}">{:.0}</text>"##,
        LEFT - 8.0,
        row.setup,
        (to - from).max(1.0),
        at(first.p90),
        to + 5.0,
        first.p99,
    );
}

fn grid(height: f64) -> String {
    let mut lines = String::new();
    for ms in [100.0, 300.0, 1_000.0, 3_000.0, 10_000.0, 30_000.0] {
        let x = at(ms);
        let _infallible = writeln!(
            lines,
            r##"<line x1="{x:.1}" x2="{x:.1}" y1="46" y2="{:.0}" stroke="#ddd"/><text x="{x:.1}" y="42" text-anchor="middle" fill="#555">{ms:.0}</text>"##,
            height - 10.0,
        );
    }
    lines
}

/// Returns the horizontal position of a time.
fn at(ms: f64) -> f64 {
    let [least, most] = SCALE_MS.map(f64::ln);
    let share = (ms.clamp(SCALE_MS[0], SCALE_MS[1]).ln() - least) / (most - least);
    LEFT + share * (WIDTH - LEFT - RIGHT)
}
