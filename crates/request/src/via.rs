//! Names of gateways in the `Via` header of requests to replicas (RFC 9110, section 7.6.3), by which
//! a gateway notices that a replica of its has led a request back to it.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::HeaderMap;
use http::header::{self, HeaderValue};
use spillway_protocol::{ErrorKind, GatewayError};

/// Beginning of a gateway's name in the header.
const PREFIX: &str = "1.1 spillway-";
/// Most gateways that a request passes through one after the other. Tiers of gateways have two or
/// three; more are a ring in which one does not add its name.
const GATEWAYS_MAX: usize = 8;
/// Shortest time between two log lines about requests that came back.
const LOG_PERIOD: Duration = Duration::from_secs(10);

/// Name of this process among gateways. It is drawn at the start, so that no two gateways share it
/// whatever their configs say.
pub struct Via {
    own: HeaderValue,
    started: Instant,
    /// Time of the last log line, in milliseconds since `started`, from 1 on; 0 for none.
    logged_ms: AtomicU64,
}

impl Via {
    /// Names the gateway by this number.
    #[must_use]
    pub fn new(number: u64, started: Instant) -> Self {
        // Digits are always valid in a header.
        let own = HeaderValue::try_from(format!("{PREFIX}{number:016x}"))
            .unwrap_or_else(|_| HeaderValue::from_static("1.1 spillway"));
        Self { own, started, logged_ms: AtomicU64::new(0) }
    }

    /// Checks that a client's request has not passed this gateway before. The caller logs an error
    /// when [`Via::may_log`] allows it: the operator has to correct a replica's URL.
    ///
    /// # Errors
    /// Returns an error if the request has, or if it has passed too many gateways.
    pub fn check(&self, headers: &HeaderMap) -> Result<(), GatewayError> {
        // Few requests come through another proxy that says so.
        if !headers.contains_key(header::VIA) {
            return Ok(());
        }
        let is_back = gateways(headers).any(|name| name.as_bytes() == self.own.as_bytes());
        if !is_back && gateways(headers).take(GATEWAYS_MAX).count() < GATEWAYS_MAX {
            return Ok(());
        }
        let message = "the request has come back to the gateway that sent it on: a replica is a gateway \
                       that leads here";
        Err(GatewayError::new(ErrorKind::RequestLoop, message))
    }

    /// Returns the header for the replica: the gateways that the request has passed, this one last.
    /// Other proxies on the client's side are not the replica's business.
    pub(crate) fn passed(&self, headers: &HeaderMap) -> HeaderValue {
        if !headers.contains_key(header::VIA) {
            return self.own.clone();
        }
        let own = self.own.to_str().unwrap_or_default();
        let names: Vec<&str> = gateways(headers).take(GATEWAYS_MAX).chain([own]).collect();
        HeaderValue::try_from(names.join(", ")).unwrap_or_else(|_| self.own.clone())
    }

    /// Returns true, and notes it, if there was no log line about a loop for a while.
    pub fn may_log(&self, now: Instant) -> bool {
        let now_ms = now.saturating_duration_since(self.started).as_millis();
        let now_ms = u64::try_from(now_ms).unwrap_or(u64::MAX).saturating_add(1);
        let period_ms = u64::try_from(LOG_PERIOD.as_millis()).unwrap_or(u64::MAX);
        let next = |last: u64| (last == 0 || now_ms >= last + period_ms).then_some(now_ms);
        self.logged_ms.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }
}

/// Returns the names of gateways in the header, in the order in which the request passed them.
fn gateways(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let lines = headers.get_all(header::VIA).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim).filter(|name| name.starts_with(PREFIX))
}

impl fmt::Debug for Via {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Via").field(&self.own).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn via(lines: &[&str]) -> HeaderMap {
        let line = |line: &&str| (header::VIA, HeaderValue::from_str(line).expect("a value"));
        lines.iter().map(line).collect()
    }

    fn passed(gateways: &[&Via]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for gateway in gateways {
            gateway.check(&headers).expect("no loop yet");
            let value = gateway.passed(&headers);
            headers.insert(header::VIA, value);
        }
        headers
    }

    #[test]
    fn a_request_that_comes_back_is_refused_after_any_number_of_gateways() {
        let [a, b, c] = [1, 2, 3].map(|number| Via::new(number, Instant::now()));
        for ring in [&[&a][..], &[&a, &b], &[&a, &b, &c]] {
            let back = a.check(&passed(ring)).expect_err("a loop");
            assert_eq!(back.kind, ErrorKind::RequestLoop);
        }
        assert!(c.check(&passed(&[&a, &b])).is_ok(), "tiers of gateways are no loop");
        let many: Vec<Via> = (10..30).map(|number| Via::new(number, Instant::now())).collect();
        let many: Vec<&Via> = many.iter().collect();
        let long = passed(&many[..GATEWAYS_MAX]);
        assert_eq!(c.check(&long).expect_err("too many").kind, ErrorKind::RequestLoop);
    }

    #[test]
    fn other_proxies_are_passed_over_and_stay_here() {
        let a = Via::new(1, Instant::now());
        for lines in [&["1.1 spillway"][..], &["1.1 varnish, 2 edge"], &["", ",,"]] {
            let headers = via(lines);
            assert!(a.check(&headers).is_ok(), "{lines:?}");
            assert_eq!(a.passed(&headers), a.own);
        }
        let before = via(&["2 edge, 1.1 spillway-00000000000000ff", "1.1 varnish"]);
        let expected = "1.1 spillway-00000000000000ff, 1.1 spillway-0000000000000001";
        assert_eq!(a.passed(&before), expected);
    }

    #[test]
    fn a_loop_is_logged_now_and_then() {
        let a = Via::new(1, Instant::now());
        assert!(a.may_log(a.started) && !a.may_log(a.started + LOG_PERIOD / 2));
        assert!(a.may_log(a.started + LOG_PERIOD));
    }
}
