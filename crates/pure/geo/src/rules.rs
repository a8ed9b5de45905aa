//! Rules for the countries of clients: the regions that may serve their requests.

use std::collections::{BTreeMap, BTreeSet};

use spillway_types::{Country, Residency};

/// Residency rule for the clients of some countries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientRule {
    /// Countries of the clients that the rule applies to.
    pub clients: BTreeSet<Country>,
    /// Regions that may serve the requests of these clients.
    pub residency: Residency,
}

/// Treatment of clients whose country is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownClients {
    /// Every rule applies, as the client may be in any of the countries.
    #[default]
    EveryRule,
    /// No rule applies.
    NoRule,
}

/// Residency rules, combined for each country. By default there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientRules {
    located: BTreeMap<Country, Residency>,
    unknown: Residency,
}

/// Residency rules that a client's country puts on its requests.
#[derive(Clone, Debug)]
pub struct ClientBound {
    /// Country of the client; `None` if it is unknown.
    pub country: Option<Country>,
    /// Regions and countries where the client's requests may be served.
    pub residency: Residency,
}

impl ClientRules {
    /// Combines the rules for each country: where several rules name a country, all of them apply.
    #[must_use]
    pub fn new(rules: &[ClientRule], unknown: UnknownClients) -> Self {
        let mut located = BTreeMap::<Country, Residency>::new();
        for rule in rules {
            for country in &rule.clients {
                let held = located.entry(*country).or_default();
                // Several rules for a country all apply, so only places that all of them allow are left.
                *held = held.and(&rule.residency);
            }
        }
        let all = || rules.iter().fold(Residency::default(), |all, rule| all.and(&rule.residency));
        let unknown = match unknown {
            UnknownClients::EveryRule => all(),
            UnknownClients::NoRule => Residency::default(),
        };
        Self { located, unknown }
    }

    /// Returns the residency that applies to clients in a country; `None` is an unknown country.
    #[must_use]
    pub fn residency(&self, country: Option<Country>) -> Residency {
        match country {
            Some(country) => self.located.get(&country).cloned().unwrap_or_default(),
            None => self.unknown.clone(),
        }
    }

    /// Returns true if there is no rule, so that clients need not be located.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.located.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn countries(codes: &str) -> BTreeSet<Country> {
        codes.split_whitespace().map(|code| code.parse().unwrap()).collect()
    }

    fn rule(clients: &str, served_in: &str) -> ClientRule {
        let residency = Residency::new([], countries(served_in));
        ClientRule { clients: countries(clients), residency }
    }

    /// Returns those of DE, FR, CH and US whose regions may serve a client.
    fn served(rules: &[ClientRule], unknown: UnknownClients, client: &str) -> String {
        let residency = ClientRules::new(rules, unknown).residency(client.parse().ok());
        let allowed = ["DE", "FR", "CH", "US"].into_iter();
        let allowed = allowed.filter(|code| residency.may_serve("region", code.parse().ok()));
        allowed.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_client_s_country_decides_which_rules_hold() {
        use UnknownClients::{EveryRule, NoRule};
        let union = rule("DE FR", "DE FR");
        let swiss = rule("CH", "CH");
        let german = rule("DE", "DE US");
        for (rules, unknown, client, expected) in [
            (&[][..], EveryRule, "DE", "DE FR CH US"),
            (&[], EveryRule, "unknown", "DE FR CH US"),
            (std::slice::from_ref(&union), EveryRule, "DE", "DE FR"),
            (std::slice::from_ref(&union), EveryRule, "FR", "DE FR"),
            (std::slice::from_ref(&union), EveryRule, "US", "DE FR CH US"),
            (std::slice::from_ref(&union), EveryRule, "unknown", "DE FR"),
            (std::slice::from_ref(&union), NoRule, "unknown", "DE FR CH US"),
            (&[union.clone(), german.clone()], EveryRule, "DE", "DE"),
            (&[union.clone(), german.clone()], EveryRule, "FR", "DE FR"),
            (&[union.clone(), german], EveryRule, "unknown", "DE"),
            (&[union.clone(), swiss.clone()], EveryRule, "CH", "CH"),
            (&[union.clone(), swiss], EveryRule, "unknown", ""),
        ] {
            assert_eq!(served(rules, unknown, client), expected, "{client} by {rules:?}");
        }
    }

    #[test]
    fn without_rules_nobody_has_to_be_located() {
        assert!(ClientRules::default().is_empty());
        assert!(!ClientRules::new(&[rule("DE", "DE")], UnknownClients::NoRule).is_empty());
    }
}
