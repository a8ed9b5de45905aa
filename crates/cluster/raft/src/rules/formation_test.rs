//! Simultaneous first starts, late ones, and clusters that must not be joined.

use super::*;

const C: ClusterId = ClusterId(7);
const D: ClusterId = ClusterId(8);

fn seeds() -> Vec<Seed> {
    let seed = |name: &str, region: &str| Seed { name: name.into(), region: region.into() };
    // Not in the order of their names.
    vec![seed("us-1", "us"), seed("ap-1", "ap"), seed("eu-1", "eu")]
}

fn formation(me: &str) -> Formation {
    Formation::new(me.into(), &seeds())
}

fn fresh(disk: u128) -> Own {
    Own { disk: DiskId(disk), cluster: None, is_blank: true }
}

fn answer(node: u64, cluster: Option<ClusterId>) -> SeedAnswer {
    SeedAnswer { node: NodeId(node), disk: DiskId(u128::from(node) * 10), cluster }
}

#[test]
fn every_seed_gives_the_same_numbers() {
    let mut turned = seeds();
    turned.reverse();
    assert_eq!(seed_ids(&seeds()), seed_ids(&turned));
    let ids: Vec<_> =
        seed_ids(&seeds()).into_iter().map(|(name, id)| (name.to_string(), id.0)).collect();
    assert_eq!(ids, [("ap-1".into(), 1), ("eu-1".into(), 2), ("us-1".into(), 3)]);
}

#[test]
fn the_lowest_forms_the_cluster_after_it_has_reached_every_seed() {
    let mut formation = formation("ap-1");
    assert_eq!(formation.step(fresh(10)), FormationStep::Ask(vec!["eu-1".into(), "us-1".into()]));
    formation.answered(&"us-1".into(), answer(3, None));
    assert_eq!(formation.step(fresh(10)), FormationStep::Ask(vec!["eu-1".into()]));
    formation.answered(&"eu-1".into(), answer(2, None));
    let FormationStep::Form(None, members) = formation.step(fresh(10)) else { panic!() };
    let disks: Vec<_> = members.iter().map(|(id, member)| (id.0, member.disk.0)).collect();
    assert_eq!(disks, [(1, 10), (2, 20), (3, 30)]);
    assert_eq!(members[&NodeId(3)].region, "us".into());
}

#[test]
fn all_others_wait() {
    for me in ["eu-1", "us-1"] {
        let mut formation = formation(me);
        assert_eq!(formation.step(fresh(20)), FormationStep::Wait);
        formation.answered(&"ap-1".into(), answer(1, None));
        assert_eq!(formation.step(fresh(20)), FormationStep::Wait);
    }
}

#[test]
fn whoever_is_in_a_cluster_is_not_put_into_another() {
    let mut formation = formation("ap-1");
    formation.answered(&"us-1".into(), answer(3, Some(C)));
    formation.answered(&"eu-1".into(), answer(2, None));
    // This node has lost its disk: it must not form a second cluster.
    assert_eq!(formation.step(fresh(10)), FormationStep::Wait);
}

#[test]
fn a_node_in_a_cluster_is_done() {
    let own = Own { disk: DiskId(1), cluster: Some(C), is_blank: false };
    assert_eq!(formation("ap-1").step(own), FormationStep::In(C));
    let own = Own { is_blank: true, ..own };
    assert_eq!(formation("eu-1").step(own), FormationStep::In(C));
}

#[test]
fn a_crash_between_naming_the_cluster_and_forming_it_is_made_good() {
    let mut formation = formation("ap-1");
    let own = Own { disk: DiskId(10), cluster: Some(C), is_blank: true };
    formation.answered(&"us-1".into(), answer(3, None));
    assert_eq!(formation.step(own), FormationStep::Ask(vec!["eu-1".into()]));
    // One node learned of the cluster before the crash.
    formation.answered(&"eu-1".into(), answer(2, Some(C)));
    assert!(
        matches!(formation.step(own), FormationStep::Form(Some(C), members) if members.len() == 3)
    );
}

#[test]
fn two_clusters_are_a_conflict() {
    let mut formation = formation("ap-1");
    let own = Own { disk: DiskId(10), cluster: Some(C), is_blank: false };
    formation.answered(&"us-1".into(), answer(3, Some(D)));
    let FormationStep::Conflict(why) = formation.step(own) else { panic!() };
    assert!(why.contains("us-1") && why.contains("ap-1"), "{why}");
    formation.answered(&"eu-1".into(), answer(2, Some(C)));
    assert!(matches!(formation.step(fresh(1)), FormationStep::Conflict(_)));
    // It was set up again.
    formation.answered(&"us-1".into(), answer(3, Some(C)));
    assert_eq!(formation.step(own), FormationStep::In(C));
}

#[test]
fn a_seed_with_other_seeds_is_a_conflict() {
    let mut formation = formation("ap-1");
    formation.answered(&"us-1".into(), answer(2, None));
    assert!(
        matches!(formation.step(fresh(10)), FormationStep::Conflict(why) if why.contains("us-1"))
    );
}

#[test]
fn strangers_and_echoes_count_for_nothing() {
    let mut formation = formation("ap-1");
    formation.answered(&"xx-1".into(), answer(9, Some(D)));
    formation.answered(&"ap-1".into(), answer(1, Some(D)));
    assert_eq!(formation.step(fresh(10)), FormationStep::Ask(vec!["eu-1".into(), "us-1".into()]));
}

#[test]
fn a_single_seed_forms_its_cluster_alone() {
    let only = [Seed { name: "a".into(), region: "eu".into() }];
    let formation = Formation::new("a".into(), &only);
    assert!(
        matches!(formation.step(fresh(5)), FormationStep::Form(None, members) if members.len() == 1)
    );
}

/// All orders in which three first starts learn of each other end in one cluster.
#[test]
fn simultaneous_first_starts_form_exactly_one_cluster() {
    let names = ["ap-1", "eu-1", "us-1"];
    for seed in 0..500 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut nodes: Vec<_> = names
            .iter()
            .enumerate()
            .map(|(at, name)| (formation(name), fresh(at as u128)))
            .collect();
        let mut formed = Vec::new();
        for _ in 0..200 {
            let (asker, asked) = (random.usize(0..3), random.usize(0..3));
            let told = nodes[asked].1;
            let said = SeedAnswer {
                node: NodeId(asked as u64 + 1),
                disk: told.disk,
                cluster: told.cluster,
            };
            nodes[asker].0.answered(&names[asked].into(), said);
            let own = nodes[asker].1;
            if let FormationStep::Form(named, members) = nodes[asker].0.step(own) {
                let cluster = named.unwrap_or_else(|| ClusterId(1_000 + u128::from(seed)));
                formed.push(cluster);
                assert_eq!(members.len(), 3);
                // A crash may come before the members are in the log.
                let is_blank = random.bool();
                nodes[asker].1 = Own { cluster: Some(cluster), is_blank, ..own };
                if !is_blank {
                    for node in &mut nodes {
                        node.1.cluster = Some(cluster);
                    }
                }
            }
        }
        formed.dedup();
        assert_eq!(formed.len(), 1, "seed {seed}");
        assert!(nodes.iter().all(|(_, own)| own.cluster == Some(formed[0])), "seed {seed}");
    }
}
