use super::*;

fn source<'a>(prefixes: Option<Prefixes<'a>>, path: &'a PathAndQuery) -> ReplyOrigin<'a> {
    static REPLICA: HeaderValue = HeaderValue::from_static("10.0.0.1:8000");
    static ASKED: HeaderValue = HeaderValue::from_static("gw.example");
    ReplyOrigin { prefixes, base: None, path, hosts: [Some(&REPLICA), Some(&ASKED)] }
}

fn confined(
    status: u16,
    headers: &[(&'static str, &'static str)],
    prefixes: Option<Prefixes<'_>>,
) -> Result<HeaderMap, ErrorKind> {
    let path = PathAndQuery::from_static("/predictions/a?q=1");
    let mut reply = Response::builder().status(status);
    for (name, value) in headers {
        reply = reply.header(*name, *value);
    }
    let mut reply = reply.body(()).expect("a reply");
    confine(&mut reply, source(prefixes, &path)).map_err(|error| error.kind)?;
    Ok(reply.into_parts().0.headers)
}

/// Checks the value of a header after it was confined; `None` if it must be gone.
#[track_caller]
fn check(name: &'static str, value: &'static str, expected: Option<&str>) {
    let headers = confined(200, &[(name, value)], None).expect("passes");
    let found = headers.get(name).map(|value| value.to_str().expect("text"));
    assert_eq!(found, expected, "{name}: {value}");
}

#[test]
fn a_redirect_on_the_replica_is_one_on_this_gateway() {
    for status in [300, 301, 302, 303, 307, 308] {
        for (location, expected) in [
            ("http://10.0.0.1:8000/v1/chat/completions?a=b", "/v1/chat/completions?a=b"),
            ("https://10.0.0.1:8000/x", "/x"),
            ("//10.0.0.1:8000/x", "/x"),
            ("http://gw.example/x", "/x"),
            ("https://gw.example:443/x", "/x"),
            ("/x", "/x"),
            ("../x", "/x"),
            ("b", "/predictions/b"),
        ] {
            let headers = confined(status, &[("location", location)], None).expect("passes");
            assert_eq!(headers["location"], expected, "{status} {location}");
        }
    }
}

#[test]
fn a_redirect_below_the_base_path_is_one_on_this_gateway_and_no_other_is() {
    let base = BasePath::new("/openai/v1").expect("a base path");
    let path = PathAndQuery::from_static("/openai/v1/files/a");
    for (location, expected) in [
        ("/openai/v1/files/b", Some("/v1/files/b")),
        ("b", Some("/v1/files/b")),
        ("http://10.0.0.1:8000/openai/metrics", Some("/metrics")),
        ("/other/v1/files/b", None),
    ] {
        let reply = Response::builder().status(302).header("location", location);
        let mut reply = reply.body(()).expect("a reply");
        let origin = ReplyOrigin { base: Some(&base), ..source(None, &path) };
        let confined = confine(&mut reply, origin).is_ok();
        let led = confined.then(|| reply.headers()["location"].to_str().expect("text"));
        assert_eq!(led, expected, "{location}");
    }
}

#[test]
fn a_redirect_to_anywhere_else_is_refused() {
    for location in [
        "http://10.9.8.7/x",
        "http://10.0.0.1/x",
        "http://10.0.0.1:8001/x",
        "http://gw.example:8000/x",
        "//evil.example/x",
        "/\\evil.example",
        "javascript:alert(1)",
        "http:",
    ] {
        for status in [301, 302, 303, 307, 308] {
            let refused = confined(status, &[("location", location)], None);
            assert_eq!(refused.map(drop), Err(ErrorKind::ReplicaRedirect), "{location}");
        }
        let created = confined(201, &[("location", location)], None).expect("no redirect");
        assert!(created.is_empty(), "{location}");
    }
    let unchanged = confined(304, &[("location", "//evil.example/x")], None).expect("no redirect");
    assert!(unchanged.is_empty());
    let two = confined(302, &[("location", "/x"), ("location", "/x")], None);
    assert_eq!(two.map(drop), Err(ErrorKind::ReplicaRedirect));
}

#[test]
fn a_path_below_a_replaced_prefix_is_mapped_back() {
    for (here, there, location, expected) in [
        ("/v1/predict", "/predictions", "/predictions/b?c", Some("/v1/predict/b?c")),
        ("/v1/predict", "/predictions", "http://10.0.0.1:8000/predictions", Some("/v1/predict")),
        ("/v1/predict", "/predictions", "b", Some("/v1/predict/b")),
        ("/v1/predict/", "/predictions/", "/predictions/b", Some("/v1/predict/b")),
        ("/v1/predict", "/predictions", "/predictionsx/b", None),
        ("/v1/predict", "/predictions", "/models", None),
        ("/v1/predict", "/predictions", "/predictions/../models", None),
        ("/clinic", "", "/b", Some("/clinic/b")),
        ("/clinic", "/", "/b", Some("/clinic/b")),
        ("/", "/base", "/base/b", Some("/b")),
        ("/", "/base", "/base?c", Some("/?c")),
        ("/", "/base", "/base//evil.example", None),
    ] {
        let headers = confined(307, &[("location", location)], Some(Prefixes::new(here, there)));
        let found = headers.as_ref().map(|headers| headers["location"].to_str().expect("text"));
        assert_eq!(found.ok(), expected, "{here} {there} {location}");
    }
}

#[test]
fn other_references_are_led_back_or_taken_out() {
    check("content-location", "http://10.0.0.1:8000/x", Some("/x"));
    check("content-location", "http://evil.example/x", None);
    check("refresh", "5", Some("5"));
    check("refresh", "0; URL='http://10.0.0.1:8000/x'", Some("0; url=/x"));
    check("refresh", "0; url=http://evil.example/", None);
    check("refresh", "0,http://evil.example/", None);
    check("refresh", "http://evil.example/", None);
    check(
        "link",
        "<http://10.0.0.1:8000/x?page=2>; rel=\"next\", </y>; title=\"<z>\"",
        Some("</x?page=2>; rel=\"next\", </y>; title=\"<z>\""),
    );
    check("link", "<http://evil.example/>; rel=next", None);
    check("link", "</x>; rel=next, <//evil.example/>; rel=next", None);
    check("link", "<http://evil.example/", None);
    let links = [("link", "</x>; rel=a"), ("link", "<//evil.example>; rel=b"), ("link", "<y>")];
    let headers = confined(200, &links, None).expect("passes");
    let left: Vec<_> = headers.get_all("link").iter().collect();
    assert_eq!(left, ["</x>; rel=a", "</predictions/y>"]);
}

#[test]
fn of_a_reply_of_another_node_only_paths_are_taken() {
    let path = PathAndQuery::from_static("/x");
    let far = ReplyOrigin { prefixes: None, base: None, path: &path, hosts: [None, None] };
    for (location, is_taken) in [("/y", true), ("//y/z", false), ("http://gw.example/y", false)] {
        let mut reply =
            Response::builder().status(307).header("location", location).body(()).expect("a reply");
        assert_eq!(confine(&mut reply, far).is_ok(), is_taken, "{location}");
    }
}
