//! Whose request it is, seen through proxies that are trusted to say so.

use std::net::{IpAddr, SocketAddr};

use http::header::FORWARDED;
use http::{HeaderMap, HeaderName};
use ipnet::IpNet;

static X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The proxies in front of this node whose word about the client's address counts.
#[derive(Clone, Debug, Default)]
pub struct TrustedProxies(Vec<IpNet>);

impl TrustedProxies {
    /// Trusts every address inside any of these blocks.
    #[must_use]
    pub fn new(blocks: Vec<IpNet>) -> Self {
        Self(blocks)
    }

    /// Whether the address is a trusted proxy. `::ffff:10.0.0.1` is `10.0.0.1`.
    #[must_use]
    pub fn trusts(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|block| block.contains(&address))
    }

    /// The client's address: the nearest hop that is no trusted proxy.
    ///
    /// Each proxy appends whom it heard from, so the list is read from its end, and only as long
    /// as its authors are trusted: what stands further left may be the client's invention. An
    /// entry that is no address ends the walk at the last one that was.
    ///
    /// Where both headers exist, `X-Forwarded-For` counts and `Forwarded` is ignored: load
    /// balancers write the former and pass the latter through as the client wrote it.
    #[must_use]
    pub fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let peer = peer.to_canonical();
        if headers.contains_key(&X_FORWARDED_FOR) {
            self.nearest_untrusted(peer, hops(headers, &X_FORWARDED_FOR).map(parse_node))
        } else {
            self.nearest_untrusted(peer, hops(headers, &FORWARDED).map(forwarded_for))
        }
    }

    fn nearest_untrusted(
        &self,
        peer: IpAddr,
        mut nearest_first: impl Iterator<Item = Option<IpAddr>>,
    ) -> IpAddr {
        let mut nearest = peer;
        while self.trusts(nearest)
            && let Some(Some(hop)) = nearest_first.next()
        {
            nearest = hop;
        }
        nearest
    }
}

/// The header's comma-separated entries over all its lines, last first.
///
/// A comma inside quotes splits too: no address contains one, and pairing quotes from the left
/// would let the client's part of the list swallow the proxy's.
fn hops<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'h str> {
    let lines = headers.get_all(name).iter().rev();
    // A line that is not ASCII becomes one entry that is no address.
    lines.flat_map(|line| line.to_str().unwrap_or_default().rsplit(',')).map(str::trim)
}

/// The `for` parameter of one `Forwarded` element (RFC 7239).
fn forwarded_for(element: &str) -> Option<IpAddr> {
    element
        .split(';')
        .find_map(|pair| {
            let (name, value) = pair.split_once('=')?;
            name.trim().eq_ignore_ascii_case("for").then_some(value.trim())
        })
        .and_then(parse_node)
}

/// An address with or without port, brackets or quotes; `None` for `unknown` and other names.
fn parse_node(text: &str) -> Option<IpAddr> {
    let text = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text);
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse().or_else(|_| text.parse::<SocketAddr>().map(|socket| socket.ip()));
    address.ok().map(|address: IpAddr| address.to_canonical())
}
