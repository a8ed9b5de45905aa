use super::*;
use crate::limiter::Demand;
use crate::{LimitKind, RequestWindow};

#[expect(clippy::disallowed_methods, reason = "there is no other way to some instant")]
fn start() -> Instant {
    Instant::now()
}

fn terms(scope: Scope, whole: [Option<u64>; 3]) -> LimitTerms {
    LimitTerms { scope, whole, requests: RequestWindow::Second }
}

fn holds(quotas: &Quotas, scope: &Scope, units: [u64; 3]) {
    let floor = Units(units);
    quotas.hold(scope, &Holding { floor, is_share: true, ..Holding::default() });
}

fn demand(quotas: &Quotas) -> Demand {
    quotas.table().find(&Scope::Global).unwrap().take_demand()
}

fn ask(now: Instant, tokens: u64) -> QuotaAsk<'static> {
    QuotaAsk {
        key: Some("k1"),
        tenant: Some("acme"),
        model: Some("llama"),
        tokens,
        said: tokens,
        now,
    }
}

#[test]
fn without_limits_everything_is_let_in() {
    let now = start();
    let quotas = Quotas::new(now);
    assert!(quotas.admit(&ask(now, u64::MAX)).unwrap().is_empty());
}

#[test]
fn a_refusal_by_one_limit_leaves_nothing_charged_to_others() {
    let now = start();
    let quotas = Quotas::new(now);
    let (key, model) = (Scope::Key("k1".to_owned()), Scope::Model("llama".into()));
    quotas.set_limits(&[
        terms(key.clone(), [Some(10), Some(100), Some(5)]),
        terms(Scope::Global, [Some(10), None, None]),
        terms(model.clone(), [None, Some(100), Some(10)]),
    ]);
    holds(&quotas, &key, [10, 100, 5]);
    holds(&quotas, &Scope::Global, [10, 0, 0]);
    holds(&quotas, &model, [0, 30, 10]);
    let refusal = quotas.admit(&ask(now, 31)).unwrap_err();
    assert_eq!((&refusal.scope, refusal.kind), (&model, LimitKind::TokenRate));
    assert!(refusal.fits());
    for scope in [&key, &Scope::Global, &model] {
        assert_eq!(quotas.usage(scope, now).unwrap().in_use, Units::NONE, "{scope}");
    }
    let hold = quotas.admit(&ask(now, 30)).unwrap();
    assert_eq!(quotas.usage(&key, now).unwrap().in_use, Units([1, 30, 1]));
    hold.settle(Some(12));
    assert_eq!(quotas.usage(&key, now).unwrap().in_use, Units([1, 12, 0]));
    assert_eq!(quotas.usage(&Scope::Global, now).unwrap().in_use, Units([1, 0, 0]));
    drop(quotas.admit(&ask(now, 10)).unwrap());
    assert_eq!(quotas.usage(&model, now).unwrap().in_use, Units([0, 22, 0]), "charged for good");
    assert!(!quotas.admit(&ask(now, 101)).unwrap_err().fits());
}

#[test]
fn a_new_limit_lets_nobody_in_until_something_is_held() {
    let now = start();
    let quotas = Quotas::new(now);
    quotas.set_limits(&[terms(Scope::Global, [Some(10), None, None])]);
    assert!(quotas.admit(&ask(now, 1)).is_err());
    assert_eq!(demand(&quotas).refused, Units([1, 0, 0]));
    holds(&quotas, &Scope::Global, [3, 0, 0]);
    let _one = quotas.admit(&ask(now, 1)).unwrap();
    // Another value keeps what was charged.
    quotas.set_limits(&[terms(Scope::Global, [Some(20), None, None])]);
    assert_eq!(quotas.usage(&Scope::Global, now).unwrap().in_use, Units([1, 0, 0]));
    assert_eq!(demand(&quotas).peak, Units([1, 0, 0]));
    quotas.set_limits(&[]);
    assert!(quotas.admit(&ask(now, 1)).unwrap().is_empty());
    assert_eq!(quotas.usage(&Scope::Global, now), None);
}

#[test]
fn a_limit_applies_only_to_its_own() {
    let now = start();
    let quotas = Quotas::new(now);
    quotas.set_limits(&[terms(Scope::Tenant("other".into()), [Some(1), Some(1), Some(1)])]);
    assert!(quotas.admit(&ask(now, 5)).unwrap().is_empty());
    let nobody = QuotaAsk { key: None, tenant: None, model: None, tokens: 1, said: 1, now };
    assert!(quotas.admit(&nobody).unwrap().is_empty());
    assert!(quotas.admit(&QuotaAsk { tenant: Some("other"), ..nobody }).is_err());
}

#[test]
fn what_counts_can_be_carried_over_to_another_process() {
    let now = start();
    let quotas = Quotas::new(now);
    let limit = [terms(Scope::Global, [None, Some(100), None])];
    quotas.set_limits(&limit);
    holds(&quotas, &Scope::Global, [0, 100, 0]);
    let later = |s| now + Duration::from_secs(s);
    for (at_s, tokens) in [(0, 30), (20, 40), (40, 5)] {
        drop(quotas.admit(&ask(later(at_s), tokens)).unwrap());
    }
    let spent = quotas.spent(&Scope::Global, LimitKind::TokenRate, later(50));
    assert_eq!(spent.iter().map(|(_, tokens)| *tokens).collect::<Vec<_>>(), [30, 40, 5]);
    assert!(spent[1].0 <= Duration::from_secs(30), "no older than it is");
    assert!(spent[1].0 > Duration::from_secs(29));
    // Five seconds later another process begins.
    let next = Quotas::new(later(55));
    next.set_limits(&limit);
    holds(&next, &Scope::Global, [0, 100, 0]);
    for (age, tokens) in spent {
        let age = age + Duration::from_secs(5);
        next.assume(&Scope::Global, Units([0, tokens, 0]), age, later(55));
    }
    let in_use = |at_s| next.usage(&Scope::Global, later(at_s)).unwrap().in_use.0[1];
    assert_eq!([56, 62, 79, 83, 99, 103].map(in_use), [75, 45, 45, 5, 5, 0]);
}

#[test]
fn limits_are_shown_in_an_order_with_what_they_count() {
    let now = start();
    let quotas = Quotas::new(now);
    let model = Scope::Model("m".into());
    let limits =
        [terms(model.clone(), [None, Some(9), None]), terms(Scope::Global, [Some(3), None, None])];
    quotas.set_limits(&limits);
    holds(&quotas, &model, [0, 4, 0]);
    let shown = quotas.standings(now, 9);
    let scopes: Vec<&Scope> = shown.iter().map(|(terms, _)| &terms.scope).collect();
    assert_eq!(scopes, [&Scope::Global, &model]);
    assert_eq!((shown[1].0.whole, shown[1].1.held), ([None, Some(9), None], Units([0, 4, 0])));
    assert_eq!(quotas.standings(now, 1).len(), 1);
}

#[test]
fn what_was_charged_counts_on_when_a_limit_limits_other_kinds_as_well() {
    let now = start();
    let quotas = Quotas::new(now);
    quotas.set_limits(&[terms(Scope::Global, [None, Some(100), Some(2)])]);
    holds(&quotas, &Scope::Global, [0, 100, 2]);
    let running = quotas.admit(&ask(now, 60)).unwrap();
    quotas.set_limits(&[terms(Scope::Global, [Some(9), Some(100), Some(2)])]);
    holds(&quotas, &Scope::Global, [9, 100, 2]);
    assert_eq!(quotas.usage(&Scope::Global, now).unwrap().in_use, Units([0, 60, 1]));
    let refusal = quotas.admit(&ask(now, 41)).unwrap_err();
    assert_eq!(refusal.kind, LimitKind::TokenRate);
    let other = quotas.admit(&ask(now, 1)).unwrap();
    assert_eq!(quotas.admit(&ask(now, 1)).unwrap_err().kind, LimitKind::Concurrency);
    running.settle(Some(20));
    assert_eq!(quotas.usage(&Scope::Global, now).unwrap().in_use, Units([1, 21, 1]));
    // One kind goes; of the others nothing is forgotten.
    quotas.set_limits(&[terms(Scope::Global, [None, None, Some(2)])]);
    assert_eq!(quotas.usage(&Scope::Global, now).unwrap().in_use, Units([0, 0, 1]));
    drop(other);
    assert_eq!(quotas.usage(&Scope::Global, now).unwrap().in_use, Units::NONE);
}

#[test]
fn what_is_owed_is_paid_though_nobody_asks() {
    let now = start();
    let quotas = Quotas::new(now);
    quotas.set_limits(&[terms(Scope::Global, [None, Some(100), None])]);
    holds(&quotas, &Scope::Global, [0, 100, 0]);
    quotas.owe(&Scope::Global, Units([0, 250, 0]));
    quotas.table().find(&Scope::Global).unwrap().pay(0);
    assert_eq!(quotas.usage(&Scope::Global, now).unwrap().debt, Units([0, 150, 0]));
}

#[test]
fn a_refusal_names_limit_use_and_time() {
    let now = start();
    let quotas = Quotas::new(now);
    let key = Scope::Key("k1".to_owned());
    let minute = LimitTerms {
        requests: RequestWindow::Minute,
        ..terms(key.clone(), [Some(2), Some(100), None])
    };
    quotas.set_limits(std::slice::from_ref(&minute));
    let refused = |tokens| quotas.admit(&ask(now, tokens)).unwrap_err().to_string();
    assert_eq!(
        refused(1),
        "2 requests/min for key k1: being divided among nodes, again in 1 s",
        "nothing was used"
    );
    holds(&quotas, &key, [2, 50, 0]);
    drop(quotas.admit(&ask(now, 40)).unwrap());
    assert_eq!(
        refused(20),
        "100 tokens/min for key k1: 40 used of the 50 that this node holds now, 20 asked for, \
         again in 61 s"
    );
    assert_eq!(
        refused(101),
        "the request may use 101 tokens, the limit is 100 tokens/min for key k1"
    );
    drop(quotas.admit(&ask(now, 1)).unwrap());
    assert_eq!(refused(1), "2 requests/min for key k1: 2 used, again in 61 s");
    quotas.set_limits(&[terms(key, [Some(0), None, None])]);
    assert_eq!(refused(1), "the limit is 0 requests/s for key k1: no request can be served");
}

#[test]
fn a_guess_is_charged_up_to_the_whole_limit_and_what_is_said_in_full() {
    let now = start();
    let quotas = Quotas::new(now);
    quotas.set_limits(&[terms(Scope::Global, [None, Some(500), None])]);
    holds(&quotas, &Scope::Global, [0, 500, 0]);
    let guess = QuotaAsk { said: 100, ..ask(now, 1_124) };
    let hold = quotas.admit(&guess).unwrap();
    let refusal = quotas.admit(&ask(now, 1)).unwrap_err().to_string();
    assert!(refusal.starts_with("500 tokens/min for everything: 500 used"), "{refusal}");
    // Tokens used beyond that become debt.
    hold.settle(Some(700));
    let usage = quotas.usage(&Scope::Global, now).unwrap();
    assert_eq!(usage.debt, Units([0, 200, 0]));
    let refusal = quotas.admit(&QuotaAsk { said: 501, ..guess }).unwrap_err().to_string();
    assert!(refusal.starts_with("the request may use 501 tokens, the limit is 500"), "{refusal}");
}

#[test]
fn a_new_limit_may_be_used_as_a_whole_until_it_is_divided() {
    let now = start();
    let later = |ms| now + Duration::from_millis(ms);
    let quotas = Quotas::new(now);
    let ask = |ms| ask(later(ms), 1);
    let rate = |whole| [terms(Scope::Global, [Some(whole), None, None])];
    quotas.open_limits(&rate(3), now);
    let let_in = |ms| (0..9).filter(|_| quotas.admit(&ask(ms)).is_ok()).count();
    assert_eq!(let_in(0), 3, "the whole limit, and no more");
    assert!(quotas.is_open(&Scope::Global, later(0)));
    // The node has its share, which counts from three seconds on, when the cluster knows its needs.
    holds(&quotas, &Scope::Global, [1, 0, 0]);
    assert_eq!((let_in(2_900), let_in(5_000)), (3, 1));
    assert!(!quotas.is_open(&Scope::Global, later(3_000)));
    // A change of a limit that is known opens nothing.
    quotas.open_limits(&rate(9), later(7_000));
    assert_eq!(let_in(7_000), 1);
    // A node that does not know its share uses the units that it holds after six seconds.
    quotas.set_limits(&[]);
    quotas.open_limits(&rate(3), later(10_000));
    quotas.hold(&Scope::Global, &Holding::default());
    assert_eq!((let_in(15_900), let_in(17_000)), (3, 0));
}

#[test]
fn a_client_is_told_the_rate_that_has_the_least_room() {
    let now = start();
    let quotas = Quotas::new(now);
    assert!(quotas.rates(&ask(now, 1)).is_none(), "nothing is limited");
    let key = Scope::Key("k1".to_owned());
    quotas.set_limits(&[
        terms(key.clone(), [Some(10), None, None]),
        terms(Scope::Global, [Some(100), Some(1_000), None]),
        terms(Scope::Model("llama".into()), [None, None, Some(1)]),
    ]);
    holds(&quotas, &key, [10, 0, 0]);
    holds(&quotas, &Scope::Global, [100, 300, 0]);
    holds(&quotas, &Scope::Model("llama".into()), [0, 0, 1]);
    drop(quotas.admit(&ask(now, 200)).unwrap());
    let rates = quotas.rates(&ask(now, 1)).unwrap();
    let room = |ms, kind| {
        let room = rates.room(quotas.clock_ns(now + Duration::from_millis(ms)), kind).unwrap();
        (room.limit, room.remaining, room.reset.as_millis() / 100)
    };
    assert_eq!(room(0, LimitKind::RequestRate), (10, 9, 10));
    assert_eq!(room(0, LimitKind::TokenRate), (1_000, 100, 601), "what this node holds");
    assert_eq!(room(1_100, LimitKind::RequestRate), (10, 10, 0));
    let other = QuotaAsk { key: Some("k2"), tenant: None, ..ask(now, 1) };
    let rates = quotas.rates(&other).unwrap();
    assert_eq!(rates.room(quotas.clock_ns(now), LimitKind::RequestRate).unwrap().limit, 100);
}

#[test]
fn requests_of_a_minute_count_for_a_minute() {
    let now = start();
    let later = |s| now + Duration::from_secs(s);
    let quotas = Quotas::new(now);
    let minute = LimitTerms {
        requests: RequestWindow::Minute,
        ..terms(Scope::Global, [Some(2), None, None])
    };
    quotas.set_limits(std::slice::from_ref(&minute));
    holds(&quotas, &Scope::Global, [2, 0, 0]);
    let let_in = |s| quotas.admit(&ask(later(s), 1)).is_ok();
    assert_eq!(
        [0, 30, 31, 59, 61, 62, 92].map(let_in),
        [true, true, false, false, true, false, true]
    );
}

#[test]
fn a_node_enforces_its_own_limits_alone_unless_the_cluster_has_one_of_that_name() {
    let now = start();
    let quotas = Quotas::new(now);
    let key = Scope::Key("k1".to_owned());
    quotas.set_own(&[terms(key.clone(), [Some(2), None, None])]);
    let let_in = || (0..9).filter(|_| quotas.admit(&ask(now, 1)).is_ok()).count();
    assert_eq!(let_in(), 2, "at once, and nobody is asked");
    let refusal = quotas.admit(&ask(now, 1)).unwrap_err();
    assert!(refusal.to_string().starts_with("2 requests/s for key k1: 2 used, "), "{refusal}");
    let own = || quotas.own(now, 9).into_iter().map(|(_, usage)| usage.map(|it| it.in_use.0[0]));
    assert_eq!(own().collect::<Vec<_>>(), [Some(2)]);
    // `hold` alone, as the cluster would call it, changes nothing of an own limit.
    holds(&quotas, &key, [9, 0, 0]);
    assert_eq!(let_in(), 0);
    // Another number keeps what was charged.
    quotas.set_own(&[terms(key.clone(), [Some(3), None, None])]);
    assert_eq!(let_in(), 1);
    // A limit of the cluster for the key takes precedence.
    quotas.set_limits(&[terms(key.clone(), [Some(7), None, None])]);
    assert_eq!(let_in(), 0, "nothing is held of it yet");
    assert_eq!(own().collect::<Vec<_>>(), [None], "the cluster's takes its place");
    assert!(quotas.own(now, 0).is_empty());
    holds(&quotas, &key, [7, 0, 0]);
    assert_eq!(let_in(), 7);
    quotas.set_limits(&[]);
    assert_eq!(let_in(), 3);
    quotas.set_own(&[]);
    assert_eq!(let_in(), 9);
}

#[test]
fn what_is_owed_to_an_own_limit_is_paid_while_nobody_asks() {
    let now = start();
    let later = |s| now + Duration::from_secs(s);
    let quotas = Quotas::new(now);
    quotas.set_own(&[terms(Scope::Global, [None, Some(100), None])]);
    quotas.admit(&ask(now, 1)).unwrap().settle(Some(250));
    assert!(quotas.admit(&ask(later(1), 1)).is_err());
    assert_eq!(quotas.tokens_owed(&Scope::Global), 0, "what is owed to others is another file");
    (0..200).for_each(|s| quotas.pay_own(later(s)));
    quotas.admit(&ask(later(200), 50)).unwrap();
}

#[test]
fn the_least_room_is_told_whichever_limit_is_the_smaller_one() {
    let now = start();
    let quotas = Quotas::new(now);
    let key = Scope::Key("k1".to_owned());
    quotas.set_limits(&[
        terms(key.clone(), [None, Some(500), None]),
        terms(Scope::Global, [None, Some(1_000), None]),
        terms(Scope::Model("llama".into()), [None, Some(2_000), None]),
    ]);
    holds(&quotas, &key, [0, 500, 0]);
    holds(&quotas, &Scope::Global, [0, 300, 0]);
    holds(&quotas, &Scope::Model("llama".into()), [0, 300, 0]);
    let rates = quotas.rates(&ask(now, 1)).unwrap();
    let told = |rates: &Rates| {
        let room = rates.room(quotas.clock_ns(now), LimitKind::TokenRate).unwrap();
        (room.limit, room.remaining)
    };
    assert_eq!(told(&rates), (1_000, 300), "of two with as little room the smaller one");
    // Debt leaves no room.
    let other = QuotaAsk { key: Some("k2"), ..ask(now, 100) };
    quotas.owe(&key, Units([0, 450, 0]));
    assert_eq!(told(&rates), (500, 50));
    assert_eq!(told(&quotas.rates(&other).unwrap()), (1_000, 300));
}

#[test]
fn requests_that_are_counted_over_another_time_are_counted_anew() {
    let now = start();
    let later = |s| now + Duration::from_secs(s);
    let quotas = Quotas::new(now);
    let limit =
        |requests| LimitTerms { requests, ..terms(Scope::Global, [Some(4), Some(1_000), None]) };
    quotas.set_limits(&[limit(RequestWindow::Second)]);
    holds(&quotas, &Scope::Global, [4, 1_000, 0]);
    drop(quotas.admit(&ask(now, 10)).unwrap());
    quotas.set_limits(&[limit(RequestWindow::Minute)]);
    holds(&quotas, &Scope::Global, [4, 1_000, 0]);
    let in_use = |s| quotas.usage(&Scope::Global, later(s)).unwrap().in_use;
    assert_eq!(in_use(0), Units([0, 10, 0]), "tokens are counted as before");
    (0..4).for_each(|_| drop(quotas.admit(&ask(now, 1)).unwrap()));
    assert!(quotas.admit(&ask(later(30), 1)).is_err(), "a minute counts");
    assert_eq!(in_use(30), Units([4, 14, 0]));
}

#[test]
fn who_is_over_several_limits_hears_of_the_narrowest() {
    let now = start();
    let quotas = Quotas::new(now);
    let scopes = [
        Scope::Key("k1".to_owned()),
        Scope::Tenant("acme".into()),
        Scope::Model("llama".into()),
        Scope::Global,
    ];
    for left in 0..scopes.len() {
        quotas.set_own(
            &scopes[left..]
                .iter()
                .map(|scope| terms(scope.clone(), [Some(0); 3]))
                .collect::<Vec<_>>(),
        );
        assert_eq!(quotas.admit(&ask(now, 1)).unwrap_err().scope, scopes[left]);
    }
}

#[test]
fn more_than_can_be_counted_counts_as_the_most() {
    let now = start();
    let quotas = Quotas::new(now);
    quotas.set_own(&[terms(Scope::Global, [None, Some(u64::MAX), None])]);
    assert_eq!(quotas.standings(now, 1)[0].0.whole[1], Some(UNITS_MAX));
    let hold = quotas.admit(&ask(now, u64::MAX)).unwrap();
    assert!(quotas.admit(&ask(now, 1)).is_err());
    hold.settle(Some(5));
    assert_eq!(quotas.usage(&Scope::Global, now).unwrap().in_use, Units([0, 5, 0]));
}
