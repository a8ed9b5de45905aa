//! Reads a PROXY protocol header (v1 or v2) off the front of a connection.

use std::io;
use std::net::{IpAddr, SocketAddr};

use ppp::{HeaderResult, v1, v2};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Signature of binary headers. Headers of both versions are longer, so reading this much is safe.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Longest text header, in bytes, by its specification.
const TEXT_BYTES_MAX: usize = 107;
/// Longest binary header accepted, in bytes: addresses and a few hundred bytes of extensions.
const BINARY_BYTES_MAX: usize = 1024;

/// Origin of a connection by its PROXY header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// A client of the proxy, with its address.
    Client(SocketAddr),
    /// The proxy itself, e.g. for a health check (`LOCAL`).
    Proxy,
    /// A client whose address the proxy does not know or cannot write (`UNKNOWN`, `AF_UNSPEC`,
    /// `AF_UNIX`).
    Nobody,
}

/// Reads a PROXY header and returns the origin that it names. Reads no byte beyond the header.
///
/// # Errors
/// Returns an error if the header is malformed or too long, or the stream ends within it.
pub(super) async fn read_proxy_header(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Named> {
    let mut header = vec![0; SIGNATURE.len()];
    stream.read_exact(&mut header).await?;
    if header == SIGNATURE {
        read_binary_rest(stream, &mut header).await?;
    } else {
        read_text_rest(stream, &mut header).await?;
    }
    match HeaderResult::parse(&header) {
        HeaderResult::V1(Ok(text)) => Ok(text_source(&text.addresses)),
        HeaderResult::V2(Ok(binary)) => Ok(binary_source(&binary)),
        HeaderResult::V1(Err(error)) => Err(malformed(&error)),
        HeaderResult::V2(Err(error)) => Err(malformed(&error)),
    }
}

async fn read_binary_rest(
    stream: &mut (impl AsyncRead + Unpin),
    header: &mut Vec<u8>,
) -> io::Result<()> {
    let mut fixed = [0; 4];
    stream.read_exact(&mut fixed).await?;
    header.extend_from_slice(&fixed);
    let length = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
    if length > BINARY_BYTES_MAX {
        return Err(malformed(&"binary header is too long"));
    }
    let start = header.len();
    header.resize(start + length, 0);
    stream.read_exact(&mut header[start..]).await?;
    Ok(())
}

/// Reads the rest of a text header byte by byte: its length is unknown, and no byte behind it may
/// be taken.
async fn read_text_rest(
    stream: &mut (impl AsyncRead + Unpin),
    header: &mut Vec<u8>,
) -> io::Result<()> {
    if !header.starts_with(b"PROXY ") {
        return Err(malformed(&"connection does not start with a PROXY header"));
    }
    while !header.ends_with(b"\r\n") {
        if header.len() >= TEXT_BYTES_MAX {
            return Err(malformed(&"text header is too long"));
        }
        header.push(stream.read_u8().await?);
    }
    Ok(())
}

fn text_source(addresses: &v1::Addresses) -> Named {
    match addresses {
        v1::Addresses::Tcp4(pair) => Named::Client((pair.source_address, pair.source_port).into()),
        v1::Addresses::Tcp6(pair) => Named::Client((pair.source_address, pair.source_port).into()),
        v1::Addresses::Unknown => Named::Nobody,
    }
}

fn binary_source(header: &v2::Header<'_>) -> Named {
    if header.command == v2::Command::Local {
        return Named::Proxy;
    }
    match header.addresses {
        v2::Addresses::IPv4(pair) => {
            Named::Client(SocketAddr::new(IpAddr::V4(pair.source_address), pair.source_port))
        }
        v2::Addresses::IPv6(pair) => {
            Named::Client(SocketAddr::new(IpAddr::V6(pair.source_address), pair.source_port))
        }
        v2::Addresses::Unix(_) | v2::Addresses::Unspecified => Named::Nobody,
    }
}

fn malformed(error: &impl ToString) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client() -> Named {
        Named::Client("203.0.113.7:4711".parse().expect("an address"))
    }

    async fn check(bytes: &[u8]) -> (io::Result<Named>, Vec<u8>) {
        let mut stream = bytes;
        let address = read_proxy_header(&mut stream).await;
        (address, stream.to_vec())
    }

    #[tokio::test]
    async fn a_text_header_names_the_client_and_leaves_the_rest_alone() {
        let (address, rest) =
            check(b"PROXY TCP4 203.0.113.7 10.0.0.1 4711 80\r\nGET / HTTP/1.1").await;
        assert_eq!(address.expect("parses"), client());
        assert_eq!(rest, b"GET / HTTP/1.1");
    }

    #[tokio::test]
    async fn a_binary_header_names_the_client_and_leaves_the_rest_alone() {
        let mut bytes = SIGNATURE.to_vec();
        bytes.extend_from_slice(&[
            0x21, 0x11, 0, 12, 203, 0, 113, 7, 10, 0, 0, 1, 0x12, 0x67, 0, 80,
        ]);
        bytes.extend_from_slice(b"rest");
        let (address, rest) = check(&bytes).await;
        assert_eq!(address.expect("parses"), client());
        assert_eq!(rest, b"rest");
    }

    #[tokio::test]
    async fn a_proxy_speaks_for_itself_only_where_it_says_so() {
        let binary = |rest: &[u8]| [SIGNATURE.as_slice(), rest].concat();
        let unix = [&[0x21, 0x31, 0, 216], [b'x'; 216].as_slice()].concat();
        for (bytes, expected) in [
            (binary(&[0x20, 0x00, 0, 0]), Named::Proxy),
            // The addresses of a LOCAL header say nothing.
            (binary(&[0x20, 0x11, 0, 12, 9, 9, 9, 9, 8, 8, 8, 8, 0, 1, 0, 1]), Named::Proxy),
            (b"PROXY UNKNOWN\r\n".to_vec(), Named::Nobody),
            (b"PROXY UNKNOWN 203.0.113.7 10.0.0.1 4711 80\r\n".to_vec(), Named::Nobody),
            (binary(&[0x21, 0x00, 0, 0]), Named::Nobody),
            (binary(&unix), Named::Nobody),
        ] {
            assert_eq!(check(&bytes).await.0.expect("parses"), expected, "{bytes:?}");
        }
    }

    #[tokio::test]
    async fn what_is_no_header_is_refused() {
        let endless = [b"PROXY TCP4 ".as_slice(), &[b'1'; 200]].concat();
        let mut oversized = SIGNATURE.to_vec();
        oversized.extend_from_slice(&[0x21, 0x11, 0xff, 0xff]);
        for bytes in [b"GET / HTTP/1.1\r\n\r\n".as_slice(), b"PROXY TC", b"", &endless, &oversized]
        {
            assert!(check(bytes).await.0.is_err(), "{bytes:?}");
        }
    }

    #[tokio::test]
    async fn of_a_header_that_is_too_long_no_more_is_read_than_tells_that() {
        let text = [b"PROXY UNKNOWN ".as_slice(), &[b'1'; 4_096], b"\r\n"].concat();
        let mut binary = SIGNATURE.to_vec();
        binary.extend_from_slice(&[0x21, 0x11, 0x04, 0x01]);
        binary.extend_from_slice(&[0; 1_025]);
        for (bytes, read) in [(text, TEXT_BYTES_MAX), (binary, SIGNATURE.len() + 4)] {
            let (address, rest) = check(&bytes).await;
            assert!(address.is_err());
            assert_eq!(bytes.len() - rest.len(), read);
        }
    }
}
