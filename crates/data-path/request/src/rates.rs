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
    use spillway_rate_limit::{LimitTerms, RequestWindow, Scope};

    use super::*;

    #[test]
    fn durations_are_written_as_clients_of_openai_read_them() {
        let written = |ms| duration(Duration::from_millis(ms));
        let texts = [0, 7, 999, 1_000, 1_001, 60_000, 360_000, 3_600_000].map(written);
        assert_eq!(texts, ["0s", "7ms", "999ms", "1s", "2s", "1m0s", "6m0s", "1h0m0s"]);
    }

    #[test]
    fn the_longest_waits_and_the_shortest_are_written_in_whole_units() {
        let written = |ns| duration(Duration::from_nanos(ns));
        for (ns, expected) in [
            (1, "1ms"),
            (1_000_001, "2ms"),
            // Rounded up to a second, which is no longer written in milliseconds.
            (999_000_001, "1s"),
            (59_000_000_001, "1m0s"),
            (3_599_000_000_001, "1h0m0s"),
            (u64::MAX, "5124095h34m34s"),
        ] {
            assert_eq!(written(ns), expected, "{ns} ns");
        }
    }

    /// Returns the headers for a tenant with these own limits, after `charged` requests of it.
    fn told(whole: [Option<u64>; 3], charged: usize, tenant: Option<&str>) -> HeaderMap {
        let quotas = Quotas::new(coarse_clock::now());
        let requests = RequestWindow::Minute;
        quotas.set_own(&[LimitTerms { scope: Scope::Tenant("acme".into()), whole, requests }]);
        let ask = || QuotaAsk {
            key: None,
            tenant,
            model: None,
            tokens: 100,
            said: 100,
            now: coarse_clock::now(),
        };
        for _ in 0..charged {
            drop(quotas.admit(&ask()).unwrap());
        }
        let mut headers = HeaderMap::new();
        if let Some(rates) = quotas.rates(&ask()) {
            tell(&quotas, &rates, &mut headers);
        }
        headers
    }

    fn numbers(headers: &HeaderMap, unit: &str) -> Option<[u64; 2]> {
        let number = |part: &str| {
            let value = headers.get(format!("x-ratelimit-{part}-{unit}"))?;
            value.to_str().unwrap().parse().ok()
        };
        Some([number("limit")?, number("remaining")?])
    }

    #[test]
    fn each_rate_that_limits_a_client_has_its_headers_and_concurrency_has_none() {
        let acme = Some("acme");
        let headers = told([Some(10), Some(1_000), Some(5)], 3, acme);
        assert_eq!(numbers(&headers, "requests"), Some([10, 7]));
        assert_eq!(numbers(&headers, "tokens").map(|[limit, _]| limit), Some(1_000));
        assert_eq!(headers.len(), 6);
        assert!(headers.contains_key("x-ratelimit-reset-requests"));
        assert_eq!(told([Some(10), None, None], 0, acme).len(), 3);
        let fresh = told([Some(10), None, None], 0, acme);
        assert_eq!(fresh["x-ratelimit-reset-requests"], "0s", "all of it is there");
        assert_eq!(told([None, None, Some(5)], 0, acme).len(), 0);
        for tenant in [None, Some("other")] {
            assert_eq!(told([Some(10), Some(1_000), None], 0, tenant).len(), 0, "{tenant:?}");
        }
    }

    #[test]
    fn a_used_up_rate_leaves_nothing_and_says_when_it_is_back() {
        let headers = told([Some(2), None, None], 2, Some("acme"));
        assert_eq!(numbers(&headers, "requests"), Some([2, 0]));
        let reset = headers["x-ratelimit-reset-requests"].to_str().unwrap();
        assert!(reset == "1m0s" || reset.ends_with('s') && reset != "0s", "{reset}");
    }
}
