//! Changes that count, and the loss of precision in entries.

use proptest::prelude::*;

use super::*;

fn id() -> NameId {
    NameId::of_model(&"m".into())
}

fn model(load: ModelLoad) -> ModelEntry {
    ModelEntry::new(id(), &load)
}

fn change(before: ModelLoad, after: ModelLoad) -> f32 {
    model(after).change_from(&model(before))
}

fn queued(queued: f32) -> ModelLoad {
    ModelLoad { queued, ..ModelLoad::default() }
}

fn codes() -> impl Strategy<Value = ModelEntry> {
    (any::<[u16; 8]>(), any::<u8>()).prop_map(
        |([queued, running, capacity, rate, kv, wait, replicas, pending], shed)| ModelEntry {
            id: id(),
            queued,
            running,
            capacity,
            rate,
            kv_use: kv,
            wait,
            replicas,
            pending,
            shed,
        },
    )
}

proptest! {
    #[test]
    fn any_line_means_some_load(entry in codes()) {
        let load = entry.load();
        prop_assert!(load.queued >= 0.0 && load.running >= 0.0);
        prop_assert!(load.kv_use.is_none_or(|share| (0.0..=1.0).contains(&share)));
    }

    #[test]
    fn lines_that_differ_have_other_fingerprints(a in codes(), b in codes()) {
        prop_assert_eq!(a == b, a.fingerprint() == b.fingerprint());
    }

    #[test]
    fn ages_are_told_as_the_next_step(age_ms in 0_u32..10_000_000) {
        let signals = ReplicaSignals { age_ms: Some(age_ms), ..ReplicaSignals::default() };
        let told = SignalsEntry::new(&signals).signals().age_ms.unwrap();
        prop_assert!(told >= age_ms);
        prop_assert!(told == AGE_STEP_MS || told / 2 < age_ms);
    }

    #[test]
    fn any_age_is_an_age(age in any::<u8>()) {
        let signals = SignalsEntry { queued: 0, running: 0, kv_use: 0, age }.signals();
        prop_assert_eq!(signals.age_ms.is_none(), age == 0);
    }
}

#[test]
fn every_number_of_a_line_is_in_its_fingerprint() {
    let base = model(ModelLoad::default());
    let mut others = [base; 7];
    others[0].queued += 1;
    others[1].running += 1;
    others[2].capacity += 1;
    others[3].rate += 1;
    others[4].kv_use += 1;
    others[5].wait += 1;
    others[6].shed += 1;
    assert!(others.iter().all(|other| other.fingerprint() != base.fingerprint()));

    let claim = ClaimEntry { usable: 1, proposed: 1, wanted: 1 };
    let base =
        ReplicaEntry::new(id(), &ReplicaLoad { in_flight: 1, ..ReplicaLoad::default() }, claim);
    let mut others = [base; 9];
    others[0].in_flight += 1;
    others[1].claim.usable += 1;
    others[2].claim.proposed += 1;
    others[3].claim.wanted += 1;
    others[4].signals.queued += 1;
    others[5].signals.running += 1;
    others[6].signals.kv_use += 1;
    others[7].signals.age += 1;
    others[8].pending_tokens += 1;
    let print = |entry: ReplicaEntry| SiblingEntry::Replica(entry).fingerprint();
    assert!(others.iter().all(|other| print(*other) != print(base)));

    let base = ShareEntry::new(id(), &ModelShare::default());
    let mut others = [base; 2];
    others[0].waiting += 1;
    others[1].rate += 1;
    let print = |entry: ShareEntry| SiblingEntry::Share(entry).fingerprint();
    assert!(others.iter().all(|other| print(*other) != print(base)));
}

#[test]
fn a_load_that_is_all_known_comes_back() {
    let load = ModelLoad {
        queued: 12.0,
        running: 199.0,
        capacity: Some(200.0),
        rate_per_s: Some(0.0),
        kv_use: Some(0.5),
        wait_ms: Some(0.0),
        replicas: 5,
        pending_tokens: Some(0.0),
        shed: ShedState::Shedding,
    };
    assert_eq!(model(load).load(), load);
    let unknown = ModelLoad {
        capacity: None,
        rate_per_s: None,
        kv_use: None,
        wait_ms: None,
        pending_tokens: None,
        ..load
    };
    assert_eq!(model(unknown).load(), unknown);
}

#[test]
fn a_number_that_should_be_known_but_is_not_is_not_idle() {
    let entry = ModelEntry { queued: 0, running: 0, ..model(ModelLoad::default()) };
    assert_eq!(entry.load().queued, f32::MAX);
    assert_eq!(entry.load().running, f32::MAX);
    let shed = ModelEntry { shed: 77, ..entry }.load().shed;
    assert_eq!(shed, ShedState::Shedding);
}

#[test]
fn a_change_is_a_share_of_the_value_or_of_what_is_usual() {
    assert_eq!(change(queued(5.0), queued(5.0)), 0.0);
    assert_eq!(change(queued(5.0), queued(6.0)), 1.0 / 20.0);
    assert_eq!(change(queued(80.0), queued(100.0)), 0.2);
    assert_eq!(change(queued(100.0), queued(80.0)), 0.2);
    let wait = |wait_ms| ModelLoad { wait_ms: Some(wait_ms), ..ModelLoad::default() };
    assert!(change(wait(10.0), wait(20.0)) < 0.1);
    assert!(change(wait(100.0), wait(150.0)) > 0.1);
    let known = ModelLoad { capacity: Some(4.0), ..ModelLoad::default() };
    assert_eq!(change(ModelLoad::default(), known), AT_ONCE);
    let closed = ModelLoad { shed: ShedState::Shedding, ..ModelLoad::default() };
    assert_eq!(change(ModelLoad::default(), closed), AT_ONCE);
}

#[test]
fn claims_are_told_at_once_and_ages_by_the_way() {
    let replica = |in_flight, claim, age_ms| {
        let signals = ReplicaSignals { age_ms: Some(age_ms), ..ReplicaSignals::default() };
        ReplicaEntry::new(
            id(),
            &ReplicaLoad { in_flight, signals, ..ReplicaLoad::default() },
            claim,
        )
    };
    let claim = ClaimEntry { usable: 90, proposed: 0, wanted: 5 };
    let before = replica(5, claim, 100);
    let change = |after: ReplicaEntry| after.change_from(&before);
    assert_eq!(change(before), 0.0);
    assert_eq!(change(replica(5, ClaimEntry { usable: 91, ..claim }, 100)), AT_ONCE);
    assert_eq!(change(replica(5, ClaimEntry { proposed: 91, ..claim }, 100)), AT_ONCE);
    assert_eq!(change(replica(5, ClaimEntry { wanted: 0, ..claim }, 100)), AT_ONCE);
    assert_eq!(change(replica(6, claim, 100)), 0.05);
    assert_eq!(change(replica(5, claim, 120)), 0.0);
    assert_eq!(change(replica(5, claim, 300)), 0.05);
    let load = ReplicaLoad { in_flight: 5, pending_tokens: 500, ..ReplicaLoad::default() };
    let signals = ReplicaSignals { age_ms: Some(100), ..ReplicaSignals::default() };
    let much = change(ReplicaEntry::new(id(), &ReplicaLoad { signals, ..load }, claim));
    assert!((0.49..0.51).contains(&much), "{much}: half of what is usual at a replica");
}
