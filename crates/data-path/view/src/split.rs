//! Traffic splits: one name for clients, several models behind it.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use spillway_protocol::cookie;
use spillway_route::{ArmChoice, ArmKey, ArmReason, Split};
use spillway_types::{ModelName, ModelVersion, SplitArm, SplitBy};

use crate::replica_spec::ReplicaSpec;

/// A split of the requests for one name between several models.
#[derive(Clone, Debug)]
pub struct SplitSpec {
    /// Name that clients ask for. If it is also the name of a model, only the split reaches that
    /// model, except for requests that ask for one of its versions.
    pub name: ModelName,
    /// Property of a request by which its arm is chosen.
    pub by: SplitBy,
    /// Cookie by which a client keeps an arm drawn by chance; `None` draws for each request.
    pub sticky: Option<Arc<StickyCookie>>,
    /// Algorithm that chooses a position in `arms`.
    pub split: Arc<Split>,
    /// Arms, in the order that `split` knows.
    pub arms: Vec<ArmSpec>,
}

/// Destination of an arm's requests.
#[derive(Clone, Debug)]
pub struct ArmSpec {
    /// Names of the arm and its split, as in metrics and headers.
    pub arm: Arc<SplitArm>,
    /// Model that serves the arm; never a split or an alias.
    pub model: ModelName,
    /// Required version of the model; `None` leaves the choice to the replica.
    pub version: Option<ModelVersion>,
}

/// A cookie that remembers a client's arm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StickyCookie {
    /// Name of the cookie.
    pub name: String,
    /// Time that clients keep the cookie.
    pub max_age: Duration,
}

/// Sources for choosing the arm of a request.
#[derive(Clone, Copy, Debug)]
pub struct ArmSources<'r> {
    /// Headers of the request.
    pub headers: &'r HeaderMap,
    /// User field of the body, if the body is read.
    pub user: Option<&'r str>,
    /// Replica that stores the response which the request continues: no other can serve it.
    pub stored_at: Option<&'r ReplicaSpec>,
}

/// Arm of one request.
#[derive(Clone, Debug)]
pub struct ChosenArm {
    /// Arm of the split.
    pub arm: Arc<SplitArm>,
    /// Reason for its choice.
    pub reason: ArmReason,
    /// Cookie to set so that the client keeps the arm; `None` if there is nothing to keep.
    pub remember: Option<Arc<StickyCookie>>,
}

impl SplitSpec {
    /// Chooses the arm of a request and its destination.
    pub fn choose(
        &self,
        sources: ArmSources<'_>,
        dice: &mut fastrand::Rng,
    ) -> (&ArmSpec, ChosenArm) {
        let sticky = self.sticky.as_ref();
        let remembered = sticky.and_then(|sticky| cookie(sources.headers, &sticky.name));
        let ArmChoice { index, reason } =
            self.split.choose(arm_key(&self.by, sources), remembered, dice);
        let (mut spec, mut why) = (&self.arms[index], reason);
        let is_there = |arm: &&ArmSpec| {
            sources.stored_at.is_none_or(|replica| replica.models.contains(&arm.model))
        };
        // A stored response is only at its replica, so an arm that this replica serves is taken.
        if !is_there(&spec)
            && let Some(there) = self.arms.iter().find(is_there)
        {
            (spec, why) = (there, ArmReason::Stored);
        }
        let remember = sticky.filter(|_| reason == ArmReason::Drawn).cloned();
        (spec, ChosenArm { arm: Arc::clone(&spec.arm), reason: why, remember })
    }
}

/// Returns what names the arm of a request by `by`.
fn arm_key<'r>(by: &SplitBy, sources: ArmSources<'r>) -> ArmKey<'r> {
    let may_name = match by {
        SplitBy::Random => return ArmKey::Nothing,
        // A user's name may equal that of an arm: only headers and cookies, set on purpose, may
        // name an arm.
        SplitBy::User => {
            let user = sources.user.filter(|user| !user.is_empty());
            return user.map_or(ArmKey::Nothing, |user| ArmKey::User(user.as_bytes()));
        }
        SplitBy::Header(name) => sources.headers.get(name.as_str()).map(HeaderValue::as_bytes),
        SplitBy::Cookie(name) => cookie(sources.headers, name),
    };
    may_name.filter(|value| !value.is_empty()).map_or(ArmKey::Nothing, ArmKey::UserOrArm)
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

    /// Returns the model, and true if a cookie is set, for each of 64 rolls of the dice.
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
        /// Checks that a cookie counts only for an arm that exists and gets requests.
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
