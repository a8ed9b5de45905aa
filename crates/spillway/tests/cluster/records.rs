//! Commands that write records in flags, in an editor, from files, and from a config.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::world::{World, fault, printed};

fn record(world: &World, kind: &str, name: &str) -> Value {
    world.json(&["get", kind, name])["item"]["record"].clone()
}

#[test]
fn a_split_is_set_field_by_field() {
    let world = World::new();
    world.text(&["splits", "set", "canary", "--arm", "old=big:90", "--arm", "new=small:10"]);
    assert_eq!(record(&world, "splits", "canary")["arms"][1]["weight_percent"], 10);
    world.text(&["apply", "split", "canary", "by=header:X-User", "sticky_cookie=arm"]);
    let split = record(&world, "splits", "canary");
    assert_eq!((&split["by"], &split["sticky_cookie"]), (&json!("header:x-user"), &json!("arm")));
    assert_eq!(split["sticky_max_age_s"], 2_592_000);
    assert_eq!(split["arms"][0]["weight_percent"], 90, "other fields stay");
    let wrong = world.fault(&["apply", "split", "canary", "by=moon"]);
    assert!(wrong.contains("expected random, user, header:NAME or cookie:NAME"), "{wrong}");
}

#[test]
fn one_field_of_a_region_is_put_alone_unless_it_is_to_be_replaced() {
    let world = World::new();
    let made = world.fault(&["apply", "region", "moon", "price_ms=5"]);
    assert!(made.contains("--create"), "{made}");
    world.text(&["apply", "region", "moon", "price_ms=5", "--create"]);
    world.text(&["apply", "region", "eu", "price_ms=5"]);
    world.text(&["drain", "eu"]);
    world.text(&["apply", "region", "eu", "{\"country\": \"DE\"}"]);
    let region = record(&world, "regions", "eu");
    assert_eq!((&region["price_ms"], &region["state"]), (&json!(5), &json!("draining")));
    world.text(&["apply", "region", "eu", "{\"country\": \"FR\"}", "--replace"]);
    let region = record(&world, "regions", "eu");
    assert_eq!((&region["price_ms"], &region["country"]), (&json!(0), &json!("FR")));
}

#[test]
fn a_key_s_tenant_is_made_only_when_that_is_said() {
    let world = World::new();
    world.text(&["apply", "tenant", "acme", "{}"]);
    let create = ["keys", "create", "--name", "k1", "--tenant"];
    let slip = world.fault(&[&create[..], &["acmee"]].concat());
    assert!(
        slip.contains("write \"acme\" if that is meant") && slip.contains("--create"),
        "{slip}"
    );
    let far = world.fault(&[&create[..], &["initech"]].concat());
    assert!(far.contains("--create") && !far.contains("is meant"), "{far}");
    assert!(world.fault(&["get", "tenant", "initech"]).contains("not_found"));
    let made = world.text(&[&create[..], &["initech", "--create"]].concat());
    assert!(made.starts_with("sw_k1_"), "{made}");
    assert_eq!(record(&world, "tenants", "initech")["is_suspended"], false);
    world.text(&["apply", "model", "gpt", "alias_of=llama-8b"]);
    let slip = ["apply", "key", "k1", "models=lama-8b"];
    let told = world.fault(&slip);
    assert!(told.contains("write \"llama-8b\" if that is meant"), "{told}");
    world.text(&[&slip[..], &["--create"]].concat());
}

#[test]
fn lists_show_terms_and_prices_and_fit_the_terminal() {
    let world = World::new();
    let fields = ["title=Acme Research", "countries=DE,FR", "isolate_prompts=true"];
    let budgets = ["budget_per_day=12.5", "budget_per_month=300"];
    world.text(&[&["apply", "tenant", "acme"], &fields[..], &budgets[..]].concat());
    let prices = ["prompt_per_million=0.4", "completion_per_million=1.6"];
    world.text(&[&["apply", "model", "big"], &prices[..]].concat());
    let narrow =
        |kind: &str| printed(&world.command(&["get", kind]).env("COLUMNS", "80").output().unwrap());
    for (kind, shown) in [
        ("tenants", ["isolated", "per day", "per month", "12.5", "300", "DE,FR"].as_slice()),
        ("models", ["prompt/M", "completion/M", "0.4", "1.6"].as_slice()),
    ] {
        let table = narrow(kind);
        assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
        assert!(shown.iter().all(|text| table.contains(text)), "{table}");
    }
    assert!(world.text(&["get", "tenants"]).contains("Acme Research"));
}

#[test]
fn set_changes_the_named_fields_alone() {
    let world = World::new();
    world.text(&["apply", "tenant", "acme", "title=Acme", "countries=DE,FR"]);
    world.text(&["apply", "tenant", "acme", "is_suspended=true"]);
    let tenant = record(&world, "tenants", "acme");
    assert_eq!((&tenant["title"], &tenant["is_suspended"]), (&json!("Acme"), &json!(true)));
    assert_eq!(tenant["countries"], json!(["DE", "FR"]));

    let limit = ["limits", "set", "tenant:acme"];
    let set = |flags: &[&str]| world.text(&[&limit[..], flags].concat());
    set(&["--tokens-per-min", "600000", "--concurrency", "64", "--requests-per-s", "5"]);
    let dry = set(&["--requests-per-min", "60", "--concurrency", "none", "--dry-run"]);
    for told in
        ["- record.concurrency: 64", "+ record.requests_per_min: 60", "- record.requests_per_s: 5"]
    {
        assert!(dry.contains(told), "{told}: {dry}");
    }
    set(&["--requests-per-min", "60", "--concurrency", "none"]);
    let after = record(&world, "limits", "tenant:acme");
    assert_eq!(
        (&after["tokens_per_min"], &after["concurrency"], &after["requests_per_min"]),
        (&json!(600_000), &Value::Null, &json!(60))
    );
    assert_eq!(after["requests_per_s"], Value::Null);
    assert!(world.fault(&limit).contains("--tokens-per-min"));
    let late = [&limit[..], &["--concurrency", "1", "--if-version", "1"]].concat();
    assert!(world.fault(&late).contains("(conflict)"));

    world.text(&["apply", "model", "gpt", "alias_of=big"]);
    world.text(&["apply", "model", "gpt", "fallbacks=small,tiny"]);
    let model = record(&world, "models", "gpt");
    assert_eq!(model, json!({ "alias_of": "big", "fallbacks": ["small", "tiny"] }));
    world.text(&["apply", "route", "chat", "models=big", "policy=power_of_two"]);
    assert_eq!(record(&world, "routes", "chat")["policy"], "power_of_two");
    for slip in [["tenants", "acmee"], ["models", "gptt"], ["routes", "caht"]] {
        let told = world.fault(&["apply", slip[0], slip[1], "{}"]);
        assert!(told.contains("is meant") && told.contains("--create"), "{told}");
        let told = world.fault(&["edit", slip[0], slip[1]]);
        assert!(told.contains("is meant"), "{told}");
    }
    world.text(&["apply", "setting", "voters.dead_after_ms", "30000"]);
    assert_eq!(record(&world, "settings", "voters.dead_after_ms")["value"], "30000");
    world.text(&["nodes", "operators", "a", "allow"]);

    let made = world.run(&["keys", "create", "--tenant", "acme", "--name", "k1"]);
    assert!(printed(&made).starts_with("sw_k1_"));
    world.text(&["apply", "key", "k1", "models=big,small", "priority=2"]);
    let keys = world.json(&["get", "keys"]);
    assert_eq!(keys["items"][0]["record"]["models"], json!(["big", "small"]));
    assert_eq!(keys["items"][0]["record"]["tenant"], "acme");
}

/// Writes an editor that replaces text in the file it is given.
fn editor(world: &World, name: &str, script: &str) -> PathBuf {
    let path = world.path(name);
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn a_record_is_edited_and_what_was_typed_is_not_lost() {
    let world = World::new();
    world.text(&["apply", "tenant", "acme", "{\"title\": \"Acme\"}"]);
    let edit = |editor: &PathBuf| {
        let mut command = world.command(&["edit", "tenants", "acme"]);
        command.env_remove("VISUAL").env("EDITOR", editor).output().unwrap()
    };
    let renames = editor(&world, "renames", "sed -i s/Acme/Emca/ \"$1\"");
    assert!(printed(&edit(&renames)).starts_with("done: version"));
    assert_eq!(record(&world, "tenants", "acme")["title"], "Emca");
    assert_eq!(printed(&edit(&renames)), "nothing to change\n");

    let breaks = editor(&world, "breaks", "echo '{\"title\": ' > \"$1\"");
    let told = fault(&edit(&breaks));
    assert!(told.contains("no JSON any more"), "{told}");
    let kept = told.lines().find_map(|line| line.strip_prefix("what you wrote is in ")).unwrap();
    assert_eq!(std::fs::read_to_string(kept).unwrap(), "{\"title\": \n");
    std::fs::remove_dir_all(PathBuf::from(kept).parent().unwrap()).unwrap();

    // Another operator changes the record while the editor is open.
    let token = world.path("token");
    let races = format!(
        "{} apply tenant acme title=Other --admin http://{} --token-file {}\nsed -i s/Emca/Mine/ \"$1\"",
        env!("CARGO_BIN_EXE_spillway"),
        world.address,
        token.display()
    );
    let told = fault(&edit(&editor(&world, "races", &races)));
    assert!(told.contains("(conflict)"), "{told}");
    assert_eq!(record(&world, "tenants", "acme")["title"], "Other");
    let fails = editor(&world, "fails", "exit 3");
    assert!(fault(&edit(&fails)).contains("nothing was changed"));
}

#[test]
fn files_are_applied_as_far_as_the_cluster_differs() {
    let world = World::new();
    let file = world.path("records.toml");
    let file = file.to_str().unwrap();
    let text = "[tenants.acme]\ntitle = \"Acme\"\n[limits.\"tenant:acme\"]\ntokens_per_min = 6\n\
                [models.gpt]\nalias_of = \"big\"\n[settings]\n\"voters.dead_after_ms\" = 30000\n";
    std::fs::write(file, text).unwrap();
    let dry = world.text(&["apply", "-f", file, "--dry-run"]);
    for told in [
        "+ tenants acme",
        "+ limits tenant:acme",
        "+ models gpt",
        "3 would be created, 1 would be updated, 0 unchanged",
    ] {
        assert!(dry.contains(told), "{told}: {dry}");
    }
    assert!(world.json(&["get", "tenants"])["items"].as_array().unwrap().is_empty());
    let done = world.text(&["apply", "-f", file]);
    assert!(done.ends_with("3 created, 1 updated, 0 unchanged\n"), "{done}");
    assert_eq!(world.text(&["apply", "-f", file]), "0 created, 0 updated, 4 unchanged\n");
    std::fs::write(file, text.replace("= 6", "= 7")).unwrap();
    let answer = world.json(&["apply", "-f", file]);
    assert_eq!((&answer["updated"], &answer["unchanged"]), (&json!(1), &json!(3)), "{answer}");
    assert_eq!(record(&world, "limits", "tenant:acme")["tokens_per_min"], 7);
    std::fs::write(file, "[limits.\"tenant:nobody\"]\nconcurrency = 1\n").unwrap();
    let refused = world.fault(&["apply", "-f", file]);
    assert!(refused.contains("limits tenant:nobody: ") && refused.contains("unknown_reference"));
}

#[test]
fn a_config_is_imported_with_keys_that_go_on_working_and_twice_is_once() {
    let world = World::new();
    let made = world.run(&["keys", "create", "--offline", "--tenant", "acme", "--name", "ci"]);
    let made = printed(&made);
    let key = made.lines().next().unwrap().to_owned();
    let block = made.split("reaches:\n").nth(1).unwrap();
    let config = format!(
        "[[listener]]\naddress = \"127.0.0.1:0\"\n[[replica]]\nname = \"a\"\n\
         url = \"http://127.0.0.1:1\"\nmodels = [\"big\"]\n[aliases]\ngpt = \"big\"\n{block}\n\
         [[limit]]\nname = \"key:ci\"\nrequests_per_min = 60\n"
    );
    let file = world.path("node.toml");
    std::fs::write(&file, config).unwrap();
    let file = file.to_str().unwrap();
    let dry = world.text(&["import", file, "--dry-run"]);
    assert!(dry.contains("+ keys ci") && dry.contains("+ limits key:ci"), "{dry}");
    assert!(dry.ends_with("4 would be created, 0 would be updated, 0 unchanged\n"), "{dry}");
    assert!(world.json(&["get", "keys"])["items"].as_array().unwrap().is_empty());

    let done = world.run(&["import", file]);
    assert!(printed(&done).ends_with("4 created, 0 updated, 0 unchanged\n"), "{done:?}");
    assert!(String::from_utf8_lossy(&done.stderr).contains("1 replicas: their nodes register"));
    assert_eq!(world.text(&["import", file]), "0 created, 0 updated, 4 unchanged\n");
    // The cluster knows the key by the secret that its holder has.
    let state = world.control_plane.published();
    let known = state.records().keys.get(&"ci".into()).unwrap().clone();
    let text = spillway_cluster_state::KeyText::read(&key).unwrap();
    assert!(text.hash(&known.salt).matches(&known.hash));
    // The file has nothing of the tenant except its name.
    world.run(&["apply", "tenant", "acme", "is_suspended=true", "countries=DE"]);
    assert_eq!(world.text(&["import", file]), "0 created, 0 updated, 4 unchanged\n");
    let record = &world.json(&["get", "tenant", "acme"])["item"]["record"];
    assert_eq!((&record["is_suspended"], &record["countries"]), (&true.into(), &json!(["DE"])));
}
