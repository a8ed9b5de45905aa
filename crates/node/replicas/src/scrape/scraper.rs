//! Repeated reading of one page.

use std::time::Duration;

use http::Method;
use spillway_types::LoadReport;
use tokio::time::Instant;

use super::{AdapterReport, CacheReport, Scrape};
use crate::http::{HttpClient, HttpProtocol, HttpServer, RequestError, Reuse};

/// Content of a page, and the time that its scrape took.
#[derive(Clone, Debug)]
pub(crate) struct Scraped {
    pub(crate) report: LoadReport,
    pub(crate) cache: CacheReport,
    pub(crate) adapters: Option<AdapterReport>,
    pub(crate) took: Duration,
}

/// Reader of one page over a kept connection.
#[derive(Debug)]
pub(crate) struct Scraper<'a> {
    scrape: &'a Scrape,
    client: HttpClient,
}

impl<'a> Scraper<'a> {
    pub(crate) fn new(scrape: &'a Scrape, api: &HttpServer) -> Self {
        let server = if scrape.host.is_none() && scrape.port.is_none() {
            api.clone()
        } else {
            // A page outside the replica's API must not get the API's credential and protocol.
            HttpServer {
                resolver: api.resolver.clone(),
                host: scrape.host.clone().unwrap_or_else(|| api.host.clone()),
                port: scrape.port.unwrap_or(api.port),
                base: None,
                tls: scrape.tls.clone(),
                protocol: HttpProtocol::Http1,
                headers: Vec::new(),
            }
        };
        Self { scrape, client: HttpClient::new(server) }
    }

    /// Reads the page once.
    ///
    /// # Errors
    /// Returns an error if the page could not be read, or has no number that the mapping asks for.
    pub(crate) async fn scrape(&mut self) -> Result<Scraped, RequestError> {
        let started = Instant::now();
        let request = self.client.request(Method::GET, &self.scrape.path, None)?;
        let reply = self.client.send(request, Reuse::Kept, self.scrape.timeout).await?;
        if !reply.status.is_success() {
            return Err(RequestError::Status(reply.status.as_u16()));
        }
        let (report, cache) = self.scrape.mapping.read(&reply.body);
        // A page without any of the numbers is the wrong page, or a server that reports no load.
        if report == LoadReport::default() && cache == CacheReport::default() {
            return Err(RequestError::WrongAnswer);
        }
        let adapters = self.scrape.mapping.read_adapters(&reply.body);
        Ok(Scraped { report, cache, adapters, took: started.elapsed() })
    }
}
