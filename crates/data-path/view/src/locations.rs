//! Rules for requests by the countries of their clients.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use spillway_geo::{ClientBound, ClientRules, Locator};
use spillway_types::Country;

/// Letters of the alphabet, which country codes consist of.
const LETTERS: usize = 26;

/// Location databases and the rules that use them: immutable, and swapped as a whole.
#[derive(Clone, Debug, Default)]
pub struct Locations {
    /// Location databases; without them the country of every client is unknown.
    pub locator: Option<Arc<Locator>>,
    /// Residency rules by country of the client.
    pub rules: ClientRules,
}

impl Locations {
    /// Returns a client's country with the rules for it; `None` without databases and rules.
    pub fn bound(&self, client: IpAddr) -> Option<ClientBound> {
        if self.locator.is_none() && self.rules.is_empty() {
            return None;
        }
        let country = self.locator.as_ref().and_then(|locator| locator.country(client));
        Some(ClientBound { country, residency: self.rules.residency(country) })
    }

    /// Returns true if the rules about a client's country allow the region to serve its requests.
    pub fn may_serve(&self, client: IpAddr, region: &str, country: Option<Country>) -> bool {
        self.rules.is_empty()
            || self.bound(client).is_none_or(|bound| bound.residency.may_serve(region, country))
    }
}

/// Counts of requests by country of the client: one counter for each possible code of two letters,
/// and one for unknown countries. No database can add more.
#[derive(Debug)]
pub struct CountryCounts([AtomicU64; LETTERS * LETTERS + 1]);

impl Default for CountryCounts {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; LETTERS * LETTERS + 1])
    }
}

impl CountryCounts {
    /// Counts a request.
    pub fn count(&self, country: Option<Country>) {
        if let Some(counter) = self.0.get(country.map_or(LETTERS * LETTERS, index)) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the total of each country that any client was in.
    pub fn totals(&self) -> Vec<(String, u64)> {
        let totals = self.0.iter().map(|counter| counter.load(Ordering::Relaxed)).enumerate();
        totals.filter(|(_, total)| *total > 0).map(|(index, total)| (name(index), total)).collect()
    }
}

fn index(country: Country) -> usize {
    let letters = country.as_str().bytes().map(|letter| usize::from(letter.saturating_sub(b'A')));
    letters.fold(0, |index, letter| index * LETTERS + letter)
}

fn name(index: usize) -> String {
    let letter = |number: usize| char::from(b'A' + u8::try_from(number).unwrap_or_default());
    match index {
        unknown if unknown == LETTERS * LETTERS => "unknown".to_owned(),
        known => [letter(known / LETTERS), letter(known % LETTERS)].into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_counter_of_its_own() {
        let counts = CountryCounts::default();
        assert_eq!(counts.totals(), []);
        let codes = || {
            let letters = || 'A'..='Z';
            letters().flat_map(move |first| letters().map(move |second| format!("{first}{second}")))
        };
        for code in codes() {
            counts.count(code.parse().ok());
        }
        counts.count(None);
        counts.count("DE".parse().ok());
        let totals = counts.totals();
        let names: Vec<&str> = totals.iter().map(|(name, _)| &**name).collect();
        let expected: Vec<String> = codes().chain(["unknown".to_owned()]).collect();
        assert_eq!(names, expected);
        let total = |code: &str| totals.iter().find(|(name, _)| name == code).map(|(_, it)| *it);
        assert_eq!((total("DE"), total("DF"), total("unknown")), (Some(2), Some(1), Some(1)));
    }

    #[test]
    fn without_databases_and_rules_nobody_is_located() {
        let client = IpAddr::from([203, 0, 113, 7]);
        let locations = Locations::default();
        assert!(locations.bound(client).is_none() && locations.may_serve(client, "eu", None));
    }
}
