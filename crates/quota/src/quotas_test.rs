use super::*;
use crate::LimitKind;

#[expect(clippy::disallowed_methods, reason = "there is no other way to some instant")]
fn start() -> Instant {
    Instant::now()
}

fn terms(scope: Scope, whole: [Option<u64>; 3]) -> LimitTerms {
    LimitTerms { scope, whole }
}

fn holds(quotas: &Quotas, scope: &Scope, units: [u64; 3]) {
    quotas.hold(scope, &Holding { floor: Units(units), ..Holding::default() });
}

fn ask(now: Instant, tokens: u64) -> QuotaAsk<'static> {
    QuotaAsk { key: Some("k1"), tenant: Some("acme"), model: Some("llama"), tokens, now }
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
    assert!(refusal.fits);
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
    assert!(!quotas.admit(&ask(now, 101)).unwrap_err().fits);
}

#[test]
fn a_new_limit_lets_nobody_in_until_something_is_held() {
    let now = start();
    let quotas = Quotas::new(now);
    quotas.set_limits(&[terms(Scope::Global, [Some(10), None, None])]);
    assert!(quotas.admit(&ask(now, 1)).is_err());
    assert_eq!(quotas.take_demand(&Scope::Global).refused, Units([1, 0, 0]));
    holds(&quotas, &Scope::Global, [3, 0, 0]);
    let _one = quotas.admit(&ask(now, 1)).unwrap();
    // Another value keeps what was charged.
    quotas.set_limits(&[terms(Scope::Global, [Some(20), None, None])]);
    assert_eq!(quotas.usage(&Scope::Global, now).unwrap().in_use, Units([1, 0, 0]));
    assert_eq!(quotas.take_demand(&Scope::Global).peak, Units([1, 0, 0]));
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
    let nobody = QuotaAsk { key: None, tenant: None, model: None, tokens: 1, now };
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
        next.assume(&Scope::Global, Units([0, tokens, 0]), (age, later(55)));
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
    let scopes: Vec<&Scope> = shown.iter().map(|(scope, ..)| scope).collect();
    assert_eq!(scopes, [&Scope::Global, &model]);
    assert_eq!((shown[1].1, shown[1].2.held), ([None, Some(9), None], Units([0, 4, 0])));
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
    quotas.pay_at(&Scope::Global, 0);
    assert_eq!(quotas.usage(&Scope::Global, now).unwrap().debt, Units([0, 150, 0]));
}
