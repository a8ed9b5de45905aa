//! Tests of records that operators write as a whole.

use spillway_types::SplitBy;

use crate::golden_test::keyed_split;
use crate::test_world::{World, put, refusal, remove, setting};
use crate::{
    Arm, Command, Entry, Expect, Hidden, Item, Key, KeyRole, Limit, LimitScope, Model, Outcome,
    RecordKey, RefusalCode, Region, Route, SETTINGS, STICKY_MAX_AGE_S, SettingRule, Split, State,
    StickyArm, Tenant,
};

fn world() -> World {
    World::of(&[("a", 1)])
}

fn tenant() -> Command {
    put(Item::Tenant("acme".into(), Tenant::default()))
}

pub(crate) fn key(tenant: Option<&str>) -> Key {
    Key {
        role: KeyRole::Client,
        salt: [1; 16],
        hash: Hidden::new([2; 32]),
        tenant: tenant.map(Into::into),
        models: [].into(),
        regions: ["a".into()].into(),
        priority: 1,
        expires_ms: None,
        is_revoked: false,
    }
}

fn model(alias_of: Option<&str>, fallbacks: &[&str]) -> Model {
    let fallbacks = fallbacks.iter().map(|name| (*name).into()).collect();
    Model { alias_of: alias_of.map(Into::into), fallbacks, price: None }
}

fn put_model(name: &str, alias_of: Option<&str>, fallbacks: &[&str]) -> Command {
    put(Item::Model(name.into(), model(alias_of, fallbacks)))
}

fn put_split(name: &str, arms: &[(&str, &str, u16)]) -> Command {
    let arms = arms.iter().map(|(arm, model, weight_permille)| Arm {
        name: (*arm).into(),
        model: (*model).into(),
        version: None,
        weight_permille: *weight_permille,
    });
    put(Item::Split(name.into(), Split { arms: arms.collect(), ..Split::default() }))
}

#[test]
fn a_write_expects_a_version_and_gets_it_or_nothing() {
    let mut world = world();
    let write = |title: &str, expect| {
        let tenant = Tenant { title: title.to_owned(), ..Tenant::default() };
        Command::Put { item: Item::Tenant("acme".into(), tenant), expect }
    };
    let conflict = |current| Outcome::Conflict { key: RecordKey::Tenant("acme".into()), current };
    let missing = world.apply(&world.by_operator(write("A", Expect::Version(1))));
    assert_eq!(missing, conflict(None));
    let first = world.done(write("A", Expect::Absent));
    let twice = world.apply(&world.by_operator(write("B", Expect::Absent)));
    assert_eq!(twice, conflict(Some(first)));
    let second = world.done(write("B", Expect::Version(first)));
    let late = world.apply(&world.by_operator(write("C", Expect::Version(first))));
    assert_eq!(late, conflict(Some(second)));
    let same = world.apply(&world.by_operator(write("B", Expect::Any)));
    assert_eq!(same, Outcome::Unchanged);
    let version = world.state.records().version(&RecordKey::Tenant("acme".into()));
    assert_eq!(version, Some(second), "what does not change keeps its version");
    let stale =
        Command::Remove { key: RecordKey::Tenant("acme".into()), expect: Expect::Version(first) };
    assert_eq!(world.apply(&world.by_operator(stale)), conflict(Some(second)));
}

#[test]
fn nodes_write_nothing_of_this() {
    let mut world = world();
    assert_eq!(world.refused("a1", tenant()), RefusalCode::NotPermitted);
    let key = RecordKey::Tenant("acme".into());
    assert_eq!(world.refused("a1", remove(key)), RefusalCode::NotPermitted);
}

#[test]
fn an_alias_leads_to_a_model_in_one_step() {
    let mut world = world();
    world.done(put_model("big", Some("llama-3/70b:q4"), &[]));
    assert_eq!(world.denied(put_model("x", Some("big"), &[])), RefusalCode::Loop, "of an alias");
    assert_eq!(world.denied(put_model("x", Some("x"), &[])), RefusalCode::Loop, "of itself");
    let onwards = put_model("llama-3/70b:q4", Some("y"), &[]);
    assert_eq!(world.denied(onwards), RefusalCode::Loop, "the target goes on");
    world.done(put_model("big", Some("z"), &[]));
}

#[test]
fn the_record_of_all_models_has_a_price_alone_once_all_nodes_know_it() {
    let mut world = World::of_wire(1, &[("a", 1)]);
    // To an older node it is a name like any other, and all nodes must come to one state.
    world.done(put_model("*", Some("m"), &["x"]));
    let mut world = World::of(&[("a", 1)]);
    assert_eq!(world.denied(put_model("*", Some("m"), &[])), RefusalCode::Invalid);
    assert_eq!(world.denied(put_model("*", None, &["x"])), RefusalCode::Invalid);
    world.done(put_model("*", None, &[]));
}

#[test]
fn a_fallback_is_tried_once() {
    let mut world = world();
    assert_eq!(world.denied(put_model("m", None, &["m"])), RefusalCode::Loop);
    assert_eq!(world.denied(put_model("m", None, &["x", "x"])), RefusalCode::Loop);
    let many: Vec<String> = (0..9).map(|n| n.to_string()).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(world.denied(put_model("m", None, &many)), RefusalCode::LimitReached);
    assert_eq!(world.denied(put_model("m", None, &[""])), RefusalCode::Invalid);
    world.done(put_model("m", None, &many[..8]));
}

#[test]
fn the_arms_of_a_split_make_a_whole_and_lead_to_models() {
    let mut world = world();
    let halves = [("a", "m", 500), ("b", "n", 500)];
    world.done(put_split("s", &halves));
    assert_eq!(world.denied(put_split("t", &[("a", "m", 999)])), RefusalCode::Invalid);
    assert_eq!(world.denied(put_split("t", &[])), RefusalCode::Invalid);
    // Each fault has words of its own.
    let doubled = world.by_operator(put_split("t", &[("a", "m", 500), ("a", "n", 500)]));
    let cause = refusal(world.apply(&doubled)).cause;
    assert_eq!(cause, "a second arm is called \"a\"");
    let half = world.by_operator(put_split("t", &[("a", "m", 500)]));
    assert_eq!(refusal(world.apply(&half)).cause, "the weights of the arms make 50 %");
    assert_eq!(world.denied(put_split("t", &[("a", "s", 1000)])), RefusalCode::Loop);
    assert_eq!(world.denied(put_split("m", &[("a", "x", 1000)])), RefusalCode::Loop);
    world.done(put_split("q", &[("a", "q", 1000)]));
}

#[test]
fn a_split_names_what_its_arms_are_chosen_by() {
    let mut world = world();
    world.done(put(Item::Split("s".into(), keyed_split())));
    let of = |by: Option<SplitBy>, cookie: Option<&str>| {
        let sticky = cookie
            .map(|cookie| StickyArm { cookie: cookie.to_owned(), max_age_s: STICKY_MAX_AGE_S });
        put(Item::Split("t".into(), Split { by, sticky, ..keyed_split() }))
    };
    let header = |name: &str| Some(SplitBy::Header(name.to_owned()));
    for name in ["", "a b", "a:b", &"x".repeat(65)] {
        assert_eq!(world.denied(of(header(name), None)), RefusalCode::Invalid, "{name}");
        assert_eq!(world.denied(of(None, Some(name))), RefusalCode::Invalid, "{name}");
    }
    let own = Some(SplitBy::Cookie("who".to_owned()));
    assert_eq!(world.denied(of(own.clone(), Some("who"))), RefusalCode::Invalid, "the same one");
    assert_eq!(world.denied(of(own, Some("arm"))), RefusalCode::InUse, "another split's");
    world.done(of(Some(SplitBy::User), Some("arm-2")));
}

#[test]
fn a_split_of_an_older_log_is_read_and_a_newer_one_waits_for_all_nodes() {
    let mut world = World::of_wire(1, &[("a", 1)]);
    assert_eq!(world.denied(put(Item::Split("s".into(), keyed_split()))), RefusalCode::WireVersion);
    world.done(put_split("s", &[("a", "m", 1000)]));
    // A refused command stays in the log, and is read again.
    for arms in [vec![], vec![("", "", 1000)]] {
        let refused = world.by_operator(put_split("s", &arms));
        assert_eq!(Entry::from_bytes(&refused.to_bytes().unwrap()), Ok(refused));
    }
    let mut world = World::of(&[("a", 1)]);
    world.done(put(Item::Split("s".into(), keyed_split())));
    let read = State::from_snapshot(&world.state.to_snapshot().unwrap()).unwrap();
    assert_eq!(read.records().splits.get(&"s".into()), Some(&keyed_split()));
    assert_eq!(read, world.state);
}

#[test]
fn a_name_is_an_alias_or_a_split() {
    let mut world = world();
    world.done(put_split("s", &[("a", "m", 1000)]));
    assert_eq!(world.denied(put_model("s", Some("m"), &[])), RefusalCode::InUse);
    world.done(put_model("x", Some("m"), &[]));
    assert_eq!(world.denied(put_split("x", &[("a", "m", 1000)])), RefusalCode::InUse);
}

#[test]
fn a_route_has_a_path_or_none() {
    let mut world = world();
    let route = |path: &str| {
        let path_prefix = Some(path.to_owned());
        put(Item::Route("r".into(), Route { path_prefix, ..Route::default() }))
    };
    for wrong in ["", "v1", "/a b", "/a?b", "/a#b"] {
        assert_eq!(world.denied(route(wrong)), RefusalCode::Invalid, "{wrong:?}");
    }
    world.done(route("/v1"));
    world.done(remove(RecordKey::Route("r".into())));
}

#[test]
fn a_limit_limits_something_and_its_floors_fit() {
    let mut world = world();
    let limit = |scope: LimitScope, floors: &[(&str, u16)]| {
        let floors_permille = floors.iter().map(|(name, floor)| ((*name).into(), *floor)).collect();
        let limit = Limit { requests_per_s: Some(5), floors_permille, ..Limit::default() };
        put(Item::Limit(scope, limit))
    };
    world.done(limit(LimitScope::Global, &[("a", 600), ("b", 400)]));
    let floors = [("a", 600), ("b", 401)];
    assert_eq!(world.denied(limit(LimitScope::Global, &floors)), RefusalCode::Invalid);
    let nothing = put(Item::Limit(LimitScope::Global, Limit::default()));
    assert_eq!(world.denied(nothing), RefusalCode::Invalid);
    let acme = || LimitScope::Tenant("acme".into());
    assert_eq!(world.denied(limit(acme(), &[])), RefusalCode::Unknown, "no such tenant");
    world.done(tenant());
    world.done(limit(acme(), &[]));
    world.done(remove(RecordKey::Tenant("acme".into())));
    assert_eq!(world.state.records().limits.len(), 1, "a tenant's limit goes with it");
}

#[test]
fn a_clients_key_has_a_tenant_that_stays_as_long() {
    let mut world = world();
    let put_key = |key: Key| put(Item::Key("k".into(), key));
    assert_eq!(world.denied(put_key(key(None))), RefusalCode::Invalid);
    assert_eq!(world.denied(put_key(key(Some("acme")))), RefusalCode::Unknown);
    world.done(put_key(Key { role: KeyRole::Admin, ..key(None) }));
    world.done(tenant());
    world.done(put_key(key(Some("acme"))));
    let limit = Limit { concurrency: Some(1), ..Limit::default() };
    world.done(put(Item::Limit(LimitScope::Key("k".into()), limit)));
    assert_eq!(world.denied(remove(RecordKey::Tenant("acme".into()))), RefusalCode::InUse);
    world.done(remove(RecordKey::Key("k".into())));
    assert!(world.state.records().limits.is_empty(), "a key's limit goes with it");
    world.done(remove(RecordKey::Tenant("acme".into())));
}

#[test]
fn a_revoked_key_stays_revoked() {
    let mut world = world();
    world.done(tenant());
    world.done(put(Item::Key("k".into(), key(Some("acme")))));
    let revoke = || Command::RevokeKey { key: "k".into(), expect: Expect::Any };
    assert_eq!(world.refused("a1", revoke()), RefusalCode::NotPermitted);
    world.done(revoke());
    assert_eq!(world.apply(&world.by_operator(revoke())), Outcome::Unchanged);
    let back = put(Item::Key("k".into(), key(Some("acme"))));
    assert_eq!(world.denied(back), RefusalCode::Transition);
    let unknown = Command::RevokeKey { key: "x".into(), expect: Expect::Any };
    assert_eq!(world.denied(unknown), RefusalCode::Unknown);
}

#[test]
fn settings_are_known_and_have_bounds() {
    let mut world = world();
    assert_eq!(world.denied(setting("nonsense", "1")), RefusalCode::Unknown);
    for wrong in ["", "x", "-1", "9999", "0010000", "600001", "1e5"] {
        let code = world.denied(setting("health.observation_ms", wrong));
        assert_eq!(code, RefusalCode::Invalid, "{wrong:?}");
    }
    assert_eq!(world.denied(setting("join.token_required", "yes")), RefusalCode::Invalid);
    assert_eq!(world.state.setting("health.observation_ms"), Some("60000"), "the default");
    world.done(setting("health.observation_ms", "10000"));
    assert_eq!(world.state.setting("health.observation_ms"), Some("10000"));
    world.done(remove(RecordKey::Setting("health.observation_ms".to_owned())));
    assert_eq!(world.state.setting("health.observation_ms"), Some("60000"));
    assert_eq!(world.state.setting("nonsense"), None);
}

#[test]
fn every_settings_default_is_one_of_its_values() {
    for SettingRule { name, default, since, .. } in SETTINGS {
        let mut world = World::of_wire(*since, &[("a", 1)]);
        world.done(setting(name, default));
    }
}

#[test]
fn a_region_has_a_country_or_none() {
    let mut world = world();
    let put_region = |country: &str| {
        let region = Region { country: country.to_owned(), ..Region::default() };
        put(Item::Region("c".into(), region))
    };
    for wrong in ["de", "D", "DEU", "D1"] {
        assert_eq!(world.denied(put_region(wrong)), RefusalCode::Invalid, "{wrong}");
    }
    world.done(put_region("DE"));
    world.done(put_region(""));
    assert_eq!(world.state.region_clock_ms(&"c".into()), Some(0));
}

#[test]
fn names_have_a_length_and_no_strange_letters() {
    let mut world = world();
    for wrong in ["", "a b", "a/b", "ä", "a\n", &"x".repeat(65)] {
        let command = put(Item::Tenant(wrong.into(), Tenant::default()));
        assert_eq!(world.denied(command), RefusalCode::Invalid, "{wrong:?}");
        let command = remove(RecordKey::Tenant(wrong.into()));
        assert_eq!(world.denied(command), RefusalCode::Invalid, "{wrong:?}");
    }
    world.done(put(Item::Tenant("x".repeat(64).as_str().into(), Tenant::default())));
}

#[test]
fn an_actor_has_a_name() {
    let mut world = world();
    for who in ["".to_owned(), "x".repeat(129), "a\nb".to_owned()] {
        let mut entry = world.by_operator(tenant());
        entry.actor = crate::Actor::Operator(who);
        let refusal = refusal(world.apply(&entry));
        assert_eq!(refusal.code, RefusalCode::Invalid);
    }
}
