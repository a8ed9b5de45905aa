use super::*;
use crate::test_around::{Around, Asked, Served, prefixed, route};

/// Returns the path at the replica of a route's request.
fn at_replica(spec: RouteSpec, path: &str) -> String {
    let name = spec.name.clone();
    let around = Around::new(Served { routes: vec![spec], ..Served::default() });
    let view = around.gateway.routing.view();
    let route = view.routes().find(|route| route.spec.name == name).unwrap();
    let head = Asked::get(path).head();
    replica_path(&head, route, None).unwrap().to_string()
}

#[test]
fn a_prefix_is_replaced_and_the_rest_stays_as_it_was_sent() {
    for (here, there, path, expected) in [
        ("/team", "/v1", "/team/chat", "/v1/chat"),
        ("/team", "/v1/", "/team/chat", "/v1/chat"),
        ("/team/", "/v1", "/team/chat", "/v1/chat"),
        ("/team", "/", "/team/chat", "/chat"),
        ("/team", "", "/team/chat", "/chat"),
        ("/team", "/", "/team", "/"),
        ("/team", "/", "/team/", "/"),
        ("/team", "/v1", "/team", "/v1"),
        ("/team", "/a/b", "/team/x%2Fy/%E4", "/a/b/x%2Fy/%E4"),
        ("/team", "/v1", "/team/team/x", "/v1/team/x"),
        ("/team", "/v1", "/team/x?team=/team&y", "/v1/x?team=/team&y"),
        ("/team", "/v1", "/team?", "/v1?"),
        ("/", "/v1", "/x", "/v1/x"),
    ] {
        let replace_prefix = Some(there.to_owned());
        let spec = RouteSpec { replace_prefix, ..prefixed(here, Protocol::Raw) };
        assert_eq!(at_replica(spec, path), expected, "{here} to {there}: {path}");
    }
}

#[test]
fn a_slash_behind_an_endpoint_is_left_out_where_the_path_is_read() {
    let raw = || prefixed("/v1", Protocol::Raw);
    let json = || prefixed("/v1", Protocol::OpenAi);
    for (spec, path, expected) in [
        (route("all"), "/v1/chat/completions/", "/v1/chat/completions"),
        (route("all"), "/v1/chat/completions/?x=1", "/v1/chat/completions?x=1"),
        (route("all"), "/v1/chat/completions", "/v1/chat/completions"),
        (json(), "/v1/chat/completions/", "/v1/chat/completions"),
        (json(), "/v1/custom/", "/v1/custom/"),
        // The server of a raw route may serve a folder.
        (raw(), "/v1/chat/completions/", "/v1/chat/completions/"),
        (route("all"), "/", "/"),
    ] {
        assert_eq!(at_replica(spec, path), expected, "{path}");
    }
}

#[test]
fn a_redirect_of_a_replica_leads_back_below_the_prefix_or_nowhere() {
    for (here, there, target, expected) in [
        ("/team", "/v1", "/v1/x", Some("/team/x")),
        ("/team", "/v1", "/v1", Some("/team")),
        ("/team", "/v1", "/v1?a=/b", Some("/team?a=/b")),
        ("/team", "/v1", "/v1/x?y#z", Some("/team/x?y#z")),
        ("/team", "/v1", "/v1#z", Some("/team#z")),
        ("/team", "/v1", "/v10/x", None),
        ("/team", "/v1", "/other", None),
        ("/team", "/v1", "/x?from=/v1/x", None),
        ("/team", "/", "/x", Some("/team/x")),
        ("/", "/v1", "/v1/x", Some("/x")),
        ("/", "/v1", "/v1", Some("/")),
        ("/", "/v1", "/v1?a", Some("/?a")),
        // The name of another server.
        ("/", "/v1", "/v1//evil.example/x", None),
        ("/team", "/v1", "/v1//evil.example/x", Some("/team//evil.example/x")),
    ] {
        let found = Prefixes::new(here, there).client_path(target);
        assert_eq!(found.as_deref(), expected, "{here} at {there}: {target}");
    }
}

#[test]
fn a_path_that_is_replaced_there_and_back_is_the_same() {
    for (here, there) in [("/team", "/v1"), ("/team", "/"), ("/a/b/", "/v1/"), ("/", "/v1")] {
        let prefixes = Prefixes::new(here, there);
        for rest in ["/x", "/x/y?z", "/team", "/v1"] {
            let path = format!("{}{rest}", here.trim_end_matches('/'));
            let back = prefixes.client_path(&prefixes.replica_path(&path));
            assert_eq!(back.as_deref(), Some(path.as_str()), "{here} to {there}");
        }
    }
}

#[test]
fn a_name_in_a_v2_path_is_replaced_if_it_is_another_one() {
    let (model, version) = (ModelName::from("a b"), ModelVersion::from("2"));
    for (path, version, expected) in [
        ("/v2/models/x/infer", None, "/v2/models/a%20b/infer"),
        ("/v2/models/x", None, "/v2/models/a%20b"),
        ("/v2/models/x/infer", Some(&version), "/v2/models/a%20b/versions/2/infer"),
        ("/v2/models/x/versions/1/infer", Some(&version), "/v2/models/a%20b/versions/1/infer"),
        // The right name stays in the client's spelling.
        ("/v2/models/a%20b/infer", None, "/v2/models/a%20b/infer"),
        ("/v2/models/%61%20b/ready", None, "/v2/models/%61%20b/ready"),
        ("/v2/models/a%20b/infer", Some(&version), "/v2/models/a%20b/versions/2/infer"),
        // A name that occurs in the rest, too.
        ("/v2/models/infer/infer", None, "/v2/models/a%20b/infer"),
        ("/v1/models/x", None, "/v1/models/x"),
    ] {
        let around = Around::new(Served { routes: vec![route("all")], ..Served::default() });
        let view = around.gateway.routing.view();
        let route = view.routes().next().unwrap();
        let renamed = Renamed::of(Endpoint::classify(path), &model, version);
        let head = Asked::get(path).head();
        assert_eq!(replica_path(&head, route, renamed).unwrap(), expected, "{path}");
    }
}
