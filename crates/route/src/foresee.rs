//! Whether a replica that is free would still answer too late.

use spillway_types::Prediction;

/// Trust in a replica's speed from which on its predictions may turn a request away: what is left of
/// the trust in four replies however long ago they were. A guess that nothing was learned for
/// refuses nobody.
const TRUST_MIN: f32 = 0.02;

/// Milliseconds until the first token, if that is predicted to come later than the request has time,
/// `left_ms`; `None` if it comes in time, or if nobody knows. `trust` is that in the replica's speed.
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
