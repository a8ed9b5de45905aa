//! Fuzz targets for cookies of clients and replies of replicas.

use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderValue};
use spillway_prefix::{PrefixConfig, PrefixHasher};
use spillway_view::{SessionChange, SessionSpec, SessionTarget, Sessions};

use crate::request::fuzz::retry_after_header;

/// A fuzz target: the name of its folder of inputs, and the function that runs one input.
pub type Target = (&'static str, fn(&[u8]));

/// All fuzz targets of this crate.
pub const TARGETS: &[Target] =
    &[("session_cookie", session_cookie), ("retry_after_header", retry_after_header)];

/// Asserts that a cookie leads only to a replica that it names in full, and that the cookie set in
/// the reply leads back to that replica.
fn session_cookie(input: &[u8]) {
    const REPLICA: u64 = 0x1234_5678_9abc_def0;
    let Ok(hasher) = PrefixHasher::new([1, 2, 3, 4], PrefixConfig::default()) else { return };
    let max_age = Duration::from_secs(60);
    let sessions = Sessions::new(SessionSpec::Cookie { name: "home".to_owned(), max_age });
    let find = |value: &[u8]| {
        let mut headers = HeaderMap::new();
        headers.append("cookie", HeaderValue::from_bytes(value).ok()?);
        Some(sessions.find(&headers, (None, None), &hasher, |target| target == REPLICA))
    };
    let Some(found) = find(input) else { return };
    if found.target.is_some() {
        let name = format!("{REPLICA:016x}");
        let lower = input.to_ascii_lowercase();
        let is_named = lower.windows(name.len()).any(|part| part == name.as_bytes());
        assert!(is_named, "a session of a replica that no cookie names");
    }
    let target = SessionTarget::Replica(REPLICA);
    if let Some(SessionChange::Cookie(set)) = sessions.replied(&found, target, &[], Instant::now())
    {
        assert!(set.value.len() <= 128, "a cookie of {} bytes", set.value.len());
        let back = find(format!("home={}", set.value).as_bytes());
        assert_eq!(back.and_then(|back| back.target), Some(REPLICA));
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn targets_hold_on_kept_inputs_and_on_mutations_of_them() {
        spillway_fuzz::check(super::TARGETS);
    }
}
