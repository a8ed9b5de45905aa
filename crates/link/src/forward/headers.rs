//! Headers and trailers inside messages.

use http::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};

use super::octets::Octets;

/// Most headers that a message may have; servers in use stop at 100 or so.
pub(super) const HEADERS_MAX: usize = 256;

/// Names and values in their order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HeaderList(Vec<(Octets, Octets)>);

impl HeaderList {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let octets = |bytes: &[u8]| Octets(bytes.to_vec());
        let pairs = headers
            .iter()
            .map(|(name, value)| (octets(name.as_str().as_bytes()), octets(value.as_bytes())));
        Self(pairs.collect())
    }

    /// The headers as HTTP has them; an error if a peer sent what HTTP can't have.
    pub(super) fn into_map(self) -> Result<HeaderMap, &'static str> {
        if self.0.len() > HEADERS_MAX {
            return Err("too many headers");
        }
        let mut headers = HeaderMap::with_capacity(self.0.len());
        for (name, value) in self.0 {
            let name = HeaderName::from_bytes(&name.0).or(Err("no header name"))?;
            let value = HeaderValue::from_maybe_shared(bytes::Bytes::from(value.0))
                .or(Err("no header value"))?;
            headers.append(name, value);
        }
        Ok(headers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_survive_with_their_order_and_repetitions() {
        let mut headers = HeaderMap::new();
        headers.append("x-a", HeaderValue::from_static("1"));
        headers.append("x-b", HeaderValue::from_bytes(b"\xff text").unwrap());
        headers.append("x-a", HeaderValue::from_static("2"));
        assert_eq!(HeaderList::of(&headers).into_map().unwrap(), headers);
    }

    #[test]
    fn what_http_can_not_have_is_refused() {
        let list = |name: &[u8], value: &[u8]| {
            HeaderList(vec![(Octets(name.to_vec()), Octets(value.to_vec()))])
        };
        assert!(list(b"x-a", b"fine").into_map().is_ok());
        assert!(list(b"", b"").into_map().is_err());
        assert!(list(b"x a", b"").into_map().is_err());
        assert!(list(b"x-a", b"two\r\nlines").into_map().is_err());
        let one = (Octets(b"x-a".to_vec()), Octets(Vec::new()));
        assert!(HeaderList(vec![one.clone(); HEADERS_MAX]).into_map().is_ok());
        assert!(HeaderList(vec![one; HEADERS_MAX + 1]).into_map().is_err());
    }
}
