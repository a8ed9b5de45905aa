use std::collections::BTreeSet;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use spillway_cluster_state::{Key, KeyId, KeyRole};

use super::*;
use crate::access::{TenantTally, TenantTerms};

const SECRET: [u8; 32] = [7; 32];

/// Returns the text of a key and its record, of the tenant `acme`.
fn key(id: &str, secret: [u8; 32]) -> (String, (KeyId, Key)) {
    let id = KeyId::from(id);
    let text = KeyText::write(&id, &secret);
    let salt = [3; 16];
    let hash = KeyText::read(&text).expect("a key").hash(&salt);
    let key = Key {
        role: KeyRole::Client,
        salt,
        hash,
        tenant: Some("acme".into()),
        models: BTreeSet::new(),
        regions: BTreeSet::new(),
        priority: 2,
        expires_ms: None,
        is_revoked: false,
    };
    (text, (id, key))
}

fn bearing(text: &str) -> HeaderMap {
    let value = HeaderValue::try_from(format!("Bearer {text}")).expect("a value");
    [(http::header::AUTHORIZATION, value)].into_iter().collect()
}

fn table(keys: impl IntoIterator<Item = (KeyId, Key)>) -> KeyTable {
    KeyTable::new(keys, [], None)
}

fn of(keys: impl IntoIterator<Item = (KeyId, Key)>) -> Authenticator {
    let authenticator = Authenticator::new();
    authenticator.replace(table(keys));
    authenticator
}

#[track_caller]
fn refused(authenticator: &Authenticator, text: &str, message: &str) {
    let error = authenticator.admit(&bearing(text)).expect_err("refused");
    assert_eq!(error.kind, ErrorKind::KeyInvalid);
    assert!(error.message.contains(message), "{}", error.message);
    assert!(!error.message.contains(text), "errors tell no secret");
}

#[test]
fn a_right_key_is_let_in_the_first_time_and_from_then_on() {
    let (text, record) = key("a", SECRET);
    let authenticator = of([record]);
    for _ in 0..3 {
        let grant = authenticator.admit(&bearing(&text)).expect("let in");
        assert_eq!(grant.tenant.as_ref().map(TenantName::as_str), Some("acme"));
        assert_eq!(grant.priority, 2);
    }
    authenticator.verified.run_pending_tasks();
    assert_eq!(authenticator.verified.entry_count(), 1);
}

#[test]
fn a_wrong_key_is_not_and_leaves_nothing_behind() {
    let (text, record) = key("a", SECRET);
    let authenticator = of([record]);
    let mut almost = text.clone();
    almost.replace_range(text.len() - 1.., if text.ends_with('0') { "1" } else { "0" });
    let (unknown, _) = key("b", SECRET);
    for _ in 0..2 {
        for wrong in [almost.as_str(), unknown.as_str(), "sw_", "sw_a_", "sk-1"] {
            refused(&authenticator, wrong, "not known");
        }
    }
    authenticator.verified.run_pending_tasks();
    assert_eq!(authenticator.verified.entry_count(), 0);
    let error = authenticator.admit(&HeaderMap::new()).expect_err("refused");
    assert_eq!(error.kind, ErrorKind::KeyMissing);
}

#[test]
fn a_swap_of_the_table_voids_what_was_verified() {
    let (text, record) = key("a", SECRET);
    let authenticator = of([record.clone()]);
    authenticator.admit(&bearing(&text)).expect("let in");
    let mut revoked = record.clone();
    revoked.1.is_revoked = true;
    authenticator.replace(table([revoked]));
    refused(&authenticator, &text, "revoked");
    authenticator.replace(table([]));
    refused(&authenticator, &text, "not known");
    let mut changed = record.clone();
    changed.1.hash = key("a", [8; 32]).1.1.hash;
    authenticator.replace(table([changed]));
    refused(&authenticator, &text, "not known");
    authenticator.replace(table([record]));
    authenticator.admit(&bearing(&text)).expect("let in again");
}

#[test]
fn a_key_ends_when_its_time_is_over_though_it_was_verified() {
    let (text, mut record) = key("a", SECRET);
    record.1.expires_ms = Some(now_ms() + 3_600_000);
    let authenticator = of([record.clone()]);
    authenticator.admit(&bearing(&text)).expect("let in");
    let entry = authenticator.verify(&authenticator.posted.load(), &text).expect("verified");
    let end = record.1.expires_ms.expect("an end");
    assert_eq!(entry.result(|| end - 1), AccessResult::Ok);
    assert_eq!(entry.result(|| end), AccessResult::Expired);
    record.1.expires_ms = Some(1);
    authenticator.replace(table([record]));
    refused(&authenticator, &text, "expired");
}

#[test]
fn a_suspended_tenant_s_keys_let_nobody_in() {
    let (text, record) = key("a", SECRET);
    let authenticator = Authenticator::new();
    let terms = TenantTerms { is_suspended: true, ..TenantTerms::default() };
    authenticator.replace(KeyTable::new([record], [("acme".into(), terms)], None));
    refused(&authenticator, &text, "suspended");
    let mut claims = HeaderMap::new();
    let name = HeaderName::from_static("x-spillway-tenant");
    claims.insert(name, HeaderValue::from_static("acme"));
    assert_eq!(
        authenticator.believe(&claims, true).expect_err("refused").kind,
        ErrorKind::KeyInvalid
    );
}

#[test]
fn a_node_that_can_t_follow_its_cluster_lets_none_of_the_cluster_s_keys_in() {
    let (own, own_record) = key("own", SECRET);
    let (good, good_record) = key("good", [9; 32]);
    let (bad, mut bad_record) = key("bad", [8; 32]);
    bad_record.1.is_revoked = true;
    let ids = [good_record.0.clone(), bad_record.0.clone()];
    let records = [own_record, good_record, bad_record];
    let authenticator = of(records.clone());
    authenticator.admit(&bearing(&good)).expect("let in");
    authenticator.replace(table(records.clone()).in_doubt(&ids));
    authenticator.admit(&bearing(&own)).expect("the config's key is sure");
    let error = authenticator.admit(&bearing(&good)).expect_err("refused");
    assert_eq!(error.kind, ErrorKind::KeyUnsure);
    refused(&authenticator, &bad, "revoked");
    authenticator.replace(table(records));
    authenticator.admit(&bearing(&good)).expect("let in again");
}

#[test]
fn an_operator_s_key_lets_no_client_in() {
    let (text, mut record) = key("a", SECRET);
    record.1.role = KeyRole::Admin;
    refused(&of([record]), &text, "not known");
}

#[test]
fn who_may_not_claim_is_not_believed() {
    let authenticator = of([]);
    let mut claims = HeaderMap::new();
    let name = HeaderName::from_static("x-spillway-tenant");
    claims.insert(name, HeaderValue::from_static("acme"));
    assert!(authenticator.believe(&claims, true).is_ok());
    let error = authenticator.believe(&claims, false).expect_err("refused");
    assert_eq!(error.kind, ErrorKind::KeyMissing);
    let silent = authenticator.believe(&HeaderMap::new(), true);
    assert_eq!(silent.expect_err("refused").kind, ErrorKind::KeyMissing);
}

#[test]
fn the_cache_stays_within_its_bound() {
    let secret = |index: u32| {
        let mut secret = [0; 32];
        secret[..4].copy_from_slice(&index.to_le_bytes());
        secret
    };
    let count = u32::try_from(VERIFIED_MAX).expect("a small number") + 2_000;
    let (texts, records): (Vec<_>, Vec<_>) =
        (0..count).map(|index| key(&format!("k{index}"), secret(index))).unzip();
    let authenticator = of(records);
    for text in &texts {
        authenticator.admit(&bearing(text)).expect("let in");
    }
    authenticator.verified.run_pending_tasks();
    assert!(authenticator.verified.entry_count() <= VERIFIED_MAX);
    assert!(authenticator.verified.entry_count() > VERIFIED_MAX / 2, "it is used");
}

#[test]
fn no_two_nodes_name_a_key_alike() {
    let (one, other) = (Fingerprints::random(), Fingerprints::random());
    assert_eq!(one.of("sw_a"), one.of("sw_a"));
    assert_ne!(one.of("sw_a"), one.of("sw_b"));
    assert_ne!(one.of("sw_a"), other.of("sw_a"));
    assert_eq!(Fingerprints(None).of("sw_a"), None);
    assert_eq!(format!("{one:?}"), "Fingerprints(true)");
}

#[test]
fn without_randomness_keys_are_verified_each_time() {
    let (text, record) = key("a", SECRET);
    let authenticator = Authenticator { fingerprints: Fingerprints(None), ..of([record]) };
    for _ in 0..2 {
        authenticator.admit(&bearing(&text)).expect("let in");
    }
    assert_eq!(authenticator.verified.entry_count(), 0);
}

#[test]
fn requests_are_counted_by_tenant_and_result_and_a_swap_keeps_the_counts() {
    let (text, record) = key("a", SECRET);
    let authenticator = of([record.clone()]);
    authenticator.admit(&bearing(&text)).expect("let in");
    authenticator.admit(&bearing(&text)).expect("let in");
    refused(&authenticator, "sw_x", "not known");
    drop(authenticator.admit(&HeaderMap::new()));
    let before = authenticator.table();
    let mut revoked = record;
    revoked.1.is_revoked = true;
    authenticator.replace(KeyTable::new([revoked], [], Some(&before)));
    refused(&authenticator, &text, "revoked");
    let tally = |tenant: &str, totals: &[(AccessResult, u64)]| TenantTally {
        tenant: tenant.to_owned(),
        totals: totals.to_vec(),
    };
    let expected = [
        tally("acme", &[(AccessResult::Ok, 2), (AccessResult::Revoked, 1)]),
        tally("", &[(AccessResult::Missing, 1), (AccessResult::Unknown, 1)]),
    ];
    assert_eq!(authenticator.table().tallies(), expected);
}

#[test]
fn many_tenants_share_a_count_and_unknown_ones_make_none() {
    let tenants = (0..1_500).map(|index| {
        let name = TenantName::from(format!("t{index:04}"));
        (name, TenantTerms::default())
    });
    let authenticator = Authenticator::new();
    authenticator.replace(KeyTable::new([], tenants, None));
    for tenant in ["t0001", "t1200", "t1400", "stranger"] {
        let name = HeaderName::from_static("x-spillway-tenant");
        let value = HeaderValue::from_static(tenant);
        let claims = [(name, value)].into_iter().collect();
        authenticator.believe(&claims, true).expect("believed");
    }
    let tallies = authenticator.table().tallies();
    let counted: Vec<_> =
        tallies.iter().map(|tally| (tally.tenant.as_str(), tally.totals[0].1)).collect();
    assert_eq!(counted, [("t0001", 1), ("", 1), ("_other", 2)]);
}

const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

#[tokio::test(start_paused = true)]
async fn a_key_that_is_known_in_a_moment_is_let_in() {
    let (text, record) = key("a", SECRET);
    let (other, other_record) = key("b", [9; 32]);
    let authenticator = of([]);
    authenticator.news.hope(|| true);
    let headers = bearing(&text);
    let come = async {
        // wait: news come one after the other, within the time of a wait.
        tokio::time::sleep(KEY_WAIT_MAX / 4).await;
        authenticator.replace(table([other_record.clone()]));
        // wait: for the second piece of news.
        tokio::time::sleep(KEY_WAIT_MAX / 4).await;
        authenticator.replace(table([other_record.clone(), record]));
    };
    let (admitted, ()) = tokio::join!(authenticator.admit_soon(&headers, CLIENT), come);
    assert!(admitted.expect("waited").is_ok());
    // A text that cannot be a key does not wait, nor does a key that is refused for its state.
    let begun = Instant::now();
    for text in ["sw_", "sk-1", &other] {
        assert!(authenticator.admit_soon(&bearing(text), CLIENT).await.is_none(), "{text}");
    }
    assert!(authenticator.admit_soon(&HeaderMap::new(), CLIENT).await.is_none());
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_refusal_does_not_tell_whether_an_id_exists() {
    let (known, record) = key("a", SECRET);
    let (unknown, _) = key("b", SECRET);
    let authenticator = of([record]);
    authenticator.news.hope(|| true);
    let mut wrong = known.clone();
    wrong.replace_range(known.len() - 1.., if known.ends_with('0') { "1" } else { "0" });
    let mut waits = Vec::new();
    for text in [&wrong, &unknown, &wrong, &unknown] {
        let begun = Instant::now();
        assert!(authenticator.admit_soon(&bearing(text), CLIENT).await.is_none(), "{text}");
        waits.push(begun.elapsed());
    }
    assert_eq!(waits[0], waits[1], "both wait for news");
    assert_eq!(waits[2..], [Duration::ZERO; 2], "both came in vain a moment ago");
    assert!(waits[0] >= KEY_WAIT_MAX);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_never_comes_waits_once_and_not_long() {
    let (text, _) = key("a", SECRET);
    let authenticator = of([]);
    authenticator.news.hope(|| true);
    let paused = Instant::now();
    assert!(authenticator.admit_soon(&bearing(&text), CLIENT).await.is_none());
    assert!(paused.elapsed() <= 2 * KEY_WAIT_MAX, "{:?}", paused.elapsed());
    let again = Instant::now();
    assert!(authenticator.admit_soon(&bearing(&text), CLIENT).await.is_none());
    assert_eq!(again.elapsed(), Duration::ZERO, "it came in vain a moment ago");
}
