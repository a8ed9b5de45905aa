//! Fuzz targets for input from clients and trusted proxies.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::access::fuzz::{claims, presented_key};
use crate::client::fuzz::{connection_start, proxy_header};

/// A fuzz target: the name of its folder of inputs, and the function that runs one input.
pub type Target = (&'static str, fn(&[u8]));

/// All fuzz targets of this crate.
pub const TARGETS: &[Target] = &[
    ("proxy_header", proxy_header),
    ("connection_start", connection_start),
    ("presented_key", presented_key),
    ("claims", claims),
];

/// Returns headers made of lines `name: value`. Other lines are left out, as a parser would refuse
/// them.
pub(crate) fn headers_in(input: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in input.split(|byte| *byte == b'\n').take(64) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let name = HeaderName::from_bytes(&line[..colon]);
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    headers
}

#[cfg(test)]
mod tests {
    #[test]
    fn targets_hold_on_kept_inputs_and_on_mutations_of_them() {
        spillway_fuzz::check(super::TARGETS);
    }
}
