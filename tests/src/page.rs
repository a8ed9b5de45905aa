//! A metrics page, read strictly: it judges what a node writes. The reader of replicas' pages
//! (`replicas/scrape`) is lenient, so it can't stand in here.

use std::collections::BTreeMap;

/// A page of OpenMetrics text.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// Type of each metric by its name.
    pub types: BTreeMap<String, String>,
    /// Every line with a value.
    pub samples: Vec<Sample>,
}

/// One line with a value.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Name, suffix included.
    pub name: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Value.
    pub value: f64,
}

impl Page {
    /// Reads a page.
    ///
    /// # Errors
    /// The first line that OpenMetrics does not allow, and why.
    pub fn parse(text: &str) -> Result<Self, String> {
        let body = text.strip_suffix("# EOF\n").ok_or("the page does not end with # EOF")?;
        let mut page = Self::default();
        for line in body.lines() {
            page.line(line).map_err(|problem| format!("{problem}: {line:?}"))?;
        }
        Ok(page)
    }

    /// The sum of all samples of that name whose labels include `labels`.
    #[must_use]
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let fits = |sample: &&Sample| {
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
        self.samples.push(Sample { name: name.to_owned(), labels, value });
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
