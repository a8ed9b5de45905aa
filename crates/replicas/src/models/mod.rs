//! A replica's own page of models.

mod read;

use std::time::Duration;

use http::Method;
use spillway_types::ModelsPage;

use crate::http::{Client, Failure, Reuse};
use crate::target::Target;

pub(crate) use read::read_page;

/// Path of the page, with every server that has OpenAI's API.
const PATH: &str = "/v1/models";
/// Pause between two readings, give or take the jitter of checks: a page changes when a server is
/// started with another model, or loads an adapter.
const PERIOD: Duration = Duration::from_secs(10);
/// The same for a server that has no such page.
const REST: Duration = Duration::from_secs(60);

/// How a replica's page of models is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelsCheck {
    /// Pause before the next try if the server could not be reached.
    pub retry: Duration,
    /// How long one reading may take.
    pub timeout: Duration,
}

/// What one reading showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ModelsReading {
    /// The page.
    Page(ModelsPage),
    /// The server answers, and has no page that could be read.
    NoPage,
    /// The server did not answer, which says nothing about its models.
    NoAnswer,
}

impl ModelsCheck {
    /// One reading over a connection of its own.
    pub(crate) async fn run(&self, target: &Target) -> ModelsReading {
        let mut client = Client::new(target.server(None));
        let reply = match client.request(Method::GET, PATH, None) {
            Ok(request) => client.send(request, Reuse::Fresh, self.timeout).await,
            Err(failure) => Err(failure),
        };
        match reply {
            Ok(reply) if reply.status.is_success() => {
                read_page(&reply.body).map_or(ModelsReading::NoPage, ModelsReading::Page)
            }
            // A server that is loading or busy will have it later.
            Ok(reply) if reply.status.is_server_error() || reply.status.as_u16() == 429 => {
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
}
