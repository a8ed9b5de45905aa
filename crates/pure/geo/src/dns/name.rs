//! Names of a zone as a config writes them.

use std::fmt;

use hickory_proto::rr::Name;

/// Domain name, absolute and in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZoneName(Name);

/// Error: a text is no domain name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no domain name")]
pub struct NameError {
    text: String,
}

impl ZoneName {
    /// Parses a host name: labels of letters, digits, hyphens and underscores, with or without a
    /// dot at the end.
    ///
    /// # Errors
    /// Returns an error if `text` is no host name, or the root alone.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let fault = || NameError { text: text.to_owned() };
        let is_plain =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let labels = text.strip_suffix('.').unwrap_or(text);
        let are_whole = labels.split('.').all(|label| !label.is_empty());
        if !are_whole || !text.bytes().all(is_plain) {
            return Err(fault());
        }
        let name = Name::from_ascii(labels).map_err(|_| fault())?;
        // The dot at the end takes a byte more than hickory counts for a relative name.
        let mut name = name.to_lowercase();
        name.set_fqdn(true);
        Ok(Self(name))
    }

    /// Parses a name relative to a zone: `@` is the zone itself; any other text gets the zone
    /// appended.
    ///
    /// # Errors
    /// Returns an error if `text` ends in a dot, or if the result is no host name.
    pub fn within(text: &str, zone: &Self) -> Result<Self, NameError> {
        if text == "@" {
            return Ok(zone.clone());
        }
        let fault = NameError { text: text.to_owned() };
        match text.strip_suffix('.') {
            None => Self::parse(&format!("{text}.{}", zone.0)),
            Some(_) => Err(fault),
        }
    }

    /// Returns true if this name is `zone` or below it.
    #[must_use]
    pub fn is_within(&self, zone: &Self) -> bool {
        zone.0.zone_of(&self.0)
    }

    pub(crate) fn name(&self) -> &Name {
        &self.0
    }
}

impl fmt::Display for ZoneName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_absolute_and_in_lower_case() {
        let name = ZoneName::parse("Infer.Example.com").unwrap();
        assert_eq!(name.to_string(), "infer.example.com.");
        assert_eq!(ZoneName::parse("infer.example.com.").unwrap(), name);
        let below = ZoneName::within("_acme-challenge", &name).unwrap();
        assert_eq!(below.to_string(), "_acme-challenge.infer.example.com.");
        assert_eq!(ZoneName::within("@", &name).unwrap(), name);
        assert!(below.is_within(&name) && name.is_within(&name) && !name.is_within(&below));
    }

    #[test]
    fn what_is_no_name_is_refused() {
        let long_label = format!("{}.com", "a".repeat(64));
        let long_name = vec!["a".repeat(60); 5].join(".");
        for text in ["", ".", "a..b", ".a", "a b", "a\\.b", "ä.de", &long_label, &long_name] {
            assert!(ZoneName::parse(text).is_err(), "{text:?}");
        }
        let zone = ZoneName::parse("a.b").unwrap();
        assert!(ZoneName::within("ns1.", &zone).is_err());
        assert!(ZoneName::within("", &zone).is_err());
    }
}
