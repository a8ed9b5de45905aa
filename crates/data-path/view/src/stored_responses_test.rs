use super::*;

fn of(tenant: &str, model: &str) -> StoredResponse {
    StoredResponse {
        home: Home::Replica("a".into()),
        tenant: Some(tenant.into()),
        model: model.into(),
    }
}

fn keep(table: &mut ResponseTable, id: &str, tenant: &str) -> Result<(), NotKept> {
    table.keep(id, of(tenant, "m"), Instant::now())
}

#[test]
fn an_id_stays_with_the_tenant_and_model_that_made_it() {
    let (mut table, now) = (ResponseTable::default(), Instant::now());
    assert_eq!(keep(&mut table, "resp_1", "acme"), Ok(()));
    assert_eq!(keep(&mut table, "resp_1", "evil"), Err(NotKept::Taken));
    let other_model = table.keep("resp_1", of("acme", "other"), now);
    assert_eq!(other_model, Err(NotKept::Taken));
    assert_eq!(keep(&mut table, "resp_1", "acme"), Ok(()), "again by the same");
    assert_eq!(table.find("resp_1", now), Some(of("acme", "m")));
    assert_eq!(table.find("resp_2", now), None);
}

#[test]
fn an_id_is_forgotten_a_day_after_its_last_use() {
    let (mut table, start) = (ResponseTable::default(), Instant::now());
    table.keep("resp_1", of("acme", "m"), start).unwrap();
    let later = start + IDLE_MAX;
    assert!(table.find("resp_1", later).is_some(), "which is a use");
    assert!(table.find("resp_1", later + IDLE_MAX).is_some());
    let end = later + IDLE_MAX + IDLE_MAX + Duration::from_secs(1);
    table.keep("resp_2", of("acme", "m"), later + IDLE_MAX).unwrap();
    assert_eq!(table.find("resp_2", end), None);
    assert_eq!(table.keep("resp_1", of("evil", "m"), end), Ok(()));
    assert_eq!(table.find("resp_1", end), Some(of("evil", "m")));
}

#[test]
fn long_ids_are_not_kept() {
    let mut table = ResponseTable::default();
    assert_eq!(keep(&mut table, &"r".repeat(ID_BYTES_MAX + 1), "acme"), Err(NotKept::LongId));
    assert_eq!(keep(&mut table, &"r".repeat(ID_BYTES_MAX), "acme"), Ok(()));
    assert_eq!(table.0.len(), 1);
}

#[test]
fn memory_is_bounded_and_the_tenant_with_most_loses_what_it_used_longest_ago() {
    let (mut table, now) = (ResponseTable::new(20 * (ENTRY_BYTES + 16)), Instant::now());
    for number in 0..5 {
        table.keep(&format!("resp_a{number}"), of("acme", "m"), now).unwrap();
    }
    for number in 0..1_000 {
        table.keep(&format!("resp_e{number}"), of("evil", "m"), now).unwrap();
        assert!(table.0.len() <= 20, "{}", table.0.len());
    }
    for number in 0..5 {
        assert!(table.find(&format!("resp_a{number}"), now).is_some(), "{number}");
    }
    assert!(table.find("resp_e0", now).is_none());
    assert!(table.find("resp_e999", now).is_some());
}

#[test]
fn an_id_of_two_tenants_is_of_neither_at_all_nodes() {
    let now = Instant::now();
    let latest = |table: &ResponseTable| table.latest(9).len();
    let told = [of("acme", "m"), of("evil", "m")];
    for order in [[0, 1], [1, 0]] {
        // One node gave the first answer, another one has received both.
        let (mut node, mut other) = (ResponseTable::default(), ResponseTable::default());
        node.keep("resp_1", told[order[0]].clone(), now).unwrap();
        other.receive("resp_1", told[order[0]].clone(), now).unwrap();
        for table in [&mut node, &mut other] {
            let second = told[order[1]].clone();
            assert_eq!(table.receive("resp_1", second, now), Err(NotKept::Taken));
            assert_eq!((table.find("resp_1", now), latest(table)), (None, 0));
            assert_eq!(table.receive("resp_1", told[0].clone(), now), Err(NotKept::Taken));
            assert_eq!(table.keep("resp_1", told[1].clone(), now), Err(NotKept::Taken));
            assert_eq!(table.find("resp_1", now), None);
        }
    }
    // A reply of this node for a known id changes nothing: no tenant takes the id from another.
    let mut table = ResponseTable::default();
    table.keep("resp_1", told[0].clone(), now).unwrap();
    assert_eq!(table.keep("resp_1", told[1].clone(), now), Err(NotKept::Taken));
    assert_eq!(table.find("resp_1", now), Some(told[0].clone()));
    // Nor does another model of the same tenant.
    assert_eq!(table.receive("resp_1", of("acme", "other"), now), Err(NotKept::Taken));
    assert_eq!(table.find("resp_1", now), Some(told[0].clone()));
}

fn elsewhere(replica: Option<&str>) -> Home {
    let node = Some("n1".into());
    Home::Elsewhere { region: "eu".into(), node, replica: replica.map(Into::into) }
}

#[test]
fn a_replica_that_is_known_stays_known() {
    let now = Instant::now();
    let of = |replica| StoredResponse { home: elsewhere(replica), ..of("acme", "m") };
    // The client's node learns the replica before or after it has kept the id.
    for order in [[Some("a"), None], [None, Some("a")]] {
        let mut table = ResponseTable::default();
        for replica in order {
            assert_eq!(table.keep("resp_1", of(replica), now), Ok(()));
        }
        assert_eq!(table.find("resp_1", now), Some(of(Some("a"))));
    }
}

#[test]
fn the_latest_are_those_used_last() {
    let (mut table, now) = (ResponseTable::default(), Instant::now());
    for id in ["resp_1", "resp_2", "resp_3"] {
        keep(&mut table, id, "acme").unwrap();
    }
    table.find("resp_1", now);
    let latest: Vec<_> = table.latest(2).into_iter().map(|(id, _)| id.to_string()).collect();
    assert_eq!(latest, ["resp_1", "resp_3"]);
    assert_eq!(table.latest(9).len(), 3);
}
