//! `spillway anycast`: announces an address to routers while a node takes clients.
//!
//! [`spillway_health::Announcement`] decides when to announce; this module has the clock, asks the
//! node and orders the router. Orders are repeated, because BIRD may have been restarted since.

mod args;
mod bird;
mod exabgp;
mod poll;

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use serde_json::json;
use spillway_health::Announcement;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Interval, MissedTickBehavior, interval};

pub(crate) use self::args::AnycastArgs;
use self::bird::Bird;
use self::exabgp::ExaBgp;
use self::poll::ask;
use crate::connect::Connect;
use crate::output;

/// Time after which an order to BIRD is repeated.
const REPEAT: Duration = Duration::from_secs(1);

/// Announces and withdraws until it is stopped.
pub(crate) fn run(args: &AnycastArgs) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match &args.bird {
            Some(socket) => {
                let bird = Bird::new(socket.clone(), args.protocols.clone());
                with_bird(AnycastWatch::new(args), bird).await
            }
            None => {
                let exabgp = ExaBgp::new(args.prefixes.clone(), args.attributes.clone())?;
                with_exabgp(AnycastWatch::new(args), exabgp).await
            }
        }
    })
}

/// State of following one node.
struct AnycastWatch {
    connect: Connect,
    limit: Duration,
    ticks: Interval,
    announcement: Announcement,
    /// Last answer of the node.
    answer: Result<(), String>,
    as_json: bool,
    /// Cause of the last failed order, so that each cause is reported once.
    trouble: Option<String>,
}

impl AnycastWatch {
    fn new(args: &AnycastArgs) -> Self {
        let mut ticks = interval(Duration::from_millis(args.interval_ms));
        // After a slow answer, questions must not come in a burst: each of them counts for `rise`
        // or `fall`.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            connect: args.connect(),
            limit: Duration::from_millis(args.timeout_ms),
            ticks,
            announcement: Announcement::new(args.counting()),
            answer: Ok(()),
            as_json: args.json,
            trouble: None,
        }
    }

    /// Waits for the next question and asks the node. Returns the new state, true for announced, if
    /// it changed.
    async fn next(&mut self) -> Option<bool> {
        self.ticks.tick().await;
        self.answer = ask(&self.connect, self.limit).await;
        self.announcement.update(Instant::now(), self.answer.is_ok())
    }

    /// Reports a change to people and scripts.
    fn tell(&self, is_announced: bool, write: impl Fn(&str)) {
        let event = if is_announced { "announced" } else { "withdrawn" };
        let reason = self.answer.as_ref().err().map(String::as_str);
        if self.as_json {
            write(&json!({ "event": event, "reason": reason }).to_string());
        } else {
            tracing::info!(reason, "{event}");
        }
    }

    /// Reports a failed order, once for each cause.
    fn note(&mut self, order: &Result<()>) {
        let trouble = order.as_ref().err().map(|error| format!("{error:#}"));
        if trouble != self.trouble {
            match &trouble {
                Some(error) => tracing::error!(%error, "the router does not do as it is told"),
                None => tracing::info!("the router does as it is told again"),
            }
            self.trouble = trouble;
        }
    }
}

async fn with_bird(mut watch: AnycastWatch, mut bird: Bird) -> Result<()> {
    let mut ends = Ends::new()?;
    let mut said_at = Instant::now();
    loop {
        let change = tokio::select! {
            change = watch.next() => change,
            () = ends.wait() => break,
        };
        if let Some(is_announced) = change {
            // An error here means that the reader is gone; the routes matter more.
            watch.tell(is_announced, |text| drop(output::line(text)));
        }
        // After a failure, the order is repeated at every question.
        if let Some(is_announced) = watch.announcement.is_announced()
            && (change.is_some() || watch.trouble.is_some() || said_at.elapsed() >= REPEAT)
        {
            let order = bird.set(is_announced).await;
            watch.note(&order);
            said_at = Instant::now();
        }
    }
    watch.answer = Err("told to stop".to_owned());
    watch.tell(false, |text| drop(output::line(text)));
    bird.set(false).await
}

async fn with_exabgp(mut watch: AnycastWatch, exabgp: ExaBgp) -> Result<()> {
    let mut ends = Ends::new()?;
    loop {
        let change = tokio::select! {
            change = watch.next() => change,
            // All that ExaBGP announced ends with its process.
            () = exabgp.ended() => return Ok(()),
            () = ends.wait() => break,
        };
        let is_refused = exabgp.take_refusal();
        if is_refused {
            watch.note(&Err(anyhow!("ExaBGP refused an order: see --prefix and --attributes")));
        }
        if let Some(is_announced) = change {
            // Standard output is for orders to ExaBGP alone.
            watch.tell(is_announced, output::note);
        }
        if let Some(is_announced) = watch.announcement.is_announced()
            // Unlike with BIRD, nothing is repeated: an ExaBGP that restarts also restarts this
            // process.
            && (change.is_some() || is_refused)
        {
            exabgp.set(is_announced)?;
        }
    }
    watch.answer = Err("told to stop".to_owned());
    watch.tell(false, output::note);
    exabgp.set(false)
}

/// Signals to stop.
struct Ends(tokio::signal::unix::Signal, tokio::signal::unix::Signal);

impl Ends {
    fn new() -> Result<Self> {
        Ok(Self(signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?))
    }

    async fn wait(&mut self) {
        tokio::select! {
            _ = self.0.recv() => {}
            _ = self.1.recv() => {}
        }
    }
}
