use spillway_prefix::PrefixConfig;

use super::*;

const MAX_AGE: Duration = Duration::from_secs(60);

fn by_cookie() -> Sessions {
    Sessions::new(SessionSpec::Cookie { name: "home".to_owned(), max_age: MAX_AGE })
}

fn by_header(idle: Duration, sessions_max: u64) -> Sessions {
    let name = HeaderName::from_static("x-session");
    Sessions::new(SessionSpec::Header { name, idle, sessions_max })
}

fn find(sessions: &Sessions, line: (&'static str, &str), candidates: &[u64]) -> Session {
    find_for(sessions, line, ("tiny", "acme"), candidates)
}

fn find_for(
    sessions: &Sessions,
    (name, value): (&'static str, &str),
    (model, tenant): (&str, &str),
    candidates: &[u64],
) -> Session {
    let hasher = PrefixHasher::new([1, 2, 3, 4], PrefixConfig::default()).expect("a hasher");
    let mut headers = HeaderMap::new();
    headers.insert(name, HeaderValue::from_str(value).expect("a value"));
    let (model, tenant) = (ModelName::from(model), TenantName::from(tenant));
    let whose = (Some(&model), Some(&tenant));
    sessions.find(&headers, whose, &hasher, |target| candidates.contains(&target))
}

/// Notes a reply from the replica of this identity, or from the region of the identity 100.
fn replied<'s>(
    sessions: &'s Sessions,
    session: &Session,
    target: u64,
    beyond: &[u64],
) -> Option<NewCookie<'s>> {
    let target = match target {
        100 => SessionTarget::Region(target),
        replica => SessionTarget::Replica(replica),
    };
    match sessions.replied(session, target, beyond, Instant::now())? {
        SessionChange::Cookie(cookie) => Some(cookie),
        SessionChange::Home(..) => None,
    }
}

#[test]
fn a_cookie_leads_to_the_replica_that_set_it() {
    let sessions = by_cookie();
    let fresh = find(&sessions, ("cookie", "a=b"), &[1, 2]);
    assert_eq!(fresh.target, None);
    let set = replied(&sessions, &fresh, 2, &[]).expect("a cookie");
    let expected = NewCookie { name: "home", value: format!("{:016x}", 2), max_age: MAX_AGE };
    assert_eq!(set, expected);
    let back = find(&sessions, ("cookie", &format!("home={}", set.value)), &[1, 2]);
    assert_eq!(back.target, Some(2));
    assert_eq!(replied(&sessions, &back, 2, &[]), None, "nothing new to tell");
}

#[test]
fn a_session_that_moved_stays_where_it_went() {
    let sessions = by_cookie();
    let cookie = |targets: &[u64]| format!("home={}", write_targets(targets[0], &targets[1..]));
    let moved = find(&sessions, ("cookie", &cookie(&[1])), &[1, 2]);
    let set = replied(&sessions, &moved, 2, &[]).expect("a cookie");
    assert_eq!(set.value, write_targets(2, &[1]));
    let again = find(&sessions, ("cookie", &format!("home={}", set.value)), &[1, 2]);
    assert_eq!(again.target, Some(2));
    // Another model of the same client, which only the first replica serves.
    let other = find(&sessions, ("cookie", &format!("home={}", set.value)), &[1, 3]);
    assert_eq!((other.target, replied(&sessions, &other, 1, &[])), (Some(1), None));
    let swapped = find(&sessions, ("cookie", &cookie(&[1, 2])), &[1, 2]);
    assert_eq!(replied(&sessions, &swapped, 2, &[]).expect("one").value, write_targets(2, &[1]));
    assert_eq!(write_targets(2, &[1, 2]), write_targets(2, &[1]), "each is named once");
    let full = find(&sessions, ("cookie", &cookie(&[1, 2, 3, 4, 6, 7])), &[5]);
    assert_eq!(full.target, None);
    let set = replied(&sessions, &full, 5, &[]).expect("one").value;
    assert_eq!(set, write_targets(5, &[1, 2, 3, 4, 6]));
}

#[test]
fn a_session_moves_when_it_is_served_elsewhere_than_before() {
    let none = |_| false;
    let sessions = by_cookie();
    let cookie = format!("home={}", write_targets(1, &[9]));
    let known = find(&sessions, ("cookie", &cookie), &[1, 2]);
    assert!(!sessions.moves(&known, 1, none) && sessions.moves(&known, 2, none));
    let fresh = find(&sessions, ("cookie", "a=b"), &[1, 2]);
    assert!(!sessions.moves(&fresh, 2, none), "it begins");
    // Its replica is no candidate any more.
    let lost = find(&sessions, ("cookie", &cookie), &[2]);
    assert!(sessions.moves(&lost, 2, none));
    assert!(!sessions.moves(&lost, 2, |_| true), "its first request for this model");
    let sessions = by_header(MAX_AGE, 10);
    let line = ("x-session", "s-1");
    let fresh = find(&sessions, line, &[]);
    replied(&sessions, &fresh, 7, &[]);
    let known = find(&sessions, line, &[]);
    assert!(!sessions.moves(&fresh, 7, none));
    assert!(!sessions.moves(&known, 7, none) && sessions.moves(&known, 8, none));
}

#[test]
fn a_cookie_of_another_region_becomes_one_that_names_the_region_and_its_replica() {
    const REGION: u64 = 100;
    let sessions = by_cookie();
    let fresh = find(&sessions, ("cookie", "a=b"), &[REGION]);
    let mut headers = HeaderMap::new();
    let there = write_targets(2, &[]);
    for line in ["mine=1; Path=/", &format!("home={there}; Path=/; HttpOnly"), "homes=x"] {
        headers.append(SET_COOKIE, HeaderValue::from_str(line).expect("a value"));
    }
    let beyond = sessions.take_cookie(&mut headers);
    assert_eq!(beyond, [2]);
    let left: Vec<_> = headers.get_all(SET_COOKIE).iter().collect();
    assert_eq!(left, ["mine=1; Path=/", "homes=x"], "others are the replica's own");
    assert!(sessions.take_cookie(&mut headers).is_empty());
    let set = replied(&sessions, &fresh, REGION, &beyond).expect("a cookie");
    assert_eq!(set.value, write_targets(REGION, &[2]));
    // In this region the cookie leads to the other region, and there to the replica.
    let line = format!("home={}", set.value);
    assert_eq!(find(&sessions, ("cookie", &line), &[1, REGION]).target, Some(REGION));
    let there = find(&sessions, ("cookie", &line), &[2, 3]);
    assert_eq!((there.target, replied(&sessions, &there, 2, &[])), (Some(2), None));
    let back = find(&sessions, ("cookie", &line), &[1, REGION]);
    assert_eq!(replied(&sessions, &back, REGION, &[]), None, "nothing new to tell");
    let moved = replied(&sessions, &back, REGION, &[3]).expect("a cookie");
    assert_eq!(moved.value, write_targets(REGION, &[3, 2]), "another replica there");
}

#[test]
fn a_cookie_that_was_never_set_here_counts_for_nothing() {
    let sessions = by_cookie();
    let valid = format!("{:016x}", 1);
    let long = [valid.as_str(); TARGETS_MAX + 2].join(".");
    for value in ["", "1", "x", "000000000000000g", "+000000000000001", &long, "0.1"] {
        for value in [value.to_owned(), format!("{valid}.{value}")] {
            let found = find(&sessions, ("cookie", &format!("home={value}")), &[1]);
            assert_eq!(found, Session { target: None, token: Token::Cookie(Vec::new()) });
        }
    }
}

#[test]
fn a_header_is_remembered_for_each_model_and_tenant() {
    let sessions = by_header(MAX_AGE, 100);
    let line = ("x-session", "s-1");
    let fresh = find(&sessions, line, &[]);
    assert_eq!(fresh.target, None);
    assert_eq!(replied(&sessions, &fresh, 7, &[]), None, "nothing to tell the client");
    let back = find(&sessions, line, &[]);
    assert_eq!(back.target, Some(7));
    assert_eq!(find(&sessions, ("x-session", "s-2"), &[]).target, None);
    for other in [("other", "acme"), ("tiny", "zeta"), ("tin", "yacme")] {
        assert_eq!(find_for(&sessions, line, other, &[]).target, None);
    }
    replied(&sessions, &back, 8, &[]);
    assert_eq!(find(&sessions, line, &[]).target, Some(8), "it moved");
    for line in [("x-session", ""), ("x-other", "s-1")] {
        let none = find(&sessions, line, &[]);
        assert_eq!(none, Session { target: None, token: Token::Header(None) });
        replied(&sessions, &none, 9, &[]);
    }
}

#[test]
fn only_so_many_sessions_are_remembered() {
    let sessions = by_header(MAX_AGE, 10);
    for number in 0..1_000 {
        let found = find(&sessions, ("x-session", &format!("s-{number}")), &[]);
        replied(&sessions, &found, 1, &[]);
    }
    assert!(sessions.homes.len() <= 10, "{}", sessions.homes.len());
}

#[test]
fn the_home_of_a_new_session_is_known_before_the_reply() {
    let (sessions, now) = (by_header(MAX_AGE, 10), Instant::now());
    let line = ("x-session", "s-1");
    let fresh = find(&sessions, line, &[]);
    let key = sessions.new_key(&fresh).expect("a key");
    let home = sessions.begun(key, 7, now).expect("a home to tell");
    assert_eq!(sessions.begun(key, 8, now), None, "another request of it was faster");
    assert_eq!(find(&sessions, line, &[]).target, Some(7));
    assert_eq!(sessions.new_key(&find(&sessions, line, &[])), None);
    let other = by_header(MAX_AGE, 10);
    assert_eq!(other.receive(key, home, now), None);
    assert_eq!(find(&other, line, &[]).target, Some(7), "the other node leads there, too");
    assert_eq!(sessions.some_homes(9), [(key, home)]);
    let cookies = by_cookie();
    assert_eq!(cookies.new_key(&find(&cookies, ("cookie", "a=b"), &[])), None);
}
