//! The path of a request as its replica is to see it.

use std::borrow::Cow;

use http::request::Parts;
use http::uri::PathAndQuery;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use spillway_protocol::{ErrorKind, GatewayError};

use crate::view::Route;

/// What stands before a model's name in KServe V2's paths.
const V2_MODELS: &str = "/v2/models/";
/// Everything but what RFC 3986 calls unreserved.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The path as the replica is to see it. `renamed`: a model's encoded name in the path, and the
/// name to put in its place.
pub(crate) fn replica_path(
    head: &Parts,
    route: &Route,
    renamed: Option<(&str, &str)>,
) -> Result<PathAndQuery, GatewayError> {
    let original = head.uri.path_and_query();
    let spec = &route.spec;
    let mut path = Cow::Borrowed(head.uri.path());
    if let (Some(prefix), Some(replacement)) = (&spec.path_prefix, &spec.replace_prefix) {
        path = format!("{replacement}{}", &path[prefix.len()..]).into();
    }
    if let Some((encoded, name)) = renamed
        && let Some(rest) = path.strip_prefix(V2_MODELS).and_then(|rest| rest.strip_prefix(encoded))
    {
        path = format!("{V2_MODELS}{}{rest}", encoded_segment(name)).into();
    }
    match (path, original) {
        (Cow::Borrowed(_), Some(original)) => Ok(original.clone()),
        (path, original) => {
            let query = original.and_then(PathAndQuery::query);
            let text = query.map_or_else(|| path.to_string(), |query| format!("{path}?{query}"));
            PathAndQuery::try_from(text).map_err(|error| {
                let message = format!("the path can't be rewritten for the replica: {error}");
                GatewayError::new(ErrorKind::BadRequest, message)
            })
        }
    }
}

fn encoded_segment(name: &str) -> String {
    utf8_percent_encode(name, RESERVED).to_string()
}
