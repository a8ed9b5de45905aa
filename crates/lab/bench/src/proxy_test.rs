//! Tests of the configs.

use super::*;

fn config_of(policy: Option<&str>) -> String {
    let setup = SpillwaySetup { policy, replica: "", more: "[x]\ny = 1\n" };
    let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
    spillway_config(address(80), address(81), setup, &[address(82), address(83)]).unwrap()
}

#[test]
fn the_policy_is_the_default_unless_another_is_asked_for() {
    assert!(!config_of(None).contains("policy"));
    let route = "[[route]]\nname = \"llm\"\npolicy = \"power_of_two\"\n\n[[replica]]";
    assert!(config_of(Some("power_of_two")).contains(route));
}

#[test]
fn further_lines_stand_behind_the_replicas() {
    let config = config_of(None);
    assert!(config.contains("url = \"http://127.0.0.1:83\"\n"), "{config}");
    assert!(config.ends_with("]\n\n[x]\ny = 1\n"), "{config}");
}
