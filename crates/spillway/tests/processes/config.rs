//! `spillway config`: what it prints about settings and files.

use std::path::Path;

use serde_json::Value;

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
    assert_eq!((&report["line"], &report["column"]), (&2.into(), &1.into()), "{report}");
    assert!(report["remedy"].as_str().unwrap().contains("spelling"), "{report}");
}
