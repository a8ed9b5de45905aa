//! Address of the client, seen through trusted proxies.

use std::net::{IpAddr, SocketAddr};

use http::header::FORWARDED;
use http::{HeaderMap, HeaderName};
use ipnet::IpNet;

static X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Proxies in front of this node whose information about the client's address is trusted.
#[derive(Clone, Debug, Default)]
pub struct TrustedProxies(Vec<IpNet>);

impl TrustedProxies {
    /// Creates a list of trusted address blocks.
    #[must_use]
    pub fn new(blocks: Vec<IpNet>) -> Self {
        Self(blocks)
    }

    /// Returns true if the address is a trusted proxy. `::ffff:10.0.0.1` counts as `10.0.0.1`.
    #[must_use]
    pub fn trusts(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|block| block.contains(&address))
    }

    /// Returns the client's address: the nearest hop that is no trusted proxy.
    ///
    /// Each proxy appends the address it received from. The list is therefore read from its end,
    /// and only while the authors of its entries are trusted: entries further left may be invented
    /// by the client. An entry that is no address ends the search at the last valid one.
    ///
    /// If both headers exist, `X-Forwarded-For` counts and `Forwarded` is ignored: load balancers
    /// write the former and pass on the latter unchanged from the client.
    #[must_use]
    pub fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let peer = peer.to_canonical();
        // Load balancers write `X-Forwarded-For`, but pass on a `Forwarded` of the client.
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

/// Returns the header's comma-separated entries over all its lines, last first.
///
/// Commas inside quotes split too. No address contains a comma, and pairing quotes from the left
/// would let the client's part of the list swallow the proxy's.
fn hops<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'h str> {
    let lines = headers.get_all(name).iter().rev();
    // A line that is not ASCII becomes one entry that is no address.
    lines.flat_map(|line| line.to_str().unwrap_or_default().rsplit(',')).map(str::trim)
}

/// Parses the `for` parameter of one `Forwarded` element (RFC 7239).
fn forwarded_for(element: &str) -> Option<IpAddr> {
    element
        .split(';')
        .find_map(|pair| {
            let (name, value) = pair.split_once('=')?;
            name.trim().eq_ignore_ascii_case("for").then_some(value.trim())
        })
        .and_then(parse_node)
}

/// Parses an address with or without port, brackets or quotes; `None` for `unknown` and other
/// names.
fn parse_node(text: &str) -> Option<IpAddr> {
    let text = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text);
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse().or_else(|_| text.parse::<SocketAddr>().map(|socket| socket.ip()));
    address.ok().map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn proxies() -> TrustedProxies {
        let blocks = ["10.0.0.0/8", "fd00::/8"];
        TrustedProxies::new(blocks.iter().map(|block| block.parse().unwrap()).collect())
    }

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        headers
    }

    #[track_caller]
    fn check(peer: &str, lines: &[(&'static str, &str)], expected: &str) {
        let client = proxies().client(peer.parse().unwrap(), &headers(lines));
        assert_eq!(client, expected.parse::<IpAddr>().unwrap(), "{peer} {lines:?}");
    }

    const XFF: &str = "x-forwarded-for";
    const FWD: &str = "forwarded";

    #[test]
    fn an_untrusted_peer_is_the_client_whatever_it_says() {
        check("192.0.2.1", &[(XFF, "1.2.3.4")], "192.0.2.1");
        check("192.0.2.1", &[(FWD, "for=1.2.3.4")], "192.0.2.1");
        let nobody = TrustedProxies::default();
        let peer = "10.0.0.1".parse().unwrap();
        assert_eq!(nobody.client(peer, &headers(&[(XFF, "1.2.3.4")])), peer);
    }

    #[test]
    fn the_nearest_untrusted_hop_is_the_client() {
        check("10.0.0.1", &[], "10.0.0.1");
        check("10.0.0.1", &[(XFF, "1.2.3.4")], "1.2.3.4");
        check("10.0.0.1", &[(XFF, "6.6.6.6, 1.2.3.4")], "1.2.3.4");
        check("10.0.0.1", &[(XFF, "6.6.6.6, 1.2.3.4, 10.0.0.2")], "1.2.3.4");
        check("10.0.0.1", &[(XFF, "10.0.0.3,10.0.0.2")], "10.0.0.3");
        check("10.0.0.1", &[(XFF, "6.6.6.6"), (XFF, "1.2.3.4, 10.0.0.2")], "1.2.3.4");
        check("10.0.0.1", &[(XFF, "1.2.3.4"), (XFF, "10.0.0.2")], "1.2.3.4");
    }

    #[test]
    fn addresses_may_have_ports_brackets_and_quotes() {
        check("10.0.0.1", &[(XFF, "1.2.3.4:555")], "1.2.3.4");
        check("10.0.0.1", &[(XFF, "[2001:db8::1]:555")], "2001:db8::1");
        check("10.0.0.1", &[(XFF, "[2001:db8::1]")], "2001:db8::1");
        check("10.0.0.1", &[(XFF, "2001:db8::1")], "2001:db8::1");
        check("10.0.0.1", &[(FWD, "For=\"[2001:db8::1]:555\";proto=https")], "2001:db8::1");
        check("10.0.0.1", &[(FWD, "proto=https; for=1.2.3.4 ;by=10.0.0.1")], "1.2.3.4");
        check("10.0.0.1", &[(FWD, "for=6.6.6.6, for=1.2.3.4, for=\"10.0.0.2:80\"")], "1.2.3.4");
    }

    #[test]
    fn an_entry_that_is_no_address_ends_the_walk_at_the_last_that_was() {
        check("10.0.0.1", &[(XFF, "1.2.3.4, nonsense")], "10.0.0.1");
        check("10.0.0.1", &[(XFF, "1.2.3.4, unknown, 10.0.0.2")], "10.0.0.2");
        check("10.0.0.1", &[(XFF, "")], "10.0.0.1");
        check("10.0.0.1", &[(XFF, "1.2.3.4,")], "10.0.0.1");
        check("10.0.0.1", &[(XFF, "1.2.3.4, \u{e9}")], "10.0.0.1");
        check("10.0.0.1", &[(FWD, "for=1.2.3.4, for=_hidden")], "10.0.0.1");
        check("10.0.0.1", &[(FWD, "for=1.2.3.4, proto=https")], "10.0.0.1");
    }

    #[test]
    fn a_quote_the_client_left_open_does_not_swallow_the_proxys_entry() {
        check("10.0.0.1", &[(FWD, "for=\"6.6.6.6, for=1.2.3.4")], "1.2.3.4");
        check("10.0.0.1", &[(FWD, "for=6.6.6.6;x=\", for=1.2.3.4;y=\"z\"")], "1.2.3.4");
    }

    #[test]
    fn with_both_headers_only_the_one_that_proxies_write_counts() {
        check("10.0.0.1", &[(FWD, "for=6.6.6.6"), (XFF, "1.2.3.4")], "1.2.3.4");
        check("10.0.0.1", &[(FWD, "for=6.6.6.6"), (XFF, "nonsense")], "10.0.0.1");
    }

    #[test]
    fn a_mapped_address_is_the_address_it_maps() {
        check("::ffff:10.0.0.1", &[(XFF, "::ffff:1.2.3.4")], "1.2.3.4");
        check("::ffff:192.0.2.1", &[(XFF, "1.2.3.4")], "192.0.2.1");
        check("10.0.0.1", &[(XFF, "1.2.3.4, ::ffff:10.0.0.9")], "1.2.3.4");
        check("10.0.0.1", &[(XFF, "[::ffff:1.2.3.4]:80")], "1.2.3.4");
        assert!(proxies().trusts("::ffff:10.9.9.9".parse().unwrap()));
        assert!(proxies().trusts("fd00::1".parse().unwrap()));
        assert!(!proxies().trusts("11.0.0.1".parse().unwrap()));
    }

    proptest! {
        #[test]
        fn what_a_client_writes_never_changes_what_the_proxy_adds(
            forged in "[ -~]{0,40}", name in prop::sample::select(vec![XFF, FWD]),
        ) {
            let own = if name == FWD { "for=1.2.3.4" } else { "1.2.3.4" };
            let value = format!("{forged}, {own}");
            let client = proxies().client("10.0.0.1".parse().unwrap(), &headers(&[(name, &value)]));
            prop_assert_eq!(client, "1.2.3.4".parse::<IpAddr>().unwrap());
        }

        #[test]
        fn no_bytes_make_it_panic(
            value in prop::collection::vec(any::<u8>(), 0..60), forwarded in any::<bool>(),
        ) {
            let Ok(value) = HeaderValue::from_bytes(&value) else { return Ok(()) };
            let mut headers = HeaderMap::new();
            headers.append(if forwarded { FWD } else { XFF }, value);
            let peer: IpAddr = "192.0.2.1".parse().unwrap();
            prop_assert_eq!(proxies().client(peer, &headers), peer);
            let everybody = TrustedProxies::new(vec!["0.0.0.0/0".parse().unwrap()]);
            let client = everybody.client(peer, &headers);
            prop_assert_eq!(client, client.to_canonical());
        }
    }
}
