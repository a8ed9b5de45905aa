use proptest::prelude::*;

use super::*;
use crate::test_world::assert_proportional;

fn split(name: &str, arms: &[(&str, u32)]) -> Split {
    let weigh = |&(name, weight): &(&str, u32)| ArmWeight { name: ArmName::from(name), weight };
    Split::new(&ModelName::from(name), arms.iter().map(weigh).collect()).unwrap()
}

fn choose(split: &Split, key: ArmKey<'_>, remembered: Option<&str>) -> (String, ArmReason) {
    let mut rng = fastrand::Rng::with_seed(3);
    let choice = split.choose(key, remembered.map(str::as_bytes), &mut rng);
    (split.arms()[choice.index].name.to_string(), choice.reason)
}

/// Returns the arm that a user's hash leads to.
fn hashed(split: &Split, user: &str) -> String {
    let (arm, reason) = choose(split, ArmKey::User(user.as_bytes()), None);
    assert_eq!(reason, ArmReason::Hashed);
    arm
}

/// Up to eight arms, of which some have no weight, but not all.
fn any_arms() -> impl Strategy<Value = Vec<(String, u32)>> {
    let weight = prop_oneof![Just(0), Just(1), 1..1_000_u32, Just(u32::MAX)];
    prop::collection::btree_map("[a-z]{1,6}", weight, 1..8)
        .prop_map(|arms| arms.into_iter().collect::<Vec<_>>())
        .prop_filter("a weight", |arms| arms.iter().any(|(_, weight)| *weight > 0))
}

fn of(arms: &[(String, u32)]) -> Split {
    split("chat", &arms.iter().map(|(name, weight)| (name.as_str(), *weight)).collect::<Vec<_>>())
}

proptest! {
    #[test]
    fn more_weight_takes_users_from_others_and_moves_none_between_them(
        arms in any_arms(),
        grower: prop::sample::Index,
        more in 1..1_000_u32,
        users in prop::collection::vec("[a-z]{1,12}", 32),
    ) {
        let before = of(&arms);
        let mut grown = arms.clone();
        let (name, weight) = &mut grown[grower.index(arms.len())];
        *weight = weight.saturating_add(more);
        let name = name.clone();
        let after = of(&grown);
        for user in users {
            let arm = hashed(&after, &user);
            prop_assert!(arm == name || arm == hashed(&before, &user));
        }
    }

    #[test]
    fn an_arm_that_leaves_moves_its_own_users_only(
        arms in any_arms(),
        leaver: prop::sample::Index,
        users in prop::collection::vec("[a-z]{1,12}", 32),
    ) {
        let mut rest = arms.clone();
        let (gone, _) = rest.remove(leaver.index(arms.len()));
        prop_assume!(rest.iter().any(|(_, weight)| *weight > 0));
        let (before, after) = (of(&arms), of(&rest));
        for user in users {
            let arm = hashed(&before, &user);
            prop_assert!(arm == gone || arm == hashed(&after, &user));
        }
    }

    #[test]
    fn the_order_of_the_arms_does_not_matter(
        (arms, shuffled) in any_arms().prop_flat_map(|a| (Just(a.clone()), Just(a).prop_shuffle())),
        user in "[a-z]{1,12}",
    ) {
        prop_assert_eq!(hashed(&of(&arms), &user), hashed(&of(&shuffled), &user));
    }

    #[test]
    fn only_a_request_that_names_an_arm_without_weight_gets_it(
        arms in any_arms(),
        text in "[a-z]{1,6}",
        seed: u64,
    ) {
        let split = of(&arms);
        let mut rng = fastrand::Rng::with_seed(seed);
        let bytes = text.as_bytes();
        for (key, remembered) in [
            (ArmKey::Nothing, None),
            (ArmKey::Nothing, Some(bytes)),
            (ArmKey::User(bytes), Some(bytes)),
            (ArmKey::UserOrArm(bytes), Some(bytes)),
        ] {
            let choice = split.choose(key, remembered, &mut rng);
            let arm = &split.arms()[choice.index];
            prop_assert!(arm.weight > 0 || choice.reason == ArmReason::Named);
            let is_named = matches!(key, ArmKey::UserOrArm(_))
                && split.arms().iter().any(|arm| arm.name.as_str() == text);
            prop_assert_eq!(choice.reason == ArmReason::Named, is_named);
            prop_assert!(!is_named || arm.name.as_str() == text);
        }
    }
}

#[test]
fn the_arms_of_users_are_the_same_on_every_node_and_in_every_release() {
    // A change here would move users between arms in the middle of their experiment.
    let chat = split("chat", &[("stable", 50), ("canary", 30), ("third", 20)]);
    let arms = (0..30).map(|user| hashed(&chat, &format!("user-{user}")));
    let initials: String = arms.filter_map(|arm| arm.chars().next()).collect();
    assert_eq!(initials, "sscscsctscscctsctssscssssscssc");
    assert_eq!(chat.hash(b"ann"), 7_101_147_525_628_169_763);
    assert_eq!(identity(&ArmName::from("stable")), 8_066_000_926_464_494_804);
}

#[test]
fn splits_divide_their_users_independently() {
    let arms = [("a", 1), ("b", 1)];
    let (one, two) = (split("one", &arms), split("two", &arms));
    let mut together = [0, 0];
    for user in 0..20_000 {
        let user = user.to_string();
        together[usize::from(hashed(&one, &user) == hashed(&two, &user))] += 1;
    }
    assert_proportional(&together, &[1.0, 1.0]);
    // The boundary between name and key is part of the hash.
    assert_ne!(split("ab", &arms).hash(b"c"), split("a", &arms).hash(b"bc"));
}

#[test]
fn shares_of_users_and_of_draws_are_in_proportion_to_weight() {
    for weights in [&[90, 10][..], &[1, 0, 3], &[1, 1_000], &[u32::MAX, u32::MAX, 0]] {
        let names: Vec<String> = (0..weights.len()).map(|index| format!("arm-{index}")).collect();
        let arms: Vec<_> = names.iter().map(String::as_str).zip(weights.iter().copied()).collect();
        let split = split("chat", &arms);
        let shares: Vec<f64> = weights.iter().map(|&weight| f64::from(weight)).collect();
        let mut rng = fastrand::Rng::with_seed(9);
        let (mut users, mut draws) = (vec![0; arms.len()], vec![0; arms.len()]);
        for user in 0..40_000 {
            let user = format!("user-{user}");
            users[split.choose(ArmKey::User(user.as_bytes()), None, &mut rng).index] += 1;
            draws[split.choose(ArmKey::Nothing, None, &mut rng).index] += 1;
        }
        assert_proportional(&users, &shares);
        assert_proportional(&draws, &shares);
    }
}

#[test]
fn what_a_request_says_outranks_what_is_remembered_which_outranks_chance() {
    let split = split("chat", &[("stable", 1), ("canary", 1), ("off", 0)]);
    let arm = |key, remembered| choose(&split, key, remembered);
    let of = |name: &str, reason| (name.to_owned(), reason);
    for name in ["stable", "canary", "off"] {
        let key = ArmKey::UserOrArm(name.as_bytes());
        assert_eq!(arm(key, Some("stable")), of(name, ArmReason::Named));
    }
    let user = hashed(&split, "ann");
    let other = if user == "stable" { "canary" } else { "stable" };
    for key in [ArmKey::User(b"ann"), ArmKey::UserOrArm(b"ann")] {
        assert_eq!(arm(key, Some(other)), of(&user, ArmReason::Hashed));
    }
    for name in ["stable", "canary"] {
        assert_eq!(arm(ArmKey::Nothing, Some(name)), of(name, ArmReason::Remembered));
    }
    for forgotten in [Some("off"), Some("gone"), Some(""), None] {
        assert_eq!(arm(ArmKey::Nothing, forgotten).1, ArmReason::Drawn);
    }
}

#[test]
fn a_split_without_traffic_or_with_two_arms_of_a_name_can_not_be() {
    let new = |arms: &[(&str, u32)]| {
        let weigh = |&(name, weight): &(&str, u32)| ArmWeight { name: ArmName::from(name), weight };
        Split::new(&ModelName::from("chat"), arms.iter().map(weigh).collect()).map(|_| ())
    };
    assert_eq!(new(&[]), Err(SplitError::NoWeight));
    assert_eq!(new(&[("a", 0), ("b", 0)]), Err(SplitError::NoWeight));
    assert_eq!(new(&[("a", 1), ("a", 0)]), Err(SplitError::SameName(ArmName::from("a"))));
    assert_eq!(new(&[("a", 0), ("b", 1)]), Ok(()));
}
