//! Traffic splits: one name for clients, several models behind it.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName};
use spillway_protocol::cookie;
use spillway_route::{ArmChoice, ArmKey, ArmReason, Split};
use spillway_types::{ModelName, ModelVersion, SplitArm};

use crate::replica::ReplicaSpec;

/// A split of the requests for one name between several models.
#[derive(Clone, Debug)]
pub struct SplitSpec {
    /// What clients ask for. May be the name of a model, which then is to be reached by the split
    /// alone, except by requests that ask for one of its versions.
    pub name: ModelName,
    /// What a request's arm is chosen by.
    pub by: SplitBy,
    /// How a client whose arm was drawn keeps it; `None` draws again for each request.
    pub sticky: Option<Arc<StickyCookie>>,
    /// Chooses a position in `arms`.
    pub split: Arc<Split>,
    /// The arms, in the order that `split` knows them in.
    pub arms: Vec<ArmSpec>,
}

/// Where an arm's requests go.
#[derive(Clone, Debug)]
pub struct ArmSpec {
    /// The arm's name and its split's, as in metrics and headers.
    pub arm: Arc<SplitArm>,
    /// The model that serves it, never a split or an alias.
    pub model: ModelName,
    /// The one version of the model that serves it; `None` leaves that to the replica.
    pub version: Option<ModelVersion>,
}

/// A cookie that remembers a client's arm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StickyCookie {
    /// Its name.
    pub name: String,
    /// How long clients keep it.
    pub max_age: Duration,
}

/// What a request's arm is chosen by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SplitBy {
    /// `random`: chance.
    Random,
    /// `header:NAME`: the first value of a header.
    Header(HeaderName),
    /// `cookie:NAME`: the value of a cookie.
    Cookie(String),
    /// `user`: the JSON body's field of that name.
    User,
}

/// Not a thing that a split can go by.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("can't split by {0:?}, expected random, user, header:NAME or cookie:NAME")]
pub struct UnknownSplitBy(String);

/// What there is to choose an arm by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArmSources<'r> {
    pub(crate) headers: &'r HeaderMap,
    /// The body's user field, if the body is read.
    pub(crate) user: Option<&'r str>,
    /// The replica that stores what the request continues: no other can serve it.
    pub(crate) stored_at: Option<&'r ReplicaSpec>,
}

/// The arm of one request.
#[derive(Clone, Debug)]
pub(crate) struct ChosenArm {
    pub(crate) arm: Arc<SplitArm>,
    /// The cookie that the client is to remember it by; `None` if there is nothing to remember.
    pub(crate) remember: Option<Arc<StickyCookie>>,
}

impl SplitSpec {
    /// Where a request goes, and what its arm is.
    pub(crate) fn choose(
        &self,
        sources: ArmSources<'_>,
        dice: &mut fastrand::Rng,
    ) -> (&ArmSpec, ChosenArm) {
        let sticky = self.sticky.as_ref();
        let remembered = sticky.and_then(|sticky| cookie(sources.headers, &sticky.name));
        let ArmChoice { index, reason } = self.split.choose(self.by.key(sources), remembered, dice);
        let mut spec = &self.arms[index];
        let is_there = |arm: &&ArmSpec| {
            sources.stored_at.is_none_or(|replica| replica.models.contains(&arm.model))
        };
        if !is_there(&spec)
            && let Some(there) = self.arms.iter().find(is_there)
        {
            spec = there;
        }
        let remember = sticky.filter(|_| reason == ArmReason::Drawn).cloned();
        (spec, ChosenArm { arm: Arc::clone(&spec.arm), remember })
    }
}

impl SplitBy {
    fn key<'r>(&self, sources: ArmSources<'r>) -> ArmKey<'r> {
        let may_name = match self {
            Self::Random => return ArmKey::Nothing,
            // A user may be called like an arm: only what testers set on purpose names one.
            Self::User => {
                let user = sources.user.filter(|user| !user.is_empty());
                return user.map_or(ArmKey::Nothing, |user| ArmKey::User(user.as_bytes()));
            }
            Self::Header(name) => sources.headers.get(name).map(|value| value.as_bytes()),
            Self::Cookie(name) => cookie(sources.headers, name),
        };
        may_name.filter(|value| !value.is_empty()).map_or(ArmKey::Nothing, ArmKey::UserOrArm)
    }
}

impl FromStr for SplitBy {
    type Err = UnknownSplitBy;

    fn from_str(text: &str) -> Result<Self, UnknownSplitBy> {
        let parsed = match text.split_once(':') {
            None if text == "random" => Some(Self::Random),
            None if text == "user" => Some(Self::User),
            Some(("header", name)) => name.parse().ok().map(Self::Header),
            // Names of cookies are made of the same characters as those of headers.
            Some(("cookie", name)) => {
                HeaderName::from_bytes(name.as_bytes()).ok().map(|_| Self::Cookie(name.to_owned()))
            }
            _ => None,
        };
        parsed.ok_or_else(|| UnknownSplitBy(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use spillway_route::ArmWeight;
    use spillway_types::ArmName;

    use super::*;

    fn spec(by: &str, sticky: Option<&str>) -> SplitSpec {
        weighted(by, sticky, 1)
    }

    fn weighted(by: &str, sticky: Option<&str>, canary: u32) -> SplitSpec {
        let name = ModelName::from("chat");
        let arm = |(arm, model): (&str, &str)| ArmSpec {
            arm: Arc::new(SplitArm { split: name.clone(), arm: ArmName::from(arm) }),
            model: ModelName::from(model),
            version: None,
        };
        let weights = [("stable", 1), ("canary", canary)]
            .map(|(name, weight)| ArmWeight { name: ArmName::from(name), weight });
        let sticky = sticky
            .map(|name| StickyCookie { name: name.to_owned(), max_age: Duration::from_secs(60) });
        SplitSpec {
            by: by.parse().expect("a key"),
            sticky: sticky.map(Arc::new),
            split: Arc::new(Split::new(&name, weights.to_vec()).expect("a split")),
            arms: [("stable", "old"), ("canary", "new")].map(arm).to_vec(),
            name,
        }
    }

    /// The model, and whether a cookie is to be set, for each of 64 rolls of the dice.
    fn choose(spec: &SplitSpec, lines: &[(&'static str, &str)], user: Option<&str>) -> Outcomes {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().expect("a value"));
        }
        let sources = ArmSources { headers: &headers, user, stored_at: None };
        let mut outcomes = Outcomes::default();
        for seed in 0..64 {
            let (arm, chosen) = spec.choose(sources, &mut fastrand::Rng::with_seed(seed));
            outcomes.models.insert(arm.model.to_string());
            outcomes.remembers.insert(chosen.remember.is_some());
        }
        outcomes
    }

    #[derive(Debug, Default)]
    struct Outcomes {
        models: std::collections::BTreeSet<String>,
        remembers: std::collections::BTreeSet<bool>,
    }

    impl Outcomes {
        #[track_caller]
        fn check(&self, models: &[&str], remembers: bool) {
            assert_eq!(self.models.iter().collect::<Vec<_>>(), models);
            assert_eq!(self.remembers.iter().collect::<Vec<_>>(), [&remembers]);
        }
    }

    const BOTH: &[&str] = &["new", "old"];

    proptest::proptest! {
        /// A remembered arm is one that exists and gets requests: nobody talks their way into another.
        #[test]
        fn no_cookie_leads_to_an_arm_without_weight(
            line in "(arm=)?(canary|stable|[ -~]{0,16})(; ?arm=(canary|stable|[ -~]{0,16}))?",
            seed in proptest::prelude::any::<u64>(),
        ) {
            let mut headers = HeaderMap::new();
            headers.append("cookie", line.parse().expect("visible characters"));
            let sources = ArmSources { headers: &headers, user: None, stored_at: None };
            let closed = weighted("random", Some("arm"), 0);
            let (arm, _) = closed.choose(sources, &mut fastrand::Rng::with_seed(seed));
            proptest::prop_assert_eq!(arm.model.as_str(), "old");
        }
    }

    #[test]
    fn every_form_is_read_and_nothing_else() {
        let parse = |text: &str| text.parse::<SplitBy>();
        assert_eq!(parse("random"), Ok(SplitBy::Random));
        assert_eq!(parse("user"), Ok(SplitBy::User));
        assert_eq!(parse("header:X-User"), Ok(SplitBy::Header("x-user".parse().expect("one"))));
        assert_eq!(parse("cookie:Id"), Ok(SplitBy::Cookie("Id".to_owned())));
        for text in ["", "Random", "header", "header:", "header:a b", "cookie:", "cookie:a=b"] {
            assert_eq!(parse(text), Err(UnknownSplitBy(text.to_owned())));
        }
    }

    #[test]
    fn a_header_or_cookie_with_an_arm_s_name_forces_it_and_a_user_s_name_does_not() {
        let by_header = spec("header:x-user", Some("arm"));
        choose(&by_header, &[("x-user", "canary")], None).check(&["new"], false);
        choose(&by_header, &[("x-user", "stable")], None).check(&["old"], false);
        let by_cookie = spec("cookie:who", None);
        choose(&by_cookie, &[("cookie", "a=b; who=canary")], None).check(&["new"], false);
        choose(&weighted("user", None, 0), &[], Some("canary")).check(&["old"], false);
    }

    #[test]
    fn a_request_without_the_key_is_drawn_and_its_client_remembers() {
        for by in ["random", "header:x-user", "cookie:who", "user"] {
            let split = spec(by, Some("arm"));
            choose(&split, &[], None).check(BOTH, true);
            choose(&split, &[("x-user", ""), ("cookie", "who=")], Some("")).check(BOTH, true);
            choose(&split, &[("cookie", "arm=canary")], None).check(&["new"], false);
            choose(&split, &[("cookie", "arm=nonsense")], None).check(BOTH, true);
            choose(&spec(by, None), &[("cookie", "arm=canary")], None).check(BOTH, false);
        }
    }
}
