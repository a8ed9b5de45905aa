//! Limits of the admin listener: its address and its connections.

use std::net::SocketAddr;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::TokioTimer;

use crate::config::AdminConfig;

/// Most bytes of a request's head: the longest names, percent-encoded, several times over.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Most header fields of one request.
const HEADERS_MAX: usize = 64;
/// Time limit for a head, which is also the longest time that a connection may be idle.
const HEAD_LIMIT: Duration = Duration::from_secs(30);

/// Error for an admin listener that would be open to the network without a token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the admin listener {address} can be reached from elsewhere, and there is no token: listen on \
     127.0.0.1, or set a token file"
)]
pub struct ListenerError {
    /// Address that the listener was to have.
    pub address: SocketAddr,
}

/// Checks the address of the admin listener. Without a token in the config, every client that
/// reaches it may do everything, so it may only listen on loopback. Keys of the cluster don't
/// count, since making the first one needs this API.
///
/// # Errors
/// Returns an error if the address is not loopback and there is no token.
pub fn check_listener(address: SocketAddr, config: &AdminConfig) -> Result<(), ListenerError> {
    // Canonical, since `::ffff:127.0.0.1` is loopback, too.
    if !config.wants_token() && !address.ip().to_canonical().is_loopback() {
        return Err(ListenerError { address });
    }
    Ok(())
}

/// Returns the settings of connections to the admin listener, with limits for heads.
#[must_use]
pub fn connection_builder() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .auto_date_header(false)
        .header_read_timeout(HEAD_LIMIT)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX);
    builder
}

#[cfg(test)]
mod tests {
    use spillway_cluster_state::key_hash;

    use super::*;
    use crate::config::{AdminRole, ConfigToken};

    #[test]
    fn without_a_token_only_this_machine_gets_in() {
        let open = AdminConfig::default();
        let hash = key_hash(&[], b"token");
        let token = ConfigToken { name: "ada".to_owned(), role: AdminRole::Read, hash };
        let closed = AdminConfig { tokens: vec![token], ..AdminConfig::default() };
        for (address, is_local) in [
            ("127.0.0.1:9900", true),
            ("[::1]:9900", true),
            ("[::ffff:127.0.0.1]:9900", true),
            ("0.0.0.0:9900", false),
            ("[::]:9900", false),
            ("10.0.0.1:9900", false),
        ] {
            let address = address.parse().unwrap();
            assert_eq!(check_listener(address, &open).is_ok(), is_local, "{address}");
            assert_eq!(check_listener(address, &closed), Ok(()), "{address}");
        }
        let fault = check_listener("10.0.0.1:1".parse().unwrap(), &open).unwrap_err();
        assert!(fault.to_string().contains("set a token file"), "{fault}");
    }
}
