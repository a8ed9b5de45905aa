//! The active check: is it up?

use std::time::Duration;

use http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::{CheckResult, Expectation, grpc};
use crate::http::{Client, Failure, HttpProtocol, Reuse, Server, connect};
use crate::target::Target;

/// How often a replica is asked whether it is up, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct ActiveCheck {
    /// What is asked.
    pub probe: Probe,
    /// Pause between two checks, give or take 20 %. A dead replica is noticed after about this
    /// times the number of failures that the health rules ask for.
    pub interval: Duration,
    /// How long one check may take. Above the time that the server needs under full load, or
    /// load will look like failure.
    pub timeout: Duration,
}

impl ActiveCheck {
    /// Asks `probe` every 2 s and waits 1 s for the answer.
    #[must_use]
    pub fn new(probe: Probe) -> Self {
        Self { probe, interval: Duration::from_secs(2), timeout: Duration::from_secs(1) }
    }

    /// One check over a connection of its own.
    pub(crate) async fn run(&self, target: &Target) -> CheckResult {
        match &self.probe {
            Probe::Http { path, port, not_ready, expect } => {
                let outcome = self.ask_http(target, path, *port, expect.as_ref()).await;
                match outcome {
                    Ok(result) => result,
                    Err(Failure::Status(status)) if not_ready.contains(&status) => {
                        CheckResult::NotReady
                    }
                    Err(failure) => failure.into(),
                }
            }
            Probe::Tcp { port } => self.ask_tcp(&target.server(*port)).await,
            Probe::Grpc { service, port } => {
                let mut server = target.server(*port);
                server.protocol = HttpProtocol::Http2;
                grpc::check(&mut Client::new(server), service, self.timeout)
                    .await
                    .unwrap_or_else(CheckResult::from)
            }
        }
    }

    async fn ask_http(
        &self,
        target: &Target,
        path: &str,
        port: Option<u16>,
        expect: Option<&Expectation>,
    ) -> Result<CheckResult, Failure> {
        let mut client = Client::new(target.server(port));
        let request = client.request(Method::GET, &with_model(path, target)?, None)?;
        let reply = client.send(request, Reuse::Fresh, self.timeout).await?;
        if !reply.status.is_success() {
            return Err(Failure::Status(reply.status.as_u16()));
        }
        // It answers, but does not say yet what a ready one says.
        let is_ready = expect.is_none_or(|expect| expect.is_met(&reply.body));
        Ok(if is_ready { CheckResult::Good } else { CheckResult::NotReady })
    }

    async fn ask_tcp(&self, server: &Server) -> CheckResult {
        match timeout(self.timeout, Box::pin(connect(server))).await {
            Ok(Ok(_)) => CheckResult::Good,
            Ok(Err(failure)) => failure.into(),
            Err(_) => Failure::TimedOut.into(),
        }
    }
}

/// What an active check asks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Probe {
    /// GET: 2xx is good.
    Http {
        /// Path; `{model}` stands for the replica's first model.
        path: String,
        /// Port, where it is not the API's.
        #[serde(default)]
        port: Option<u16>,
        /// Statuses that say "up, but not ready".
        #[serde(default = "unavailable")]
        not_ready: Vec<u16>,
        /// What the body of a ready server says; if it does not, the server is not ready.
        #[serde(default)]
        expect: Option<Expectation>,
    },
    /// A connection, with the TLS handshake where the replica has TLS, and nothing more.
    Tcp {
        /// Port, where it is not the API's.
        #[serde(default)]
        port: Option<u16>,
    },
    /// `grpc.health.v1.Health/Check`.
    Grpc {
        /// The service to ask about; empty for the server as a whole.
        #[serde(default)]
        service: String,
        /// Port, where it is not the API's.
        #[serde(default)]
        port: Option<u16>,
    },
}

fn unavailable() -> Vec<u16> {
    vec![503]
}

fn with_model(path: &str, target: &Target) -> Result<String, Failure> {
    const PLACE: &str = "{model}";
    if !path.contains(PLACE) {
        return Ok(path.to_owned());
    }
    let model = target.first_model().ok_or(Failure::BadRequest)?;
    let escaped =
        percent_encoding::utf8_percent_encode(model.as_str(), percent_encoding::NON_ALPHANUMERIC);
    Ok(path.replace(PLACE, &escaped.to_string()))
}
