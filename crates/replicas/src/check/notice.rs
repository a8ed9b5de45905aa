//! The notice that a machine is about to be taken away, as clouds give for cheap machines.

use std::time::Duration;

use http::{HeaderName, HeaderValue, Method, StatusCode};

use super::Expectation;
use crate::http::{Client, Failure, HttpProtocol, Reuse, Server};

/// Where a replica's machine tells that it is to be taken away: 200 if so, 404 if not.
///
/// Metadata services are reached from their own machine only; elsewhere this is an address of
/// something on that machine that passes them on.
#[derive(Clone, Debug, PartialEq)]
pub struct NoticeCheck {
    /// Host name or address, IPv6 without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Path to ask for.
    pub path: String,
    /// Sent along, as `metadata-flavor` on Google's.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// What the body says when the machine is to go, for services that always answer 200.
    pub expect: Option<Expectation>,
    /// Pause between two checks, give or take 20 %. Notices come 30 s to 2 min ahead.
    pub interval: Duration,
    /// How long one check may take.
    pub timeout: Duration,
}

impl NoticeCheck {
    /// Asks every 5 s and waits 1 s for the answer.
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

/// Whether the machine is to be taken away.
///
/// # Errors
/// If that could not be learned; an unreachable service is no notice.
pub(crate) async fn notice(check: &NoticeCheck) -> Result<bool, Failure> {
    let mut client = Client::new(Server {
        host: check.host.clone(),
        port: check.port,
        tls: None,
        protocol: HttpProtocol::Http1,
        headers: check.headers.clone(),
    });
    let request = client.request(Method::GET, &check.path, None)?;
    let reply = client.send(request, Reuse::Fresh, check.timeout).await?;
    match reply.status {
        StatusCode::OK => Ok(check.expect.as_ref().is_none_or(|expect| expect.is_met(&reply.body))),
        StatusCode::NOT_FOUND => Ok(false),
        status => Err(Failure::Status(status.as_u16())),
    }
}
