//! Headers that report the state of its rate limits to a client, in OpenAI's form.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use spillway_front::access::Grant;
use spillway_rate_limit::{LimitKind, QuotaAsk, Quotas, Rates};
use spillway_transport::coarse_clock;
use spillway_types::Inquiry;

/// Names of the headers of one kind: the limit, the rest of it, and the time until all of it is
/// back.
type Names = [HeaderName; 3];

static REQUESTS: Names = [
    HeaderName::from_static("x-ratelimit-limit-requests"),
    HeaderName::from_static("x-ratelimit-remaining-requests"),
    HeaderName::from_static("x-ratelimit-reset-requests"),
];
static TOKENS: Names = [
    HeaderName::from_static("x-ratelimit-limit-tokens"),
    HeaderName::from_static("x-ratelimit-remaining-tokens"),
    HeaderName::from_static("x-ratelimit-reset-tokens"),
];

/// Returns the rate limits that apply to a request; `None` in most cases.
pub fn rates(quotas: &Quotas, grant: &Grant, inquiry: &Inquiry) -> Option<Rates> {
    quotas.rates(&QuotaAsk {
        key: grant.key.as_ref().map(|key| key.as_str()),
        tenant: inquiry.tenant.as_ref().map(|tenant| tenant.as_str()),
        model: inquiry.model.as_ref().map(|model| model.as_str()),
        tokens: 0,
        said: 0,
        now: coarse_clock::now(),
    })
}

/// Adds the headers with the current state of the rate limits at this node.
pub fn tell(quotas: &Quotas, rates: &Rates, headers: &mut HeaderMap) {
    let now_ns = quotas.clock_ns(coarse_clock::now());
    for (kind, names) in [(LimitKind::RequestRate, &REQUESTS), (LimitKind::TokenRate, &TOKENS)] {
        let Some(room) = rates.room(now_ns, kind) else { continue };
        let [limit, remaining, reset] = names;
        headers.insert(limit, HeaderValue::from(room.limit));
        headers.insert(remaining, HeaderValue::from(room.remaining));
        if let Ok(written) = HeaderValue::try_from(duration(room.reset)) {
            headers.insert(reset, written);
        }
    }
}

/// Formats a duration as OpenAI does: `350ms`, `1s`, `6m0s`. From one second on it is rounded up to
/// full seconds.
fn duration(duration: Duration) -> String {
    let ms = duration.as_nanos().div_ceil(1_000_000);
    if ms > 0 && ms < 1_000 {
        return format!("{ms}ms");
    }
    let s = ms.div_ceil(1_000);
    match (s / 3_600, s / 60 % 60, s % 60) {
        (0, 0, s) => format!("{s}s"),
        (0, m, s) => format!("{m}m{s}s"),
        (h, m, s) => format!("{h}h{m}m{s}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_clients_of_openai_read_them() {
        let written = |ms| duration(Duration::from_millis(ms));
        let texts = [0, 7, 999, 1_000, 1_001, 60_000, 360_000, 3_600_000].map(written);
        assert_eq!(texts, ["0s", "7ms", "999ms", "1s", "2s", "1m0s", "6m0s", "1h0m0s"]);
    }
}
