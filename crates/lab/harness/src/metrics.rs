//! Reader of a node's metrics page. It is strict, so that it judges what the node writes.
//!
//! The reader of replicas' pages (`replicas/scrape`) is another one: it is lenient and works on
//! every scrape of a running node, so neither can replace the other.

use std::collections::BTreeMap;

use anyhow::Context as _;

use crate::client::{LoadClient, LoadRequest};

/// Page of OpenMetrics text.
#[derive(Clone, Debug, Default)]
pub struct ScrapedPage {
    /// Type of each metric by its name.
    pub types: BTreeMap<String, String>,
    /// Every line with a value.
    pub samples: Vec<ScrapedSample>,
}

/// Line with a value.
#[derive(Clone, Debug, PartialEq)]
pub struct ScrapedSample {
    /// Name, suffix included.
    pub name: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Value.
    pub value: f64,
}

impl ScrapedPage {
    /// Reads a page.
    ///
    /// # Errors
    /// Returns an error with the first line that OpenMetrics does not allow, and why.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let body = text.strip_suffix("# EOF\n").context("the page does not end with # EOF")?;
        let mut page = Self::default();
        for line in body.lines() {
            page.line(line).map_err(|problem| anyhow::anyhow!("{problem}: {line:?}"))?;
        }
        Ok(page)
    }

    /// Reads the page of an admin listener.
    ///
    /// # Errors
    /// Returns an error if the listener does not answer, or not with such a page.
    pub async fn scrape(admin: &LoadClient) -> anyhow::Result<Self> {
        let request = LoadRequest::get("/metrics").header("accept", "application/openmetrics-text");
        Self::parse(std::str::from_utf8(&admin.ask(&request).await?)?)
    }

    /// Returns the sum of all samples of `name` whose labels include `labels`.
    #[must_use]
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let fits = |sample: &&ScrapedSample| {
            sample.name == name
                && labels
                    .iter()
                    .all(|(key, value)| sample.labels.get(*key).is_some_and(|known| known == value))
        };
        self.samples.iter().filter(fits).map(|sample| sample.value).sum()
    }

    fn line(&mut self, line: &str) -> Result<(), &'static str> {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (Some(kind), Some(name)) = (words.next(), words.next()) else {
                return Err("a comment without a name");
            };
            return match kind {
                "HELP" | "UNIT" => Ok(()),
                "TYPE" => {
                    let kind = words.next().ok_or("a type without a name")?;
                    let is_new = self.types.insert(name.to_owned(), kind.to_owned()).is_none();
                    is_new.then_some(()).ok_or("a metric that occurs twice")
                }
                _ => Err("an unknown comment"),
            };
        }
        let (series, value) = line.rsplit_once(' ').ok_or("no value")?;
        let value = value.parse().map_err(|_| "the value is no number")?;
        let (name, labels) = match series.split_once('{') {
            Some((name, rest)) => {
                (name, parse_labels(rest.strip_suffix('}').ok_or("an open bracket")?)?)
            }
            None => (series, BTreeMap::new()),
        };
        let is_known = self.types.keys().any(|known| {
            name.strip_prefix(known.as_str()).is_some_and(|suffix| {
                ["", "_total", "_bucket", "_sum", "_count", "_info"].contains(&suffix)
            })
        });
        if !is_known {
            return Err("a sample without a type");
        }
        self.samples.push(ScrapedSample { name: name.to_owned(), labels, value });
        Ok(())
    }
}

fn parse_labels(text: &str) -> Result<BTreeMap<String, String>, &'static str> {
    let mut labels = BTreeMap::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (name, after) = rest.split_once("=\"").ok_or("a label without a value")?;
        let (value, after) = after.split_once('"').ok_or("a label without an end")?;
        if labels.insert(name.to_owned(), value.to_owned()).is_some() {
            return Err("a label that occurs twice");
        }
        rest = after.strip_prefix(',').unwrap_or(after);
    }
    Ok(labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_added_up_by_name_and_label() {
        let text = "# TYPE a counter\n# TYPE ab gauge\na_total{x=\"1\",y=\"2\"} 2\na_total{x=\"2\"} 3.5\n\
                    ab{x=\"1\"} 100\na_total 1\n# EOF\n";
        let page = ScrapedPage::parse(text).unwrap();
        let sum = |name, labels: &[(&str, &str)]| (page.sum(name, labels) * 10.0).round();
        assert_eq!([sum("a_total", &[]), sum("a_total", &[("x", "1")])], [65.0, 20.0]);
        assert_eq!([sum("a", &[]), sum("a_total", &[("x", "1"), ("y", "1")])], [0.0, 0.0]);
    }

    #[test]
    fn a_page_that_breaks_the_rules_is_refused() {
        for text in ["", "# TYPE a gauge\na 1\n", "a 1\n# EOF\n", "# TYPE a gauge\na x\n# EOF\n"] {
            assert!(ScrapedPage::parse(text).is_err(), "{text}");
        }
    }
}
