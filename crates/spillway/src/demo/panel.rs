//! Picture of the demo while it runs: bars, times to first token, and who helps whom.
//!
//! It draws into a buffer of cells and knows no terminal, so tests draw it at any size.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::symbols::border;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Padding, Paragraph, Sparkline, SparklineBar, Widget, Wrap};

use crate::demo::snapshot::{Flow, RegionNow, Snapshot, whole};

/// Width from which the flows are beside the regions instead of below them.
const WIDE: u16 = 150;
/// Width of the flows beside the regions: names, the longest arrow, and its text.
const FLOWS_WIDTH: u16 = 74;
/// Rows of one region with its border, at least.
const REGION_ROWS: u16 = 4;
/// Times to first token at the ends of the sparkline's logarithmic scale.
const SCALE_MS: [f64; 2] = [10.0, 10_000.0];
/// Steps of the sparkline's scale.
const SCALE_STEPS: f64 = 100.0;
/// Times to first token up to which a chat feels quick, and up to which it feels slow.
const QUICK_MS: f64 = 200.0;
const SLOW_MS: f64 = 1_000.0;
/// Longest arrow between two regions, in cells.
const ARROW_MAX: u64 = 16;

/// Content of the panel.
#[derive(Debug)]
pub(crate) struct Panel {
    /// Seconds since the start.
    pub(crate) passed_s: f64,
    /// Part of the demo that is over, 0 to 1.
    pub(crate) progress: f64,
    /// Address of the console; empty until a node is up.
    pub(crate) console: String,
    title: String,
    now: Option<Snapshot>,
    /// The 95th percentile of each region in each second since the start.
    history: [Vec<Option<f64>>; 3],
    story: String,
}

impl Panel {
    pub(crate) fn new() -> Self {
        Self {
            passed_s: 0.0,
            progress: 0.0,
            console: String::new(),
            title: "starts three regions".to_owned(),
            now: None,
            history: [const { Vec::new() }; 3],
            story: String::new(),
        }
    }

    /// Begins a phase; `story` describes what happens in it.
    pub(crate) fn begin(&mut self, title: &str, story: &str) {
        title.clone_into(&mut self.title);
        self.tell(story);
        // A gap separates the phases.
        self.history.iter_mut().for_each(|times| times.push(None));
    }

    /// Replaces the text below the regions.
    pub(crate) fn tell(&mut self, story: &str) {
        story.clone_into(&mut self.story);
    }

    /// Shows this state from now on.
    pub(crate) fn show(&mut self, now: Snapshot) {
        self.now = Some(now);
    }

    /// Adds the present times to first token to the sparklines, once a second.
    pub(crate) fn remember(&mut self) {
        let Some(now) = &self.now else { return };
        for (times, region) in self.history.iter_mut().zip(&now.regions) {
            times.push(region.p95_ms.filter(|_| region.is_up));
        }
    }

    fn render_head(&self, area: Rect, buffer: &mut Buffer) {
        let clock = format!("{:.0} s ", self.passed_s);
        let [name, right] = Layout::horizontal([
            Constraint::Fill(1),
            Constraint::Length(u16::try_from(clock.len()).unwrap_or(0)),
        ])
        .areas(Rect { height: area.height.min(1), ..area });
        let title =
            [" spillway demo ".bold().reversed(), Span::raw("  "), self.title.as_str().bold()];
        Line::from_iter(title).render(name, buffer);
        Line::from(clock).dim().render(right, buffer);
        let bar = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
        bar_line(self.progress, bar.width, Color::Blue).render(bar, buffer);
    }

    fn render_region(&self, index: usize, now: &RegionNow, area: Rect, buffer: &mut Buffer) {
        let state = match now.is_up {
            true => Span::raw(format!(" gets {} % of what it can serve ", now.load_percent)).dim(),
            false => " LOST ".bold().red(),
        };
        let title = Line::from_iter([Span::raw(format!(" {} ", now.region)).bold(), state]);
        let counts = Line::from_iter([
            Span::raw(format!(" served {} ", now.served)),
            number("shed", now.shed),
            number("failed", now.failed),
        ]);
        let block = Block::bordered()
            .border_set(border::ROUNDED)
            .border_style(Style::new().dim())
            .padding(Padding::horizontal(1))
            .title_top(title)
            .title_top(counts.right_aligned());
        let inner = block.inner(area);
        block.render(area, buffer);
        let [load, times] =
            Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(inner);
        render_load(now, load, buffer);
        self.render_times(index, now, times, buffer);
    }

    fn render_times(&self, index: usize, now: &RegionNow, area: Rect, buffer: &mut Buffer) {
        let text =
            format!("first token p50 {:>5} p95 {:>5} ms", whole(now.p50_ms), whole(now.p95_ms));
        let [label, spark] =
            Layout::horizontal([Constraint::Length(34), Constraint::Fill(1)]).areas(area);
        let colour = now.p95_ms.map_or(Color::Reset, colour_of);
        Line::from(text).fg(colour).render(label, buffer);
        let times = &self.history[index];
        let hidden = times.len().saturating_sub(usize::from(spark.width));
        let bar = |ms: &Option<f64>| {
            SparklineBar::from(ms.map(height)).style(ms.map(|ms| Style::new().fg(colour_of(ms))))
        };
        let bars: Vec<SparklineBar> = times[hidden..].iter().map(bar).collect();
        Sparkline::default().data(bars).max(SCALE_STEPS as u64).render(spark, buffer);
    }

    fn render_story(&self, area: Rect, buffer: &mut Buffer) {
        Paragraph::new(self.story.as_str()).wrap(Wrap { trim: true }).render(area, buffer);
    }
}

impl Widget for &Panel {
    fn render(self, area: Rect, buffer: &mut Buffer) {
        let flow_rows = if area.width >= WIDE { 0 } else { 4 };
        let [head, middle, flows, story, foot] = Layout::vertical([
            Constraint::Length(2),
            Constraint::Max(3 * REGION_ROWS + 9),
            Constraint::Length(flow_rows),
            Constraint::Max(4),
            Constraint::Length(1),
        ])
        .areas(area);
        self.render_head(head, buffer);
        let (regions, flows) = match flow_rows {
            0 => {
                let sides = [Constraint::Fill(1), Constraint::Length(FLOWS_WIDTH)];
                let [left, right] = Layout::horizontal(sides).areas(middle);
                (left, right)
            }
            _ => (middle, flows),
        };
        if let Some(now) = &self.now {
            // All of one height: a row that is left over stays empty.
            let each = Constraint::Length(regions.height / 3);
            let rows: [Rect; 3] = Layout::vertical([each; 3]).areas(regions);
            for (index, region) in now.regions.iter().enumerate() {
                self.render_region(index, region, rows[index], buffer);
            }
            render_flows(&now.flows, flows, buffer);
        }
        self.render_story(story, buffer);
        let console = match &*self.console {
            "" => String::new(),
            address => format!("   console: {address}"),
        };
        Line::from_iter([Span::raw(" q ends the demo").dim(), Span::raw(console).bold()])
            .render(foot, buffer);
    }
}

fn render_load(now: &RegionNow, area: Rect, buffer: &mut Buffer) {
    let label = format!("in flight {:>2} of {:<2} ", now.in_flight, now.in_flight_max);
    let waiting = format!(" waiting {:>3}", now.waiting);
    let width = |text: &str| Constraint::Length(u16::try_from(text.len()).unwrap_or(0));
    let [left, bar, right] =
        Layout::horizontal([width(&label), Constraint::Fill(1), width(&waiting)]).areas(area);
    Line::from(label).render(left, buffer);
    let share = f64::from(now.in_flight) / f64::from(now.in_flight_max.max(1));
    bar_line(share, bar.width, Color::Cyan).render(bar, buffer);
    let style = if now.waiting > 0 { Style::new().yellow() } else { Style::new().dim() };
    Line::from(waiting).style(style).render(right, buffer);
}

/// Draws an arrow for each flow, as long as it has recent requests.
fn render_flows(flows: &[Flow], area: Rect, buffer: &mut Buffer) {
    let block = Block::new().title_top(" who helps whom ".bold()).padding(Padding::horizontal(1));
    let inner = block.inner(area);
    block.render(area, buffer);
    let most = flows.iter().map(|flow| flow.recent).max().unwrap_or(0).max(1);
    let mut busiest: Vec<&Flow> = flows.iter().collect();
    busiest.sort_by_key(|flow| std::cmp::Reverse((flow.recent, flow.requests)));
    let line = |flow: &Flow| {
        let shaft = flow.recent * ARROW_MAX / most;
        let arrow = format!("{}▶", "━".repeat(usize::try_from(shaft).unwrap_or(0)));
        let style = if flow.recent > 0 { Style::new().magenta() } else { Style::new().dim() };
        Line::from_iter([
            Span::raw(format!("{:>14} ", flow.from)),
            Span::styled(arrow, style),
            Span::raw(format!(" {} ", flow.to)),
            format!("{} requests, {} ms away", flow.requests, flow.rtt_ms).dim(),
        ])
    };
    let lines: Vec<Line<'_>> = match busiest.is_empty() {
        true => vec!["Each region serves its own clients alone.".dim().into()],
        false => busiest.into_iter().map(line).collect(),
    };
    Paragraph::new(lines).render(inner, buffer);
}

/// Returns a bar that fills `share` of `width` cells, in eighths of a cell.
fn bar_line(share: f64, width: u16, colour: Color) -> Line<'static> {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share.clamp(0.0, 1.0) * f64::from(width) * 8.0).round() as usize;
    let (full, part) = (eighths / 8, EIGHTHS[eighths % 8]);
    let used = full + usize::from(!part.is_empty());
    let rest = usize::from(width).saturating_sub(used);
    Line::from_iter([
        Span::raw("█".repeat(full) + part).fg(colour),
        Span::raw("░".repeat(rest)).dim(),
    ])
}

fn number(name: &str, count: u64) -> Span<'static> {
    let text = Span::raw(format!(" {name} {count} "));
    if count > 0 { text.red() } else { text.dim() }
}

fn colour_of(milliseconds: f64) -> Color {
    match milliseconds {
        ms if ms <= QUICK_MS => Color::Green,
        ms if ms <= SLOW_MS => Color::Yellow,
        _ => Color::Red,
    }
}

/// Returns the height of a time in the sparkline, on its logarithmic scale.
fn height(milliseconds: f64) -> u64 {
    let [least, most] = SCALE_MS;
    let share = (milliseconds.max(least) / least).log10() / (most / least).log10();
    (share * SCALE_STEPS).round().clamp(1.0, SCALE_STEPS) as u64
}

#[cfg(test)]
#[path = "panel_test.rs"]
mod panel_test;
