//! Fuzz targets of messages from other nodes.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::homes::check_message;
use super::names::read_list;
use super::residency::{put, take};

/// Checks that the header never allows a region that it does not name, and survives being passed
/// on.
///
/// Each line of the input is one header, since a peer may send several.
pub(crate) fn residency_header(input: &[u8]) {
    let name = HeaderName::from_static("x-spillway-residency");
    let mut headers = HeaderMap::new();
    for line in input.split(|byte| *byte == b'\n') {
        if let Ok(value) = HeaderValue::from_bytes(line) {
            headers.append(&name, value);
        }
    }
    if headers.is_empty() {
        return;
    }
    let germany = "DE".parse().ok();
    let lines: Vec<HeaderValue> = headers.get_all(&name).iter().cloned().collect();
    let residency = take(&mut headers);
    assert!(headers.is_empty(), "replicas would see the header");
    for line in lines {
        let mut alone = HeaderMap::new();
        alone.insert(&name, line.clone());
        // Every line counts: none may allow what another one forbids.
        let told = take(&mut alone);
        for (region, country) in [("eu", None), ("us", None), ("eu", germany), ("us", germany)] {
            let is_widened =
                residency.may_serve(region, country) && !told.may_serve(region, country);
            assert!(!is_widened, "{line:?} forbids {region}");
        }
        for part in line.to_str().unwrap_or_default().split(';') {
            let only = part.strip_prefix("regions=").map(|names| names.split(','));
            let mut names = only.into_iter().flatten();
            let is_named = names.any(|name| name == "eu");
            let is_rule = part.starts_with("regions=");
            assert!(!is_rule || is_named || !residency.may_serve("eu", None), "{part:?}");
        }
    }
    let mut again = HeaderMap::new();
    if put(&residency, &mut again).is_ok() {
        assert_eq!(take(&mut again), residency);
    }
}

/// Checks that homes from another node keep their meaning when they are sent on.
pub(crate) fn homes_message(input: &[u8]) {
    check_message(input);
}

/// Checks that a list of models has no more names than cards.
pub(crate) fn model_list(input: &[u8]) {
    let names = read_list(input);
    let cards = input.windows(4).filter(|part| part == b"\"id\"").count();
    let escaped = input.contains(&b'\\');
    assert!(names.len() <= cards || escaped, "{} names of {cards} cards", names.len());
}
