//! Terms of regions (weight, price, country): from this node's config, or from the cluster if it
//! has agreed on them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use arc_swap::ArcSwap;
use spillway_cluster_state::{RegionState, State};
use spillway_config::RegionConfig;
use spillway_types::{Country, RegionName};

/// Default weight of a region, in permille.
const USUAL_PERMILLE: u16 = 1_000;

/// Terms of all regions.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RegionFacts {
    /// Terms of each region that is known.
    pub(crate) regions: Vec<RegionConfig>,
    /// True if the terms come from the agreed state; false if they come from the config.
    pub(crate) is_agreed: bool,
    /// True if the own region is to be emptied: its clients' requests go elsewhere while that is
    /// possible.
    pub(crate) is_evacuated: bool,
    /// Regions that several sources place in different countries, with these countries. Rules about
    /// countries leave such regions out, since no source is known to be right.
    pub(crate) contradictions: Contradictions,
}

/// The countries of regions that are said to be in more than one.
pub(crate) type Contradictions = BTreeMap<RegionName, BTreeSet<Country>>;

/// The current terms, shared between tasks.
pub(crate) type SharedRegionFacts = ArcSwap<RegionFacts>;

/// Shows for logs only what differs from the default.
impl fmt::Display for RegionFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} regions", self.regions.len())?;
        for region in &self.regions {
            let (name, weight, price_ms) = (&region.name, region.weight_permille, region.price_ms);
            if weight != USUAL_PERMILLE {
                write!(f, ", {name} at {} %", f64::from(weight) / 10.0)?;
            }
            if price_ms > 0.0 {
                write!(f, ", {name} costs {price_ms} ms more")?;
            }
        }
        if self.is_evacuated { f.write_str(", this one evacuated") } else { Ok(()) }
    }
}

impl RegionFacts {
    /// Takes the terms from the config, for a node without a cluster.
    pub(crate) fn of_config(regions: &[RegionConfig]) -> Self {
        Self { regions: regions.to_vec(), ..Self::default() }
    }

    /// Takes the terms from the agreed state. Of the config only round trips count until they are
    /// measured, and countries, which have to be equal in both. `own` is this node's region, and
    /// its country by this node's config.
    pub(crate) fn agreed(
        state: &State,
        config: &[RegionConfig],
        own: (&RegionName, Option<Country>),
    ) -> Self {
        let (own, own_country) = own;
        let mut contradictions = Contradictions::new();
        let mut regions = Vec::new();
        for (name, region) in state.records().regions.iter() {
            let configured = config.iter().find(|region| region.name == *name);
            // A region in any other state gets no requests from elsewhere.
            let is_open = region.state == RegionState::Active;
            let by_node = own_country.filter(|_| name == own);
            let by_config = configured.and_then(|configured| configured.country);
            let agreed = region.country.parse().ok();
            // More than one country is a contradiction: then none counts.
            let said: BTreeSet<Country> =
                [agreed, by_config, by_node].into_iter().flatten().collect();
            regions.push(RegionConfig {
                name: name.clone(),
                weight_permille: if is_open { region.weight_permille } else { 0 },
                price_ms: region.price_ms as f32,
                rtt: configured.and_then(|configured| configured.rtt),
                country: said.first().copied().filter(|_| said.len() == 1),
                ..RegionConfig::default()
            });
            if said.len() > 1 {
                contradictions.insert(name.clone(), said);
            }
        }
        let own = state.records().regions.get(own);
        let is_evacuated = own.is_some_and(|own| own.state == RegionState::Evacuating);
        Self { regions, is_agreed: true, is_evacuated, contradictions }
    }

    /// Returns the country of this node's region; `None` if it is unknown or contradictory.
    /// `configured` is the country by the node's config. Before a cluster is known, only that and
    /// the config's regions count.
    pub(crate) fn own_country(
        &self,
        own: &RegionName,
        configured: Option<Country>,
    ) -> Option<Country> {
        let said = self.regions.iter().find(|region| region.name == *own);
        match (configured, said.and_then(|said| said.country)) {
            _ if self.contradictions.contains_key(own) => None,
            (Some(own), Some(said)) => (own == said).then_some(own),
            (own, said) => own.or(said),
        }
    }

    /// Describes the contradictions that `before` does not have.
    pub(crate) fn new_contradictions(&self, before: &Self) -> Vec<String> {
        let is_new = |(name, said): &(&RegionName, &BTreeSet<Country>)| {
            before.contradictions.get(*name) != Some(said)
        };
        let words = |(name, said): (&RegionName, &BTreeSet<Country>)| {
            let codes: Vec<&str> = said.iter().map(Country::as_str).collect();
            format!("{name} in {}", codes.join(" and "))
        };
        self.contradictions.iter().filter(is_new).map(words).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use spillway_cluster_state::{
        Actor, ClusterId, Command, DiskId, Entry, Expect, Fingerprint, Form, NodeSpec, Outcome,
        Proposer, Region, WIRE,
    };

    use super::*;

    fn formed() -> State {
        let node = |name: &str| NodeSpec {
            name: name.into(),
            region: format!("region-{name}").as_str().into(),
            address: "127.0.0.1:7946".to_owned(),
            disk: DiskId::from_bytes([name.as_bytes()[0]; 16]),
            fingerprint: Fingerprint([0; 32]),
            wire_oldest: 1,
            wire_newest: WIRE,
        };
        let mut state = State::new();
        let form =
            Form { cluster: ClusterId::from_bytes([1; 16]), nodes: vec![node("a"), node("b")] };
        agree(&mut state, Actor::Node, Command::Form(form));
        state
    }

    fn agree(state: &mut State, actor: Actor, command: Command) {
        let entry = Entry {
            stamp_ms: 1,
            proposer: Proposer { node: "a".into(), region: "region-a".into() },
            request: None,
            actor,
            command,
        };
        let effect = state.apply(state.applied() + 1, &entry);
        assert!(matches!(effect.outcome, Outcome::Applied { .. }), "{:?}", effect.outcome);
    }

    fn set(state: &mut State, region: &str, to: RegionState) {
        let command =
            Command::SetRegionState { region: region.into(), state: to, expect: Expect::Any };
        agree(state, Actor::Operator("ada".to_owned()), command);
    }

    fn weights(said: &RegionFacts) -> Vec<(&str, u16)> {
        said.regions.iter().map(|region| (region.name.as_str(), region.weight_permille)).collect()
    }

    #[test]
    fn a_region_is_in_the_country_that_cluster_and_config_don_t_contradict() {
        let code = |code: &str| code.parse::<Country>().ok();
        for (agreed, own, expected) in [
            ("DE", None, "DE"),
            ("", Some("FR"), "FR"),
            ("DE", Some("DE"), "DE"),
            ("DE", Some("FR"), ""),
            ("", None, ""),
        ] {
            let mut state = formed();
            let region = Region { country: agreed.to_owned(), ..Region::default() };
            let item = spillway_cluster_state::Item::Region("region-b".into(), region);
            let command = Command::Put { item, expect: Expect::Any };
            if !agreed.is_empty() {
                agree(&mut state, Actor::Operator("ada".to_owned()), command);
            }
            let name = RegionName::from("region-b");
            let country = own.and_then(code);
            let config = [RegionConfig { name: name.clone(), country, ..RegionConfig::default() }];
            let said = RegionFacts::agreed(&state, &config, (&"region-a".into(), None));
            let found = said.regions.iter().find(|region| region.name == name);
            assert_eq!(found.unwrap().country, code(expected), "{agreed} {own:?}");
        }
    }

    #[test]
    fn a_node_that_says_otherwise_than_the_cluster_is_in_no_country() {
        let code = |code: &str| code.parse::<Country>().ok();
        let (own, other) = (RegionName::from("region-a"), RegionName::from("region-b"));
        let alone = RegionFacts::of_config(&[]);
        assert_eq!(alone.own_country(&own, code("DE")), code("DE"));
        assert_eq!(alone.own_country(&own, None), None);
        let mut state = formed();
        let country = code("DE").unwrap();
        agree(&mut state, Actor::Node, Command::DeclareCountry { region: own.clone(), country });
        let of = |country| RegionFacts::agreed(&state, &[], (&own, country));
        for (node, expected) in [("DE", "DE"), ("FR", ""), ("", "DE")] {
            let said = of(code(node));
            assert_eq!(said.own_country(&own, code(node)), code(expected), "{node}");
            assert_eq!(said.regions[0].country, code(expected), "{node}");
            assert_eq!(said.contradictions.contains_key(&own), node == "FR");
        }
        let (before, now) = (of(None), of(code("FR")));
        assert_eq!(now.new_contradictions(&before), ["region-a in DE and FR"]);
        assert!(now.new_contradictions(&now).is_empty() && now != before);
        // The node's config counts for its own region alone.
        assert_eq!(now.regions[1].country, None);
        assert_eq!(now.own_country(&other, None), None);
    }

    #[test]
    fn a_drained_region_takes_nothing_and_an_evacuated_one_gives_away_its_own() {
        let mut state = formed();
        let own = RegionName::from("region-a");
        let own = (&own, None);
        let rtt = Some(Duration::from_millis(93));
        let config = [RegionConfig { name: "region-b".into(), rtt, ..RegionConfig::default() }];
        let said = RegionFacts::agreed(&state, &config, own);
        assert_eq!(said.to_string(), "2 regions");
        assert_eq!(weights(&said), [("region-a", 1_000), ("region-b", 1_000)]);
        assert_eq!((said.regions[1].rtt, said.is_evacuated), (rtt, false));
        set(&mut state, "region-b", RegionState::Draining);
        assert_eq!(weights(&RegionFacts::agreed(&state, &config, own))[1], ("region-b", 0));
        set(&mut state, "region-a", RegionState::Draining);
        assert!(!RegionFacts::agreed(&state, &config, own).is_evacuated);
        set(&mut state, "region-a", RegionState::Evacuating);
        let said = RegionFacts::agreed(&state, &config, own);
        assert!(said.is_evacuated);
        assert_eq!(weights(&said)[0], ("region-a", 0));
        let shown = "2 regions, region-a at 0 %, region-b at 0 %, this one evacuated";
        assert_eq!(said.to_string(), shown);
    }
}
