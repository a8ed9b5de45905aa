//! Numbers and flags, read as engines read them.
//!
//! Engines on FastAPI convert text and fractions without remainder (pydantic's lax mode). Others refuse
//! them, or take the default.

/// JSON value in the place of a whole number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    /// Null, which counts as absent.
    None,
    /// Whole number that is not negative; larger numbers become the largest of 32 bits.
    Some(u32),
    /// Number that some engines convert to this one: text, or a number with point or exponent. Others
    /// may ignore it.
    Converted(u32),
    /// Negative number; some engines take it for "without limit".
    Negative,
    /// Any other value.
    Other,
}

/// Reads a value as a whole number.
pub(crate) fn number(json: &str) -> Number {
    if json == "null" {
        return Number::None;
    }
    if !json.is_empty() && json.bytes().all(|byte| byte.is_ascii_digit()) {
        return Number::Some(json.parse().unwrap_or(u32::MAX));
    }
    converted(json)
}

#[cold]
fn converted(json: &str) -> Number {
    let text = text_of(json);
    let number = match &*text {
        "true" => 1.0,
        "false" => 0.0,
        text => text.trim().replace('_', "").parse().unwrap_or(f64::NAN),
    };
    match number {
        number if number < 0.0 => Number::Negative,
        // Saturates. A fraction is refused by most engines, and none makes more of it.
        number if number >= 0.0 => Number::Converted(number.ceil() as u32),
        _ => Number::Other,
    }
}

/// Reads a value as a flag; `None` if it is null, or nothing that an engine converts to a flag.
pub(crate) fn flag(json: &str) -> Option<bool> {
    match json {
        "true" => Some(true),
        "false" => Some(false),
        "null" => None,
        _ => converted_flag(json),
    }
}

#[cold]
fn converted_flag(json: &str) -> Option<bool> {
    const TRUE: [&str; 6] = ["1", "1.0", "t", "y", "on", "yes"];
    const FALSE: [&str; 6] = ["0", "0.0", "f", "n", "off", "no"];
    let text = text_of(json).to_ascii_lowercase();
    let is_in = |words: [&str; 6]| words.contains(&&*text);
    match &*text {
        "true" => Some(true),
        "false" => Some(false),
        _ if is_in(TRUE) => Some(true),
        _ => is_in(FALSE).then_some(false),
    }
}

/// Returns the text of a JSON string, and any other JSON as it is.
fn text_of(json: &str) -> String {
    serde_json::from_str(json).unwrap_or_else(|_| json.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_pydantic_converts_them() {
        for (json, expected) in [
            ("null", Number::None),
            ("8", Number::Some(8)),
            ("1000000000000", Number::Some(u32::MAX)),
            ("8.0", Number::Converted(8)),
            ("8.5", Number::Converted(9)),
            ("1e3", Number::Converted(1_000)),
            ("1e400", Number::Converted(u32::MAX)),
            ("Infinity", Number::Converted(u32::MAX)),
            ("\"8\"", Number::Converted(8)),
            ("\" +1_000 \"", Number::Converted(1_000)),
            ("\"\\u0038\"", Number::Converted(8)),
            ("true", Number::Converted(1)),
            ("false", Number::Converted(0)),
            ("-1", Number::Negative),
            ("-0.5", Number::Negative),
            ("\"-1\"", Number::Negative),
            ("-Infinity", Number::Negative),
            ("NaN", Number::Other),
            ("\"\"", Number::Other),
            ("\"eight\"", Number::Other),
            ("[5]", Number::Other),
            ("{}", Number::Other),
        ] {
            assert_eq!(number(json), expected, "{json}");
        }
    }

    #[test]
    fn flags_are_read_as_pydantic_converts_them() {
        for json in
            ["true", "1", "1.0", "\"1\"", "\"true\"", "\"TRUE\"", "\"on\"", "\"Yes\"", "\"t\""]
        {
            assert_eq!(flag(json), Some(true), "{json}");
        }
        for json in ["false", "0", "0.0", "\"0\"", "\"False\"", "\"off\"", "\"n\"", "\"\\u006eo\""]
        {
            assert_eq!(flag(json), Some(false), "{json}");
        }
        for json in ["null", "2", "-1", "\"maybe\"", "\" true\"", "[]", "{}", "NaN"] {
            assert_eq!(flag(json), None, "{json}");
        }
    }
}
