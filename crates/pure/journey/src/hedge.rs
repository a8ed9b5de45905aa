//! Choice between the two attempts of a hedged request.

use spillway_types::Hedge;

use crate::retry::StatusClass;

/// Result of one of two attempts at the same request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HedgeResult {
    /// A reply for the client: a success, or the client's own fault.
    Good,
    /// A failure, a refusal, or an error of the server.
    Bad,
}

impl HedgeResult {
    /// Judges an attempt by the HTTP status of its reply; `None` if no reply began.
    #[must_use]
    pub fn of(status: Option<u16>) -> Self {
        match status {
            Some(status @ ..500) if StatusClass::of(status) == StatusClass::Final => Self::Good,
            _ => Self::Bad,
        }
    }
}

/// Decides which attempt serves: the second if [`Hedge::Won`], else the first. `None` if the other
/// one has to be awaited.
#[must_use]
pub fn judge_hedge(first: Option<HedgeResult>, second: Option<HedgeResult>) -> Option<Hedge> {
    match (first, second) {
        // If both have begun, the first serves: the plan preferred it.
        (Some(HedgeResult::Good), None | Some(HedgeResult::Good)) => Some(Hedge::Lost),
        (None | Some(HedgeResult::Bad), Some(HedgeResult::Good)) => Some(Hedge::Won),
        // If both failed, the client gets the result of the first.
        (Some(_), Some(HedgeResult::Bad)) => Some(Hedge::Failed),
        (Some(HedgeResult::Bad), None) | (None, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::HedgeResult::{Bad, Good};
    use super::*;

    #[test]
    fn a_good_reply_serves_and_a_bad_one_waits_for_the_other() {
        for (first, second, expected) in [
            (None, None, None),
            (Some(Good), None, Some(Hedge::Lost)),
            (Some(Good), Some(Good), Some(Hedge::Lost)),
            (Some(Good), Some(Bad), Some(Hedge::Failed)),
            (Some(Bad), None, None),
            (None, Some(Bad), None),
            (None, Some(Good), Some(Hedge::Won)),
            (Some(Bad), Some(Good), Some(Hedge::Won)),
            (Some(Bad), Some(Bad), Some(Hedge::Failed)),
        ] {
            assert_eq!(judge_hedge(first, second), expected, "{first:?} {second:?}");
        }
    }

    #[test]
    fn refusals_and_errors_of_the_server_are_bad() {
        for (status, expected) in
            [(200, Good), (404, Good), (429, Bad), (500, Bad), (501, Bad), (503, Bad)]
        {
            assert_eq!(HedgeResult::of(Some(status)), expected, "{status}");
        }
        assert_eq!(HedgeResult::of(None), Bad);
    }
}
