//! Tests of prices and budgets on one node, with the time passed in.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use spillway_prefix::{PrefixConfig, PrefixHasher};
use spillway_request::gateway::{Gateway, GatewayConfig};
use spillway_transport::Limits;
use spillway_types::{Outcome, TokenCounts};
use spillway_usage::{Budget, Day, Money, Price, PriceList, UsageQuery};
use spillway_usage_store::StoreConfig;
use spillway_view::{Retry, View};

use super::Usage;
use super::budgets::{Budgets, SpendingMark};

/// A unit for a million tokens of any kind: a request of [`outcome`] costs ten millionths.
const PRICE: Price = Price { prompt: 1_000_000, cached: 1_000_000, completion: 1_000_000 };

fn gateway() -> Arc<Gateway> {
    let config = GatewayConfig {
        region: "mars".to_owned(),
        country: None,
        limits: Limits::default(),
        retry: Retry::default(),
        seed: 1,
        expose_routing: false,
        waiting: Default::default(),
    };
    let hasher = PrefixHasher::new([1; 4], PrefixConfig::default()).expect("a hasher");
    Arc::new(Gateway::new(config, hasher, View::empty(), 0))
}

fn prices(price: Price) -> PriceList {
    PriceList { default: Some(price), models: BTreeMap::new() }
}

fn open(node: &str, folder: &Path, now: SystemTime) -> (Usage, Arc<Gateway>) {
    let gateway = gateway();
    let budget = Budget {
        per_day: Some(Money::of_millionths(20)),
        per_month: Some(Money::of_millionths(50)),
    };
    let store = StoreConfig { folder: Some(folder.to_owned()), days_max: 62 };
    let clients = Arc::clone(&gateway.clients);
    let usage = Usage::open(store, Budgets::new(node.into(), fastrand::u64(1..), clients));
    usage.set_prices(prices(PRICE));
    usage.set_budgets([("acme".into(), budget)].into(), BTreeMap::new(), now);
    (usage, gateway)
}

/// Returns a moment of a day.
fn at(day: &str, hour: u64) -> SystemTime {
    let day: Day = day.parse().unwrap();
    UNIX_EPOCH + Duration::from_millis(day.starts_ms()) + Duration::from_secs(hour * 3_600)
}

fn outcome() -> Outcome {
    let tokens = TokenCounts { prompt: 7, completion: 3, cached: 2 };
    Outcome { tenant: Some("acme".into()), status: 200, tokens, ..Outcome::begun() }
}

/// Counts a request, and returns what keeps the next one out.
fn spend(usage: &Usage, gateway: &Gateway, now: SystemTime) -> Option<String> {
    usage.record(&outcome(), now);
    usage.judge(now);
    refused(gateway, now)
}

fn refused(gateway: &Gateway, now: SystemTime) -> Option<String> {
    let spent =
        gateway.clients.budgets.check(Some(&"acme".into()), || spillway_types::unix_ms(now));
    spent.map(|(spent, _)| spent.until.to_string())
}

#[test]
fn a_budget_ends_and_begins_anew_with_the_day_and_the_month() {
    let folder = tempfile::tempdir().unwrap();
    let (usage, gateway) = open("a", folder.path(), at("2026-11-26", 9));
    assert_eq!(spend(&usage, &gateway, at("2026-11-26", 9)), None);
    let tomorrow = Some("2026-11-27".to_owned());
    assert_eq!(spend(&usage, &gateway, at("2026-11-26", 23)), tomorrow);
    assert_eq!(refused(&gateway, at("2026-11-27", 0)), None, "before anybody has looked");
    for (day, hour, until) in [
        ("2026-11-27", 0, None),
        ("2026-11-27", 1, Some("2026-11-28")),
        // The fifth request of the month.
        ("2026-11-28", 2, Some("2026-12-01")),
        ("2026-11-30", 23, Some("2026-12-01")),
        ("2026-12-01", 0, None),
        ("2026-12-01", 1, Some("2026-12-02")),
    ] {
        let found = spend(&usage, &gateway, at(day, hour));
        assert_eq!(found.as_deref(), until, "{day}");
    }
}

#[test]
fn what_was_spent_is_known_to_the_next_process_and_to_other_nodes() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let now = at("2026-11-27", 9);
    let (usage, _) = open("a", folders[0].path(), now);
    usage.record(&outcome(), now);
    usage.record(&outcome(), now);
    usage.save(now);
    let (usage, gateway) = open("a", folders[0].path(), now);
    assert!(refused(&gateway, now).is_some(), "from the first request on");
    let (other, others) = open("b", folders[1].path(), now);
    assert_eq!(spend(&other, &others, now), None);
    let report = usage.budgets.report_since(SpendingMark::default());
    other.budgets.receive(&"a".into(), SpendingMark::default(), &report);
    other.judge(now);
    assert!(refused(&others, now).is_some(), "what both spent counts");
    let again = usage.budgets.report_since(other.budgets.mark_of(&"a".into()));
    assert_eq!(again.rows(), 0, "nothing is reported twice");
    other.save(now);
    drop(usage);
    // The node that reported it is gone.
    let (_, others) = open("b", folders[1].path(), now);
    assert!(refused(&others, now).is_some());
    let larger = Budget { per_day: Some(Money::of_millionths(31)), per_month: None };
    let (other, others) = open("b", folders[1].path(), now);
    other.set_budgets([("acme".into(), larger)].into(), BTreeMap::new(), now);
    assert_eq!(refused(&others, now), None, "30 of 31 are spent");
    other.set_budgets(BTreeMap::new(), BTreeMap::new(), now);
    assert_eq!(spend(&other, &others, now), None);
}

#[test]
fn a_new_price_changes_nothing_that_was_counted() {
    let folder = tempfile::tempdir().unwrap();
    let now = at("2026-11-27", 9);
    let (usage, _) = open("a", folder.path(), now);
    assert_eq!(usage.record(&outcome(), now).client, Money::of_millionths(10));
    usage.set_prices(prices(Price { prompt: 0, cached: 0, completion: 2_000_000 }));
    assert_eq!(usage.record(&outcome(), now).client, Money::of_millionths(6));
    let total = usage.read(&UsageQuery::of_days(Day::MIN, Day::MAX)).total();
    assert_eq!((total.requests, total.cost), (2, Money::of_millionths(16)));
}
