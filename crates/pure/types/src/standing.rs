//! Standing of a replica: which requests it may get.

use std::time::Instant;

use crate::ModelName;

/// Full share of a replica's weight, in permille.
pub const RAMP_FULL: u16 = 1000;

/// Share of its weight, in permille, that a replica gets for a model whose circuit breaker is half
/// open: enough to show that the model works again, and few requests to lose if it does not.
const TRIAL_PERMILLE: u16 = 50;

/// Standing of a replica now. The nodes of its own region decide it; the router reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Admission of new requests.
    pub admission: Admission,
    /// Share of the replica's weight that counts, 1 to [`RAMP_FULL`]; less than full during slow
    /// start.
    pub ramp_permille: u16,
    /// Models whose circuit breaker is not closed, by name.
    pub models: Vec<(ModelName, ModelStanding)>,
    /// End of the time that the replica asked to be left alone; only with [`Admission::Busy`].
    pub busy_until: Option<Instant>,
}

/// Admission of new requests at a replica, best first. A group uses only the replicas of the best
/// tier it has, so that requests go on being served when all replicas look bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Admission {
    /// The replica takes requests.
    Open,
    /// Kept in reserve until it is needed.
    Standby,
    /// Outlier ejection: requests failed there, and it is left out for a while.
    Ejected,
    /// Not ready for requests yet: loading or warming up.
    Starting,
    /// Independent signals agree that the replica is down.
    Down,
    /// The replica asked to be left alone for a while. Never used before that time ends, even if
    /// all ask.
    Busy,
    /// The replica finishes what it has and gets nothing more, whatever the other replicas do.
    Draining,
}

/// Known cause for which a replica is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DownCause {
    /// The replica does not answer, and that is all. It may be busy: an event loop that is blocked
    /// for some seconds keeps its requests and caches, and goes on afterwards.
    Silence,
    /// The replica refuses or breaks connections, or says that it fails. Its requests and caches
    /// are lost.
    Failure,
}

/// State of a replica's circuit breaker for one model, if not closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ModelStanding {
    /// Open: no requests.
    Open,
    /// Half open: a small share of requests, to see if the model works again.
    Trial,
}

impl Standing {
    /// Standing of a healthy replica at its full share.
    pub const FULL: Self = Self {
        admission: Admission::Open,
        ramp_permille: RAMP_FULL,
        models: Vec::new(),
        busy_until: None,
    };

    /// Returns the admission for requests of `model`, and the share of the weight that counts for
    /// them in permille.
    #[must_use]
    pub fn for_model(&self, model: Option<&ModelName>) -> (Admission, u16) {
        let (admission, share) = (self.admission, self.ramp_permille);
        match self.models.iter().find(|(name, _)| Some(name) == model) {
            // An open breaker counts like an ejection, unless the replica stands even worse.
            Some((_, ModelStanding::Open)) => (admission.max(Admission::Ejected), share),
            // A replica in slow start may have an even smaller share.
            Some((_, ModelStanding::Trial)) => (admission, share.min(TRIAL_PERMILLE)),
            None => (admission, share),
        }
    }
}

impl Default for Standing {
    fn default() -> Self {
        Self::FULL
    }
}

impl Admission {
    /// Returns the name in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Standby => "standby",
            Self::Ejected => "ejected",
            Self::Starting => "starting",
            Self::Down => "down",
            Self::Busy => "busy",
            Self::Draining => "draining",
        }
    }

    /// Returns true if the replica may be used when no better one is there.
    #[must_use]
    pub fn is_last_resort(self) -> bool {
        matches!(self, Self::Standby | Self::Ejected | Self::Starting | Self::Down)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_breaker_concerns_its_model_only_and_makes_nothing_better() {
        let models = vec![("a".into(), ModelStanding::Open), ("b".into(), ModelStanding::Trial)];
        let open = Standing { models, ..Standing::FULL };
        let down = Standing { admission: Admission::Down, ramp_permille: 20, ..open.clone() };
        let of = |standing: &Standing, model: &str| standing.for_model(Some(&model.into()));
        assert_eq!(of(&open, "a"), (Admission::Ejected, RAMP_FULL));
        assert_eq!(of(&open, "b"), (Admission::Open, TRIAL_PERMILLE));
        assert_eq!(of(&open, "c"), (Admission::Open, RAMP_FULL));
        assert_eq!(open.for_model(None), (Admission::Open, RAMP_FULL));
        assert_eq!(of(&down, "a"), (Admission::Down, 20));
        assert_eq!(of(&down, "b"), (Admission::Down, 20));
    }
}
