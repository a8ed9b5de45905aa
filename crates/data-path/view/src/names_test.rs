use http::HeaderMap;
use spillway_route::{ArmWeight, Split};
use spillway_types::{ArmName, SplitArm, SplitBy};

use super::*;
use crate::split::ArmSpec;

/// Returns names for a region that serves `tiny`, and `resnet` in two versions. `chat` is a split
/// of both, `resnet` one whose only arm is `tiny`; `gone` has a fallback, and each has an alias.
fn names() -> Names {
    let aliases = [("a-tiny", "tiny"), ("a-chat", "chat"), ("a-resnet", "resnet")];
    let spec = NameSpec {
        aliases: aliases.map(|(from, to)| (ModelName::from(from), ModelName::from(to))).into(),
        splits: vec![split("chat", "resnet", Some("2")), split("resnet", "tiny", None)],
        fallbacks: [(ModelName::from("gone"), vec![ModelName::from("tiny")])].into(),
    };
    let served = [("tiny", false), ("resnet", true), ("resnet", false)];
    let served = served.map(|(model, is_versioned)| (ModelName::from(model), is_versioned));
    Names::new(Arc::new(spec), served.iter().map(|(model, versioned)| (model, *versioned)))
}

fn split(name: &str, model: &str, version: Option<&str>) -> SplitSpec {
    let name = ModelName::from(name);
    let arm = ArmName::from("only");
    let weights = vec![ArmWeight { name: arm.clone(), weight: 1 }];
    SplitSpec {
        by: SplitBy::Random,
        sticky: None,
        split: Arc::new(Split::new(&name, weights).expect("a split")),
        arms: vec![ArmSpec {
            arm: Arc::new(SplitArm { split: name.clone(), arm }),
            model: ModelName::from(model),
            version: version.map(ModelVersion::from),
        }],
        name,
    }
}

fn resolve(name: &str, version: Option<&str>, is_fixed: bool) -> Result<String, Unresolved> {
    let headers = HeaderMap::new();
    let sources =
        (!is_fixed).then_some(ArmSources { headers: &headers, user: None, stored_at: None });
    let asked = AskedName { name, version, sources };
    let resolved = names().resolve(asked, || fastrand::Rng::with_seed(1))?;
    let version = resolved.version.map(|version| format!(" {version}")).unwrap_or_default();
    let arm = resolved.arm.map(|chosen| format!(" by {}", chosen.arm.split)).unwrap_or_default();
    Ok(format!("{}{version}{arm}", resolved.model))
}

#[track_caller]
fn check(name: &str, version: Option<&str>, expected: Result<&str, Unresolved>) {
    assert_eq!(resolve(name, version, false), expected.map(str::to_owned), "{name} {version:?}");
}

#[test]
fn models_aliases_and_splits_are_found() {
    check("tiny", None, Ok("tiny"));
    check("a-tiny", None, Ok("tiny"));
    check("chat", None, Ok("resnet 2 by chat"));
    check("a-chat", None, Ok("resnet 2 by chat"));
    check("gone", None, Ok("gone"));
    check("nobody", None, Err(Unresolved::Unknown));
    check("", None, Err(Unresolved::Unknown));
}

#[test]
fn a_split_with_a_model_s_name_goes_before_the_model() {
    check("resnet", None, Ok("tiny by resnet"));
    check("a-resnet", None, Ok("tiny by resnet"));
}

#[test]
fn whoever_asks_for_a_version_means_the_model() {
    check("resnet", Some("1"), Ok("resnet 1"));
    check("resnet@1", None, Ok("resnet 1"));
    check("a-resnet@1", None, Ok("resnet 1"));
    check("resnet@1", Some("1"), Ok("resnet 1"));
    check("resnet@1", Some("2"), Err(Unresolved::TwoVersions));
    check("chat", Some("1"), Err(Unresolved::VersionOfSplit));
    check("tiny", Some("7"), Ok("tiny 7"));
    // The versions that exist depend on the route's replicas.
    check("resnet@9", None, Ok("resnet 9"));
}

#[test]
fn a_version_in_a_name_is_one_only_where_replicas_say_which_they_serve() {
    for name in ["tiny@1", "gone@1", "chat@1", "resnet@", "@1", "resnet@1@1", "nobody@1"] {
        check(name, None, Err(Unresolved::Unknown));
    }
}

#[test]
fn a_request_whose_name_is_fixed_is_never_split() {
    assert_eq!(resolve("resnet", None, true), Ok("resnet".to_owned()));
    assert_eq!(resolve("chat", None, true), Err(Unresolved::FixedName));
    assert_eq!(resolve("tiny", None, true), Ok("tiny".to_owned()));
}

#[test]
fn every_name_is_listed_once_and_models_first() {
    let names = names();
    let listed: Vec<&str> = names.listed().iter().map(ModelName::as_str).collect();
    assert_eq!(listed, ["gone", "resnet", "tiny", "a-chat", "a-resnet", "a-tiny", "chat"]);
    assert!(listed.iter().all(|name| names.knows(name)));
    assert!(names.knows("resnet@1") && !names.knows("tiny@1"));
}
