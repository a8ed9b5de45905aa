//! URLs of replicas, and hosts that other settings name.

use http::Uri;
use spillway_protocol::is_confined;
use spillway_types::BasePath;
use toml::Spanned;

use crate::error::ConfigError;
use crate::source::Source;

/// Parts of a replica's URL.
#[derive(Debug, Default)]
pub(crate) struct Target {
    pub(crate) is_tls: bool,
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) base: Option<BasePath>,
}

/// Reads the address for gRPC, whose paths name services.
///
/// # Errors
/// Returns an error if it is not scheme, host and port alone.
pub(crate) fn lower_grpc_target(
    url: &Spanned<String>,
    source: &Source,
) -> Result<Target, ConfigError> {
    let target = lower_target(url, source)?;
    let Some(base) = &target.base else { return Ok(target) };
    let remedy = format!("leave out {}: http://host:port is enough", base.as_str());
    let message = "the URL has a path; gRPC calls keep their own";
    Err(source.fault(url.span(), message, remedy))
}

/// Returns a URL or address whose IPv6 address lacks its brackets with them; None for others.
pub(crate) fn bracketed(given: &str) -> Option<String> {
    let (scheme, rest) = match given.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), given),
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let (host, port) = authority.rsplit_once(':')?;
    let is_bare = port.parse::<u16>().is_ok() && host.parse::<std::net::Ipv6Addr>().is_ok();
    is_bare.then(|| format!("{scheme}[{host}]:{port}{path}"))
}

/// Reads a base URL.
///
/// # Errors
/// Returns an error if it has other parts than scheme, host, port and path.
pub(crate) fn lower_target(url: &Spanned<String>, source: &Source) -> Result<Target, ConfigError> {
    let given = url.get_ref();
    let fault = |message: String| {
        let remedy = "write it as http://host:port or https://host:port/base/path";
        source.fault(url.span(), message, remedy)
    };
    let has_scheme = given.contains("://");
    let uri: Uri = match given.parse() {
        Ok(uri) if has_scheme => uri,
        Err(error) if has_scheme => {
            let message = format!("not a URL: {error}");
            return Err(match bracketed(given) {
                Some(meant) => source.fault(
                    url.span(),
                    message,
                    format!(
                        "write {meant:?}: an IPv6 address \
                        stands in brackets"
                    ),
                ),
                None => fault(message),
            });
        }
        _ => {
            let remedy = format!("write \"http://{given}\", or https:// if the server has TLS");
            return Err(source.fault(url.span(), "the URL has no scheme", remedy));
        }
    };
    let is_tls = match uri.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        other => {
            return Err(fault(format!("the scheme {:?} is unknown", other.unwrap_or_default())));
        }
    };
    if let Some(query) = uri.query() {
        let remedy = format!("leave out ?{query}: each request has its own");
        return Err(source.fault(url.span(), "the URL has a query", remedy));
    }
    if !is_confined(uri.path()) {
        let message = "the path of the URL has dot segments, doubled slashes or escapes";
        return Err(source.fault(
            url.span(),
            message,
            "write it as the server knows it, e.g. /openai/v1",
        ));
    }
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    if host.is_empty() {
        return Err(fault("the URL has no host".to_owned()));
    }
    let authority = uri.authority().map(http::uri::Authority::as_str).unwrap_or_default();
    if authority.contains('@') {
        return Err(fault("the URL has a user: credentials have a key of their own".to_owned()));
    }
    // The host in brackets may hold colons; the parser returns no port if the number is out of
    // range.
    let behind_host = authority.rsplit(']').next().unwrap_or_default();
    if behind_host.contains(':') && uri.port_u16().is_none() {
        return Err(fault(format!("the port in {authority:?} is no port")));
    }
    check_host(source, url, &host)?;
    if host.parse().is_ok_and(spillway_types::is_link_local) {
        let message = "the address is link-local or a cloud's metadata service";
        return Err(source.fault(url.span(), message, "name the machine of the model server"));
    }
    let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
    Ok(Target { is_tls, host, port, base: BasePath::new(uri.path()) })
}

/// Checks that a host can be looked up. `given` is the setting that names it.
///
/// # Errors
/// Returns an error for a name that no name server can be asked for.
pub(crate) fn check_host(
    source: &Source,
    given: &Spanned<String>,
    host: &str,
) -> Result<(), ConfigError> {
    spillway_resolver::check_name(host).map_err(|error| {
        let remedy = "write the host's name or address: labels of at most 63 letters, digits, hyphens and \
                      underscores, with single dots between them";
        source.fault(given.span(), error.to_string(), remedy)
    })
}
