//! Table that is shown while the demo runs.

use std::io::{IsTerminal, Write, stdout};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::demo::region::DemoRegion;
use crate::demo::sample::{FirstTokens, Sample, Samples};
use crate::demo::workload::{PLACES, REPLICAS};
use crate::demo::world::DemoWorld;

/// Age of the oldest times to first token that count.
const RECENT: Duration = Duration::from_secs(5);
/// Interval at which the table is drawn again.
const REDRAW: Duration = Duration::from_millis(250);
/// Interval at which a line is printed if standard output is no terminal.
const LINE: Duration = Duration::from_secs(3);

/// Table that is drawn over itself on a terminal; elsewhere, a line now and then.
#[derive(Debug)]
pub(crate) struct DemoTable {
    is_terminal: bool,
    lines_drawn: usize,
    drawn_at: Option<Instant>,
}

impl DemoTable {
    pub(crate) fn new() -> Self {
        Self { is_terminal: stdout().is_terminal(), lines_drawn: 0, drawn_at: None }
    }

    /// Leaves the earlier table where it is, and begins a new one below.
    pub(crate) fn begin(&mut self, title: &str) -> Result<()> {
        self.lines_drawn = 0;
        self.drawn_at = None;
        let mut out = stdout().lock();
        writeln!(out, "\n{title}")?;
        Ok(out.flush()?)
    }

    /// Draws the table if it is due.
    pub(crate) fn draw(
        &mut self,
        world: &DemoWorld,
        samples: &Samples,
        started: Instant,
    ) -> Result<()> {
        let now = Instant::now();
        let period = if self.is_terminal { REDRAW } else { LINE };
        if now < self.drawn_at.unwrap_or(started) + period {
            return Ok(());
        }
        self.drawn_at = Some(now);
        let rows = Rows::new(world, samples, now);
        let passed_s = (now - started).as_secs_f64();
        let mut out = stdout().lock();
        if !self.is_terminal {
            writeln!(out, "{passed_s:>6.1} s  {}", rows.line())?;
            return Ok(out.flush()?);
        }
        if self.lines_drawn > 0 {
            // Moves the cursor up and clears what is below.
            write!(out, "\x1b[{}A\x1b[J", self.lines_drawn)?;
        }
        let text = format!("{}{passed_s:.1} s\n", rows.table());
        self.lines_drawn = text.lines().count();
        out.write_all(text.as_bytes())?;
        Ok(out.flush()?)
    }
}

/// State of all regions at one moment.
struct Rows([DemoRow; 3]);

struct DemoRow {
    name: &'static str,
    is_up: bool,
    requests: u64,
    in_flight: u32,
    waiting: usize,
    first_token_ms: [Option<f64>; 2],
    spilled: [u64; 2],
    shed: u64,
    failed: u64,
}

impl Rows {
    fn new(world: &DemoWorld, samples: &Samples, now: Instant) -> Self {
        let recent = samples.since(now.checked_sub(RECENT).unwrap_or(now));
        Self(DemoRegion::ALL.map(|region| DemoRow::new(region, world, samples, &recent)))
    }

    fn table(&self) -> String {
        let head = format!(
            "{:<15} {:>8} {:>9} {:>7}   {:>15}   {:>7} {:>7} {:>5} {:>6}\n",
            "region",
            "requests",
            "in flight",
            "waiting",
            "first token ms",
            "spilled",
            "spilled",
            "",
            ""
        ) + &format!(
            "{:<15} {:>8} {:>9} {:>7}   {:>7} {:>7}   {:>7} {:>7} {:>5} {:>6}\n",
            "", "", "", "", "p50", "p95", "out", "in", "shed", "failed"
        );
        self.0.iter().fold(head, |text, row| text + &row.line())
    }

    fn line(&self) -> String {
        let parts: Vec<String> = self.0.iter().map(DemoRow::part).collect();
        parts.join(" | ")
    }
}

impl DemoRow {
    fn new(region: DemoRegion, world: &DemoWorld, samples: &Samples, recent: &[Sample]) -> Self {
        let (counts, figures) = (samples.counts(region), world.figures(region));
        let times = FirstTokens::of(recent.iter().filter(|sample| sample.door == region));
        Self {
            name: region.name(),
            is_up: world.is_up(region),
            requests: counts.requests,
            in_flight: figures.in_flight,
            waiting: figures.waiting,
            first_token_ms: [times.quantile_ms(0.5), times.quantile_ms(0.95)],
            spilled: [counts.spilled_out, counts.spilled_in],
            shed: counts.shed,
            failed: counts.failed,
        }
    }

    fn line(&self) -> String {
        let places = u32::from(REPLICAS) * PLACES;
        let in_flight = match self.is_up {
            true => format!("{} of {places}", self.in_flight),
            false => "lost".to_owned(),
        };
        let [p50, p95] = self.first_token_ms.map(whole);
        let [out, into] = self.spilled;
        format!(
            "{:<15} {:>8} {in_flight:>9} {:>7}   {p50:>7} {p95:>7}   {out:>7} {into:>7} {:>5} {:>6}\n",
            self.name, self.requests, self.waiting, self.shed, self.failed
        )
    }

    fn part(&self) -> String {
        if !self.is_up {
            return format!("{} lost", self.name);
        }
        let [p50, p95] = self.first_token_ms.map(whole);
        let [out, into] = self.spilled;
        format!(
            "{} {} done, {} in flight, {} waiting, p50/p95 {p50}/{p95} ms, out {out}, in {into}",
            self.name, self.requests, self.in_flight, self.waiting
        )
    }
}

/// Formats a number of milliseconds for people; `-` if there is none.
pub(crate) fn whole(milliseconds: Option<f64>) -> String {
    milliseconds.map_or_else(|| "-".to_owned(), |milliseconds| format!("{milliseconds:.0}"))
}
