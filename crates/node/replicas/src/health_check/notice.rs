//! Preemption notice: a cloud announces that it will take a cheap machine away.

use std::time::Duration;

use http::{HeaderName, HeaderValue, Method, StatusCode};
use spillway_resolver::Resolver;

use super::Expectation;
use crate::http::{HttpClient, HttpProtocol, HttpServer, RequestError, Reuse};

/// Address where a replica's machine reports that it will be taken away: status 200 if so, 404 if
/// not.
///
/// Metadata services answer only their own machine. For other machines, this is the address of a
/// program on the replica's machine that relays the answer.
#[derive(Clone, Debug, PartialEq)]
pub struct NoticeCheck {
    /// Host name or address, IPv6 without brackets.
    pub host: String,
    /// Port of the service.
    pub port: u16,
    /// Path of the request.
    pub path: String,
    /// Headers of the request, such as `metadata-flavor` for Google's service.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Content of the body if the machine will be taken away, for services that always answer 200.
    pub expect: Option<Expectation>,
    /// Pause between two checks, with 20 % jitter. Notices come 30 s to 2 min ahead.
    pub interval: Duration,
    /// Time limit of one check.
    pub timeout: Duration,
}

impl NoticeCheck {
    /// Makes a check that asks every 5 s and waits 1 s for the answer.
    #[must_use]
    pub fn new(host: String, port: u16, path: String) -> Self {
        Self {
            host,
            port,
            path,
            headers: Vec::new(),
            expect: None,
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(1),
        }
    }
}

/// Returns true if the machine will be taken away.
///
/// # Errors
/// Returns an error if the service gives no clear answer; an unreachable service is no notice.
pub(crate) async fn notice(check: &NoticeCheck, resolver: &Resolver) -> Result<bool, RequestError> {
    let mut client = HttpClient::new(HttpServer {
        resolver: resolver.clone(),
        host: check.host.clone(),
        port: check.port,
        base: None,
        tls: None,
        protocol: HttpProtocol::Http1,
        headers: check.headers.clone(),
    });
    let request = client.request(Method::GET, &check.path, None)?;
    let reply = client.send(request, Reuse::Fresh, check.timeout).await?;
    match reply.status {
        StatusCode::OK => Ok(check.expect.as_ref().is_none_or(|expect| expect.is_met(&reply.body))),
        StatusCode::NOT_FOUND => Ok(false),
        status => Err(RequestError::Status(status.as_u16())),
    }
}
