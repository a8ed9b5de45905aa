//! Load, read from the metrics pages of model servers and exporters.

mod adapters;
mod cache_report;
mod mapping;
mod pace;
mod page;
mod scraper;
mod selector;
mod text;

use std::time::Duration;

pub use adapters::{AdapterMapping, AdapterReport};
pub use cache_report::CacheReport;
pub use mapping::{Combine, FieldMapping, Mapping};
pub(crate) use pace::ScrapePace;
pub use page::MetricsPage;
pub(crate) use scraper::{Scraped, Scraper};
pub use selector::{Selector, SelectorError};

use crate::http::TlsTarget;

/// Page that reports a replica's load.
#[derive(Clone, Debug, PartialEq)]
pub struct Scrape {
    /// Host of the page, if it is not the replica's.
    pub host: Option<String>,
    /// Port of the page, if it is not that of the replica's API.
    pub port: Option<u16>,
    /// TLS towards a host or port of its own. A page of the API uses the API's TLS, protocol and
    /// headers; a page elsewhere gets HTTP/1.1 and no headers.
    pub tls: Option<TlsTarget>,
    /// Path of the page. Servers in Python answer with less, and faster, with
    /// `?name[]=...&name[]=...`.
    pub path: String,
    /// Mapping from the page's metrics to load.
    pub mapping: Mapping,
    /// Pause between two scrapes. `None` adapts to the page: 20 times as long as a scrape takes,
    /// 100 ms to 1 s, so that a slow page is not read all the time.
    pub period: Option<Duration>,
    /// Time limit of one scrape.
    pub timeout: Duration,
}

impl Scrape {
    /// Makes a scrape of this page in cleartext, with a period that adapts to the page.
    #[must_use]
    pub fn new(page: MetricsPage) -> Self {
        Self {
            host: None,
            port: page.port,
            tls: None,
            path: page.path.to_owned(),
            mapping: page.mapping,
            period: None,
            timeout: Duration::from_secs(1),
        }
    }
}
