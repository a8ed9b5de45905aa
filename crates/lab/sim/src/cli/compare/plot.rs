//! Plot of the ratios of all cells.

use std::fmt::Write;

use spillway_sim::{Row, Spread, Standing};

use super::tables::routers;

const WIDTH: f64 = 900.0;
const LEFT: f64 = 190.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 56.0;
const LINE: f64 = 17.0;
/// Smallest and largest ratio on the scale.
const SCALE: [f64; 2] = [0.25, 8.0];
/// Ratios with a line across the plot.
const GRID: [f64; 7] = [0.25, 0.5, 0.8, 1.0, 1.25, 2.0, 4.0];
const GOODPUT: &str = "#0b6e4f";
const P95: &str = "#c2571a";

/// Returns an SVG with a dot for goodput and one for the 95th percentile in each cell, as parts of
/// those of the best baseline; bars reach from the worst to the best seed. The first of Spillway's
/// routers is shown.
pub(super) fn plot(standings: &[Standing]) -> String {
    let first = routers(standings).first().copied();
    let rows: Vec<(&str, &Row)> =
        standings.iter().filter_map(|one| Some((one.cell.as_str(), one.row(first?)?))).collect();
    let height = TOP + rows.len() as f64 * LINE + 20.0;
    let mut body = String::new();
    for ratio in GRID {
        let x = at(ratio);
        let colour = if ratio == 1.0 { "#555" } else { "#ddd" };
        let _infallible = writeln!(
            body,
            r##"<line x1="{x:.1}" x2="{x:.1}" y1="46" y2="{:.0}" stroke="{colour}"/><text x="{x:.1}" y="42" text-anchor="middle" fill="#555">{ratio}</text>"##,
            height - 12.0,
        );
    }
    for (line, (cell, row)) in rows.iter().enumerate() {
        let y = TOP + line as f64 * LINE;
        let _infallible = writeln!(
            body,
            r#"<text x="{:.0}" y="{:.0}" text-anchor="end">{cell}</text>"#,
            LEFT - 10.0,
            y + 8.0
        );
        dot(&mut body, row.goodput, y + 2.0, GOODPUT);
        dot(&mut body, row.p95, y + 7.0, P95);
    }
    format!(
        concat!(
            r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w} {h:.0}" "##,
            r##"font-family="sans-serif" font-size="12"><rect width="100%" height="100%" "##,
            r##"fill="#fff"/><text x="8" y="20">{name} as a part of the best baseline of each "##,
            r##"cell (logarithmic): <tspan fill="{goodput}">goodput</tspan>, "##,
            r##"<tspan fill="{p95}">p95 of the time to first token</tspan></text>{body}</svg>"##,
            "\n"
        ),
        w = WIDTH,
        h = height,
        name = first.unwrap_or(""),
        goodput = GOODPUT,
        p95 = P95,
        body = body
    )
}

fn dot(body: &mut String, ratio: Option<Spread>, y: f64, colour: &str) {
    let Some(Spread { mean, worst, best, .. }) = ratio else { return };
    let _infallible = writeln!(
        body,
        r#"<line x1="{:.1}" x2="{:.1}" y1="{y:.0}" y2="{y:.0}" stroke="{colour}"/><circle cx="{:.1}" cy="{y:.0}" r="3.2" fill="{colour}"/>"#,
        at(worst.min(best)),
        at(worst.max(best)),
        at(mean),
    );
}

/// Returns the horizontal position of a ratio.
fn at(ratio: f64) -> f64 {
    let [least, most] = SCALE.map(f64::ln);
    let share = (ratio.clamp(SCALE[0], SCALE[1]).ln() - least) / (most - least);
    LEFT + share * (WIDTH - LEFT - RIGHT)
}
