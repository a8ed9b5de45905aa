//! Query parameters.

use percent_encoding::percent_decode_str;
use spillway_raft::Consistency;
use spillway_usage::{Day, UsageBy};

use crate::error::ApiError;
use crate::requests::FilterField;

/// Number of records on one page, unless the request asks for another.
const PAGE: usize = 100;
/// Most records on one page: while a page is read, no entry is applied.
pub(crate) const PAGE_MAX: usize = 1_000;

/// Parsed query parameters of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Query {
    pub(crate) consistency: Consistency,
    pub(crate) is_dry_run: bool,
    /// True if a record may be made whose name looks like a slip.
    pub(crate) creates: bool,
    pub(crate) limit: usize,
    pub(crate) after: Option<String>,
    pub(crate) trail: Trail,
    /// Number of the hottest blocks to show.
    pub(crate) top: usize,
    /// True if only failed requests are shown.
    pub(crate) is_failed: bool,
    /// Fields of the requests to show.
    pub(crate) fields: Vec<(FilterField, String)>,
    /// First day of usage.
    pub(crate) since: Option<Day>,
    /// Last day of usage.
    pub(crate) until: Option<Day>,
    /// Columns that sums of usage are grouped by.
    pub(crate) by: Option<Vec<UsageBy>>,
    /// Nodes that are asked.
    pub(crate) scope: Scope,
}

/// Nodes that a read asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The answering one.
    #[default]
    Node,
    /// All nodes of a region.
    Region,
    /// All.
    Cluster,
}

/// Audit trail to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trail {
    Operators,
    System,
}

impl Default for Query {
    fn default() -> Self {
        Self {
            consistency: Consistency::Linearizable,
            is_dry_run: false,
            creates: false,
            limit: PAGE,
            after: None,
            trail: Trail::Operators,
            top: 0,
            is_failed: false,
            fields: Vec::new(),
            since: None,
            until: None,
            by: None,
            scope: Scope::Node,
        }
    }
}

impl Query {
    /// Parses the parameters; each of them has to be among `known`.
    pub(crate) fn parse(text: Option<&str>, known: &[&str]) -> Result<Self, ApiError> {
        let mut query = Self::default();
        for pair in text.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = percent_decode_str(value).decode_utf8();
            let value = value.map_err(|_| wrong(name, "encode it as UTF-8, percent-encoded"))?;
            // Refused, not ignored: a misspelt `dry_run` must not write.
            if !known.contains(&name) {
                let cause = format!("the parameter {:?} means nothing here", shown(name));
                let remedy = match known {
                    [] => "leave it out".to_owned(),
                    known => format!("use {}", known.join(", ")),
                };
                return Err(ApiError::bad_request(cause, remedy));
            }
            query.set(name, &value)?;
        }
        Ok(query)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), ApiError> {
        match (name, value) {
            ("consistency", "linearizable") => self.consistency = Consistency::Linearizable,
            ("consistency", "stale") => self.consistency = Consistency::Stale,
            ("consistency", _) => return Err(wrong(name, "use linearizable or stale")),
            // `?dry_run` without a value means true.
            ("dry_run", "true" | "") => self.is_dry_run = true,
            ("dry_run", "false") => self.is_dry_run = false,
            ("create", "true" | "") => self.creates = true,
            ("create", "false") => self.creates = false,
            ("dry_run" | "create", _) => return Err(wrong(name, "use true or false")),
            ("limit", number) => {
                let limit = number.parse().ok().filter(|limit| (1..=PAGE_MAX).contains(limit));
                let remedy = format!("use a number from 1 to {PAGE_MAX}");
                self.limit = limit.ok_or_else(|| wrong(name, remedy))?;
            }
            ("top", number) => {
                let top = number.parse().ok().filter(|top| *top <= PAGE_MAX);
                let remedy = format!("use a number from 0 to {PAGE_MAX}");
                self.top = top.ok_or_else(|| wrong(name, remedy))?;
            }
            ("trail", "operators") => self.trail = Trail::Operators,
            ("trail", "system") => self.trail = Trail::System,
            ("trail", _) => return Err(wrong(name, "use operators or system")),
            ("failed", "true" | "") => self.is_failed = true,
            ("failed", "false") => self.is_failed = false,
            ("failed", _) => return Err(wrong(name, "use true or false")),
            ("scope", "node") => self.scope = Scope::Node,
            ("scope", "region") => self.scope = Scope::Region,
            ("scope", "cluster") => self.scope = Scope::Cluster,
            ("scope", _) => return Err(wrong(name, "use node, region or cluster")),
            ("since", text) => self.since = Some(day(name, text)?),
            ("until", text) => self.until = Some(day(name, text)?),
            ("by", list) => self.by = Some(by(name, list)?),
            (name, value) => {
                match FilterField::ALL.into_iter().find(|field| field.name() == name) {
                    Some(field) => self.fields.push((field, value.to_owned())),
                    // Of all known parameters only `after` is left.
                    None => self.after = Some(value.to_owned()),
                }
            }
        }
        Ok(())
    }
}

fn day(name: &str, text: &str) -> Result<Day, ApiError> {
    text.parse().map_err(|_| wrong(name, "write a day as 2026-11-27"))
}

/// Reads a list of columns that sums are grouped by, in any order.
fn by(name: &str, list: &str) -> Result<Vec<UsageBy>, ApiError> {
    let words = list.split(',').filter(|word| !word.is_empty());
    let named = words.map(|word| {
        UsageBy::named(word).ok_or_else(|| wrong(name, "use day, tenant, key and model"))
    });
    let mut by = named.collect::<Result<Vec<_>, _>>()?;
    by.sort_unstable();
    by.dedup();
    Ok(by)
}

fn wrong(name: &str, remedy: impl Into<String>) -> ApiError {
    let cause = format!("the parameter {:?} can't have that value", shown(name));
    ApiError::bad_request(cause, remedy)
}

/// Returns the first 32 characters of a name, for an error message.
fn shown(name: &str) -> String {
    name.chars().take(32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 7] = ["consistency", "dry_run", "limit", "after", "trail", "top", "scope"];

    #[test]
    fn parameters_are_read_in_any_order() {
        let text =
            "limit=7&after=a%2Fb&consistency=stale&dry_run=true&trail=system&top=1000&scope=region";
        let query = Query::parse(Some(text), &KNOWN).unwrap();
        let expected = Query {
            consistency: Consistency::Stale,
            is_dry_run: true,
            limit: 7,
            after: Some("a/b".to_owned()),
            trail: Trail::System,
            top: 1_000,
            scope: Scope::Region,
            ..Query::default()
        };
        assert_eq!(query, expected);
        assert_eq!(Query::parse(None, &[]).unwrap(), Query::default());
        assert_eq!(Query::parse(Some(""), &[]).unwrap(), Query::default());
    }

    #[test]
    fn what_means_nothing_is_refused() {
        for text in [
            "consistency=eventual",
            "dry_run=1",
            "limit=0",
            "limit=1001",
            "limit=x",
            "trail=all",
            "top=1001",
            "top=-1",
            "after=%FF",
            "scope=world",
            "dryrun=true",
        ] {
            assert!(Query::parse(Some(text), &KNOWN).is_err(), "{text}");
        }
        assert!(Query::parse(Some("dry_run=true"), &["limit"]).is_err());
    }
}
