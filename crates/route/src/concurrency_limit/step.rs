//! By how much a limit is raised.

/// The share of a limit that is added to it the next time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    /// Nothing but room was seen yet: the limit doubles, or the throughput of a large replica would
    /// suffer for long.
    // Search => Careful
    Search,
    /// More was too much before. Where there is room for long all the same, it grows faster.
    // Careful => Careful
    Careful(f32),
}

impl Step {
    pub(super) fn search() -> Self {
        Self::Search
    }

    pub(super) fn is_search(self) -> bool {
        self == Self::Search
    }

    /// There is, or nearly is, too much.
    pub(super) fn shorten(&mut self) {
        *self = Self::Careful(SHARE_MIN);
    }

    /// The share now; the next one is larger.
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

/// Doubles in about four seconds, at three steps a second.
const SHARE_MIN: f32 = 1.0 / 16.0;

/// As much as may wait in the replica for a moment without harm.
const SHARE_MAX: f32 = 0.25;

/// Four steps to the longest.
const GROWTH: f32 = 1.4;
