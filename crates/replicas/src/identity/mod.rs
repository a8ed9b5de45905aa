//! What a replica says of itself: which software it is, and which models it serves.

mod engine;
mod index;
mod models;

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode};
use spillway_types::ModelsPage;

use crate::check::Probe;
use crate::http::{Client, Failure, Reply, Reuse};
use crate::kind::ServerKind;
use crate::scrape::{Scrape, Scraper};
use crate::target::Target;

pub(crate) use engine::EnginePage;
pub(crate) use index::read_index;
pub(crate) use models::read_page;

/// Path of the page of models, with every server that has OpenAI's API.
const MODELS: &str = "/v1/models";
/// Path of the models that a server with KServe's V2 API has loaded.
const INDEX: &str = "/v2/repository/index";
/// Pause between two readings of the models, give or take the jitter of checks: a page changes when a
/// server is started with another model, or loads an adapter.
const PERIOD: Duration = Duration::from_secs(10);
/// The same for a server that has no such page, and between two looks at which software it is. A server
/// that did not answer in between is looked at at once.
pub(crate) const REST: Duration = Duration::from_secs(60);

/// How a replica is asked which software it is and which models it serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdentityCheck {
    /// Its software; `None` recognises it by its pages.
    pub kind: Option<ServerKind>,
    /// Nobody said which models it serves, so that they are looked for where its software has them.
    pub needs_models: bool,
    /// Pause before the next try if the server could not be reached.
    pub retry: Duration,
    /// How long one request may take.
    pub timeout: Duration,
}

/// The software of a server, and what it lets be seen of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Engine {
    /// Which software.
    pub kind: ServerKind,
    /// It answers where such a server is asked for its health.
    pub has_health: bool,
    /// It answers where such a server tells its load.
    pub has_metrics: bool,
}

/// What a look at a server's pages showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EngineReading {
    /// A known server.
    Known(Engine),
    /// It answers, and no page tells what it is.
    Unknown,
    /// It did not answer, or is not ready to.
    NoAnswer,
}

/// What one reading of the models showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ModelsReading {
    /// The page.
    Page(ModelsPage),
    /// The server answers, and has no page that could be read.
    NoPage,
    /// The server did not answer, which says nothing about its models.
    NoAnswer,
}

impl Engine {
    /// A server of this kind that shows all that its kind has.
    #[must_use]
    pub fn assumed(kind: ServerKind) -> Self {
        Self { kind, has_health: true, has_metrics: true }
    }
}

impl EngineReading {
    /// The server, if it is known.
    pub(crate) fn engine(self) -> Option<Engine> {
        match self {
            Self::Known(engine) => Some(engine),
            Self::Unknown | Self::NoAnswer => None,
        }
    }
}

impl IdentityCheck {
    /// Looks at the pages of a server until one tells what it is, and whether its preset fits: up to ten
    /// requests. `before` is what it was last.
    pub(crate) async fn recognise(&self, target: &Target, before: Option<Engine>) -> EngineReading {
        let mut client = Client::new(target.server(None));
        for page in EnginePage::ALL {
            match self.ask(&mut client, Method::GET, page.path()).await {
                Ok(reply) if is_unsure(reply.status) => return EngineReading::NoAnswer,
                Ok(reply) => {
                    if let Some(kind) = page.kind(reply.status.as_u16(), &reply.body) {
                        return self.examine((kind, before), &mut client, target).await;
                    }
                }
                Err(Failure::TooLarge | Failure::BadRequest) => {}
                // Some close the connection on a path that they do not know.
                Err(Failure::Broken) if page != EnginePage::Models => {}
                Err(_) => return EngineReading::NoAnswer,
            }
        }
        EngineReading::Unknown
    }

    /// Looks whether a server has the pages of its kind. One that is behind a proxy may lack some, and
    /// must not be taken for dead because of that.
    async fn examine(
        &self,
        (kind, before): (ServerKind, Option<Engine>),
        client: &mut Client,
        target: &Target,
    ) -> EngineReading {
        let has_health = match kind.probe() {
            // The model's state is asked for, and all such servers have that.
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
                match Scraper::new(&scrape, target).scrape().await {
                    // Some numbers are there only once there was a request.
                    Ok(_) | Err(Failure::WrongAnswer) => true,
                    Err(Failure::Status(_) | Failure::TooLarge | Failure::BadRequest) => false,
                    // A port of its own may be closed to this node.
                    Err(_) if has_port => {
                        before.is_some_and(|before| before.kind == kind && before.has_metrics)
                    }
                    Err(_) => return EngineReading::NoAnswer,
                }
            }
        };
        EngineReading::Known(Engine { kind, has_health, has_metrics })
    }

    /// Reads the models of a server of this kind, over a connection of its own. `None` as kind is a server
    /// that nobody knows.
    pub(crate) async fn read_models(
        &self,
        kind: Option<ServerKind>,
        target: &Target,
    ) -> ModelsReading {
        let is_listed = kind.is_none_or(ServerKind::may_list_models);
        let has_index = self.needs_models && kind.is_some_and(ServerKind::has_index);
        let (method, path) = match (is_listed, has_index) {
            (true, _) => (Method::GET, MODELS),
            (false, true) => (Method::POST, INDEX),
            (false, false) => return ModelsReading::NoPage,
        };
        let mut client = Client::new(target.server(None));
        match self.ask(&mut client, method, path).await {
            Ok(reply) if reply.status.is_success() => {
                let read = if is_listed { read_page } else { read_index };
                read(&reply.body).map_or(ModelsReading::NoPage, ModelsReading::Page)
            }
            // A server that is loading or busy will have it later.
            Ok(reply)
                if reply.status.is_server_error()
                    || reply.status == StatusCode::TOO_MANY_REQUESTS =>
            {
                ModelsReading::NoAnswer
            }
            Ok(_) | Err(Failure::TooLarge | Failure::BadRequest) => ModelsReading::NoPage,
            Err(_) => ModelsReading::NoAnswer,
        }
    }

    /// The pause after a reading.
    pub(crate) fn pause(&self, reading: &ModelsReading) -> Duration {
        match reading {
            ModelsReading::Page(_) => PERIOD,
            ModelsReading::NoPage => REST,
            ModelsReading::NoAnswer => self.retry,
        }
    }

    async fn ask(&self, client: &mut Client, method: Method, path: &str) -> Result<Reply, Failure> {
        let json = HeaderValue::from_static("application/json");
        let body = (method == Method::POST).then(|| (json, Bytes::from_static(b"{}")));
        let request = client.request(method, path, body)?;
        client.send(request, Reuse::Kept, self.timeout).await
    }
}

/// Whether a server answers so that can't answer yet, or a proxy in front of one that does not answer.
/// Other errors are some servers' way to say that they do not have the page.
fn is_unsure(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 502..=504)
}
