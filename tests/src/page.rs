//! Metrics page of a node of this process.

use std::ops::Deref;

use spillway_harness::ScrapedPage;

/// A metrics page that is well-formed.
#[derive(Clone, Debug, Default)]
pub struct Page(ScrapedPage);

impl Page {
    /// Reads a page.
    ///
    /// # Errors
    /// Returns an error with the first line that OpenMetrics does not allow, and why.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        ScrapedPage::parse(text).map(Self)
    }
}

impl Deref for Page {
    type Target = ScrapedPage;

    fn deref(&self) -> &ScrapedPage {
        &self.0
    }
}
