//! Numbers, read in a way that all engines agree on.

/// JSON value in the place of a whole number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    /// Null, which counts as absent.
    None,
    /// Whole number that is not negative.
    Some(u32),
    /// Negative whole number; some engines take it for "without limit".
    Negative,
    /// Any other value: text, a fraction, an exponent, a number of more than 32 bits.
    Other,
}

/// Reads a value as a whole number.
pub(crate) fn number(text: &str) -> Number {
    let is_whole = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    match text.strip_prefix('-') {
        _ if text == "null" => Number::None,
        Some(digits) if is_whole(digits) => Number::Negative,
        // A negative fraction, or a negative number with an exponent.
        Some(_) => Number::Other,
        None if is_whole(text) => text.parse().map_or(Number::Other, Number::Some),
        None => Number::Other,
    }
}
