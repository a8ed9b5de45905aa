use std::collections::BTreeMap;

use spillway_resolver::Resolver;
use spillway_upstream::ReplicaProtocol;

use super::*;

fn replica() -> Replica {
    let spec = ReplicaSpec {
        name: "a".into(),
        host: "127.0.0.1".to_owned(),
        port: 1,
        base: None,
        tls: None,
        protocol: ReplicaProtocol::Http1,
        grpc: None,
        models: Vec::new(),
        versions: BTreeMap::new(),
        pool: "default".to_owned(),
        weight: 1,
        in_flight_max: 10,
        idle: Duration::from_secs(1),
        continues_chats: false,
        salt_field: None,
        usage_reports: UsageReports::None,
        kv_events_port: None,
        credential: None,
        overflow: None,
    };
    Replica::new(spec, 1, &Resolver::default()).expect("no TLS")
}

#[test]
fn what_was_sent_before_it_went_down_is_lost_unless_it_is_heard() {
    let replica = replica();
    let at = |ms| *EPOCH + Duration::from_millis(ms);
    let (failure, silence) = (Some(DownCause::Failure), Some(DownCause::Silence));
    assert_eq!(replica.lost(at(1_000), at(9_000)), None, "it is up");
    replica.note_byte(at(1_500));
    replica.set_down(silence, at(2_000));
    replica.set_down(silence, at(3_000));
    assert_eq!(replica.lost(at(1_000), at(2_400)), None, "it may be heard of still");
    assert_eq!(replica.lost(at(1_000), at(2_500)), silence);
    replica.set_down(failure, at(2_600));
    assert_eq!(replica.lost(at(1_000), at(2_600)), failure, "it died after all");
    assert_eq!(replica.lost(at(2_100), at(9_000)), None, "it was sent there all the same");
    replica.note_byte(at(2_300));
    assert_eq!(replica.lost(at(1_000), at(9_000)), None, "it goes on");
    replica.set_down(None, at(3_000));
    replica.set_down(failure, at(4_000));
    assert_eq!(replica.lost(at(3_500), at(4_600)), failure);
}

#[test]
fn refused_usage_reports_are_remembered_until_the_replica_is_replaced() {
    let replica = replica();
    assert_eq!(replica.usage_limit(), UsageReports::Throughout);
    assert!(replica.limit_usage(UsageReports::AtEnd));
    assert!(!replica.limit_usage(UsageReports::AtEnd), "it is known");
    let spec = ReplicaSpec { weight: 2, ..replica.spec().clone() };
    let reloaded = replica.with_spec(&spec).expect("the same server");
    assert_eq!(reloaded.usage_limit(), UsageReports::AtEnd);
    assert!(reloaded.limit_usage(UsageReports::None));
    assert!(!replica.limit_usage(UsageReports::AtEnd), "it refuses more than that");
    assert_eq!(replica.usage_limit(), UsageReports::None);
    let other =
        Replica::new(ReplicaSpec { port: 2, ..spec }, 1, &Resolver::default()).expect("no TLS");
    assert_eq!(other.usage_limit(), UsageReports::Throughout);
}

#[test]
fn a_server_that_lists_other_models_keeps_its_connections_and_counts() {
    let replica = Arc::new(replica());
    let queues = Arc::new(WaitQueues::new(crate::queue_spec::WaitTotals::default()));
    let lease = replica.lease(&queues, u32::MAX, Traffic::Http).expect("a slot");
    let spec = ReplicaSpec {
        models: vec!["tiny".into()],
        continues_chats: true,
        usage_reports: UsageReports::AtEnd,
        ..replica.spec().clone()
    };
    let changed = replica.with_spec(&spec).expect("the same server");
    assert_eq!((changed.spec(), changed.in_flight()), (&spec, 1));
    assert!(changed.is_same_server(&replica));
    drop(lease);
    assert_eq!(changed.in_flight(), 0);
    for other in [
        ReplicaSpec { port: 2, ..spec.clone() },
        ReplicaSpec { in_flight_max: 11, ..spec.clone() },
        ReplicaSpec { protocol: ReplicaProtocol::Http2, ..spec },
    ] {
        assert!(changed.with_spec(&other).is_none(), "{other:?}");
    }
}
