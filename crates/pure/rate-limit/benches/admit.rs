//! Cost of limits for one request.

use std::time::Instant;

use divan::{Bencher, black_box};
use spillway_rate_limit::{
    Holding, LimitTerms, QuotaAsk, Quotas, RequestWindow, Scope, UNITS_MAX, Units,
};

fn main() {
    divan::main();
}

#[expect(clippy::disallowed_methods, reason = "there is no other way to some instant")]
fn start() -> Instant {
    Instant::now()
}

fn quotas(limited: bool) -> (Quotas, Instant) {
    let now = start();
    let quotas = Quotas::new(now);
    if limited {
        let mut scopes = vec![Scope::Global];
        for number in 0..1_000 {
            scopes.push(Scope::Key(format!("key-{number}")));
            scopes.push(Scope::Tenant(format!("tenant-{number}").as_str().into()));
            scopes.push(Scope::Model(format!("model-{number}").as_str().into()));
        }
        let limit = |scope: &Scope| LimitTerms {
            scope: scope.clone(),
            whole: [Some(UNITS_MAX); 3],
            requests: RequestWindow::Second,
        };
        quotas.set_limits(&scopes.iter().map(limit).collect::<Vec<_>>());
        let holding = Holding { floor: Units([UNITS_MAX; 3]), ..Holding::default() };
        scopes.iter().for_each(|scope| quotas.hold(scope, &holding));
    }
    (quotas, now)
}

fn ask(now: Instant) -> QuotaAsk<'static> {
    QuotaAsk {
        key: Some("key-512"),
        tenant: Some("tenant-512"),
        model: Some("model-512"),
        tokens: 700,
        said: 700,
        now,
    }
}

#[divan::bench(threads = [1, 2])]
fn no_limits(bencher: Bencher<'_, '_>) {
    let (quotas, now) = quotas(false);
    bencher.bench(|| black_box(&quotas).admit(&ask(now)).map(|hold| hold.settle(Some(500))));
}

#[divan::bench(threads = [1, 2])]
fn four_limits_of_three_kinds(bencher: Bencher<'_, '_>) {
    let (quotas, now) = quotas(true);
    bencher.bench(|| black_box(&quotas).admit(&ask(now)).map(|hold| hold.settle(Some(500))));
}

#[divan::bench]
fn refused_by_a_key(bencher: Bencher<'_, '_>) {
    let (quotas, now) = quotas(true);
    quotas.hold(&Scope::Key("key-512".to_owned()), &Holding::default());
    bencher.bench(|| black_box(&quotas).admit(&ask(now)).is_err());
}
