use std::path::Path;

use spillway_cluster_state::{
    Arm, LeaseSource, Model, ReplicaSpec, ResidencyRule, Route, STICKY_MAX_AGE_S, Split, StickyArm,
};
use spillway_config::Config;
use spillway_route::Policy;
use spillway_types::{ModelName, SplitBy};
use spillway_upstream::ReplicaProtocol;
use spillway_view::RouteSpec;

use super::*;

/// Returns a config with a replica of the model `tiny` in the pool `near`, and `lines`.
fn world(lines: &str) -> WorldConfig {
    let text = format!(
        "{lines}\n[[listener]]\naddress = \"127.0.0.1:0\"\n[[replica]]\nname = \"a\"\n\
         url = \"http://127.0.0.1:1\"\nmodels = [\"tiny\", \"big\"]\npool = \"near\"\n"
    );
    let config = Config::parse(&text, Path::new("test.toml"), []);
    config.unwrap_or_else(|error| panic!("{error}\n{text}")).world
}

/// Returns a config with these aliases; other regions may serve their targets.
fn aliased<const N: usize>(aliases: [(&str, &str); N]) -> WorldConfig {
    let mut world = world("");
    let aliases = aliases.map(|(alias, target)| (alias.into(), target.into())).into();
    let fallbacks = [("b".into(), vec!["tiny".into()]), ("d".into(), vec!["tiny".into()])].into();
    world.names = Arc::new(NameSpec { aliases, fallbacks, ..NameSpec::default() });
    world
}

fn folded(world: &WorldConfig, agreed: &AgreedWorld) -> Folded {
    fold(world, std::iter::empty(), agreed, &mut Registered::default())
}

fn alias(target: &str) -> Model {
    Model { alias_of: Some(target.into()), ..Model::default() }
}

fn fallbacks(models: &[&str]) -> Model {
    Model { fallbacks: models.iter().map(|model| (*model).into()).collect(), ..Model::default() }
}

fn models<const N: usize>(models: [(&str, Model); N]) -> AgreedWorld {
    let models = models.map(|(name, model)| (name.into(), model)).into();
    AgreedWorld { models, ..AgreedWorld::default() }
}

fn split(arms: &[(&str, &str, u16)]) -> Split {
    let arm = |(name, model, weight): &(&str, &str, u16)| Arm {
        name: (*name).into(),
        model: (*model).into(),
        version: None,
        weight_permille: *weight,
    };
    Split { arms: arms.iter().map(arm).collect(), ..Split::default() }
}

fn splits<const N: usize>(splits: [(&str, Split); N]) -> AgreedWorld {
    let splits = splits.map(|(name, split)| (name.into(), split)).into();
    AgreedWorld { splits, ..AgreedWorld::default() }
}

fn routes<const N: usize>(routes: [(&str, Route); N]) -> AgreedWorld {
    let routes = routes.map(|(name, route)| (name.into(), route)).into();
    AgreedWorld { routes, ..AgreedWorld::default() }
}

fn target<'f>(folded: &'f Folded, alias: &str) -> Option<&'f str> {
    folded.names.aliases.get(alias).map(|model| model.as_str())
}

fn route<'f>(folded: &'f Folded, name: &str) -> &'f RouteSpec {
    folded.routes.iter().find(|route| route.name.as_str() == name).unwrap()
}

fn order(folded: &Folded) -> Vec<&str> {
    folded.routes.iter().map(|route| route.name.as_str()).collect()
}

// Names.

#[test]
fn without_a_cluster_all_is_as_the_config_says() {
    let world = world("aliases.fast = \"tiny\"");
    let folded = folded(&world, &AgreedWorld::default());
    assert_eq!(target(&folded, "fast"), Some("tiny"));
    assert_eq!((order(&folded), folded.replicas.len()), (vec!["default"], 1));
    assert!(folded.notes.counts().is_empty());
}

#[test]
fn an_alias_of_the_cluster_takes_the_place_of_the_configs() {
    let world = world("aliases.fast = \"tiny\"\naliases.other = \"tiny\"");
    let folded = folded(&world, &models([("fast", alias("big")), ("new", alias("big"))]));
    assert_eq!(target(&folded, "fast"), Some("big"));
    assert_eq!(target(&folded, "other"), Some("tiny"));
    assert_eq!(folded.notes.outcome(Kind::Model, "fast"), Some(Use::Hides));
    assert_eq!(folded.notes.outcome(Kind::Model, "new"), Some(Use::Used));
}

#[test]
fn a_record_without_an_alias_makes_the_name_a_models() {
    let world = world("aliases.fast = \"tiny\"");
    let folded = folded(&world, &models([("fast", Model::default())]));
    assert_eq!(target(&folded, "fast"), None);
    assert_eq!(folded.notes.outcome(Kind::Model, "fast"), Some(Use::Hides));
}

#[test]
fn aliases_of_both_that_make_a_chain_lead_to_its_end() {
    let world = aliased([("a", "b"), ("c", "d")]);
    let folded = folded(&world, &models([("b", alias("c")), ("d", alias("big"))]));
    for name in ["a", "b", "c", "d"] {
        assert_eq!(target(&folded, name), Some("big"), "{name}");
    }
    assert!(folded.names.fallbacks.is_empty(), "neither is a model any more");
}

#[test]
fn of_a_circle_of_both_the_clusters_part_stays() {
    let world = aliased([("a", "b"), ("x", "b")]);
    let folded = folded(&world, &models([("b", alias("a"))]));
    assert_eq!(target(&folded, "a"), None, "it would lead back to itself");
    assert_eq!(target(&folded, "b"), Some("a"));
    assert_eq!(target(&folded, "x"), Some("a"));
}

#[test]
fn fallbacks_of_the_cluster_count_and_those_that_lead_nowhere_are_left_out() {
    let world =
        world("aliases.fast = \"tiny\"\nfallback.tiny = [\"big\"]\nfallback.big = [\"tiny\"]");
    let agreed = models([("tiny", fallbacks(&["x", "fast", "y"])), ("big", Model::default())]);
    let folded = folded(&world, &agreed);
    let of = |model: &str| folded.names.fallbacks.get(model).cloned();
    assert_eq!(of("tiny"), Some(vec!["x".into(), "y".into()]));
    assert_eq!(of("big"), None, "the cluster says that it has none");
    assert_eq!(folded.notes.outcome(Kind::Model, "tiny"), Some(Use::InPart));
}

#[test]
fn a_split_that_says_how_arms_are_chosen_counts_as_a_whole() {
    let world = world(
        "[[split]]\nmodel = \"ab\"\nby = \"user\"\nsticky_cookie = \"file\"\n\
         arms = [{ name = \"one\", model = \"tiny\", weight = 1 }]",
    );
    let whole = || split(&[("one", "big", 1_000)]);
    let sticky = StickyArm { cookie: "arm".to_owned(), max_age_s: STICKY_MAX_AGE_S };
    let by = SplitBy::Header("x-user".to_owned());
    for (record, by, cookie) in [
        (Split { by: Some(by.clone()), ..whole() }, by, None),
        (Split { by: Some(SplitBy::Random), ..whole() }, SplitBy::Random, None),
        (Split { sticky: Some(sticky), ..whole() }, SplitBy::Random, Some("arm")),
        (whole(), SplitBy::User, Some("file")),
    ] {
        let folded = folded(&world, &splits([("ab", record)]));
        let ab = &folded.names.splits[0];
        let kept = ab.sticky.as_ref().map(|sticky| sticky.name.as_str());
        assert_eq!((&ab.by, kept), (&by, cookie));
    }
}

#[test]
fn a_cookie_of_a_split_of_the_cluster_is_no_other_splits() {
    let world = world(
        "[[split]]\nmodel = \"ab\"\nsticky_cookie = \"arm\"\n\
         arms = [{ name = \"one\", model = \"tiny\", weight = 1 }]",
    );
    let sticky = Some(StickyArm { cookie: "arm".to_owned(), max_age_s: STICKY_MAX_AGE_S });
    let record = Split { sticky, ..split(&[("one", "big", 1_000)]) };
    let folded = folded(&world, &splits([("cd", record)]));
    let kept = |index: usize| folded.names.splits[index].sticky.is_some();
    assert_eq!((kept(0), kept(1)), (true, false));
}

#[test]
fn a_split_of_the_cluster_goes_by_what_the_config_says_under_its_name() {
    let world = world(
        "aliases.gone = \"tiny\"\naliases.short = \"tiny\"\n[[split]]\nmodel = \"ab\"\n\
         by = \"header:x-user\"\nsticky_cookie = \"arm\"\n\
         arms = [{ name = \"one\", model = \"tiny\", weight = 1 }]\n[[split]]\nmodel = \"kept\"\n\
         arms = [{ name = \"one\", model = \"tiny\", weight = 1 }]",
    );
    let agreed = splits([
        ("ab", split(&[("one", "big", 900), ("two", "short", 100)])),
        ("gone", split(&[("one", "big", 1_000)])),
    ]);
    let folded = folded(&world, &agreed);
    let names: Vec<&str> = folded.names.splits.iter().map(|split| split.name.as_str()).collect();
    assert_eq!(names, ["ab", "gone", "kept"]);
    let ab = &folded.names.splits[0];
    assert_eq!(ab.by, "header:x-user".parse().unwrap());
    assert_eq!(ab.sticky.as_ref().unwrap().name, "arm");
    let arms: Vec<&str> = ab.arms.iter().map(|arm| arm.model.as_str()).collect();
    assert_eq!(arms, ["big", "tiny"], "an alias of the config is followed");
    assert_eq!(folded.names.splits[1].by, SplitBy::Random);
    assert_eq!(target(&folded, "gone"), None);
    assert_eq!(folded.notes.outcome(Kind::Split, "gone"), Some(Use::Hides));
}

#[test]
fn a_split_that_cannot_be_used_leaves_the_configs_in_its_place() {
    let world = world("aliases.ab = \"tiny\"");
    let mut bad = split(&[("one", "big", 1_000)]);
    bad.arms[0].version = Some("..".into());
    let folded = folded(&world, &splits([("ab", bad), ("good", split(&[("one", "big", 1_000)]))]));
    assert_eq!(target(&folded, "ab"), Some("tiny"));
    assert_eq!(folded.names.splits.len(), 1);
    assert_eq!(folded.notes.outcome(Kind::Split, "ab"), Some(Use::Unusable));
}

#[test]
fn an_alias_of_the_cluster_hides_a_split_of_the_config() {
    let world = world(
        "[[split]]\nmodel = \"ab\"\narms = [{ name = \"one\", model = \"tiny\", weight = 1 }]",
    );
    let folded = folded(&world, &models([("ab", alias("big"))]));
    assert!(folded.names.splits.is_empty());
    assert_eq!(target(&folded, "ab"), Some("big"));
    assert_eq!(folded.notes.outcome(Kind::Model, "ab"), Some(Use::Hides));
}

// Routes.

#[test]
fn routes_of_the_cluster_come_first_and_the_configs_say_what_it_does_not() {
    let world = world(
        "timeouts.idle_ms = 7\n[[route]]\nname = \"ours\"\nmodels = [\"tiny\"]\n\
         policy = \"consistent_hash\"\nhash_by = \"header:x-user\"\ntimeouts.connect_ms = 5\n\
         [[route]]\nname = \"kept\"\npath_prefix = \"/kept\"",
    );
    let models: BTreeSet<ModelName> = ["big".into()].into();
    let agreed = routes([
        ("ours", Route { models: models.clone(), pool: "near".to_owned(), ..Route::default() }),
        ("new", Route { models, policy: "round_robin".to_owned(), ..Route::default() }),
    ]);
    let folded = folded(&world, &agreed);
    assert_eq!(order(&folded), ["new", "ours", "kept"], "models that no route names are closed");
    let ours = route(&folded, "ours");
    assert_eq!(
        (ours.models.as_slice(), ours.pool.as_deref()),
        (["big".into()].as_slice(), Some("near"))
    );
    assert_eq!((ours.policy, ours.hash_by.is_some()), (Policy::ConsistentHash, true));
    assert_eq!(ours.timeouts.connect.as_millis(), 5);
    let new = route(&folded, "new");
    assert_eq!((new.policy, new.timeouts.idle.as_millis()), (Policy::RoundRobin, 7));
    assert_eq!(folded.notes.outcome(Kind::Route, "ours"), Some(Use::Hides));
    assert_eq!(folded.notes.outcome(Kind::Route, "new"), Some(Use::Used));
}

#[test]
fn what_cannot_be_used_of_a_route_does_not_break_the_others() {
    let world = world("[[route]]\nname = \"lost\"\nmodels = [\"tiny\"]");
    let policy = |policy: &str| Route { policy: policy.to_owned(), ..Route::default() };
    let agreed = routes([
        ("lost", Route { pool: "nowhere".to_owned(), ..Route::default() }),
        ("odd", policy("by_magic")),
        ("hashing", policy("consistent_hash")),
        ("good", policy("random")),
    ]);
    let folded = folded(&world, &agreed);
    assert_eq!(route(&folded, "lost").models, ["tiny".into()], "the config's");
    assert_eq!(folded.notes.outcome(Kind::Route, "lost"), Some(Use::Unusable));
    for name in ["odd", "hashing"] {
        let spec = route(&folded, name);
        assert_eq!((spec.policy, spec.hash_by.is_none()), (Policy::PredictedLatency, true));
        assert_eq!(folded.notes.outcome(Kind::Route, name), Some(Use::InPart));
    }
    assert_eq!(route(&folded, "good").policy, Policy::Random);
}

fn in_countries(codes: &[&str]) -> ResidencyRule {
    let countries = codes.iter().map(|code| code.parse().unwrap()).collect();
    ResidencyRule { countries, ..ResidencyRule::default() }
}

/// Returns those of Germany, France and Spain that may serve the route.
fn allowed(folded: &Folded, name: &str) -> [bool; 3] {
    let residency = &route(folded, name).residency;
    ["DE", "FR", "ES"].map(|code| residency.may_serve("here", code.parse().ok()))
}

#[test]
fn a_route_is_served_where_cluster_and_config_both_allow_it() {
    let world = world(
        "[[route]]\nname = \"both\"\nmodels = [\"tiny\"]\ncountries = [\"DE\", \"FR\"]\n\
         [[route]]\nname = \"ours\"\nmodels = [\"tiny\"]\ncountries = [\"ES\"]\n\
         [[route]]\nname = \"lost\"\nmodels = [\"tiny\"]\ncountries = [\"DE\", \"FR\"]",
    );
    let nowhere = || "nowhere".to_owned();
    let rule = |codes| Route { residency: in_countries(codes), ..Route::default() };
    let agreed = routes([
        ("both", rule(&["FR", "ES"])),
        ("ours", Route::default()),
        ("theirs", rule(&["DE"])),
        ("lost", Route { pool: nowhere(), ..rule(&["DE"]) }),
        ("kept", Route { pool: nowhere(), ..rule(&["DE"]) }),
        ("gone", Route { pool: nowhere(), ..Route::default() }),
    ]);
    let folded = folded(&world, &agreed);
    assert_eq!(allowed(&folded, "both"), [false, true, false]);
    assert_eq!(allowed(&folded, "ours"), [false, false, true]);
    assert_eq!(allowed(&folded, "theirs"), [true, false, false]);
    assert_eq!(allowed(&folded, "lost"), [true, false, false], "the config's, by both rules");
    assert_eq!(folded.notes.outcome(Kind::Route, "lost"), Some(Use::Unusable));
    // No other route takes its requests, and it has no replica.
    assert_eq!(allowed(&folded, "kept"), [true, false, false]);
    assert_eq!(folded.notes.outcome(Kind::Route, "kept"), Some(Use::InPart));
    assert!(!order(&folded).contains(&"gone"));
}

#[test]
fn a_pool_of_other_regions_is_one_here_too() {
    let world = world("");
    let far = Route { pool: "far".to_owned(), models: ["tiny".into()].into(), ..Route::default() };
    let mut agreed = routes([("far", far)]);
    agreed.pools.insert("far".to_owned());
    let folded = folded(&world, &agreed);
    assert_eq!((order(&folded), route(&folded, "far").pool.as_deref()), (vec!["far"], Some("far")));
    assert_eq!(folded.notes.outcome(Kind::Route, "far"), Some(Use::InPart));
}

#[test]
fn a_policy_that_does_not_hash_takes_nothing_to_hash_by() {
    let world = world(
        "[[route]]\nname = \"default\"\npolicy = \"consistent_hash\"\nhash_by = \"client_ip\"",
    );
    let agreed = routes([("default", Route { policy: "random".to_owned(), ..Route::default() })]);
    let folded = folded(&world, &agreed);
    let spec = route(&folded, "default");
    assert_eq!((spec.policy, spec.hash_by.is_none()), (Policy::Random, true));
}

#[test]
fn settings_of_the_cluster_count_over_those_of_the_config() {
    let world = world(
        "[[route]]\nname = \"ours\"\nslo_ms = 700\nsession = { header = \"x-chat\" }\n\
         countries = [\"DE\", \"FR\"]",
    );
    let with = |settings: &str, policy: &str| Route {
        settings: settings.to_owned(),
        policy: policy.to_owned(),
        residency: in_countries(&["FR"]),
        ..Route::default()
    };
    let agreed = routes([
        ("ours", with("{\"slo_ms\":900,\"queue_max\":7}", "")),
        ("new", with("{\"hash_by\":\"header:x-user\"}", "bounded_consistent_hash")),
        ("odd", with("{\"of_a_later_version\":1}", "random")),
    ]);
    let folded = folded(&world, &agreed);
    let ours = route(&folded, "ours");
    assert_eq!(ours.queue.slo.map(|slo| slo.as_millis()), Some(900));
    assert_eq!((ours.queue.limits.count_max, ours.session.is_some()), (7, true));
    assert_eq!(allowed(&folded, "ours"), [false, true, false], "both have to allow it");
    let new = route(&folded, "new");
    assert_eq!((new.policy, new.hash_by.is_some()), (Policy::BoundedConsistentHash, true));
    assert_eq!(folded.notes.outcome(Kind::Route, "new"), Some(Use::Used));
    assert_eq!(route(&folded, "odd").policy, Policy::Random);
    assert_eq!(folded.notes.outcome(Kind::Route, "odd"), Some(Use::InPart));
}

#[test]
fn routes_that_name_models_are_the_list_of_what_is_served() {
    let only = |models: &[&str]| Route {
        models: models.iter().map(|model| (*model).into()).collect(),
        ..Route::default()
    };
    let below = Route { path_prefix: Some("/x".to_owned()), ..only(&["tiny"]) };
    let lost = Route { pool: "nowhere".to_owned(), ..only(&["tiny"]) };
    let own = "[[route]]\nname = \"own\"\nmodels = [\"tiny\"]";
    let rest = "[[route]]\nname = \"rest\"";
    for (config, agreed, expected) in [
        ("", routes([]), vec!["default"]),
        ("", routes([("a", below)]), vec!["a", "default"]),
        ("", routes([("a", only(&["tiny"]))]), vec!["a"]),
        ("", routes([("a", only(&["tiny"])), ("b", only(&[]))]), vec!["a", "b"]),
        // A list is a list though its pool is none, and what it lists is served.
        ("", routes([("a", lost.clone())]), vec!["a"]),
        (rest, routes([("a", lost)]), vec!["rest"]),
        (own, routes([]), vec!["own"]),
        (own, routes([("b", only(&[]))]), vec!["b", "own"]),
        (rest, routes([("a", only(&["tiny"]))]), vec!["a", "rest"]),
        // The cluster's record takes the place of the config's list.
        (own, routes([("own", only(&[]))]), vec!["own"]),
    ] {
        let folded = folded(&world(config), &agreed);
        assert_eq!(order(&folded), expected, "{config}");
    }
}

#[test]
fn there_is_a_route_for_all_the_rest_whatever_the_cluster_takes_from_the_config() {
    let world = world("");
    let path_prefix = Some("/only/here".to_owned());
    let agreed = routes([("default", Route { path_prefix, ..Route::default() })]);
    let folded = folded(&world, &agreed);
    assert_eq!(order(&folded), ["default", "rest"]);
    let rest = route(&folded, "rest");
    assert!(rest.path_prefix.is_none() && rest.models.is_empty());
}

// Replicas.

fn registered(url: &str) -> AgreedReplica {
    let mut spec = ReplicaSpec::new(url, ["tiny".into()]);
    spec.source = LeaseSource::Lease { length_ms: 15_000 };
    AgreedReplica { epoch: 1, is_active: true, weight: None, registered: Some(spec) }
}

fn replicas<const N: usize>(replicas: [(&str, AgreedReplica); N]) -> AgreedWorld {
    let replicas = replicas.map(|(name, replica)| (name.into(), replica)).into();
    AgreedWorld { replicas, ..AgreedWorld::default() }
}

fn replica_names(folded: &Folded) -> Vec<&str> {
    folded.replicas.iter().map(|replica| replica.spec.name.as_str()).collect()
}

#[test]
fn a_registered_replica_is_one_like_those_of_the_config() {
    let world = world("health.interval_ms = 123");
    let mut replica = registered("https://[::1]:8443");
    let spec = replica.registered.as_mut().unwrap();
    (spec.weight, spec.capacity, spec.engine) = (4, Some(9), "vllm".to_owned());
    spec.models.insert("meta/\"quoted\"\\".into());
    let mut agreed = replicas([("r", replica)]);
    agreed.routes.insert("far".into(), Route { pool: "default".to_owned(), ..Route::default() });
    let folded = folded(&world, &agreed);
    assert_eq!(replica_names(&folded), ["a", "r"]);
    let made = &folded.replicas[1];
    let spec = &made.spec;
    assert_eq!((spec.host.as_str(), spec.port, spec.tls.is_some()), ("::1", 8443, true));
    assert_eq!((spec.weight, spec.in_flight_max, spec.pool.as_str()), (4, 9, "default"));
    assert_eq!(spec.models, ["meta/\"quoted\"\\".into(), "tiny".into()]);
    assert_eq!(spec.protocol, ReplicaProtocol::Http1);
    let check = made.care.active.as_ref().unwrap();
    assert_eq!(check.interval.as_millis(), 123);
    assert!(!made.care.scrapes.is_empty(), "its load is where vllm has it");
    assert_eq!(order(&folded), ["far", "default"], "its pool is one");
}

#[test]
fn a_registration_that_cannot_be_used_or_whose_name_is_taken_leaves_the_others_alone() {
    let world = world("");
    let agreed = replicas([
        ("a", registered("http://127.0.0.1:2")),
        ("bad", registered("http://127.0.0.1:99999")),
        ("good", registered("http://127.0.0.1:3")),
    ]);
    let folded = folded(&world, &agreed);
    assert_eq!(replica_names(&folded), ["a", "good"]);
    assert_eq!(folded.replicas[0].spec.port, 1, "the config's");
    for name in ["a", "bad"] {
        assert_eq!(folded.notes.outcome(Kind::Replica, name), Some(Use::Unusable));
    }
}

#[test]
fn replicas_that_other_nodes_have_in_their_configs_are_not_served_here() {
    let world = world("");
    let of_config = AgreedReplica { registered: None, weight: Some(7), ..registered("http://x") };
    let folded = folded(&world, &replicas([("a", of_config.clone()), ("other", of_config)]));
    assert_eq!(replica_names(&folded), ["a"]);
    assert_eq!(folded.weights.get("a"), Some(&7), "but an operator's word counts");
}

// Notes.

#[test]
fn what_was_told_is_not_told_again_and_the_worst_is_what_is_told() {
    let note = |outcome, text: &str| {
        let mut notes = Notes::default();
        notes.add(Kind::Route, "r", Use::Used, String::new());
        notes.add(Kind::Route, "r", outcome, text.to_owned());
        notes.add(Kind::Route, "r", Use::Hides, String::new());
        notes
    };
    let count = |now: &Notes, before: &Notes| now.news(before).count();
    let unusable = note(Use::Unusable, "why");
    assert_eq!(unusable.counts(), [((Kind::Route, Use::Unusable), 1)].into());
    assert_eq!(count(&unusable, &Notes::default()), 1);
    assert_eq!(count(&unusable, &note(Use::Unusable, "why")), 0);
    assert_eq!(count(&unusable, &note(Use::Unusable, "another")), 1);
    assert_eq!(count(&note(Use::Used, ""), &unusable), 1, "it hides");
    let mut used = Notes::default();
    used.add(Kind::Model, "m", Use::Used, String::new());
    assert_eq!(count(&used, &Notes::default()), 0);
}
