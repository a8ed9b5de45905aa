//! Time to authenticate a request, with 10,000 keys in the table.

#![expect(clippy::expect_used, reason = "a bench fails by panicking")]

use std::collections::BTreeSet;

use divan::{Bencher, black_box};
use http::{HeaderMap, HeaderValue, header};
use spillway_cluster_state::{Key, KeyId, KeyRole, KeyText, SECRET_BYTES};
use spillway_front::access::{Authenticator, KeyTable};

const KEYS: u32 = 10_000;
/// More keys than the cache of verified keys holds, so that few lookups hit it.
const MANY_KEYS: u32 = 200_000;

fn main() {
    divan::main();
}

/// Measures one key over and over: the cache of verified keys has it.
#[divan::bench]
fn verified(bencher: Bencher<'_, '_>) {
    let (authenticator, requests) = world(KEYS);
    let request = requests.first().expect("a request");
    authenticator.admit(request).expect("let in");
    bencher.bench(|| authenticator.admit(black_box(request)).is_ok());
}

/// Measures another key each time: its secret is hashed and compared.
#[divan::bench]
fn cold(bencher: Bencher<'_, '_>) {
    let (authenticator, requests) = world(MANY_KEYS);
    let mut next = requests.iter().cycle();
    bencher.bench_local(|| authenticator.admit(next.next().expect("a request")).is_ok());
}

/// Measures a key with a wrong secret.
#[divan::bench]
fn wrong(bencher: Bencher<'_, '_>) {
    let (authenticator, _) = world(KEYS);
    let request = request(&KeyText::write(&KeyId::from("k7"), &[9; SECRET_BYTES]));
    bencher.bench(|| authenticator.admit(black_box(&request)).is_err());
}

/// Measures requests without a key.
#[divan::bench]
fn missing(bencher: Bencher<'_, '_>) {
    let (authenticator, _) = world(KEYS);
    let request = HeaderMap::new();
    bencher.bench(|| authenticator.admit(black_box(&request)).is_err());
}

/// Measures the replacement of the table by a new one of 10,000 keys; no request waits for it.
#[divan::bench]
fn swap(bencher: Bencher<'_, '_>) {
    let (authenticator, _) = world(1);
    let keys: Vec<_> = (0..KEYS).map(|index| key(index).1).collect();
    bencher
        .with_inputs(|| keys.clone())
        .bench_local_values(|keys| authenticator.replace(KeyTable::new(keys, [], None)));
}

fn world(count: u32) -> (Authenticator, Vec<HeaderMap>) {
    let (texts, keys): (Vec<_>, Vec<_>) = (0..count).map(key).unzip();
    let authenticator = Authenticator::new();
    authenticator.replace(KeyTable::new(keys, [], None));
    (authenticator, texts.iter().map(|text| request(text)).collect())
}

fn key(index: u32) -> (String, (KeyId, Key)) {
    let id = KeyId::from(format!("k{index}").as_str());
    let mut secret = [7; SECRET_BYTES];
    secret[..4].copy_from_slice(&index.to_le_bytes());
    let text = KeyText::write(&id, &secret);
    let salt = [3; 16];
    let key = Key {
        role: KeyRole::Client,
        salt,
        hash: KeyText::read(&text).expect("a key").hash(&salt),
        tenant: Some(format!("t{}", index % 100).as_str().into()),
        models: BTreeSet::new(),
        regions: BTreeSet::new(),
        priority: 0,
        expires_ms: None,
        is_revoked: false,
    };
    (text, (id, key))
}

fn request(text: &str) -> HeaderMap {
    let value = HeaderValue::try_from(format!("Bearer {text}")).expect("a value");
    let accept = (header::ACCEPT, HeaderValue::from_static("*/*"));
    [accept, (header::AUTHORIZATION, value)].into_iter().collect()
}
