//! Regular expressions of names and texts, for the OpenAPI document. The rules of
//! `spillway-cluster-state` decide; a test compares the expressions with them.

/// Names of nodes, regions, replicas, routes, tenants, keys, tokens and the like.
pub(crate) const NAME: &str = r"^[A-Za-z0-9._-]{1,64}$";
/// Like [`NAME`], or empty.
pub(crate) const NAME_OR_NONE: &str = r"^[A-Za-z0-9._-]{0,64}$";
/// Names of models.
pub(crate) const MODEL: &str = r"^[^\s\u0000-\u001f\u007f-\u009f]{1,256}$";
/// Codes of countries.
pub(crate) const COUNTRY: &str = r"^[A-Z]{2}$";
/// Like [`COUNTRY`], or empty.
pub(crate) const COUNTRY_OR_NONE: &str = r"^([A-Z]{2})?$";
/// A few words.
pub(crate) const TEXT: &str = r"^[^\u0000-\u001f\u007f-\u009f]{0,128}$";
/// Addresses of replicas.
pub(crate) const URL: &str = r"^https?://[A-Za-z0-9_.:\[\]-]+/?$";
/// Salts of keys.
pub(crate) const SALT: &str = r"^[0-9A-Fa-f]{32}$";
/// Hashes of keys.
pub(crate) const HASH: &str = r"^[0-9A-Fa-f]{64}$";
/// Beginnings of paths.
pub(crate) const PATH: &str = r"^/[!-\u0022$->@-~]*$";
/// Names of headers and cookies.
pub(crate) const TOKEN: &str = r"^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}$";
/// Properties by which splits choose arms.
pub(crate) const SPLIT_BY: &str =
    r"^(random|user|(header|cookie):[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64})$";
/// Subjects of limits.
const SCOPE: &str =
    r"^(global|(tenant|key):[A-Za-z0-9._-]{1,64}|model:[^\s\u0000-\u001f\u007f-\u009f]{1,256})$";

/// Returns the pattern of the path parameter `name`.
pub(crate) fn of_parameter(name: &str) -> &'static str {
    match name {
        "model" | "split" => MODEL,
        "scope" => SCOPE,
        _ => NAME,
    }
}

#[cfg(test)]
mod tests {
    use regex_lite::Regex;
    use spillway_cluster_state::{
        Actor, Arm, ClusterId, Command, DiskId, Entry, Expect, Fingerprint, Form, Item,
        LeaseSource, LimitScope, Model, NodeSpec, Outcome, Proposer, RefusalCode, Region,
        ReplicaId, ReplicaSpec, Route, STICKY_MAX_AGE_S, Split, State, StickyArm, Tenant,
    };
    use spillway_types::SplitBy;

    use super::*;

    fn fits(pattern: &str, text: &str) -> bool {
        Regex::new(pattern).unwrap().is_match(text)
    }

    /// Returns true if the rules let an operator do it, as far as names go.
    fn is_taken(command: Command) -> bool {
        let mut state = State::new();
        let node = NodeSpec {
            name: "a".into(),
            region: "eu".into(),
            address: "a:1".to_owned(),
            disk: DiskId::from_bytes([1; 16]),
            fingerprint: Fingerprint([1; 32]),
            wire_oldest: 1,
            wire_newest: spillway_cluster_state::WIRE,
        };
        let form =
            Command::Form(Form { cluster: ClusterId::from_bytes([1; 16]), nodes: vec![node] });
        for (index, command) in [form, command].into_iter().enumerate() {
            let proposer = Proposer { node: "a".into(), region: "eu".into() };
            let actor = Actor::Operator("ada".to_owned());
            let entry = Entry { stamp_ms: 1, proposer, request: None, actor, command };
            let outcome = state.apply(index as u64 + 1, &entry).outcome;
            if matches!(&outcome, Outcome::Refused(refusal) if refusal.code == RefusalCode::Invalid)
            {
                return false;
            }
        }
        true
    }

    fn put(item: Item) -> Command {
        Command::Put { item, expect: Expect::Any }
    }

    fn replica(change: impl FnOnce(&mut ReplicaSpec)) -> Command {
        let mut spec = ReplicaSpec::new("http://a:1", ["m".into()]);
        spec.source = LeaseSource::Config;
        change(&mut spec);
        let id = ReplicaId::new("eu".into(), "r".into());
        Command::RegisterReplica { id, spec, incarnation: 0, expect: Expect::Any }
    }

    /// Returns a split that chooses its arm by `by`, and keeps it by the cookie `sticky`.
    fn split(by: Option<SplitBy>, sticky: Option<&str>) -> Item {
        let (name, model) = ("x".into(), "m".into());
        let arms = vec![Arm { name, model, version: None, weight_permille: 1_000 }];
        let cookie = |cookie: &str| cookie.to_owned();
        let sticky =
            sticky.map(cookie).map(|cookie| StickyArm { cookie, max_age_s: STICKY_MAX_AGE_S });
        Item::Split("s".into(), Split { arms, by, sticky, rollout: None })
    }

    const TEXTS: [&str; 35] = [
        "",
        "user",
        "a",
        "A-b_c.9",
        "a b",
        "a/b",
        "ä",
        "a\n",
        "\u{7f}",
        "\u{85}",
        "a\tb",
        "meta/llama:8b",
        "日本",
        "*",
        "a,b",
        ":",
        "global",
        "tenant:a",
        "DE",
        "de",
        "DEU",
        "http://a:1",
        "https://a.b/",
        "http://a/b",
        "http://u@a",
        "ftp://a",
        "http://",
        "/v1",
        "/v1?x",
        "/v1#x",
        "/a b",
        "/a\"b",
        "v1",
        "/",
        "http://[::1]:80",
    ];

    #[test]
    fn a_pattern_lets_through_what_the_rules_let_through() {
        let long: Vec<String> = [64, 65, 128, 129, 256, 257].map(|bytes| "x".repeat(bytes)).into();
        for text in TEXTS.into_iter().chain(long.iter().map(String::as_str)) {
            let tenant = |title: &str| Tenant { title: title.to_owned(), ..Tenant::default() };
            let check = |pattern: &str, command: Command| {
                assert_eq!(fits(pattern, text), is_taken(command), "{text:?} and {pattern}");
            };
            check(NAME, put(Item::Tenant(text.into(), tenant(""))));
            check(MODEL, put(Item::Model(text.into(), Model::default())));
            check(TEXT, put(Item::Tenant("t".into(), tenant(text))));
            check(TEXT, replica(|spec| spec.hardware = text.to_owned()));
            check(NAME, replica(|spec| spec.pool = text.to_owned()));
            check(URL, replica(|spec| spec.url = text.to_owned()));
            let pool = Route { pool: text.to_owned(), ..Route::default() };
            check(NAME_OR_NONE, put(Item::Route("r".into(), pool)));
            let prefix = Route { path_prefix: Some(text.to_owned()), ..Route::default() };
            check(PATH, put(Item::Route("r".into(), prefix)));
            check(TOKEN, put(split(None, Some(text))));
            assert_eq!(fits(SPLIT_BY, text), text == "user", "{text:?}");
            let header = format!("header:{text}");
            let is_read = header.parse().is_ok_and(|by| is_taken(put(split(Some(by), None))));
            assert_eq!(fits(SPLIT_BY, &header), is_read, "{text:?}");
            let region = Region { country: text.to_owned(), ..Region::default() };
            check(COUNTRY_OR_NONE, put(Item::Region("eu".into(), region)));
            assert_eq!(fits(COUNTRY, text), !text.is_empty() && fits(COUNTRY_OR_NONE, text));
        }
        assert!(fits(SCOPE, "global") && fits(SCOPE, "model:meta/a") && fits(SCOPE, "key:k"));
        assert!(!fits(SCOPE, "tenant:a/b") && !fits(SCOPE, "node:a") && !fits(SCOPE, ""));
        assert_eq!(LimitScope::Global, LimitScope::Global);
    }
}
