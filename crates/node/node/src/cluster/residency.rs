//! Residency of a forwarded request: a header names the regions and countries that may serve it. It
//! is a header because a node of an older version refuses a request whose head has more fields than
//! it knows. A node that does not know the header relies on the sender's choice alone.

use http::{HeaderMap, HeaderName, HeaderValue};
use spillway_types::{Allowed, Country, RegionName, Residency};

/// Header with the regions and countries that may serve the request: `regions=` or `countries=` and
/// names with commas between them, and a semicolon between the two lists. Only between nodes.
static RESIDENCY: HeaderName = HeaderName::from_static("x-spillway-residency");

/// Writes the residency into the headers; a residency without rules removes the header.
///
/// # Errors
/// Returns an error if a name is not valid in a header: the request must not leave this region.
pub(super) fn put(residency: &Residency, headers: &mut HeaderMap) -> Result<(), String> {
    headers.remove(&RESIDENCY);
    let parts = [listed("regions", &residency.regions), listed("countries", &residency.countries)];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if !parts.is_empty() {
        let text = parts.join(";");
        let value = HeaderValue::from_str(&text).map_err(|_| format!("{text:?} is no header"))?;
        headers.insert(RESIDENCY.clone(), value);
    }
    Ok(())
}

/// Removes the header, which replicas need not see, and returns its rules. A header that can't be
/// read, or comes twice, allows no region.
pub(super) fn take(headers: &mut HeaderMap) -> Residency {
    let is_repeated = headers.get_all(&RESIDENCY).iter().nth(1).is_some();
    let Some(value) = headers.remove(&RESIDENCY) else { return Residency::default() };
    read(&value).filter(|_| !is_repeated).unwrap_or_else(nowhere)
}

fn listed<T: std::fmt::Display>(what: &str, allowed: &Allowed<T>) -> Option<String> {
    let Allowed::Only(set) = allowed else { return None };
    let names: Vec<String> = set.iter().map(ToString::to_string).collect();
    Some(format!("{what}={}", names.join(",")))
}

fn read(value: &HeaderValue) -> Option<Residency> {
    let mut residency = Residency::default();
    for part in value.to_str().ok()?.split(';') {
        let (what, names) = part.split_once('=')?;
        let names = names.split(',').filter(|name| !name.is_empty());
        match what {
            // Of two lists of one kind it would be open which one counts.
            "regions" if !residency.regions.is_all() => return None,
            "countries" if !residency.countries.is_all() => return None,
            "regions" => residency.regions = only(names.map(|name| Some(RegionName::from(name))))?,
            "countries" => {
                residency.countries = only(names.map(|code| code.parse::<Country>().ok()))?;
            }
            _ => return None,
        }
    }
    Some(residency)
}

/// Reads an allow list. Unlike in a config, an empty list allows none.
fn only<T: Ord>(names: impl Iterator<Item = Option<T>>) -> Option<Allowed<T>> {
    let names: Option<_> = names.collect();
    Some(Allowed::Only(std::sync::Arc::new(names?)))
}

fn nowhere() -> Residency {
    Residency { regions: Allowed::Only(std::sync::Arc::default()), ..Residency::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn country(code: &str) -> Country {
        code.parse().unwrap()
    }

    #[test]
    fn it_arrives_as_it_was_sent_and_leaves_no_header() {
        let regions = Residency::new(["eu".into(), "us".into()], []);
        let countries = Residency::new([], [country("DE"), country("FR")]);
        let nothing = regions.and(&Residency::new(["ap".into()], []));
        for residency in [
            Residency::default(),
            regions.clone(),
            countries.clone(),
            regions.and(&countries),
            nothing,
        ] {
            let mut headers = HeaderMap::new();
            // A header from a client counts for nothing.
            headers.insert(RESIDENCY.clone(), HeaderValue::from_static("regions=mars"));
            put(&residency, &mut headers).unwrap();
            assert_eq!(headers.len(), usize::from(!residency.is_anywhere()));
            assert_eq!(take(&mut headers), residency);
            assert!(headers.is_empty());
        }
    }

    #[test]
    fn a_rule_that_is_said_twice_allows_no_region() {
        let lines = |lines: &[&'static str]| {
            let pairs =
                lines.iter().map(|line| (RESIDENCY.clone(), HeaderValue::from_static(line)));
            take(&mut pairs.collect())
        };
        for twice in [
            &["regions=us", "regions=eu"][..],
            &["regions=us;regions=eu"],
            &["countries=US;regions=eu;countries=DE"],
        ] {
            assert!(!lines(twice).may_serve("eu", Some(country("DE"))), "{twice:?}");
        }
    }

    #[test]
    fn what_cannot_be_read_allows_no_region() {
        for text in ["", "regions", "planets=mars", "countries=Germany", "regions=eu;countries"] {
            let mut headers = HeaderMap::new();
            headers.insert(RESIDENCY.clone(), HeaderValue::from_str(text).unwrap());
            let residency = take(&mut headers);
            assert!(!residency.may_serve("eu", Some(country("DE"))), "{text}");
        }
    }

    #[test]
    fn what_is_said_twice_allows_no_region() {
        let mut headers = HeaderMap::new();
        for text in ["regions=eu", "regions=us"] {
            headers.append(RESIDENCY.clone(), HeaderValue::from_static(text));
        }
        let residency = take(&mut headers);
        assert!(!residency.may_serve("eu", None) && !residency.may_serve("us", None));
        assert!(headers.is_empty());
    }

    #[test]
    fn a_name_that_is_no_header_keeps_the_request_here() {
        let odd = Residency::new(["e\nu".into()], []);
        assert!(put(&odd, &mut HeaderMap::new()).is_err());
    }
}
