//! Early refusal: a replica is free but is predicted to miss the service-level objective (SLO).

use spillway_types::Prediction;

/// Least trust in a replica's speed with which its predictions may refuse a request: the trust that
/// is left of four replies, however old they are. A mere guess refuses no request.
const TRUST_MIN: f32 = 0.02;

/// Returns the predicted milliseconds until the first token if they exceed `left_ms`, the time that
/// the request has left; `None` if the token comes in time or the time is unknown. `trust` is the
/// trust in the replica's speed.
#[must_use]
pub fn late_ms(prediction: Option<Prediction>, trust: f32, left_ms: f32) -> Option<f32> {
    let first_token_ms = prediction?.first_token_ms;
    let is_known = trust >= TRUST_MIN && first_token_ms.is_finite();
    (is_known && first_token_ms > left_ms).then_some(first_token_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_prediction_that_was_learned_makes_a_request_late() {
        let of = |first_token_ms| Some(Prediction { first_token_ms, ..Prediction::default() });
        assert_eq!(late_ms(of(2_171.0), 0.5, 400.0), Some(2_171.0));
        assert_eq!(late_ms(of(2_171.0), 0.02, 400.0), Some(2_171.0), "learned long ago");
        assert_eq!(late_ms(of(2_171.0), 0.0, 400.0), None, "a guess");
        assert_eq!(late_ms(of(400.0), 0.5, 400.0), None, "just in time");
        assert_eq!(late_ms(None, 1.0, 400.0), None, "the policy predicts nothing");
        assert_eq!(late_ms(of(f32::NAN), 1.0, 400.0), None);
        assert_eq!(late_ms(of(1.0), 1.0, -5.0), Some(1.0), "the objective has passed");
    }
}
