//! What a replica may be given.

use std::time::Instant;

use crate::ModelName;

/// Full share of a replica's weight, in permille.
pub const RAMP_FULL: u16 = 1000;

/// Share of its weight that a replica gets for a model whose breaker is half open: enough to show
/// whether it works again, and few requests to lose if it does not.
const TRIAL_PERMILLE: u16 = 50;

/// What a replica may be given now. Decided by its own region's nodes, read by the router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Whether it takes new requests.
    pub admission: Admission,
    /// Share of its weight that counts, 1 to [`RAMP_FULL`]: less while it warms up.
    pub ramp_permille: u16,
    /// Models for which it stands differently from the rest, by name.
    pub models: Vec<(ModelName, ModelStanding)>,
    /// Until when it asked to be left alone; only while [`Admission::Busy`].
    pub busy_until: Option<Instant>,
}

/// Whether a replica takes new requests, best first. A group uses only the replicas of the best
/// tier it has, so that requests go on being served when all look bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Admission {
    /// It does.
    Open,
    /// Kept in reserve until it is needed.
    Standby,
    /// It failed requests and is left out for a while.
    Ejected,
    /// Not ready for requests yet: loading or warming up.
    Starting,
    /// Independent signals agree that it is down.
    Down,
    /// It asked to be left alone for a while. Never used before that, even if all ask.
    Busy,
    /// It finishes what it has and is to get nothing more, whatever the others do.
    Draining,
}

/// How a replica stands for one of its models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ModelStanding {
    /// The breaker is open: no requests.
    Open,
    /// The breaker is half open: a small share, to see whether it works again.
    Trial,
}

impl Standing {
    /// A healthy replica at its full share.
    pub const FULL: Self = Self {
        admission: Admission::Open,
        ramp_permille: RAMP_FULL,
        models: Vec::new(),
        busy_until: None,
    };

    /// Whether it takes requests for this model, and the share of its weight that counts for them.
    #[must_use]
    pub fn for_model(&self, model: Option<&ModelName>) -> (Admission, u16) {
        let (admission, share) = (self.admission, self.ramp_permille);
        match self.models.iter().find(|(name, _)| Some(name) == model) {
            Some((_, ModelStanding::Open)) => (admission.max(Admission::Ejected), share),
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
    /// Name as it stands in metrics.
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

    /// Whether it may be used when no better one is there.
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
