//! Active health check: tests that a replica is up.

use std::time::Duration;

use http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_types::ModelName;
use tokio::time::timeout;

use super::{CheckResult, Expectation, grpc};
use crate::http::{HttpClient, HttpProtocol, HttpServer, RequestError, Reuse, connect, late};

/// Active check of a replica: a cheap request, sent at an interval.
#[derive(Clone, Debug, PartialEq)]
pub struct ActiveCheck {
    /// Request of the check.
    pub probe: Probe,
    /// Pause between two checks, with 20 % jitter. A dead replica is noticed after about this pause
    /// times the number of failures in the health rules.
    pub interval: Duration,
    /// Time limit of one check. Choose it above the time that the server needs under full load, or
    /// load will look like failure.
    pub timeout: Duration,
}

impl ActiveCheck {
    /// Makes a check that sends `probe` every 2 s and waits 1 s for the answer.
    #[must_use]
    pub fn new(probe: Probe) -> Self {
        Self { probe, interval: Duration::from_secs(2), timeout: Duration::from_secs(1) }
    }

    /// Runs one check of the server `api` over a connection of its own. `model` replaces `{model}`
    /// in a path.
    pub(crate) async fn run(&self, api: &HttpServer, model: Option<&ModelName>) -> CheckResult {
        match &self.probe {
            Probe::Http { path, port, not_ready, expect } => {
                let outcome = match with_model(path, model) {
                    Ok(path) => self.ask_http(api.at(*port), &path, expect.as_ref()).await,
                    Err(failure) => Err(failure),
                };
                match outcome {
                    Ok(result) => result,
                    Err(RequestError::Status(status)) if not_ready.contains(&status) => {
                        CheckResult::NotReady
                    }
                    Err(failure) => failure.into(),
                }
            }
            Probe::Tcp { port } => self.ask_tcp(&api.at(*port)).await,
            Probe::Grpc { service, port } => {
                let mut server = api.at(*port);
                // gRPC needs HTTP/2, whatever the API speaks.
                server.protocol = HttpProtocol::Http2;
                server.base = None;
                grpc::check(&mut HttpClient::new(server), service, self.timeout)
                    .await
                    .unwrap_or_else(CheckResult::from)
            }
        }
    }

    async fn ask_http(
        &self,
        server: HttpServer,
        path: &str,
        expect: Option<&Expectation>,
    ) -> Result<CheckResult, RequestError> {
        let mut client = HttpClient::new(server);
        let request = client.request(Method::GET, path, None)?;
        // A new connection also tests that the server accepts connections.
        let reply = client.send(request, Reuse::Fresh, self.timeout).await?;
        if !reply.status.is_success() {
            return Err(RequestError::Status(reply.status.as_u16()));
        }
        // A server may answer with 200 before its body says that it is ready.
        let is_ready = expect.is_none_or(|expect| expect.is_met(&reply.body));
        Ok(if is_ready { CheckResult::Good } else { CheckResult::NotReady })
    }

    async fn ask_tcp(&self, server: &HttpServer) -> CheckResult {
        match timeout(self.timeout, Box::pin(connect(server))).await {
            Ok(Ok(_)) => CheckResult::Good,
            Ok(Err(failure)) => failure.into(),
            Err(_) => late(&server.resolver, &server.host).into(),
        }
    }
}

/// Request of an active check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Probe {
    /// A GET request: status 2xx is good.
    Http {
        /// Path; `{model}` stands for the replica's first model.
        path: String,
        /// Port, if it is not the API's.
        #[serde(default)]
        port: Option<u16>,
        /// Statuses that mean "up, but not ready".
        #[serde(default = "unavailable")]
        not_ready: Vec<u16>,
        /// Content that the body of a ready server has; without it the server is not ready.
        #[serde(default)]
        expect: Option<Expectation>,
    },
    /// A connection, with the TLS handshake where the replica has TLS, and nothing more.
    Tcp {
        /// Port, if it is not the API's.
        #[serde(default)]
        port: Option<u16>,
    },
    /// `grpc.health.v1.Health/Check`.
    Grpc {
        /// Name of the service to ask about; empty for the server as a whole.
        #[serde(default)]
        service: String,
        /// Port, if it is not the API's.
        #[serde(default)]
        port: Option<u16>,
    },
}

fn unavailable() -> Vec<u16> {
    vec![503]
}

fn with_model(path: &str, model: Option<&ModelName>) -> Result<String, RequestError> {
    const PLACE: &str = "{model}";
    if !path.contains(PLACE) {
        return Ok(path.to_owned());
    }
    let model = model.ok_or(RequestError::BadRequest)?;
    // A model's name may contain slashes.
    let escaped =
        percent_encoding::utf8_percent_encode(model.as_str(), percent_encoding::NON_ALPHANUMERIC);
    Ok(path.replace(PLACE, &escaped.to_string()))
}
