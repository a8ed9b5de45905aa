//! Header that gives requests an id in the KV events of engines.

use http::{HeaderName, HeaderValue};
use spillway_prefix::kv::kv_session_id;
use spillway_types::BlockHashes;

/// Header that vLLM takes the id of a request's KV events from.
pub const KV_SESSION: HeaderName = HeaderName::from_static("x-session-id");

/// Returns the id of a request with these blocks as a header; `None` for a prompt without a full
/// block.
#[must_use]
pub fn kv_session(chain: &BlockHashes) -> Option<HeaderValue> {
    HeaderValue::try_from(kv_session_id(chain.as_slice())?).ok()
}
