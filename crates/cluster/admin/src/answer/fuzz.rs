//! Parts of fuzz targets that need private items of answers.

use super::explain::{ExplainOrder, request};

/// Checks that an explained request has no more headers than were sent.
pub(crate) fn explain_order(input: &[u8]) {
    let Ok(order) = serde_json::from_slice::<ExplainOrder>(input) else { return };
    let sent = order.headers.len();
    if let Ok(request) = request(order) {
        assert!(request.headers.len() <= sent && request.path.starts_with('/'));
    }
}
