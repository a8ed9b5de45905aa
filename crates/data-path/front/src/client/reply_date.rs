//! `Date` of replies.

use std::cell::RefCell;
use std::time::{SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderValue, header};

thread_local! {
    /// Last date of this thread, with its second. To write one takes longer than to copy it.
    static LAST: RefCell<Option<(u64, HeaderValue)>> = const { RefCell::new(None) };
}

/// Adds the date to a reply that has none from its replica. hyper's own date only moves forward: it would
/// stay ahead for as long as a clock was.
pub fn add_date(headers: &mut HeaderMap, now: SystemTime) {
    headers.entry(header::DATE).or_insert_with(|| date(now));
}

fn date(now: SystemTime) -> HeaderValue {
    let second = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    LAST.with_borrow_mut(|last| match last {
        Some((known, date)) if *known == second => date.clone(),
        last => {
            let text = httpdate::fmt_http_date(now.max(UNIX_EPOCH));
            let date = HeaderValue::try_from(text)
                .unwrap_or_else(|_| HeaderValue::from_static("Thu, 01 Jan 1970 00:00:00 GMT"));
            last.insert((second, date)).1.clone()
        }
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_date_follows_the_clock_in_both_directions() {
        let noon = UNIX_EPOCH + Duration::from_secs(1_795_953_600);
        for (now, expected) in [
            (noon, "Sun, 29 Nov 2026 12:00:00 GMT"),
            (noon + Duration::from_secs(40 * 86_400), "Fri, 08 Jan 2027 12:00:00 GMT"),
            (noon + Duration::from_millis(999), "Sun, 29 Nov 2026 12:00:00 GMT"),
            (UNIX_EPOCH - Duration::from_secs(1), "Thu, 01 Jan 1970 00:00:00 GMT"),
        ] {
            let mut headers = HeaderMap::new();
            add_date(&mut headers, now);
            assert_eq!(headers[header::DATE], expected);
        }
    }

    #[test]
    fn a_replica_s_date_stays() {
        let mut headers = HeaderMap::new();
        headers.insert(header::DATE, HeaderValue::from_static("x"));
        add_date(&mut headers, SystemTime::now());
        assert_eq!(headers[header::DATE], "x");
    }
}
