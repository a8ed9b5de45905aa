//! The samples of the docs are configs that a node would start with.

use std::path::Path;

use spillway_config::Config;

use crate::certificates::Certificates;

/// What samples of a part are parts of: they name no listener, and models that somebody serves.
const AROUND: &str = r#"
[[listener]]
address = "127.0.0.1:0"
[[replica]]
name = "all"
url = "http://127.0.0.1:1"
models = ["llama-3.1-8b", "llama-3.1-8b-v2", "llama-70b", "llama-8b", "tiny"]
versions = { "llama-3.1-8b-v2" = ["2"] }
"#;

/// What samples about several nodes are parts of as well.
const CLUSTER: &str = r#"
[node]
name = "eu-1"
region = "eu-central-1"
[cluster]
id = "prod"
address = "127.0.0.1:0"
ca = "ca.pem"
certificate = "cert.pem"
key = "key.pem"
prefix_key = "prefix.key"
[[peer]]
name = "home-1"
region = "homelab"
address = "127.0.0.1:1"
"#;

/// The blocks of TOML on a page of the docs.
fn samples(page: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(page);
    let text = std::fs::read_to_string(path).expect("the page");
    let blocks = text.split("```toml\n").skip(1);
    blocks.map(|rest| rest.split("```").next().unwrap_or_default().to_owned()).collect()
}

/// Checks a config as `spillway config check` does, beside the files that samples name.
fn check(text: &str) -> Result<(), String> {
    let certificates = Certificates::for_name("localhost");
    let folder = certificates.folder();
    for name in ["cert.pem", "ca.pem"] {
        std::fs::copy(certificates.certificate_file(), folder.join(name)).expect("copies");
    }
    let token = "ada admin 0123456789abcdef0123456789abcdef";
    std::fs::write(folder.join("tokens"), token).expect("writes");
    std::fs::write(folder.join("prefix.key"), "0123456789abcdef".repeat(4)).expect("writes");
    let file = folder.join("spillway.toml");
    // Another variable of the environment, which is there.
    std::fs::write(&file, text.replace("\"GPU_KEY\"", "\"PATH\"")).expect("writes");
    Config::load_with(&file, []).map(drop).map_err(|error| format!("{error}\n{text}"))
}

#[test]
fn the_main_sample_of_the_configuration_page_is_accepted_as_it_stands() {
    check(&samples("guides/configuration.md")[0]).expect("the first sample");
}

#[test]
fn each_other_sample_about_settings_is_accepted_as_a_part() {
    let mut parts = samples("guides/configuration.md").split_off(1);
    for page in [
        "guides/routes.md",
        "explanation/policies.md",
        "explanation/admission.md",
        "guides/steering.md",
    ] {
        let of_page = samples(page);
        assert!(!of_page.is_empty(), "{page}");
        parts.extend(of_page);
    }
    for sample in parts {
        let cluster = if sample.contains("[[region]]") { CLUSTER } else { "" };
        check(&format!("{AROUND}{cluster}{sample}")).expect("a sample");
    }
}

#[test]
fn the_samples_of_limits_and_discoveries_are_accepted() {
    let limit = &samples("explanation/limits.md")[0];
    check(&format!("{AROUND}{}", limit.replace("key:5c1d0a9be2f34a77", "global")))
        .expect("a limit");
    let discovery =
        samples("explanation/replicas.md").into_iter().find(|it| it.contains("[[discovery]]"));
    check(&format!("{AROUND}{}", discovery.expect("one"))).expect("a discovery");
}
