//! Forms in which the demo shows what happens: a panel on a terminal, lines of text elsewhere, or
//! JSON lines.

use std::collections::BTreeMap;
use std::io::{IsTerminal, stdout};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;
use serde_json::{Value, json};

use crate::demo::panel::Panel;
use crate::demo::region::DemoRegion;
use crate::demo::report::DemoReport;
use crate::demo::sample::Samples;
use crate::demo::snapshot::{RegionNow, Snapshot, whole};
use crate::demo::stage::DemoStage;
use crate::demo::world::DemoWorld;
use crate::full_screen::FullScreen;
use crate::{output, screen};

/// Interval between two pictures of the panel.
const PICTURE: Duration = Duration::from_millis(100);
/// Interval between two lines of text.
const TEXT: Duration = Duration::from_secs(3);
/// Width of lines of text.
const TEXT_WIDTH: usize = 80;
/// Interval between two JSON lines, and between two times in the panel's sparklines.
const SECOND: Duration = Duration::from_secs(1);

/// Number of phases and scenes.
const PHASES: u32 = 5;

/// Form of the demo.
#[derive(Debug)]
pub(crate) struct DemoView {
    form: Form,
    started: Instant,
    shown_at: Option<Instant>,
    /// Address of the console, once it was shown.
    console: String,
}

#[derive(Debug)]
enum Form {
    Panel { panel: Box<Panel>, screen: FullScreen, remembered_at: Instant },
    Text,
    Json,
}

impl DemoView {
    /// Takes the terminal for a panel if standard output is one.
    ///
    /// # Errors
    /// Returns an error if the terminal refuses.
    pub(crate) fn new(is_json: bool) -> Result<Self> {
        let started = Instant::now();
        let form = match (is_json, stdout().is_terminal()) {
            (true, _) => Form::Json,
            (false, false) => Form::Text,
            (false, true) => {
                let (panel, screen) = (Panel::new(), FullScreen::new()?);
                Form::Panel { panel: Box::new(panel), screen, remembered_at: started }
            }
        };
        Ok(Self { form, started, shown_at: None, console: String::new() })
    }

    /// Prints what happens between phases, or what the demo consists of.
    ///
    /// # Errors
    /// Returns an error if the output is closed, or the user ended the demo.
    pub(crate) fn tell(&mut self, story: &str) -> Result<()> {
        match &mut self.form {
            Form::Panel { panel, screen, .. } => {
                panel.tell(story);
                draw(screen, panel)?;
            }
            Form::Text => output::line(story)?,
            Form::Json => {}
        }
        Ok(())
    }

    /// Shows where the console is, as soon as nodes are up; again if that has changed.
    ///
    /// # Errors
    /// Returns an error if the output is closed, or the user ended the demo.
    pub(crate) fn open(&mut self, world: &DemoWorld) -> Result<()> {
        let first = DemoRegion::ALL.into_iter().find_map(|it| Some((it, world.admin(it)?)));
        let Some((region, admin)) = first else { return Ok(()) };
        let console = format!("http://{admin}/console/");
        let is_known = self.console == console;
        self.console.clone_from(&console);
        match &mut self.form {
            Form::Panel { panel, screen, .. } => {
                panel.console = console;
                draw(screen, panel)
            }
            Form::Text if is_known => Ok(()),
            Form::Text => Ok(output::line(&format!("Console of {}: {console}", region.name()))?),
            Form::Json => {
                let admin = DemoRegion::ALL.iter().map(|it| (it.name(), world.admin(*it)));
                let admin: BTreeMap<_, _> = admin.collect();
                json_line("start", &json!({ "console": console, "admin": admin }))
            }
        }
    }

    /// Begins a phase or a scene.
    ///
    /// # Errors
    /// Returns an error if the output is closed, or the user ended the demo.
    pub(crate) fn begin(&mut self, number: u32, title: &str, story: &str) -> Result<()> {
        self.shown_at = None;
        let heading = format!("{number} of {PHASES}: {title}");
        match &mut self.form {
            Form::Panel { panel, screen, .. } => {
                panel.passed_s = self.started.elapsed().as_secs_f64();
                panel.progress = f64::from(number - 1) / f64::from(PHASES);
                panel.begin(&heading, story);
                draw(screen, panel)?;
            }
            Form::Text => {
                let story = screen::wrapped(story, TEXT_WIDTH).join("\n");
                output::line(&format!("\n{heading}\n{story}"))?;
            }
            Form::Json => json_line("phase", &json!({ "number": number, "title": title }))?,
        }
        Ok(())
    }

    /// Shows the present state if that is due.
    ///
    /// # Errors
    /// Returns an error if the output is closed, or the user ended the demo.
    pub(crate) fn show(
        &mut self,
        world: &DemoWorld,
        samples: &Samples,
        stage: &DemoStage,
        phase_started: Instant,
    ) -> Result<()> {
        let now = Instant::now();
        let interval = match self.form {
            Form::Panel { .. } => PICTURE,
            Form::Text => TEXT,
            Form::Json => SECOND,
        };
        if now < self.shown_at.unwrap_or(phase_started) + interval {
            return Ok(());
        }
        self.shown_at = Some(now);
        let snapshot = Snapshot::of(world, samples, stage.loads, phase_started, now);
        match &mut self.form {
            Form::Panel { panel, screen, remembered_at } => {
                panel.passed_s = (now - self.started).as_secs_f64();
                let part = snapshot.seconds / stage.length.as_secs_f64().max(f64::MIN_POSITIVE);
                panel.progress = (f64::from(stage.number - 1) + part.min(1.0)) / f64::from(PHASES);
                panel.show(snapshot);
                if now >= *remembered_at + SECOND {
                    *remembered_at = now;
                    panel.remember();
                }
                draw(screen, panel)?;
            }
            Form::Text => output::line(&text_of(&snapshot))?,
            Form::Json => json_line("tick", &snapshot)?,
        }
        Ok(())
    }

    /// Gives the terminal back and prints the summary.
    ///
    /// # Errors
    /// Returns an error if the output is closed.
    pub(crate) fn end(self, report: &DemoReport) -> Result<()> {
        let is_json = matches!(self.form, Form::Json);
        drop(self);
        if is_json { json_line("summary", report) } else { Ok(output::line(&report.text())?) }
    }
}

/// Prints an object on a line of its own, with the name of the event in the field `event`.
fn json_line(event: &str, fields: &impl Serialize) -> Result<()> {
    let mut line = serde_json::to_value(fields)?;
    if let Value::Object(fields) = &mut line {
        fields.insert("event".to_owned(), event.into());
    }
    Ok(output::line(&line.to_string())?)
}

/// Returns a line for each region, each below 80 columns.
fn text_of(snapshot: &Snapshot) -> String {
    let line = |now: &RegionNow| match now.is_up {
        false => format!("        {:<15} lost\n", now.region),
        true => format!(
            "        {:<15} {:>2} running {:>3} waiting p50 {:>4} p95 {:>5} ms {:>4} served\n",
            now.region,
            now.in_flight,
            now.waiting,
            whole(now.p50_ms),
            whole(now.p95_ms),
            now.served
        ),
    };
    let mut text: String = snapshot.regions.iter().map(line).collect();
    for flow in &snapshot.flows {
        text += &format!("        {} -> {}: {} requests\n", flow.from, flow.to, flow.requests);
    }
    let clock = format!("{:>5.0} s", snapshot.seconds);
    text.replace_range(..clock.len().min(text.len()), &clock);
    text.trim_end().to_owned()
}

/// Draws the panel.
///
/// # Errors
/// Returns an error if the user ended the demo, or the terminal is gone.
fn draw(screen: &mut FullScreen, panel: &Panel) -> Result<()> {
    anyhow::ensure!(!screen.draw(panel)?, "stopped before its end");
    Ok(())
}

#[cfg(test)]
#[path = "view_test.rs"]
mod view_test;
