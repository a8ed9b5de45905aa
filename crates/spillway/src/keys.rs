//! `spillway keys create --offline`: a key for clients of nodes that have their keys in the config.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::json;
use spillway_cluster_state::{KeyId, KeyText, SECRET_BYTES};
use spillway_config::Config;

use crate::cluster::{self, ClusterKeysCommand, CreateKeyArgs};
use crate::output;

/// Random bytes of a generated id. Ids must differ, and are no secret.
const ID_BYTES: usize = 5;

/// Carries a command about keys out.
///
/// # Errors
/// Returns the error of the command.
pub(crate) fn run(command: &ClusterKeysCommand) -> Result<()> {
    match command {
        ClusterKeysCommand::Create(args) if args.offline => make(args),
        command => cluster::keys(command),
    }
}

/// Makes a key, and prints it with the config block for nodes.
///
/// # Errors
/// Returns an error if the config would refuse the key, or the system has no random numbers.
fn make(args: &CreateKeyArgs) -> Result<()> {
    let id = match &args.name {
        Some(id) => id.clone(),
        None => hexadecimal(&random::<ID_BYTES>()?),
    };
    let key = KeyText::write(&KeyId::from(id.as_str()), &random::<SECRET_BYTES>()?);
    let salt = random::<16>()?;
    let text = KeyText::read(&key).context("a key needs an id")?;
    let hash = hexadecimal(text.hash(&salt).reveal());
    let block = block(args, &id, &hexadecimal(&salt), &hash)?;
    if args.connect.json {
        let report =
            json!({ "ok": true, "key": key, "id": id, "tenant": args.tenant, "toml": block });
        return Ok(output::line(&report.to_string())?);
    }
    output::line(&format!("{key}\n"))?;
    output::line("# The key above is shown this once: give it to the client.")?;
    output::line("# This goes into the config of every node that the client reaches:\n")?;
    Ok(output::line(block.trim_end())?)
}

/// Returns the config block, which the config parser has accepted.
fn block(args: &CreateKeyArgs, id: &str, salt: &str, hash: &str) -> Result<String> {
    let mut block = format!(
        "[[key]]\nid = {}\nsalt = \"{salt}\"\nhash = \"{hash}\"\ntenant = {}\n",
        // A string in JSON is also one in TOML.
        json!(id),
        json!(args.tenant)
    );
    for (name, list) in [("models", &args.models), ("regions", &args.regions)] {
        if !list.is_empty() {
            writeln!(block, "{name} = {}", json!(list))?;
        }
    }
    if args.priority > 0 {
        writeln!(block, "priority = {}", args.priority)?;
    }
    if let Some(expires) = &args.expires {
        // The moment is not quoted, so a line break would let the text add more settings.
        anyhow::ensure!(!expires.contains('\n'), "a moment has no line break");
        writeln!(block, "expires = {expires}")?;
    }
    // The parser wants a listener, which a lone key has not.
    let trial = format!("{block}[[listener]]\naddress = \"127.0.0.1:0\"\n");
    let fault = |errors: spillway_config::ConfigErrors| {
        let each = errors.iter().map(|error| format!("{}; {}", error.message, error.remedy));
        anyhow::anyhow!(each.collect::<Vec<_>>().join("\n"))
    };
    Config::parse(&trial, Path::new("key"), []).map_err(fault)?;
    Ok(block)
}

fn random<const BYTES: usize>() -> Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).context("the system has no random numbers")?;
    Ok(bytes)
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, CliCommand};

    fn args(words: &[&str]) -> CreateKeyArgs {
        let create = ["spillway", "keys", "create", "--offline", "--tenant", "acme"];
        match Cli::try_parse_from([&create, words].concat()).unwrap().command {
            CliCommand::Keys { command: ClusterKeysCommand::Create(args) } => args,
            _ => panic!("another command"),
        }
    }

    fn made(words: &[&str]) -> Result<String> {
        let (salt, hash) = ("0a".repeat(16), "0b".repeat(32));
        let args = args(words);
        let id = args.name.clone().unwrap_or_else(|| "k".to_owned());
        block(&args, &id, &salt, &hash)
    }

    #[test]
    fn everything_that_is_asked_for_stands_in_the_block() {
        let words = [
            "--models",
            "tiny,org/huge",
            "--regions",
            "eu",
            "--priority",
            "2",
            "--expires",
            "2027-01-31T00:00:00Z",
            "--id",
            "ci",
        ];
        let expected = format!(
            "[[key]]\nid = \"ci\"\nsalt = \"{}\"\nhash = \"{}\"\ntenant = \"acme\"\n\
             models = [\"tiny\",\"org/huge\"]\nregions = [\"eu\"]\npriority = 2\n\
             expires = 2027-01-31T00:00:00Z\n",
            "0a".repeat(16),
            "0b".repeat(32)
        );
        assert_eq!(made(&words).unwrap(), expected);
        assert!(!made(&[]).unwrap().contains("models"));
    }

    #[test]
    fn what_a_config_would_refuse_is_refused_at_once() {
        for (words, message) in [
            (["--id", "a b"], "can't name a key"),
            (["--id", ""], "can't name a key"),
            (["--priority", "4"], "can't be 4"),
            (["--expires", "2027-01-31"], "is no moment"),
            (["--expires", "2027-01-31T00:00:00Z\nrevoked = true"], "no line break"),
        ] {
            let error = made(&words).unwrap_err().to_string();
            assert!(error.contains(message), "{words:?} {error}");
        }
    }
}
