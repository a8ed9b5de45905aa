//! Numbers as every engine reads them.

use serde_json::value::RawValue;

/// A JSON value where a whole number is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    /// Null, which is the same as nothing.
    None,
    /// A whole number that is not negative.
    Some(u32),
    /// A negative whole number; some engines take it for "without limit".
    Negative,
    /// Anything else: text, a fraction, an exponent, a number of more than 32 bits.
    Other,
}

/// Reads a value as a whole number.
pub(crate) fn number(raw: &RawValue) -> Number {
    let text = raw.get();
    let is_whole = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    match text.strip_prefix('-') {
        _ if text == "null" => Number::None,
        Some(digits) if is_whole(digits) => Number::Negative,
        Some(_) => Number::Other,
        None if is_whole(text) => text.parse().map_or(Number::Other, Number::Some),
        None => Number::Other,
    }
}
