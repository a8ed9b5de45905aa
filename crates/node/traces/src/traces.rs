//! A node's traces: settings that change, and requests that end.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use spillway_resolver::Resolver;
use spillway_types::Outcome;

use crate::config::TracesConfig;
use crate::exporter::{Counts, Exporter};
use crate::sampler::Sampler;
use crate::spans::{Origin, spans};

/// Traces of one node.
#[derive(Debug)]
pub struct Traces {
    origin: Origin,
    resolver: Resolver,
    counts: Arc<Counts>,
    /// `None` while none are sent. Held by the one task that takes in outcomes, and by a reload.
    sent: Mutex<Option<Sent>>,
}

#[derive(Debug)]
struct Sent {
    config: TracesConfig,
    sampler: Sampler,
    exporter: Exporter,
}

impl Traces {
    /// Creates the traces of a node, which sends none yet. `resolver` looks the collector's name up.
    #[must_use]
    pub fn new(origin: Origin, resolver: Resolver) -> Self {
        Self { origin, resolver, counts: Arc::default(), sent: Mutex::default() }
    }

    /// Sends by these settings from now on, or nothing without any. Logs an error if they can't be
    /// used; nothing is sent then.
    pub fn set(&self, config: Option<&TracesConfig>) {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        if sent.as_ref().map(|sent| &sent.config) == config {
            return;
        }
        let started = config.map(|config| {
            let exporter = {
                let counts = Arc::clone(&self.counts);
                Exporter::start(config, &self.origin, &self.resolver, counts)?
            };
            let sampler = Sampler::new(config.slow, Instant::now());
            Ok(Sent { config: config.clone(), sampler, exporter })
        });
        let started = started.transpose().unwrap_or_else(|error: crate::ExportError| {
            tracing::error!(%error, "traces can't be sent");
            None
        });
        let former = std::mem::replace(&mut *sent, started);
        if former.is_some() {
            // It sends what is left, which may take seconds that a reload does not have.
            std::thread::spawn(move || drop(former));
        }
    }

    /// Takes in a request that ended. Returns true if it is exported.
    pub fn add(&self, outcome: &Outcome, now: (Instant, SystemTime)) -> bool {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(sent) = &mut *sent else { return false };
        let is_told = sent.sampler.keeps(outcome, now.0);
        if is_told {
            spans(outcome, &self.origin, now).into_iter().for_each(|span| sent.exporter.send(span));
        }
        is_told
    }

    /// Returns the spans since the start that the collector took, and those that were lost.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        let Counts { sent, lost } = &*self.counts;
        (sent.load(Ordering::Relaxed), lost.load(Ordering::Relaxed))
    }
}
