//! Fuzz targets of the first bytes of a connection.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::greet::{ClientProtocol, tell_version};
use super::proxy_header::{Named, read_proxy_header};

/// Asserts that a PROXY header is read without a byte beyond it, and that the address is the one it
/// names.
pub fn proxy_header(input: &[u8]) {
    let mut stream = input;
    let Some(Ok(named)) = now(read_proxy_header(&mut stream)) else { return };
    let header = &input[..input.len() - stream.len()];
    assert!(header.len() <= 16 + 1_024, "a header of {} bytes", header.len());
    if header.starts_with(b"PROXY ") {
        assert!(header.ends_with(b"\r\n") && header.len() <= 107);
        let line = String::from_utf8_lossy(header);
        let source = line.split(' ').nth(2).map(str::parse);
        match named {
            Named::Client(address) => assert_eq!(source, Some(Ok(address.ip())), "{line:?}"),
            Named::Nobody => assert!(line.starts_with("PROXY UNKNOWN"), "{line:?}"),
            Named::Proxy => assert!(line.is_empty(), "no text header speaks for the proxy itself"),
        }
    } else if named == Named::Proxy {
        assert_eq!(header[12], 0x20, "only LOCAL speaks for the proxy itself");
    }
    // Bytes behind the header must not change its meaning.
    let longer = [header, b"GET / HTTP/1.1\r\n\r\n"].concat();
    let mut stream = &longer[..];
    let again = now(read_proxy_header(&mut stream)).and_then(Result::ok);
    assert_eq!(again, Some(named));
    assert_eq!(stream, b"GET / HTTP/1.1\r\n\r\n");
}

/// Asserts that the bytes read for protocol detection are handed on, for each version.
pub fn connection_start(input: &[u8]) {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let mut stream = input;
    let Some(Ok((version, ahead))) = now(tell_version(&mut stream)) else { return };
    assert_eq!([&ahead[..], stream].concat(), input);
    assert!(ahead.len() <= PREFACE.len());
    assert_eq!(version == ClientProtocol::Http2, input.starts_with(PREFACE));
}

/// Returns the result of a future that never waits, since all its input is there; `None` if it
/// waits.
pub fn now<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}
