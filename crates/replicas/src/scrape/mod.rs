//! Load, read from the metrics pages of model servers and exporters.

mod builtin;
mod cache_report;
mod mapping;
mod pace;
mod scraper;
mod selector;
mod text;

use std::time::Duration;

pub use cache_report::CacheReport;
pub use mapping::{Combine, FieldMapping, Mapping};
pub(crate) use pace::Pace;
pub(crate) use scraper::{Scraped, Scraper};
pub use selector::{BadSelector, Selector};

use crate::http::TlsTarget;
use crate::kind::MetricsPage;

/// One page that tells a replica's load.
#[derive(Clone, Debug, PartialEq)]
pub struct Scrape {
    /// Host, where it is not the replica's.
    pub host: Option<String>,
    /// Port, where it is not that of the replica's API.
    pub port: Option<u16>,
    /// TLS towards a host or port of its own. A page of the API has the API's TLS, protocol and
    /// headers; one elsewhere gets HTTP/1.1 and no headers.
    pub tls: Option<TlsTarget>,
    /// Path of the page. Servers in Python tell less, and faster, with
    /// `?name[]=...&name[]=...`.
    pub path: String,
    /// What on it means what.
    pub mapping: Mapping,
    /// Pause between two scrapes. `None` follows the page: 20 times as long as a scrape takes, 100
    /// ms to 1 s, so that a slow page is not asked all the time.
    pub period: Option<Duration>,
    /// How long one scrape may take.
    pub timeout: Duration,
}

impl Scrape {
    /// The page of a kind of server, in cleartext, as often as is good for it.
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
