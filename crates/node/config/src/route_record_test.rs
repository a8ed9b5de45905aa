use serde_json::json;

use super::*;
use crate::Config;

/// A route with every setting that a file can have, except for a session by header.
const EVERYTHING: &str = r#"
[[route]]
name = "r"
path_prefix = "/x"
replace_prefix = "/y"
protocol = "openai"
models = ["tiny"]
model = "tiny"
pool = "default"
policy = "bounded_consistent_hash"
hash_by = "header:x-user"
session = { cookie = "c", idle_s = 7 }
regions = ["r"]
countries = ["DE"]
predicted_latency = { goal = "total" }
inject_usage = true
forward_authorization = true
overflow = false
allow_engine_fields = ["priority"]
continue_streams = true
queue_max = 7
queue_ms = 777
start_wait_ms = 70
slo_ms = 700
hedge = { after_ms = 9, budget_percent = 1 }
timeouts = { connect_ms = 1, first_byte_ms = 2, idle_ms = 3, total_ms = 4, keep_alive_ms = 5 }
"#;

fn config(routes: &str) -> Config {
    let replica = "[[replica]]\nname = \"a\"\nurl = \"http://h:1\"\nmodels = [\"tiny\"]\n";
    let text = format!("[[listener]]\naddress = \"127.0.0.1:0\"\n{replica}{routes}");
    Config::parse(&text, Path::new("file.toml"), []).unwrap()
}

/// Every setting that a file can give a route can be a record's, and means the same there.
#[test]
fn a_record_says_what_a_file_says() {
    let schema = schemars::schema_for!(RouteSection).to_value();
    let known = schema["properties"].as_object().unwrap().keys();
    let said = said_routes(EVERYTHING);
    let written: BTreeSet<&String> = said.values().flat_map(Map::keys).collect();
    let missing: Vec<_> = known.filter(|key| *key != "name" && !written.contains(key)).collect();
    assert!(missing.is_empty(), "add to EVERYTHING: {missing:?}");
    let file = config(EVERYTHING).world;
    let base = (file.timeouts, file.queue);
    for (name, fields) in said {
        check_route(&name, &fields).unwrap_or_else(|fault| panic!("{name}: {fault:?}"));
        let mut settings = fields.clone();
        settings.retain(|key, _| !OWN.contains(&key.as_str()));
        let prefix = fields["path_prefix"].as_str();
        let text = Value::Object(settings).to_string();
        let none = RoutesSaid::default();
        let by_record = none.with_settings(&name.as_str().into(), prefix, &text, base).unwrap();
        let by_file = file.routes.iter().find(|route| route.name.as_str() == name).unwrap();
        // These are merged by the node, from fields of their own.
        let by_record = RouteSpec {
            models: by_file.models.clone(),
            pool: by_file.pool.clone(),
            policy: by_file.policy,
            residency: by_file.residency.clone(),
            ..by_record
        };
        assert_eq!(format!("{by_record:?}"), format!("{by_file:?}"), "{name}");
    }
}

#[test]
fn what_a_record_does_not_say_the_file_says() {
    let file = config(
        "[[route]]\nname = \"r\"\nslo_ms = 700\ncontinue_streams = true\n\
         session = { header = \"x-chat\" }",
    );
    let base = (file.world.timeouts, file.world.queue);
    let of =
        |settings: &str| file.world.said.with_settings(&"r".into(), None, settings, base).unwrap();
    let spec = of("{\"slo_ms\":900}");
    assert_eq!(spec.queue.slo.map(|slo| slo.as_millis()), Some(900));
    assert!(spec.session.is_some() && spec.continuation.is_some());
    let spec = of("{\"continue_streams\":false}");
    assert_eq!((spec.queue.slo.map(|slo| slo.as_millis()), spec.continuation), (Some(700), None));
}

#[test]
fn a_fault_of_a_record_is_told_as_that_of_a_file() {
    for (record, cause, remedy) in [
        (json!({ "slo_mss": 5 }), "slo_mss", "slo_ms"),
        (json!({ "slo_ms": "fast" }), "", ""),
        (json!({ "slo_ms": 0 }), "", ""),
        (json!({ "protocol": "openai" }), "protocol does nothing", "add path_prefix"),
        (json!({ "hash_by": "user" }), "does not hash", "bounded_consistent_hash"),
        (json!({ "allow_engine_fields": ["x"] }), "\"x\"", "use some of"),
        (json!({ "session": { "cookie": "c", "header": "h" } }), "", ""),
    ] {
        let (told, how) = check_route("r", record.as_object().unwrap()).expect_err(cause);
        assert!(told.contains(cause), "{told}: {how}");
        assert!(how.contains(remedy), "{told}: {how}");
    }
    let good = json!({
        "models": ["tiny"], "pool": "", "policy": "", "path_prefix": null, "slo_ms": 800,
        "session": { "header": "x-chat" }, "inject_usage": "auto",
    });
    assert_eq!(check_route("r", good.as_object().unwrap()), Ok(()));
}

/// Every setting that files have for tenants, keys and prices exists in the cluster's records.
#[test]
fn tenants_keys_and_prices_of_a_file_have_their_twins_in_records() {
    let file = crate::schema();
    let api = spillway_admin::openapi();
    let of_file = |name: &str| -> BTreeSet<String> {
        file["$defs"][name]["properties"].as_object().unwrap().keys().cloned().collect()
    };
    let of_record = |name: &str| -> BTreeSet<String> {
        let schema = &api["components"]["schemas"][name]["properties"];
        schema.as_object().unwrap().keys().cloned().collect()
    };
    // The key of a record is in its path, its secret apart; `revoked` is an order of its own.
    let keys = ["name", "id", "salt", "hash", "revoked", "model"];
    let renamed = [("suspended", "is_suspended"), ("expires", "expires_ms")];
    for (section, record) in [
        ("TenantSection", "TenantRecord"),
        ("KeySection", "KeyRecord"),
        ("PriceSection", "ModelRecord"),
        ("LimitSection", "LimitRecord"),
    ] {
        let twins = of_record(record);
        for field in of_file(section).iter().filter(|field| !keys.contains(&field.as_str())) {
            let twin =
                renamed.iter().find(|(name, _)| name == field).map_or(field.as_str(), |it| it.1);
            assert!(twins.contains(twin), "{section}.{field} has no twin in {record}");
        }
    }
}
