//! Properties of requests by which splits choose arms.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Property of a request by which a split chooses the request's arm.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SplitBy {
    /// `random`: chance.
    #[default]
    Random,
    /// `header:NAME`: the first value of a header. The name is in lower case.
    Header(String),
    /// `cookie:NAME`: the value of a cookie.
    Cookie(String),
    /// `user`: the field of that name in the JSON body.
    User,
}

/// Error of a text that is no property to split by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownSplitByError(String);

impl fmt::Display for UnknownSplitByError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = &self.0;
        write!(f, "can't split by {text:?}, expected random, user, header:NAME or cookie:NAME")
    }
}

impl std::error::Error for UnknownSplitByError {}

impl FromStr for SplitBy {
    type Err = UnknownSplitByError;

    fn from_str(text: &str) -> Result<Self, UnknownSplitByError> {
        let parsed = match text.split_once(':') {
            None if text == "random" => Some(Self::Random),
            None if text == "user" => Some(Self::User),
            Some(("header", name)) if is_token(name) => {
                Some(Self::Header(name.to_ascii_lowercase()))
            }
            Some(("cookie", name)) if is_token(name) => Some(Self::Cookie(name.to_owned())),
            _ => None,
        };
        parsed.ok_or_else(|| UnknownSplitByError(text.to_owned()))
    }
}

impl fmt::Display for SplitBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Random => f.write_str("random"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
            Self::User => f.write_str("user"),
        }
    }
}

/// Returns true if `name` can name a header or a cookie: both are tokens of HTTP (RFC 9110, 5.6.2).
#[must_use]
pub fn is_token(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read_and_written_and_nothing_else_is_read() {
        let parse = |text: &str| text.parse::<SplitBy>();
        assert_eq!(parse("random"), Ok(SplitBy::Random));
        assert_eq!(parse("user"), Ok(SplitBy::User));
        assert_eq!(parse("header:X-User"), Ok(SplitBy::Header("x-user".to_owned())));
        assert_eq!(parse("cookie:Id"), Ok(SplitBy::Cookie("Id".to_owned())));
        for text in ["random", "user", "header:x-user", "cookie:Id"] {
            assert_eq!(parse(text).map(|by| by.to_string()), Ok(text.to_owned()));
        }
        for text in ["", "Random", "header", "header:", "header:a b", "cookie:", "cookie:a=b"] {
            assert_eq!(parse(text), Err(UnknownSplitByError(text.to_owned())));
        }
    }
}
