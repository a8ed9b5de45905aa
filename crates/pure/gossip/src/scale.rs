//! Numbers as small codes: one byte on the wire for what is usual, three for the rest.
//!
//! Code 0 is "unknown" in every scale. A number is rounded to the nearest code:
//!
//! | scale | exact | error beyond | one byte up to |
//! |---|---|---|---|
//! | [`COUNT`] | whole numbers to 200 | 1 % | 527 |
//! | [`RATE`] | 0 | 2.5 % (from 0.01/s on) | 1,716/s |
//! | [`WAIT`] | 0 | 2.5 % (from 1 ms on) | 171 s |
//! | [`SHARE`] | – | 0.25 points | all |
//! | [`FINE`] | 0 | 2.5 % (from 0.0001 on) | 19 |

/// Numbers of requests and tokens.
pub(crate) const COUNT: Scale = Scale { exact_to: 200.0, step: 1.0, growth: 1.02, top: 1e9 };

/// Requests per second.
pub(crate) const RATE: Scale = Scale { exact_to: 0.01, step: 0.01, growth: 1.05, top: 1e9 };

/// Milliseconds to wait.
pub(crate) const WAIT: Scale = Scale { exact_to: 1.0, step: 1.0, growth: 1.05, top: 1e9 };

/// Shares from 0 to 1.
pub(crate) const SHARE: Scale = Scale { exact_to: 1.0, step: 0.005, growth: 1.02, top: 1.0 };

/// Milliseconds for one token, and other numbers that may be very small.
pub(crate) const FINE: Scale = Scale { exact_to: 1e-4, step: 1e-4, growth: 1.05, top: 1e6 };

/// Codes in even steps up to some number, and in even proportions beyond it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    exact_to: f32,
    step: f32,
    growth: f32,
    /// Larger numbers count as this.
    top: f32,
}

impl Scale {
    /// Returns the code of `value`. A value that is no number counts as the largest, never as idle.
    pub(crate) fn code(self, value: f32) -> u16 {
        let value = if value.is_nan() { self.top } else { value.clamp(0.0, self.top) };
        let steps = (value.min(self.exact_to) / self.step).round();
        let grown = (value.max(self.exact_to) / self.exact_to).ln() / self.growth.ln();
        // `as` saturates, and both are small and not negative.
        1 + steps as u16 + grown.round() as u16
    }

    /// Returns the code of a number that may be unknown; 0 for `None`.
    pub(crate) fn code_if_known(self, value: Option<f32>) -> u16 {
        value.map_or(0, |value| self.code(value))
    }

    /// Returns the number for a code; `None` for 0.
    pub(crate) fn value(self, code: u16) -> Option<f32> {
        let code = f32::from(code.checked_sub(1)?);
        let exact_codes = (self.exact_to / self.step).round();
        let value = if code <= exact_codes {
            code * self.step
        } else {
            self.exact_to * self.growth.powf(code - exact_codes)
        };
        Some(value.min(self.top))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn error_of(scale: Scale, value: f32) -> f32 {
        (scale.value(scale.code(value)).unwrap() - value).abs()
    }

    proptest! {
        #[test]
        fn errors_are_as_stated(value in 0.0_f32..1e6) {
            prop_assert!(error_of(COUNT, value) <= f32::max(0.5, 0.0101 * value));
            prop_assert!(error_of(RATE, value) <= f32::max(0.0051, 0.0252 * value));
            prop_assert!(error_of(WAIT, value) <= f32::max(0.51, 0.0252 * value));
        }

        #[test]
        fn shares_are_half_a_percent_apart(value in 0.0_f32..=1.0) {
            prop_assert!(error_of(SHARE, value) <= 0.002_51);
        }

        #[test]
        fn more_is_never_told_as_less(a in 0.0_f32..1e6, b in 0.0_f32..1e6) {
            for scale in [COUNT, RATE, WAIT] {
                prop_assert!((a <= b) == (scale.code(a) <= scale.code(b)) || scale.code(a) == scale.code(b));
            }
        }

        #[test]
        fn what_was_read_is_told_on_as_the_same(code in 1_u16..900) {
            prop_assert_eq!(COUNT.code(COUNT.value(code).unwrap()), code);
        }

        #[test]
        fn any_code_is_a_number(code in any::<u16>()) {
            for scale in [COUNT, RATE, WAIT, SHARE] {
                let value = scale.value(code);
                prop_assert!(value.is_none_or(|value| value.is_finite() && value >= 0.0));
            }
        }
    }

    #[test]
    fn small_counts_are_exact_and_short() {
        for count in 0..=200_u16 {
            assert_eq!(COUNT.value(COUNT.code(count.into())), Some(count.into()));
        }
        assert!(COUNT.code(527.0) <= 250 && COUNT.code(550.0) > 250);
        assert!(RATE.code(1_716.0) <= 250 && WAIT.code(171_000.0) <= 250);
    }

    #[test]
    fn the_unknown_stays_unknown_and_nonsense_is_not_idle() {
        assert_eq!(COUNT.value(0), None);
        assert_eq!(COUNT.code_if_known(None), 0);
        assert_eq!(COUNT.code(f32::NAN), COUNT.code(1e9));
        assert_eq!(COUNT.code(-1.0), COUNT.code(0.0));
        assert_eq!(SHARE.value(SHARE.code(7.0)), Some(1.0));
    }
}
