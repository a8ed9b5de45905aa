//! `spillway config`: its output about settings and files.

use std::path::Path;

use serde_json::{Value, json};

use crate::machines::spillway;

#[test]
fn the_reference_is_the_page_of_the_manual() {
    let printed = spillway(&["config", "reference"]);
    assert!(printed.status.success(), "{printed:?}");
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/settings.md");
    assert_eq!(String::from_utf8(printed.stdout).unwrap(), std::fs::read_to_string(page).unwrap());
}

#[test]
fn the_schema_is_json_that_knows_each_section_of_the_reference() {
    let printed = spillway(&["config", "schema"]);
    assert!(printed.status.success(), "{printed:?}");
    let schema: Value = serde_json::from_slice(&printed.stdout).unwrap();
    let reference = String::from_utf8(spillway(&["config", "reference"]).stdout).unwrap();
    let sections = schema["properties"].as_object().unwrap();
    assert!(sections.len() > 20, "{sections:?}");
    for name in sections.keys() {
        assert!(reference.contains(&format!("\n## `[{name}]`\n")) || is_list(&reference, name));
    }
}

fn is_list(reference: &str, name: &str) -> bool {
    reference.contains(&format!("\n## `[[{name}]]`\n"))
}

#[test]
fn a_file_with_a_fault_ends_the_check_with_64_and_the_place() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("spillway.toml");
    std::fs::write(&file, "[node]\nnam = \"x\"\n").unwrap();
    let checked = spillway(&["config", "check", "--json", file.to_str().unwrap()]);
    assert_eq!(checked.status.code(), Some(64), "{checked:?}");
    let report: Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert_eq!(report["ok"], false, "{report}");
    let found = report["diagnostics"].as_array().unwrap();
    // The file as a whole comes first: it has no listener.
    assert_eq!(found.len(), 2, "{report}");
    assert!(found[0]["line"].is_null() && found[0]["help"].is_string(), "{report}");
    let key = json!({
        "severity": "error", "file": file, "env": null,
        "line": 2, "column": 1, "end_line": 2, "end_column": 4,
        "message": "unknown key `nam` in [node]", "help": "correct the spelling: `name`",
    });
    assert_eq!(found[1], key);
}

#[test]
fn a_port_that_is_taken_is_a_warning_and_stays_with_its_holder() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let file = file(&format!("[[listener]]\naddress = \"{address}\"\n{REPLICA}"));
    let checked = spillway(&["config", "check", file.path().to_str().unwrap()]);
    assert!(checked.status.success(), "{checked:?}");
    let told = String::from_utf8(checked.stderr).unwrap();
    let own = format!("{address} is served by pid {}", std::process::id());
    assert!(told.contains("warning: ") && told.contains(&own), "{told}");
    drop(taken);
    let checked = spillway(&["config", "check", file.path().to_str().unwrap()]);
    assert!(checked.status.success() && checked.stderr.is_empty(), "{checked:?}");
}

#[test]
fn the_check_finds_what_a_start_in_a_cluster_would_refuse() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    let made = spillway(&["certs", "init", "--cluster", "prod", "--dir", dir]);
    assert!(made.status.success(), "{made:?}");
    let made = spillway(&["certs", "node", "--dir", dir, "--region", "eu", "--node", "a"]);
    assert!(made.status.success(), "{made:?}");
    let check = |region: &str, id: &str, prefix_key: &str, data: &str| {
        let file = folder.path().join("spillway.toml");
        let cluster = format!(
            "[cluster]\nid = \"{id}\"\naddress = \"127.0.0.1:0\"\nca = \"ca.pem\"\n\
             certificate = \"a.eu.pem\"\nkey = \"a.eu-key.pem\"\nprefix_key = \"{prefix_key}\"\n\
             data = \"{data}\"\n"
        );
        let node = format!("[node]\nname = \"a\"\nregion = \"{region}\"\n");
        let listener = "[[listener]]\naddress = \"127.0.0.1:0\"\n";
        std::fs::write(&file, format!("{node}{cluster}{listener}{REPLICA}")).unwrap();
        let checked = spillway(&["config", "check", file.to_str().unwrap()]);
        (checked.status.code(), String::from_utf8(checked.stderr).unwrap())
    };
    assert_eq!(check("eu", "prod", "prefix.key", "new"), (Some(0), String::new()));
    for (region, id, named) in [("us", "prod", "prod/us/a"), ("eu", "prd", "prd/eu/a")] {
        let (code, told) = check(region, id, "prefix.key", "data");
        assert_eq!(code, Some(64), "{told}");
        let whose = format!("it is the certificate of prod/eu/a, but this node is {named}");
        assert!(told.contains(&whose) && told.contains("certificate = \"a.eu.pem\""), "{told}");
    }
    // The data folder is made, not the folder around it.
    let (code, told) = check("eu", "prod", "prefix.key", "new/data");
    assert_eq!(code, Some(64), "{told}");
    let missing = folder.path().join("new");
    for part in
        [&format!("{} is missing", missing.display()), "data = \"new/data\"", "correct the path"]
    {
        assert!(told.contains(part), "{part}: {told}");
    }
    // Both are reported at once: the key is invalid, and a file is in the place of the folder.
    let (code, told) = check("eu", "prod", "ca.pem", "ca.pem/data");
    assert_eq!(code, Some(64), "{told}");
    assert!(told.contains("can't read the prefix key") && told.contains("is no folder"), "{told}");
    assert!(!folder.path().join("new").exists(), "a check writes nothing");
}

#[test]
fn a_node_refuses_to_start_with_a_usage_folder_in_a_missing_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("spillway.toml");
    let listener = "[[listener]]\naddress = \"127.0.0.1:0\"\n";
    std::fs::write(&file, format!("{listener}{REPLICA}[usage]\nfolder = \"new/data\"\n")).unwrap();
    for command in [["config", "check"].as_slice(), &["run", "--config"]] {
        let args: Vec<&str> = command.iter().copied().chain(file.to_str()).collect();
        let ended = spillway(&args);
        let told = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(64), "{told}");
        let missing = folder.path().join("new");
        for part in
            [&format!("{} is missing", missing.display()), "spillway.toml:8", "correct the path"]
        {
            assert!(told.contains(part), "{part}: {told}");
        }
        assert!(!missing.exists(), "{command:?}");
    }
}

const REPLICA: &str = "[[replica]]\nname = \"a\"\nurl = \"http://127.0.0.1:9\"\nmodels = [\"m\"]\n";

fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}
