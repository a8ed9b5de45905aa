//! Names that can be looked up.

use std::net::IpAddr;

use hickory_resolver::proto::rr::Name;

/// Longest label, in bytes (RFC 1035, section 2.3.4).
const LABEL_BYTES_MAX: usize = 63;
/// Longest name, in bytes of text without the dot at its end: 255 bytes in a message.
const NAME_BYTES_MAX: usize = 253;

/// Reason for which a name can never be looked up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// There is no name.
    #[error("the name is empty")]
    Empty,
    /// Two dots follow each other, or the name begins with a dot.
    #[error("the name {0:?} has an empty label")]
    EmptyLabel(String),
    /// A label is too long.
    #[error("the label {0:?} has {len} bytes, and {LABEL_BYTES_MAX} is the maximum", len = .0.len())]
    LongLabel(String),
    /// The name is too long.
    #[error("the name has {0} bytes, and {NAME_BYTES_MAX} is the maximum")]
    LongName(usize),
    /// A character that no name of a host has.
    #[error("the name {name:?} has the character {character:?}")]
    Character {
        /// Name as given.
        name: String,
        /// First such character.
        character: char,
    },
    /// Four numbers that are no IPv4 address.
    #[error("{0:?} is no IPv4 address: each number is at most 255")]
    NoAddress(String),
    /// The name can't be converted to ASCII (IDNA).
    #[error("the name {0:?} has no form in ASCII")]
    NotAscii(String),
}

/// Checks that a host can be looked up; an address needs no look-up.
///
/// Labels may contain underscores anywhere: container networks give out such names.
///
/// # Errors
/// Returns the first fault.
pub fn check_name(host: &str) -> Result<(), NameError> {
    if host.parse::<IpAddr>().is_ok() {
        return Ok(());
    }
    dns_name(host).map(drop)
}

/// Returns a name in the form of DNS messages; it is relative unless it ends with a dot.
///
/// # Errors
/// Returns the first fault.
pub fn dns_name(host: &str) -> Result<Name, NameError> {
    let text = host.strip_suffix('.').unwrap_or(host);
    if text.is_empty() {
        return Err(NameError::Empty);
    }
    if let Some(character) = text.chars().find(|character| !is_of_names(*character)) {
        return Err(NameError::Character { name: host.to_owned(), character });
    }
    let labels: Vec<&str> = text.split('.').collect();
    if labels.iter().any(|label| label.is_empty()) {
        return Err(NameError::EmptyLabel(host.to_owned()));
    }
    let is_number = |label: &&str| label.bytes().all(|byte| byte.is_ascii_digit());
    if labels.len() == 4 && labels.iter().all(is_number) {
        return Err(NameError::NoAddress(host.to_owned()));
    }
    if !text.is_ascii() {
        return Name::from_utf8(host).map_err(|_| NameError::NotAscii(host.to_owned()));
    }
    if let Some(long) = labels.iter().find(|label| label.len() > LABEL_BYTES_MAX) {
        return Err(NameError::LongLabel((*long).to_owned()));
    }
    if text.len() > NAME_BYTES_MAX {
        return Err(NameError::LongName(text.len()));
    }
    // As raw labels: the rules of host names forbid underscores, and hyphens at the ends.
    let name = Name::from_labels(labels.iter().map(|label| label.as_bytes()));
    let mut name = name.map_err(|_| NameError::LongName(text.len()))?;
    name.set_fqdn(host.ends_with('.'));
    Ok(name)
}

/// Returns true for characters of names: those of host names, the underscore, and all beyond ASCII
/// that are no white space, which IDNA judges.
fn is_of_names(character: char) -> bool {
    match character {
        '-' | '_' | '.' => true,
        character if character.is_ascii() => character.is_ascii_alphanumeric(),
        character => !character.is_whitespace() && !character.is_control(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_hosts_services_and_containers_can_be_looked_up() {
        let long = "a".repeat(63);
        let longest = [long.as_str(), &long, &long, &"a".repeat(61)].join(".");
        for name in [
            "localhost",
            "gpu-1.example.com",
            "gpu-1.example.com.",
            "tasks.stack_worker",
            "_http._tcp.my_workers.internal.",
            "-odd-",
            "4b1d7c0e2f9a",
            "10.0.0",
            "127.0.0.1",
            "fe80::1",
            "bücher.example",
            &long,
            &longest,
        ] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn names_that_can_never_be_asked_for_are_refused() {
        let label = "a".repeat(64);
        let name = [&label[1..]; 5].join(".");
        let character =
            |name: &str, character| NameError::Character { name: name.into(), character };
        for (name, fault) in [
            ("", NameError::Empty),
            (".", NameError::Empty),
            ("a..b", NameError::EmptyLabel("a..b".into())),
            (".a", NameError::EmptyLabel(".a".into())),
            ("a..", NameError::EmptyLabel("a..".into())),
            (&label, NameError::LongLabel(label.clone())),
            (&name, NameError::LongName(319)),
            ("gpu 1", character("gpu 1", ' ')),
            ("gpu\u{a0}1", character("gpu\u{a0}1", '\u{a0}')),
            ("*.example.com", character("*.example.com", '*')),
            ("a/b", character("a/b", '/')),
            ("10.0.0.256", NameError::NoAddress("10.0.0.256".into())),
            ("1234.5.6.7", NameError::NoAddress("1234.5.6.7".into())),
        ] {
            assert_eq!(check_name(name), Err(fault), "{name:?}");
        }
        let unconvertible = format!("{}.example", "ü".repeat(70));
        assert!(matches!(check_name(&unconvertible), Err(NameError::NotAscii(_))));
    }
}
