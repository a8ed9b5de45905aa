//! Early refusal: a replica is free but is predicted to miss the service-level objective (SLO).

use spillway_types::Prediction;

/// Least trust in a replica's speed with which its predictions may refuse a request: the trust that
/// is left of four replies, however old they are. A mere guess refuses no request.
const TRUST_MIN: f32 = 0.02;

/// Time that a request has left, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeLeft {
    /// Time until the first token has to come, by the objective of the route; `None` without one.
    pub objective_ms: Option<f32>,
    /// Time until the client's deadline: for the first token of a stream, which the client reads from
    /// then on, and for the end of a reply in one piece.
    pub deadline_ms: f32,
}

/// Returns the predicted milliseconds until the first token, or until the end of a reply in one
/// piece, whichever comes too late; `None` if all comes in time or the time is unknown. `trust` is
/// the trust in the replica's speed.
#[must_use]
pub fn late_ms(prediction: Option<Prediction>, trust: f32, left: TimeLeft) -> Option<f32> {
    let Prediction { first_token_ms, rest_ms, .. } = prediction?;
    let ready_ms = first_token_ms + rest_ms;
    if !is_known(trust) || !ready_ms.is_finite() {
        None
    } else if ready_ms > left.deadline_ms {
        Some(ready_ms)
    } else {
        let is_slow = left.objective_ms.is_some_and(|objective_ms| first_token_ms > objective_ms);
        is_slow.then_some(first_token_ms)
    }
}

/// Returns true if a speed is known well enough to refuse a request by it.
#[must_use]
pub fn is_known(trust: f32) -> bool {
    trust >= TRUST_MIN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_prediction_that_was_learned_makes_a_request_late() {
        let of = |first_token_ms| Some(Prediction { first_token_ms, ..Prediction::default() });
        let left = |deadline_ms| TimeLeft { objective_ms: None, deadline_ms };
        assert_eq!(late_ms(of(2_171.0), 0.5, left(400.0)), Some(2_171.0));
        assert_eq!(late_ms(of(2_171.0), 0.02, left(400.0)), Some(2_171.0), "learned long ago");
        assert_eq!(late_ms(of(2_171.0), 0.0, left(400.0)), None, "a guess");
        assert_eq!(late_ms(of(400.0), 0.5, left(400.0)), None, "just in time");
        assert_eq!(late_ms(None, 1.0, left(400.0)), None, "the policy predicts nothing");
        assert_eq!(late_ms(of(f32::NAN), 1.0, left(400.0)), None);
        let passed = TimeLeft { objective_ms: Some(-5.0), deadline_ms: 400.0 };
        assert_eq!(late_ms(of(1.0), 1.0, passed), Some(1.0), "the objective has passed");
    }

    #[test]
    fn a_deadline_is_for_all_of_a_reply_in_one_piece_and_an_objective_for_its_first_token() {
        let late = |rest_ms, objective_ms, deadline_ms| {
            let prediction = Prediction { first_token_ms: 100.0, rest_ms, ..Prediction::default() };
            late_ms(Some(prediction), 0.5, TimeLeft { objective_ms, deadline_ms })
        };
        assert_eq!(late(0.0, None, 1_500.0), None, "a stream");
        assert_eq!(late(4_500.0, None, 1_500.0), Some(4_600.0));
        assert_eq!(late(4_500.0, None, 5_000.0), None);
        assert_eq!(late(4_500.0, Some(200.0), 5_000.0), None);
        assert_eq!(late(4_500.0, Some(50.0), 5_000.0), Some(100.0));
        assert_eq!(
            late(4_500.0, Some(50.0), 1_500.0),
            Some(4_600.0),
            "even the deadline is missed"
        );
    }
}
