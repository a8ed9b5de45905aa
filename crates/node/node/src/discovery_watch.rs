//! State of discoveries, for operators and metrics.

use std::sync::Arc;

use spillway_admin::DiscoveryOverview;
use spillway_replicas::discovery::{DiscoveredEndpoint, Findings, SourcePhase, SourceState};
use spillway_telemetry::LiveDiscovery;
use tokio::sync::watch;
use tokio::time::Instant;

/// View of one discovery, which the keeper renews whenever its replicas change.
#[derive(Clone, Debug)]
pub(crate) struct DiscoveryWatch {
    pub(crate) name: String,
    /// Kind of source, and what is asked for.
    pub(crate) source: String,
    /// Number of replicas in use.
    pub(crate) replicas: usize,
    /// Reason for which the source's last value can't be used.
    pub(crate) failure: Option<String>,
    /// True if the source's last value lists no replica, whatever else it has.
    pub(crate) is_empty: bool,
    pub(crate) feed: DiscoveryFeed,
}

/// Feed of a discovery.
#[derive(Clone, Debug)]
pub(crate) enum DiscoveryFeed {
    /// Endpoints that DNS names.
    Dns(watch::Receiver<Findings<Vec<DiscoveredEndpoint>>>),
    /// Text of a file.
    File(watch::Receiver<Findings<Arc<str>>>),
}

impl DiscoveryFeed {
    fn state(&self) -> SourceState {
        match self {
            Self::Dns(feed) => feed.borrow().state.clone(),
            Self::File(feed) => feed.borrow().state.clone(),
        }
    }
}

impl DiscoveryWatch {
    /// Returns the state at `now`, for operators.
    pub(crate) fn overview(&self, now: Instant) -> DiscoveryOverview {
        let state = self.state();
        let age = state.answered_at.map(|at| now.duration_since(at).as_millis());
        DiscoveryOverview {
            name: self.name.clone(),
            source: self.source.clone(),
            state: self.phase(&state, now).as_str().to_owned(),
            replicas: u32::try_from(self.replicas).unwrap_or(u32::MAX),
            answered_ms: age.map(|age| u64::try_from(age).unwrap_or(u64::MAX)),
            failure: state.failure,
        }
    }

    /// Returns the state at `now`, for metrics.
    pub(crate) fn live(&self, now: Instant) -> LiveDiscovery {
        let state = self.state();
        let phase = self.phase(&state, now);
        LiveDiscovery {
            name: self.name.clone(),
            phases: SourcePhase::ALL.map(|it| (it.as_str(), it == phase)).into(),
            replicas: self.replicas as u64,
            answer_age_s: state.answered_at.map(|at| now.duration_since(at).as_secs_f64()),
        }
    }

    fn state(&self) -> SourceState {
        let mut state = self.feed.state();
        state.failure = state.failure.or_else(|| self.failure.clone());
        state
    }

    fn phase(&self, state: &SourceState, now: Instant) -> SourcePhase {
        // A file that can be read and makes no sense was never a good answer, however young it is.
        match state.phase(now) {
            _ if self.failure.is_some() => SourcePhase::Stale,
            SourcePhase::Answered if self.is_empty => SourcePhase::Empty,
            phase => phase,
        }
    }
}
