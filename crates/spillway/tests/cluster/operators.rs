//! Commands of operators that show, change, back up and force.

use serde_json::Value;

use crate::world::{World, fault, printed, run};

#[test]
fn operators_see_and_change_what_the_cluster_agrees_on() {
    let world = World::new();
    let status = world.text(&["status"]);
    assert!(status.starts_with("healthy: serves 1 of 1 replicas; 1 of 1 voters\n"), "{status}");
    assert!(status.contains("a leads in term 1"), "{status}");
    assert_eq!(world.json(&["status"])["log"]["members"][0]["name"], "a");
    let nodes = world.text(&["get", "nodes"]);
    let row: Vec<&str> = nodes.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!((&row[..2], row[3..6].join(" ")), (&["a", "eu"][..], "if needed yes".to_owned()));

    let dry = world.text(&["drain", "eu", "--dry-run"]);
    let diff = "~ regions eu\n  - record.state: active\n  + record.state: draining\n";
    assert!(dry.starts_with(diff) && dry.contains("estimate: 0 requests in flight move"), "{dry}");
    assert!(dry.contains("nobody else serves these models"), "{dry}");
    assert!(!world.text(&["get", "regions"]).contains("draining"));
    assert!(world.text(&["drain", "eu"]).starts_with("done: version "));
    assert!(world.text(&["get", "regions"]).contains("draining"));
    assert_eq!(world.text(&["drain", "eu"]), "nothing to change\n");
    world.text(&["undrain", "eu"]);
    assert_eq!(world.json(&["get", "region", "eu"])["item"]["record"]["state"], "active");
    world.text(&["weight", "eu", "12.5"]);
    assert!(world.text(&["get", "region", "eu"]).contains("record.weight_percent: 12.5"));

    world.text(&["apply", "model", "meta/small", "{\"fallbacks\": [\"big\"]}"]);
    let version = world.json(&["get", "model", "meta/small"])["item"]["version"].to_string();
    assert!(world.text(&["get", "models"]).contains("meta/small"));
    let late = world.fault(&["remove", "model", "meta/small", "--if-version", "1"]);
    assert!(late.contains("(conflict)") && late.contains(&format!("version {version}")), "{late}");
    world.text(&["remove", "model", "meta/small", "--if-version", &version]);
    assert_eq!(world.json(&["get", "models"])["items"], serde_json::json!([]));
    let settings = world.text(&["get", "settings"]);
    assert!(settings.contains("join.token_required    true"), "{settings}");
    assert!(world.text(&["get", "replicas"]).starts_with("replica"));
    let unknown = world.fault(&["drain", "eu/none"]);
    assert!(unknown.contains("does not exist (not_found)"), "{unknown}");
    let mars = world.fault(&["drain", "mars"]);
    assert!(mars.contains("region mars does not exist (not_found): name one of: eu"), "{mars}");
    let scope = world.fault(&["limits", "set", "tenat:acme", "--concurrency", "3"]);
    assert!(scope.contains("name it global, tenant:NAME, model:NAME or key:ID"), "{scope}");
    let share = world.fault(&["weight", "eu/gpu-a", "half"]);
    assert!(share.contains("a share of its own weight such as 50%, or `own`"), "{share}");
    assert!(world.fault(&["drain", "eu/none", "--evacuate"]).contains("only a region"));
}

#[test]
fn usage_is_shown_of_all_nodes_and_names_those_that_could_not_be_asked() {
    let world = World::new();
    let shown = world.run(&["usage", "--by", "tenant,model", "--since", "2026-11-01"]);
    let text = printed(&shown);
    let lines: Vec<Vec<&str>> =
        text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0][..3], ["2026-11-01", "to", lines[0][2]], "{text}");
    assert_eq!(lines[3], ["acme", "big", "2", "1", "1000", "64", "500", "30", "0.00045"], "{text}");
    assert_eq!(lines[4], ["all", "2", "1", "1000", "64", "500", "30", "0.00045"], "{text}");
    let notes = String::from_utf8_lossy(&shown.stderr);
    assert!(notes.contains("b (us)") && notes.contains("no connection"), "{notes}");
    let other = world.json(&["usage", "--tenant", "other", "--by", "model"]);
    assert_eq!((&other["usage"], &other["is_complete"]), (&serde_json::json!([]), &false.into()));
    assert!(world.fault(&["usage", "--since", "yesterday"]).contains("2026-11-27"));
    assert!(world.text(&["usage", "--currency", "EUR"]).contains("  cost EUR\n"));
}

#[test]
fn secrets_are_printed_once_and_a_token_is_needed() {
    let world = World::new();
    world.text(&["apply", "tenant", "acme", "{}"]);
    let made = world.run(&["keys", "create", "--tenant", "acme", "--model", "big", "--days", "1"]);
    let secret = printed(&made);
    let secret = secret.trim();
    assert!(secret.starts_with("sw_"), "{secret}");
    assert!(String::from_utf8_lossy(&made.stderr).contains("shown this once"), "{made:?}");
    let keys = world.json(&["get", "keys"]);
    let key = keys["items"][0]["key"].as_str().unwrap();
    assert!(secret.starts_with(&format!("sw_{key}_")) && !keys.to_string().contains(secret));
    assert!(keys["items"][0]["record"]["expires_ms"].is_u64());
    world.text(&["keys", "revoke", key]);
    assert_eq!(world.json(&["get", "keys"])["items"][0]["info"]["is_revoked"], true);
    let listed = world.text(&["get", "keys"]);
    assert!(listed.contains("ends (UTC)") && listed.contains(":") && !listed.contains("true"));
    world.text(&["keys", "create", "--tenant", "acme", "--name", "acme-1"]);
    let again = world.fault(&["keys", "create", "--tenant", "acme", "--name", "acme-1"]);
    assert!(again.contains("key acme-1 exists (conflict): choose another name"), "{again}");
    assert!(again.contains("--name"), "{again}");
    let token = world.json(&["join-token", "create", "--region", "eu", "--hours", "2"]);
    let tokens = world.text(&["get", "join-tokens"]);
    let id = token["key"].as_str().unwrap();
    let row = tokens.lines().find(|line| line.starts_with(id)).unwrap();
    // A moment is written with a clock, and milliseconds are not.
    assert!(tokens.contains("ends (UTC)") && row.matches(':').count() == 2, "{tokens}");
    assert!(token["secret"].as_str().unwrap().starts_with("swj_"));
    let dry = world.text(&["join-token", "create", "--dry-run"]);
    assert!(dry.starts_with("+ join-tokens "), "{dry}");
    assert_eq!(world.json(&["get", "join-tokens"])["items"].as_array().unwrap().len(), 1);

    let address = world.address.to_string();
    let refused = fault(&run(&["status", "--admin", &address]));
    assert!(refused.contains("there is no token (unauthorized)"), "{refused}");
    assert!(
        refused.contains("--token-file") && refused.contains("SPILLWAY_TOKEN_FILE"),
        "{refused}"
    );
    let refused = run(&["status", "--admin", &address, "--json"]);
    let json: Value = serde_json::from_slice(&refused.stdout).unwrap();
    assert_eq!(json["error"]["code"], "unauthorized");
}

#[test]
fn a_backup_becomes_the_folder_of_a_new_cluster() {
    let world = World::new();
    world.text(&["apply", "model", "kept", "{}"]);
    let backup = world.path("state.backup");
    let backup = backup.to_str().unwrap();
    world.text(&["backup", backup]);
    assert!(world.fault(&["backup", backup]).contains("--force"));
    world.text(&["backup", backup, "--force"]);

    let new = world.path("new");
    let restore = |more: &[&str]| {
        let words = ["restore", backup, "--node", "a"];
        run(&[&words[..], &["--folder", new.to_str().unwrap()], more].concat())
    };
    printed(&restore(&["--dry-run"]));
    assert!(!new.exists(), "a dry run has made {}", new.display());
    let restored: Value = serde_json::from_str(&printed(&restore(&["--json"]))).unwrap();
    assert_eq!(restored["cluster"].as_str().unwrap().len(), 32);
    assert!(fault(&restore(&[])).contains("name an empty folder"));
    let torn = world.path("torn");
    let bytes = std::fs::read(backup).unwrap();
    std::fs::write(&torn, &bytes[..bytes.len() / 2]).unwrap();
    let words = ["restore", torn.to_str().unwrap(), "--node", "a"];
    let more = ["--dry-run", "--folder", "elsewhere"];
    assert!(fault(&run(&[&words[..], &more].concat())).contains("can't be restored"));
    let stranger = ["restore", backup, "--node", "z", "--folder", "elsewhere"];
    assert!(fault(&run(&stranger)).contains("begin with one of a,"), "who begins is known");
}

#[test]
fn a_new_cluster_is_forced_only_when_it_is_meant() {
    let world = World::new();
    let folder = world.stop();
    let data = folder.path().join("data");
    let force = |more: &[&str]| {
        let words = ["force-new-cluster", "--node", "a", "--region", "eu", "--folder"];
        run(&[&words[..], &[data.to_str().unwrap()], more].concat())
    };
    let before = spillway_raft::owner_of(&data).unwrap();
    assert!(fault(&force(&[])).contains("say --yes"));
    assert!(printed(&force(&["--dry-run"])).contains("node 1 (a) of cluster"));
    assert_eq!(spillway_raft::owner_of(&data).unwrap(), before);
    let forced: Value = serde_json::from_str(&printed(&force(&["--yes", "--json"]))).unwrap();
    let after = spillway_raft::owner_of(&data).unwrap().unwrap();
    assert_eq!(forced["cluster"], after.cluster.unwrap().to_string().as_str());
    assert_ne!(after.cluster, before.unwrap().cluster);
    let nowhere = run(&["force-new-cluster", "--node", "a", "--region", "eu", "--folder", "none"]);
    assert!(fault(&nowhere).contains("holds no log"));
}

#[test]
fn every_command_has_an_example() {
    for words in [
        "status",
        "get",
        "nodes operators",
        "nodes readmit",
        "nodes trust-disk",
        "replicas",
        "splits set",
        "apply",
        "edit",
        "remove",
        "import",
        "limits set",
        "trie",
        "trie rotate",
        "explain",
        "keys create",
        "keys revoke",
        "drain",
        "undrain",
        "weight",
        "join-token create",
        "backup",
        "restore",
        "force-new-cluster",
    ] {
        let words: Vec<&str> = words.split(' ').chain(["--help"]).collect();
        let help = printed(&run(&words));
        assert!(help.contains("Example: spillway "), "{words:?}: {help}");
    }
}

/// Returns the shell command blocks of a page of the docs.
fn shell_blocks(page: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut rest = page;
    while let Some((_, after)) = rest.split_once("```sh\n") {
        let (block, later) = after.split_once("```").unwrap();
        blocks.push(block.to_owned());
        rest = later;
    }
    blocks
}

#[test]
fn the_commands_about_limits_in_the_docs_work_as_they_stand() {
    let world = World::new();
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/explanation/limits.md");
    let blocks = shell_blocks(&std::fs::read_to_string(docs).unwrap());
    assert!(!blocks.is_empty());
    let folder = std::path::Path::new(env!("CARGO_BIN_EXE_spillway")).parent().unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    for block in blocks {
        let done = std::process::Command::new("sh")
            .args(["-e", "-c", &block])
            .env("PATH", &path)
            .env("SPILLWAY_ADMIN", format!("http://{}", world.address))
            .env("SPILLWAY_TOKEN_FILE", world.path("token"))
            .current_dir(world.path(""))
            .output()
            .unwrap();
        printed(&done);
    }
    let limit = world.json(&["get", "limit", "tenant:acme"])["item"]["record"].clone();
    assert_eq!(
        (limit["tokens_per_min"].as_u64(), limit["concurrency"].as_u64()),
        (Some(600_000), Some(64))
    );
}

#[test]
fn records_are_given_in_a_file_on_standard_input_in_place_or_in_flags() {
    let world = World::new();
    let file = world.path("limit.json");
    std::fs::write(&file, "{\"requests_per_s\": 7}").unwrap();
    let of = |name: &str| world.json(&["get", "limit", "global"])["item"]["record"][name].as_u64();
    world.text(&["apply", "limit", "global", file.to_str().unwrap()]);
    assert_eq!(of("requests_per_s"), Some(7));
    world.text(&["apply", "limit", "global", "{\"concurrency\": 8}"]);
    assert_eq!((of("requests_per_s"), of("concurrency")), (Some(7), Some(8)));
    world.text(&["apply", "limit", "global", "{\"concurrency\": 9}", "--replace"]);
    assert_eq!((of("requests_per_s"), of("concurrency")), (None, Some(9)));
    world.text(&["apply", "limit", "global", "{\"requests_per_s\": 5}"]);
    world.text(&["apply", "limit", "global", "{\"requests_per_min\": 50}"]);
    assert_eq!((of("requests_per_s"), of("requests_per_min")), (None, Some(50)));
    world.text(&["limits", "set", "global", "--requests-per-min", "60", "--tokens-per-min", "9"]);
    assert_eq!((of("requests_per_min"), of("tokens_per_min")), (Some(60), Some(9)));
    assert!(world.text(&["get", "limits"]).contains("requests/min"));
    let missing = world.fault(&["apply", "limit", "global", "nothing.json"]);
    assert!(missing.contains("can't read nothing.json: give a file"), "{missing}");
    let nothing = world.fault(&["apply", "limit", "global"]);
    assert!(nothing.contains("FIELD=VALUE") && nothing.contains("requests_per_min"), "{nothing}");
    let twice = world.fault(&[
        "apply",
        "limit",
        "global",
        "{\"requests_per_s\": 1, \"requests_per_min\": 2}",
    ]);
    assert!(twice.contains("requests are limited twice"), "{twice}");
    world.text(&["apply", "setting", "health.transition_ms", "30000"]);
    let setting = world.json(&["get", "setting", "health.transition_ms"]);
    assert_eq!(setting["item"]["record"]["value"], "30000");
    std::fs::write(&file, "{\"title\": \"Acme\"}").unwrap();
    world.text(&["apply", "tenant", "acme", file.to_str().unwrap()]);
    assert_eq!(world.json(&["get", "tenant", "acme"])["item"]["record"]["title"], "Acme");
}

#[test]
fn wrong_usage_says_what_to_write() {
    for (words, remedy) in [
        (&["explain"][..], "spillway explain ID"),
        (&["tail", "--status", "9xx", "--once"], "a class from 1xx to 5xx"),
        (&["apply"], "<KIND>"),
        (&["get", "tenantz"], "a similar value exists: 'tenants'"),
        (&["tenants", "set", "acme", "--title", "Acme"], "spillway apply tenant NAME FIELD=VALUE"),
        (&["regions"], "spillway get regions"),
        (&["limits"], "spillway get limits"),
    ] {
        let refused = run(words);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(told.contains(remedy), "{words:?}: {told}");
    }
}

#[test]
fn the_help_has_a_commands_own_options_first_and_the_connection_apart() {
    for words in [&["drain"][..], &["limits", "set"], &["keys", "create"], &["tail"], &["health"]] {
        let help = printed(&run(&[words, &["--help"]].concat()));
        let (own, connection) = help.split_once("\nConnection:\n").unwrap();
        let (connection, _) = connection.split_once("\nExample").unwrap();
        assert!(connection.contains("--ca ") && !own.contains("--ca "), "{words:?}: {help}");
        assert!(!connection.contains("--json") && !connection.contains("--dry-run"), "{help}");
    }
    let drain = printed(&run(&["drain", "--help"]));
    let place = |option: &str| drain.find(option).unwrap();
    assert!(
        place("--evacuate") < place("--json") && place("--dry-run") < place("--log"),
        "{drain}"
    );
}
