//! The demo's live table.

use std::io::{IsTerminal, Write, stdout};
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Result;

use crate::demo::load::Tally;
use crate::demo::world::World;

/// A table that is drawn over itself on a terminal, and below itself elsewhere.
#[derive(Debug, Default)]
pub(crate) struct Table {
    lines_drawn: usize,
}

impl Table {
    /// Draws the state at `passed`.
    pub(crate) fn draw(&mut self, world: &World, tally: &Tally, passed: Duration) -> Result<()> {
        let mut out = stdout().lock();
        if stdout().is_terminal() && self.lines_drawn > 0 {
            // Moves the cursor up and clears what is below.
            write!(out, "\x1b[{}A\x1b[J", self.lines_drawn)?;
        }
        let text = render(world, tally, passed);
        self.lines_drawn = text.lines().count();
        out.write_all(text.as_bytes())?;
        Ok(out.flush()?)
    }
}

fn render(world: &World, tally: &Tally, passed: Duration) -> String {
    let mut text = String::from(
        "replica      in flight  queued  finished  tokens out  KV in use  prompt tokens cached\n",
    );
    let view = world.node.gateway().view();
    for (replica, emulated) in view.replicas().iter().zip(world.emulator.replicas()) {
        let stats = emulated.stats();
        let engine = stats.engine;
        text += &format!(
            "{:<12} {:>9} {:>7} {:>9} {:>11} {:>9.1}% {:>20.1}%\n",
            replica.spec().name.to_string(),
            replica.in_flight(),
            stats.waiting,
            stats.finished,
            engine.generation_tokens,
            percent(engine.kv_blocks_used.into(), engine.kv_blocks_total.into()),
            percent(engine.prefix_cache_hits_tokens, engine.prefix_cache_queries_tokens),
        );
    }
    text += &format!(
        "{:>5.1} s  {} requests, {} failed, {} stream events, first token p50 {:.0} ms, p95 {:.0} ms\n",
        passed.as_secs_f64(),
        tally.requests.load(Ordering::Relaxed),
        tally.failures.load(Ordering::Relaxed),
        tally.events.load(Ordering::Relaxed),
        milliseconds(tally.first_byte_at(0.5)),
        milliseconds(tally.first_byte_at(0.95)),
    );
    text
}

pub(crate) fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

pub(crate) fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
