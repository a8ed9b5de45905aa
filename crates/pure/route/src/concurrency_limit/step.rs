//! Steps by which a limit is raised.

/// Share of a limit that the next raise adds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum LimitStep {
    /// No overload was seen yet: the limit doubles, or the throughput of a large replica would
    /// suffer for long.
    // Search => Careful
    Search,
    /// An overload was seen before. The share grows as long as there is room.
    // Careful => Careful
    Careful(f32),
}

impl LimitStep {
    pub(super) fn search() -> Self {
        Self::Search
    }

    pub(super) fn is_search(self) -> bool {
        self == Self::Search
    }

    /// Returns to the smallest share: the replica is overloaded, or nearly so.
    pub(super) fn shorten(&mut self) {
        *self = Self::Careful(SHARE_MIN);
    }

    /// Returns the present share, and makes the next one larger.
    pub(super) fn take(&mut self) -> f32 {
        match *self {
            Self::Search => 1.0,
            Self::Careful(share) => {
                *self = Self::Careful((share * GROWTH).min(SHARE_MAX));
                share
            }
        }
    }
}

/// Smallest share: the limit doubles in about four seconds, at three steps a second.
const SHARE_MIN: f32 = 1.0 / 16.0;

/// Largest share: that many requests may wait in the replica for a moment without harm.
const SHARE_MAX: f32 = 0.25;

/// Growth of the share: four steps from the smallest to the largest.
const GROWTH: f32 = 1.4;
