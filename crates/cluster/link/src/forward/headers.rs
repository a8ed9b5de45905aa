//! Headers and trailers inside messages.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};

/// Most headers of a message: as many as [`REPLY_FIELDS_BYTES_MAX`] of HTTP/2 can have.
pub(super) const HEADERS_MAX: usize = 16 << 10;
/// Most bytes of the headers of a reply, or of its trailers: the 512 KiB that a replica may send, and
/// a reserve for lengths.
pub(super) const REPLY_FIELDS_BYTES_MAX: usize = 640 << 10;
/// Room for headers that the receiver adds, so that the map does not grow for them.
const ADDED: usize = 8;

/// Header names and values in their order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HeaderList(Vec<(Bytes, Bytes)>);

impl HeaderList {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let copy = Bytes::copy_from_slice;
        let pairs = headers
            .iter()
            .map(|(name, value)| (copy(name.as_str().as_bytes()), copy(value.as_bytes())));
        Self(pairs.collect())
    }

    /// Returns the headers, or an error if a peer sent headers that are not valid in HTTP.
    pub(super) fn into_map(self) -> Result<HeaderMap, &'static str> {
        if self.0.len() > HEADERS_MAX {
            return Err("too many headers");
        }
        let mut headers = HeaderMap::with_capacity(self.0.len() + ADDED);
        for (name, value) in self.0 {
            let name = HeaderName::from_bytes(&name).or(Err("no header name"))?;
            let value = HeaderValue::from_maybe_shared(value).or(Err("no header value"))?;
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
        let list = |name: &'static [u8], value: &'static [u8]| {
            HeaderList(vec![(Bytes::from_static(name), Bytes::from_static(value))])
        };
        assert!(list(b"x-a", b"fine").into_map().is_ok());
        assert!(list(b"", b"").into_map().is_err());
        assert!(list(b"x a", b"").into_map().is_err());
        assert!(list(b"x-a", b"two\r\nlines").into_map().is_err());
        let one = (Bytes::from_static(b"x-a"), Bytes::new());
        assert!(HeaderList(vec![one.clone(); HEADERS_MAX]).into_map().is_ok());
        assert!(HeaderList(vec![one; HEADERS_MAX + 1]).into_map().is_err());
    }
}
