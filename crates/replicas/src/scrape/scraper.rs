//! Reads one page again and again.

use std::time::Duration;

use http::Method;
use spillway_types::LoadReport;
use tokio::time::Instant;

use super::{CacheReport, Scrape};
use crate::http::{Client, Failure, HttpProtocol, Reuse, Server};
use crate::target::Target;

/// What a page told, and how long that took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scraped {
    pub(crate) report: LoadReport,
    pub(crate) cache: CacheReport,
    pub(crate) took: Duration,
}

/// Reads one page over a connection that it keeps.
#[derive(Debug)]
pub(crate) struct Scraper<'a> {
    scrape: &'a Scrape,
    client: Client,
}

impl<'a> Scraper<'a> {
    pub(crate) fn new(scrape: &'a Scrape, target: &Target) -> Self {
        let server = if scrape.host.is_none() && scrape.port.is_none() {
            target.server(None)
        } else {
            // Not the replica's API: its credential and protocol are not for it.
            Server {
                host: scrape.host.clone().unwrap_or_else(|| target.host.clone()),
                port: scrape.port.unwrap_or(target.port),
                tls: scrape.tls.clone(),
                protocol: HttpProtocol::Http1,
                headers: Vec::new(),
            }
        };
        Self { scrape, client: Client::new(server) }
    }

    /// Reads the page once.
    ///
    /// # Errors
    /// If it could not be read, or tells nothing of what the mapping asks for.
    pub(crate) async fn scrape(&mut self) -> Result<Scraped, Failure> {
        let started = Instant::now();
        let request = self.client.request(Method::GET, &self.scrape.path, None)?;
        let reply = self.client.send(request, Reuse::Kept, self.scrape.timeout).await?;
        if !reply.status.is_success() {
            return Err(Failure::Status(reply.status.as_u16()));
        }
        let (report, cache) = self.scrape.mapping.read(&reply.body);
        if report == LoadReport::default() && cache == CacheReport::default() {
            return Err(Failure::WrongAnswer);
        }
        Ok(Scraped { report, cache, took: started.elapsed() })
    }
}
