//! Plot of one run over time.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::ensure;
use clap::Args;
use spillway_sim::Record;

use super::files::{read, write};
use super::records::read_csv;

const WIDTH: f64 = 900.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
/// Height of a panel, and the space above it.
const PANEL: f64 = 190.0;
const GAP: f64 = 54.0;
/// Seconds of a window, which is one point of a line.
const WINDOW_S: f64 = 10.0;
/// Shortest and longest time on the scale, in milliseconds.
const SCALE_MS: [f64; 2] = [50.0, 60_000.0];
/// Colours of the regions, one after the other.
const COLOURS: [&str; 6] = ["#0b6e4f", "#c2571a", "#3465a4", "#8a2be2", "#b8860b", "#777777"];

/// Draws times to first token and shares of forwarded requests over time, by region, as SVG.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Example:
  spillway-sim run --cell skew-120-40-40 --records requests.csv
  spillway-sim plot --records requests.csv --svg requests.svg")]
pub(super) struct Timeline {
    /// Requests of a run, as `spillway-sim run --records` writes them.
    #[arg(long, value_name = "FILE.csv")]
    records: PathBuf,
    /// File to write.
    #[arg(long, value_name = "FILE.svg")]
    svg: PathBuf,
}

/// Draws the plot.
///
/// # Errors
///
/// Returns an error if a file can't be read or written, or if it has no requests.
pub(super) fn run(timeline: &Timeline) -> anyhow::Result<()> {
    let records = read_csv(&read(&timeline.records)?)?;
    ensure!(!records.is_empty(), "{} has no requests", timeline.records.display());
    write(&timeline.svg, &svg(&records))
}

/// Part of time that the plot shows, in seconds.
#[derive(Clone, Copy, Debug)]
struct Span {
    from_s: f64,
    to_s: f64,
}

impl Span {
    fn of(records: &[Record]) -> Self {
        let times = || records.iter().map(|record| record.arrived_s);
        let window = |s: f64| (s / WINDOW_S).floor() * WINDOW_S;
        let from_s = window(times().fold(f64::INFINITY, f64::min));
        Self { from_s, to_s: window(times().fold(0.0, f64::max)) + WINDOW_S }
    }

    fn windows(self) -> usize {
        ((self.to_s - self.from_s) / WINDOW_S).round() as usize
    }

    fn window(self, record: &Record) -> usize {
        ((record.arrived_s - self.from_s) / WINDOW_S) as usize
    }

    /// Returns the horizontal position of a moment.
    fn x(self, s: f64) -> f64 {
        LEFT + (s - self.from_s) / (self.to_s - self.from_s) * (WIDTH - LEFT - RIGHT)
    }
}

fn svg(records: &[Record]) -> String {
    let span = Span::of(records);
    let regions = records.iter().map(|record| record.region).max().unwrap_or(0) + 1;
    let mut body = String::new();
    let times = Panel { top: GAP, title: "p95 of the time to first token, ms", height: y_of_time };
    times.draw(&mut body, span, &[100.0, 1_000.0, 10_000.0]);
    let shares =
        Panel { top: GAP + PANEL + GAP, title: "forwarded, %", height: |percent| percent / 100.0 };
    shares.draw(&mut body, span, &[0.0, 25.0, 50.0, 75.0, 100.0]);
    for region in 0..regions {
        let colour = COLOURS[region % COLOURS.len()];
        times.line(&mut body, span, &windows(records, region, span, p95_ms), colour);
        shares.line(&mut body, span, &windows(records, region, span, forwarded), colour);
        let x = LEFT + region as f64 * 90.0;
        let _infallible =
            writeln!(body, r#"<text x="{x:.0}" y="20" fill="{colour}">region {region}</text>"#);
    }
    let height = 2.0 * (GAP + PANEL) + 30.0;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" \
         font-family=\"sans-serif\" font-size=\"12\"><rect width=\"100%\" height=\"100%\" \
         fill=\"#fff\"/>{body}</svg>\n"
    )
}

/// Part of the plot with one figure over time.
#[derive(Clone, Copy, Debug)]
struct Panel {
    top: f64,
    title: &'static str,
    /// Height of a value as a part of the panel's, 0 to 1.
    height: fn(f64) -> f64,
}

impl Panel {
    fn y(&self, value: f64) -> f64 {
        self.top + PANEL * (1.0 - (self.height)(value))
    }

    /// Draws the title and the scales.
    fn draw(&self, body: &mut String, span: Span, values: &[f64]) {
        let (right, base) = (WIDTH - RIGHT, self.top + PANEL);
        let _infallible = writeln!(
            body,
            r##"<text x="{LEFT}" y="{:.0}" font-weight="bold">{}</text>"##,
            self.top - 8.0,
            self.title
        );
        for value in values {
            let y = self.y(*value);
            let _infallible = writeln!(
                body,
                r##"<line x1="{LEFT}" x2="{right}" y1="{y:.1}" y2="{y:.1}" stroke="#ddd"/><text x="{:.0}" y="{:.1}" text-anchor="end" fill="#555">{value}</text>"##,
                LEFT - 6.0,
                y + 4.0
            );
        }
        for window in (0..=span.windows()).step_by(6) {
            let s = span.from_s + window as f64 * WINDOW_S;
            let x = span.x(s);
            let _infallible = writeln!(
                body,
                r##"<line x1="{x:.1}" x2="{x:.1}" y1="{base}" y2="{:.0}" stroke="#555"/><text x="{x:.1}" y="{:.0}" text-anchor="middle" fill="#555">{s} s</text>"##,
                base + 4.0,
                base + 18.0
            );
        }
    }

    /// Draws the values of all windows; the line breaks where a window has none.
    fn line(&self, body: &mut String, span: Span, values: &[Option<f64>], colour: &str) {
        let mut path = String::new();
        let mut is_down = false;
        for (window, value) in values.iter().enumerate() {
            if let Some(value) = value {
                let x = span.x(span.from_s + (window as f64 + 0.5) * WINDOW_S);
                let command = if is_down { 'L' } else { 'M' };
                let _infallible = write!(path, "{command}{x:.1} {:.1}", self.y(*value));
            }
            is_down = value.is_some();
        }
        let _infallible = writeln!(
            body,
            r#"<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.6" stroke-linecap="round"/>"#
        );
    }
}

/// Returns a figure of the requests of a region's clients in each window; `None` where none came.
fn windows(
    records: &[Record],
    region: usize,
    span: Span,
    figure: fn(&[&Record]) -> f64,
) -> Vec<Option<f64>> {
    let mut windows: Vec<Vec<&Record>> = vec![Vec::new(); span.windows()];
    for record in records.iter().filter(|record| record.region == region) {
        windows[span.window(record)].push(record);
    }
    windows.iter().map(|window| (!window.is_empty()).then(|| figure(window))).collect()
}

/// Returns the 95th percentile of the time to first token; failed requests take for ever.
fn p95_ms(records: &[&Record]) -> f64 {
    let mut times: Vec<f64> =
        records.iter().map(|record| record.first_token_ms.unwrap_or(f64::INFINITY)).collect();
    times.sort_unstable_by(f64::total_cmp);
    times[((times.len() - 1) as f64 * 0.95).round() as usize]
}

/// Returns the share of forwarded requests in percent.
fn forwarded(records: &[&Record]) -> f64 {
    let forwarded = records.iter().filter(|record| record.is_forwarded).count();
    forwarded as f64 / records.len() as f64 * 100.0
}

/// Returns the height of a time on a logarithmic scale, 0 to 1.
fn y_of_time(ms: f64) -> f64 {
    let [least, most] = SCALE_MS.map(f64::ln);
    (ms.clamp(SCALE_MS[0], SCALE_MS[1]).ln() - least) / (most - least)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(region: usize, arrived_s: f64, first_token_ms: Option<f64>) -> Record {
        Record {
            region,
            served_by: Some(0),
            arrived_s,
            first_token_ms,
            ended_ms: None,
            prompt_tokens: 1,
            cached_tokens: 0,
            reply_tokens: 1,
            is_forwarded: region != 0,
            fate: spillway_sim::Fate::Answered,
            returns: 0,
            asked_again_ms: 0.0,
        }
    }

    #[test]
    fn each_window_has_its_own_figures() {
        let records = [
            record(0, 61.0, Some(100.0)),
            record(0, 62.0, Some(300.0)),
            record(1, 85.0, None),
            record(0, 85.0, Some(50.0)),
        ];
        let span = Span::of(&records);
        assert_eq!((span.from_s, span.to_s), (60.0, 90.0));
        let times = windows(&records, 0, span, p95_ms);
        assert_eq!(times, [Some(300.0), None, Some(50.0)]);
        assert_eq!(windows(&records, 1, span, p95_ms), [None, None, Some(f64::INFINITY)]);
        assert_eq!(windows(&records, 1, span, forwarded), [None, None, Some(100.0)]);
    }

    #[test]
    fn all_regions_are_drawn_within_the_panels() {
        let text = svg(&[record(0, 61.0, Some(100.0)), record(1, 75.0, None)]);
        assert!(text.contains("region 0") && text.contains("region 1"));
        assert_eq!(text.matches("<path").count(), 4);
        assert!(!text.contains("inf") && !text.contains("NaN"), "{text}");
    }
}
