//! Residency rules: the places where a request may be served.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use crate::{Allowed, Country, RegionName};

/// Places where a request may be served: a region has to be among the regions and lie in one of the
/// countries. Cheap to clone; the default allows every region.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Residency {
    /// Regions that may serve.
    pub regions: Allowed<RegionName>,
    /// Countries that a serving region may lie in.
    pub countries: Allowed<Country>,
}

impl Residency {
    /// Makes a rule of these regions and countries; an empty list allows all.
    pub fn new(
        regions: impl IntoIterator<Item = RegionName>,
        countries: impl IntoIterator<Item = Country>,
    ) -> Self {
        Self {
            regions: Allowed::all_if_empty(regions.into_iter().collect()),
            countries: Allowed::all_if_empty(countries.into_iter().collect()),
        }
    }

    /// Returns true if the region may serve. A region of unknown country may not if the rule names
    /// countries.
    #[must_use]
    pub fn may_serve<Q: Ord + ?Sized>(&self, region: &Q, country: Option<Country>) -> bool
    where
        RegionName: Borrow<Q>,
    {
        self.regions.allows(region)
            && match (&self.countries, country) {
                (Allowed::All, _) => true,
                (Allowed::Only(_), None) => false,
                (countries, Some(country)) => countries.allows(&country),
            }
    }

    /// Returns the places that both rules allow, possibly none.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self {
            regions: both(&self.regions, &other.regions),
            countries: both(&self.countries, &other.countries),
        }
    }

    /// Returns true if every region may serve.
    #[must_use]
    pub fn is_anywhere(&self) -> bool {
        self.regions.is_all() && self.countries.is_all()
    }
}

/// Describes the rule for error messages, e.g. "only in the regions eu, us".
impl fmt::Display for Residency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let regions = listed("the regions", &self.regions);
        let countries = listed("the countries", &self.countries);
        match (regions, countries) {
            (None, None) => f.write_str("anywhere"),
            (Some(only), None) | (None, Some(only)) => write!(f, "only in {only}"),
            (Some(regions), Some(countries)) => {
                write!(f, "only in {regions} that are in {countries}")
            }
        }
    }
}

fn listed<T: fmt::Display>(what: &str, allowed: &Allowed<T>) -> Option<String> {
    let Allowed::Only(set) = allowed else { return None };
    let names: Vec<String> = set.iter().map(ToString::to_string).collect();
    let names = if names.is_empty() { "(none)".to_owned() } else { names.join(", ") };
    Some(format!("{what} {names}"))
}

fn both<T: Ord + Clone>(one: &Allowed<T>, other: &Allowed<T>) -> Allowed<T> {
    match (one, other) {
        (Allowed::All, only) | (only, Allowed::All) => only.clone(),
        (Allowed::Only(one), Allowed::Only(other)) => {
            // Not `all_if_empty`: two rules without a common place allow none.
            let common: BTreeSet<T> = one.intersection(other).cloned().collect();
            Allowed::Only(Arc::new(common))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn country(code: &str) -> Country {
        code.parse().unwrap()
    }

    fn in_regions(names: &[&str]) -> Residency {
        Residency::new(names.iter().map(|name| RegionName::from(*name)), [])
    }

    fn in_countries(codes: &[&str]) -> Residency {
        Residency::new([], codes.iter().map(|code| country(code)))
    }

    #[test]
    fn anywhere_is_the_default() {
        let anywhere = Residency::default();
        assert!(anywhere.may_serve("eu", None) && anywhere.may_serve("us", Some(country("US"))));
        assert!(anywhere.is_anywhere() && !in_countries(&["DE"]).is_anywhere());
        assert!(!in_regions(&["eu"]).is_anywhere());
    }

    #[test]
    fn a_region_has_to_be_among_the_regions_and_in_one_of_the_countries() {
        let rule = Residency::new(["eu".into(), "us".into()], [country("DE"), country("FR")]);
        assert!(rule.may_serve("eu", Some(country("DE"))));
        assert!(!rule.may_serve("us", Some(country("US"))), "its country is not among them");
        assert!(!rule.may_serve("ap", Some(country("FR"))), "it is not among the regions");
    }

    #[test]
    fn a_region_of_unknown_country_is_in_none_that_is_asked_for() {
        assert!(!in_countries(&["DE"]).may_serve("eu", None));
        assert!(in_regions(&["eu"]).may_serve("eu", None));
    }

    #[test]
    fn two_rules_allow_what_both_allow_and_that_may_be_nothing() {
        let one = in_regions(&["a", "b"]);
        assert_eq!(one.and(&Residency::default()), one);
        assert_eq!(Residency::default().and(&one), one);
        assert_eq!(one.and(&in_regions(&["b", "c"])), in_regions(&["b"]));
        let nowhere = one.and(&in_regions(&["c"]));
        assert!(["a", "b", "c"].iter().all(|region| !nowhere.may_serve(*region, None)));
        assert!(!nowhere.is_anywhere());
        let mixed = one.and(&in_countries(&["DE"]));
        assert!(mixed.may_serve("a", Some(country("DE"))) && !mixed.may_serve("a", None));
    }

    #[test]
    fn it_says_what_is_asked_for() {
        assert_eq!(Residency::default().to_string(), "anywhere");
        assert_eq!(in_regions(&["b", "a"]).to_string(), "only in the regions a, b");
        let nowhere = in_countries(&["DE"]).and(&in_countries(&["FR"]));
        assert_eq!(nowhere.to_string(), "only in the countries (none)");
        let both = Residency::new(["a".into()], [country("DE")]);
        assert_eq!(both.to_string(), "only in the regions a that are in the countries DE");
    }
}
