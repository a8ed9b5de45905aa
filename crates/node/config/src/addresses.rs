//! Addresses of listeners: one for each, and none for a replica.

use std::net::{IpAddr, SocketAddr};

use toml::Spanned;

use crate::error::ConfigErrors;
use crate::file::ConfigFile;
use crate::source::Source;

/// Checks that no two TCP listeners have one address. Addresses of all interfaces include each of them.
///
/// # Errors
/// Returns an error for each that could not be bound because of an earlier one.
pub(crate) fn check_addresses(source: &Source, file: &ConfigFile) -> Result<(), ConfigErrors> {
    let listeners = file.listener.iter().map(|listener| &listener.address);
    let admin = file.admin.as_ref().map(|admin| &admin.address);
    // A name server answers over TCP, too.
    let dns = file.dns.as_ref().map(|dns| &dns.listen);
    let all: Vec<_> = listeners.chain(admin).chain(dns).collect();
    let mut errors = ConfigErrors::default();
    for (at, second) in all.iter().enumerate() {
        let (ip, port) = (second.get_ref().ip(), second.get_ref().port());
        let overlaps = |first: &&&Spanned<SocketAddr>| {
            let other = first.get_ref().ip();
            // The system picks another port for each 0.
            let is_wide = ip.is_unspecified() || other.is_unspecified();
            let is_kin = is_wide && ip.is_ipv4() == other.is_ipv4();
            port != 0 && first.get_ref().port() == port && (ip == other || is_kin)
        };
        if let Some(first) = all[..at].iter().find(overlaps) {
            let message = format!("{} is taken by another listener of this node", second.get_ref());
            let remedy = "give each listener, and [admin], an address of its own";
            errors.add(source.collision(second.span(), first.span(), message, remedy));
        }
    }
    errors.or(())
}

/// Checks that no replica is a listener of this node: a request would be sent to itself until all places
/// are taken.
///
/// # Errors
/// Returns an error for each replica that is.
pub(crate) fn check_replicas(source: &Source, file: &ConfigFile) -> Result<(), ConfigErrors> {
    let mut errors = ConfigErrors::default();
    for url in file.replica.iter().map(|replica| &replica.url) {
        // Another check reports invalid URLs.
        let Ok(uri) = url.get_ref().parse::<http::Uri>() else { continue };
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let host = if host == "localhost" { "127.0.0.1" } else { host };
        let usual = if uri.scheme_str() == Some("https") { 443 } else { 80 };
        let (Ok(ip), port) = (host.parse::<IpAddr>(), uri.port_u16().unwrap_or(usual)) else {
            continue;
        };
        let is_own = |address: SocketAddr| {
            let is_wide = address.ip().is_unspecified() && ip.is_loopback();
            address.port() == port && (address.ip() == ip || is_wide)
        };
        if file.listener.iter().any(|listener| is_own(*listener.address.get_ref())) {
            let message = format!("{} is a listener of this node itself", url.get_ref());
            errors.add(source.fault(url.span(), message, "give the URL of the model server"));
        }
    }
    errors.or(())
}
