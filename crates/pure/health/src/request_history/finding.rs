//! The rule by which failing requests are trouble, and not chance or a burst.

use super::RequestCause;

/// Bins of a short span, and of a long one: 35 s and, for quiet nodes, almost six minutes.
const SHORT: Span = Span { groups: 7, bins: 1 };
const LONG: Span = Span { groups: 7, bins: 10 };
/// Groups of a span that must be bad. A burst of ten seconds lies in three bins at most.
const BAD_GROUPS_MIN: usize = 4;
/// Number of bad requests from which on a group is bad, and the share from which on a single one
/// makes it bad: one of many is chance.
const GROUP_BAD_MIN: u32 = 2;
const GROUP_SHARE_MIN: f64 = 0.1;
/// Share of bad requests that a customer notices. Below it, requests fail in any large system.
const SHARE_MAX: f64 = 0.01;
/// Standard deviations by which the share must be above that. Three leave one false alarm in 700
/// looks at a share of just one percent, and next to none at half of it.
const DEVIATIONS: f64 = 3.0;

/// Trouble with requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestTrouble {
    /// Requests fail after they were admitted.
    Failing,
    /// Requests are refused for lack of room.
    Refused,
}

/// A finding about the requests of the last half minute, or of the last minutes of a quiet node.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestFinding {
    /// Kind of trouble.
    pub trouble: RequestTrouble,
    /// Share of the requests with this trouble, 0 to 1.
    pub share: f64,
    /// Same share in the hour before the trouble began, or in the part of it that is known; `None`
    /// if nothing was counted.
    pub usual: Option<f64>,
    /// Causes, each with its share of those requests, the most frequent first.
    pub causes: Vec<(RequestCause, f64)>,
}

/// Requests of a bin, and those of them that are bad.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BadShare {
    bad: u32,
    all: u32,
}

/// A span of bins in groups.
#[derive(Clone, Copy, Debug)]
struct Span {
    groups: usize,
    bins: usize,
}

/// State of one kind of trouble.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Finder(Option<Found>);

/// Trouble that was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    /// Share of bad requests over the span in which it shows.
    pub(super) share: f64,
    /// Bins of that span.
    pub(super) bins: usize,
    /// Share before the trouble began; `None` if nothing was counted before.
    pub(super) usual: Option<f64>,
}

impl Finder {
    /// Returns the trouble; `None` without any.
    pub(super) fn state(self) -> Option<Found> {
        self.0
    }

    /// Looks at complete bins, the newest first. `usual` returns the share before so many of them.
    ///
    /// Trouble begins when it is sure, and ends when the short span has one bad bin at most and the
    /// long one does not show it: what fails now and then does not come and go.
    pub(super) fn look(&mut self, bins: &[BadShare], usual: impl Fn(usize) -> Option<f64>) {
        let (short, long) = (SHORT.of(bins), LONG.of(bins));
        let (span, groups) = match self.0 {
            _ if is_sure(&short) => (SHORT, short),
            _ if is_sure(&long) => (LONG, long),
            Some(_) if bad_groups(&short) > 1 => (SHORT, short),
            _ => {
                self.0 = None;
                return;
            }
        };
        let bins = span.groups * span.bins;
        let usual = self.0.map_or_else(|| usual(bins), |found| found.usual);
        self.0 = Some(Found { share: sum(&groups).share(), bins, usual });
    }
}

impl BadShare {
    pub(super) fn of(bad: u32, all: u32) -> Self {
        Self { bad, all }
    }

    fn is_bad(self) -> bool {
        self.bad >= GROUP_BAD_MIN
            || (self.bad > 0 && f64::from(self.bad) >= GROUP_SHARE_MIN * f64::from(self.all))
    }

    fn plus(self, other: Self) -> Self {
        Self { bad: self.bad.saturating_add(other.bad), all: self.all.saturating_add(other.all) }
    }

    fn share(self) -> f64 {
        f64::from(self.bad) / f64::from(self.all.max(1))
    }

    /// Returns the lower bound of the share behind the sample, by the Wilson score interval.
    fn share_at_least(self) -> f64 {
        let (n, z2) = (f64::from(self.all.max(1)), DEVIATIONS * DEVIATIONS);
        let share = self.share();
        let middle = share + z2 / (2.0 * n);
        let spread = DEVIATIONS * (share * (1.0 - share) / n + z2 / (4.0 * n * n)).sqrt();
        (middle - spread) / (1.0 + z2 / n)
    }
}

impl Span {
    fn of(self, bins: &[BadShare]) -> Vec<BadShare> {
        let groups = bins.chunks(self.bins).take(self.groups);
        groups
            .map(|group| group.iter().copied().fold(BadShare::default(), BadShare::plus))
            .collect()
    }
}

fn sum(groups: &[BadShare]) -> BadShare {
    groups.iter().copied().fold(BadShare::default(), BadShare::plus)
}

fn bad_groups(groups: &[BadShare]) -> usize {
    groups.iter().filter(|group| group.is_bad()).count()
}

fn is_sure(groups: &[BadShare]) -> bool {
    bad_groups(groups) >= BAD_GROUPS_MIN && sum(groups).share_at_least() > SHARE_MAX
}
