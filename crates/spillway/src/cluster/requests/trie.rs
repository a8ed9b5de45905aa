//! `spillway trie`: hot prefixes of prompts, and the regions that have them.

use anyhow::Result;
use clap::{Args, Subcommand};
use http::Method;
use serde_json::Value;

use crate::cluster::calls::{change, show};
use crate::cluster::change_args::ChangeArgs;
use crate::cluster::client::AdminClient;
use crate::cluster::text::{self, Column};
use crate::connect::Connect;

/// Characters of the longest bar: with a name and a number a line stays within 80.
const BAR_CHARS: u64 = 40;

const TOP: &[Column] =
    &[("block", "/block"), ("depth", "/depth"), ("heat", "/heat"), ("regions", "/regions")];

#[derive(Debug, Args)]
#[command(after_help = "Example: spillway trie --top 10\n\
    Example: spillway trie rotate --dry-run\n\n\
    Blocks are shown by their keyed hashes, never with the text of prompts.")]
pub(crate) struct TrieArgs {
    #[command(flatten)]
    connect: Connect,
    /// Shows this number of the hottest blocks.
    #[arg(long, default_value_t = 0)]
    top: u16,
    #[command(subcommand)]
    command: Option<TrieCommand>,
}

#[derive(Debug, Subcommand)]
enum TrieCommand {
    /// Switches all nodes to the next key for prompt hashes. The index of prompts is cleared and
    /// learned again.
    #[command(after_help = "Example: spillway trie rotate --dry-run")]
    Rotate {
        #[command(flatten)]
        change: ChangeArgs,
    },
}

/// Shows the trie, or rotates its key.
///
/// # Errors
/// Returns an error if the node can't be reached or refuses.
pub(crate) async fn run(args: &TrieArgs) -> Result<()> {
    let client = AdminClient::new(&args.connect)?;
    if let Some(TrieCommand::Rotate { change: how }) = &args.command {
        return change(&client, Method::POST, "/v1/trie/rotate", None, how).await;
    }
    let answer = client.read(&format!("/v1/trie?top={}", args.top)).await?;
    show(&client, &answer, &picture(&answer))
}

fn picture(answer: &Value) -> String {
    let number = |name: &str| answer[name].as_u64().unwrap_or(0);
    let rate = |name: &str| answer[name].as_f64().unwrap_or(0.0);
    let mut lines = vec![
        format!(
            "{} blocks, {}, key epoch {}",
            number("blocks"),
            bytes(number("bytes")),
            number("key_epoch")
        ),
        format!(
            "{:.1} entries/s with {}/s, {} entries put off by this node",
            rate("entries_per_s"),
            bytes(rate("bytes_per_s") as u64),
            number("put_off"),
        ),
    ];
    let regions = answer["regions"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !regions.is_empty() {
        lines.push(String::new());
        lines.extend(bars(regions));
    }
    if answer["top"].as_array().is_some_and(|top| !top.is_empty()) {
        lines.extend([String::new(), text::table(TOP, &answer["top"])]);
    }
    lines.join("\n")
}

/// Returns a line for each region, with a bar as long as its share of the fullest one.
fn bars(regions: &[Value]) -> Vec<String> {
    let name = |region: &Value| region["region"].as_str().unwrap_or_default().to_owned();
    let blocks = |region: &Value| region["blocks"].as_u64().unwrap_or(0);
    let width = regions.iter().map(|region| name(region).chars().count()).max().unwrap_or(0);
    // At least 1, since the length of a bar is divided by it.
    let most = regions.iter().map(blocks).max().unwrap_or(0).max(1);
    let line = |region: &Value| {
        // Rounded up, so that any block shows.
        let length = (blocks(region) * BAR_CHARS).div_ceil(most);
        let bar = "█".repeat(usize::try_from(length).unwrap_or(0));
        let bar = if bar.is_empty() { bar } else { format!("{bar} ") };
        let size = bytes(region["bytes"].as_u64().unwrap_or(0));
        format!("{:<width$}  {bar}{} blocks, {size}", name(region), blocks(region))
    };
    regions.iter().map(line).collect()
}

fn bytes(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} B"),
        10_000..10_000_000 => format!("{} kB", bytes / 1_000),
        _ => format!("{} MB", bytes / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_region_has_a_bar_of_its_share() {
        let answer = json!({
            "key_epoch": 2, "blocks": 4_101, "bytes": 131_072, "entries_per_s": 0.5,
            "bytes_per_s": 900.0, "put_off": 7,
            "regions": [
                { "region": "eu", "blocks": 4_000, "bytes": 128_000 },
                { "region": "us-east", "blocks": 101, "bytes": 3_072 },
                { "region": "x", "blocks": 0, "bytes": 0 },
            ],
            "top": [{ "block": "00ff", "depth": 3, "heat": 1.5, "regions": ["eu", "x"] }],
        });
        let shown = picture(&answer);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[0], "4101 blocks, 131 kB, key epoch 2");
        assert_eq!(lines[1], "0.5 entries/s with 900 B/s, 7 entries put off by this node");
        assert_eq!(lines[3], format!("eu       {} 4000 blocks, 128 kB", "█".repeat(40)));
        assert_eq!(lines[4], "us-east  ██ 101 blocks, 3072 B");
        assert_eq!(lines[5], "x        0 blocks, 0 B");
        assert_eq!(lines[7], "block  depth  heat  regions");
        assert_eq!(lines[8], "00ff   3      1.5   eu,x");
    }

    #[test]
    fn an_empty_trie_is_two_lines() {
        assert_eq!(picture(&json!({})).lines().count(), 2);
    }
}
