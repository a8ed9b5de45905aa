//! Identity of a replica, by its own pages: its server software and its models.

mod engine;
mod index;
mod models;

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode};
use spillway_types::ModelsPage;

use crate::health_check::Probe;
use crate::http::{HttpClient, HttpReply, HttpServer, RequestError, Reuse};
use crate::kind::ServerKind;
use crate::scrape::{Scrape, Scraper};

pub(crate) use engine::EnginePage;
pub(crate) use index::read_index;
pub(crate) use models::read_page;

/// Path of the page of models on every server with OpenAI's API.
const MODELS: &str = "/v1/models";
/// Path of the models that a server with KServe's V2 API has loaded.
const INDEX: &str = "/v2/repository/index";
/// Pause between two readings of the models as a multiple of the time that a reading takes, so that a
/// long page costs its server no more than a fiftieth of one core; with the jitter of checks. The page
/// changes when a server is started with another model, or loads an adapter.
const PAUSE_PER_READING: u32 = 50;
/// Shortest and longest of these pauses. An adapter counts a second after it was loaded.
const PAUSE_MIN: Duration = Duration::from_millis(700);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// Pause between two readings for a server without a page of models, and between two recognitions
/// of the software. A server that did not answer in between is examined at once.
pub(crate) const REST: Duration = Duration::from_secs(60);

/// Identity check of a replica: its software and its models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdentityCheck {
    /// Software of the replica; `None` to recognise it by its pages.
    pub kind: Option<ServerKind>,
    /// True if the config names no models, so that they are read from the page that this software
    /// has.
    pub needs_models: bool,
    /// Pause before the next try if the server could not be reached.
    pub retry: Duration,
    /// Time limit of one request.
    pub timeout: Duration,
}

/// Software of a server, and the standard pages of that software that answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Engine {
    /// Kind of the software.
    pub kind: ServerKind,
    /// True if the server answers at the path where this software reports its health.
    pub has_health: bool,
    /// True if the server answers at the path where this software reports its load.
    pub has_metrics: bool,
}

/// Result of a recognition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EngineReading {
    /// The software is known.
    Known(Engine),
    /// The server answers, and no page shows its software.
    Unknown,
    /// The server did not answer, or is not ready to.
    NoAnswer,
}

/// Result of one reading of the models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ModelsReading {
    /// The page could be read.
    Page(ModelsPage),
    /// The server answers, and has no page that could be read.
    NoPage,
    /// The server demands another credential for the page, with this status.
    Denied(u16),
    /// The server did not answer, which proves nothing about its models.
    NoAnswer,
}

impl Engine {
    /// Makes a server of this kind that has all pages of its kind.
    #[must_use]
    pub fn assumed(kind: ServerKind) -> Self {
        Self { kind, has_health: true, has_metrics: true }
    }
}

impl EngineReading {
    /// Returns the software, if it is known.
    pub(crate) fn engine(self) -> Option<Engine> {
        match self {
            Self::Known(engine) => Some(engine),
            Self::Unknown | Self::NoAnswer => None,
        }
    }
}

impl IdentityCheck {
    /// Recognises a server by its pages, and checks that it has the standard pages of its software:
    /// up to twelve requests. `before` is the result of the last recognition.
    pub(crate) async fn recognise(
        &self,
        api: &HttpServer,
        before: Option<Engine>,
    ) -> EngineReading {
        let mut client = HttpClient::new(api.clone());
        for page in EnginePage::ALL {
            match self.ask(&mut client, Method::GET, page.path()).await {
                Ok(reply) if is_unsure(reply.status) => return EngineReading::NoAnswer,
                Ok(reply) => {
                    if let Some(kind) = page.kind(reply.status.as_u16(), &reply.body) {
                        return self.examine(kind, before, &mut client, api).await;
                    }
                }
                // A page of that length is none of those that show the software; the next one may
                // be.
                Err(RequestError::TooLarge | RequestError::BadRequest) => {}
                // Some servers close the connection for an unknown path.
                Err(RequestError::Broken) if page != EnginePage::Models => {}
                Err(_) => return EngineReading::NoAnswer,
            }
        }
        EngineReading::Unknown
    }

    /// Checks that a server has the pages of its kind. A server behind a proxy may lack some, and
    /// must not be taken for dead because of that.
    async fn examine(
        &self,
        kind: ServerKind,
        before: Option<Engine>,
        client: &mut HttpClient,
        api: &HttpServer,
    ) -> EngineReading {
        let has_health = match kind.probe() {
            // A probe with `{model}` asks for the model's state, which all such servers have.
            Probe::Http { path, not_ready, .. } if !path.contains('{') => {
                match self.ask(client, Method::GET, &path).await {
                    Ok(reply) if not_ready.contains(&reply.status.as_u16()) => true,
                    Ok(reply) => !reply.status.is_client_error(),
                    Err(_) => return EngineReading::NoAnswer,
                }
            }
            _ => true,
        };
        let has_metrics = match kind.metrics() {
            None => false,
            Some(page) => {
                let has_port = page.port.is_some();
                let scrape = Scrape { timeout: self.timeout, ..Scrape::new(page) };
                match Scraper::new(&scrape, api).scrape().await {
                    // Some numbers are on the page only after a first request.
                    Ok(_) | Err(RequestError::WrongAnswer) => true,
                    Err(
                        RequestError::Status(_) | RequestError::TooLarge | RequestError::BadRequest,
                    ) => false,
                    // A separate port for metrics may be closed to this node.
                    Err(_) if has_port => {
                        before.is_some_and(|before| before.kind == kind && before.has_metrics)
                    }
                    Err(_) => return EngineReading::NoAnswer,
                }
            }
        };
        EngineReading::Known(Engine { kind, has_health, has_metrics })
    }

    /// Reads the models of a server of this kind; `None` as `kind` is an unknown server.
    pub(crate) async fn read_models(
        &self,
        kind: Option<ServerKind>,
        client: &mut HttpClient,
    ) -> ModelsReading {
        let is_listed = kind.is_none_or(ServerKind::may_list_models);
        let has_index = self.needs_models && kind.is_some_and(ServerKind::has_index);
        let (method, path) = match (is_listed, has_index) {
            (true, _) => (Method::GET, MODELS),
            (false, true) => (Method::POST, INDEX),
            (false, false) => return ModelsReading::NoPage,
        };
        match self.ask(client, method, path).await {
            Ok(reply) if reply.status.is_success() => {
                let read = if is_listed { read_page } else { read_index };
                read(&reply.body).map_or(ModelsReading::NoPage, ModelsReading::Page)
            }
            // A server that is loading or busy will have the page later.
            Ok(reply)
                if reply.status.is_server_error()
                    || reply.status == StatusCode::TOO_MANY_REQUESTS =>
            {
                ModelsReading::NoAnswer
            }
            Ok(reply) if matches!(reply.status.as_u16(), 401 | 403) => {
                ModelsReading::Denied(reply.status.as_u16())
            }
            Ok(_) | Err(RequestError::TooLarge | RequestError::BadRequest) => ModelsReading::NoPage,
            Err(_) => ModelsReading::NoAnswer,
        }
    }

    /// Returns the pause after a reading that took this long.
    pub(crate) fn pause(&self, reading: &ModelsReading, took: Duration) -> Duration {
        match reading {
            ModelsReading::Page(_) => {
                took.saturating_mul(PAUSE_PER_READING).clamp(PAUSE_MIN, PAUSE_MAX)
            }
            ModelsReading::NoPage | ModelsReading::Denied(_) => REST,
            ModelsReading::NoAnswer => self.retry,
        }
    }

    async fn ask(
        &self,
        client: &mut HttpClient,
        method: Method,
        path: &str,
    ) -> Result<HttpReply, RequestError> {
        // The index is read with a POST of an empty JSON object.
        let json = HeaderValue::from_static("application/json");
        let body = (method == Method::POST).then(|| (json, Bytes::from_static(b"{}")));
        let request = client.request(method, path, body)?;
        client.send(request, Reuse::Kept, self.timeout).await
    }
}

/// Returns true if the status is that of a server that can't answer yet, or of a proxy whose server
/// does not answer. With other errors, some servers say that they do not have the page.
fn is_unsure(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 502..=504)
}
