//! `spillway debug`: a folder with everything that another person needs to understand a problem.

use std::fs::{self, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use serde_json::json;

use super::client::AdminClient;
use crate::connect::Connect;
use crate::output;

/// Answers of the admin listener, and their files.
const ANSWERS: [(&str, &str); 13] = [
    ("/v1/node", "node.json"),
    ("/v1/world", "world.json"),
    ("/v1/status", "log.json"),
    ("/v1/requests?limit=1000", "requests.json"),
    ("/v1/requests?limit=1000&failed=true", "failed-requests.json"),
    ("/v1/regions?limit=1000&consistency=stale", "regions.json"),
    ("/v1/limits?limit=1000&consistency=stale", "limits.json"),
    ("/v1/settings?limit=1000&consistency=stale", "settings.json"),
    ("/v1/routes?limit=1000&consistency=stale", "routes.json"),
    ("/v1/audit?limit=1000&consistency=stale", "audit.json"),
    ("/v1/trie?top=20&consistency=stale", "trie.json"),
    ("/replicas", "replicas.json"),
    ("/metrics", "metrics.txt"),
];
/// Bytes of a log's end that are taken.
const LOG_BYTES: u64 = 4 << 20;

#[derive(Debug, Args)]
#[command(after_help = "Example: spillway debug trouble --config /etc/spillway/spillway.toml\n\
    Example: journalctl -u spillway -n 20000 > spillway.log; spillway debug trouble --log-file spillway.log\n\n\
    Secrets of the config are masked, and there is no text of prompts or replies. Ids of tenants and \
    keys, addresses and names are included: review the folder before you share it.")]
pub(crate) struct DebugArgs {
    #[command(flatten)]
    connect: Connect,
    /// The folder to create.
    folder: PathBuf,
    /// The node's config file, to be included with its secrets masked.
    #[arg(long)]
    config: Option<PathBuf>,
    /// A file with the node's log, of which the last 4 MiB are included.
    #[arg(long)]
    log_file: Option<PathBuf>,
}

/// Makes the folder. Missing parts are listed in `missing.txt`.
///
/// # Errors
/// Returns an error if the folder can't be made, or is there already.
pub(crate) async fn run(args: &DebugArgs) -> Result<()> {
    let folder = &args.folder;
    fs::create_dir(folder).with_context(|| format!("{} can't be made", folder.display()))?;
    let client = AdminClient::new(&args.connect)?;
    let mut missing = Vec::new();
    let mut files = Vec::new();
    for (path, name) in ANSWERS {
        match client.silent_bytes(path).await {
            Ok(bytes) => {
                write(folder, name, &bytes)?;
                files.push(name.to_owned());
            }
            Err(error) => missing.push(format!("{name}: {error:#}")),
        }
    }
    let local = [
        ("config.toml", args.config.as_deref().map(config)),
        ("spillway.log", args.log_file.as_deref().map(end_of)),
    ];
    for (name, read) in local {
        match read {
            Some(Ok(text)) => {
                write(folder, name, &text)?;
                files.push(name.to_owned());
            }
            Some(Err(error)) => missing.push(format!("{name}: {error:#}")),
            None => missing.push(format!("{name}: not asked for")),
        }
    }
    write(folder, "missing.txt", missing.join("\n").as_bytes())?;
    if client.as_json {
        let answer = json!({ "folder": folder, "files": files, "missing": missing });
        return Ok(output::line(&answer.to_string())?);
    }
    output::line(&format!("{}: {} files", folder.display(), files.len()))?;
    for line in missing {
        output::line(&format!("  without {line}"))?;
    }
    Ok(())
}

fn config(path: &Path) -> Result<Vec<u8>> {
    let text = fs::read_to_string(path)?;
    Ok(spillway_config::shareable(&text).into_bytes())
}

/// Returns the end of a file.
fn end_of(path: &Path) -> Result<Vec<u8>> {
    let mut file = fs::File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_BYTES)))?;
    let mut end = Vec::new();
    file.take(LOG_BYTES).read_to_end(&mut end)?;
    Ok(end)
}

/// Writes a file that no other user may read.
fn write(folder: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let path = folder.join(name);
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(&path);
    let mut file = file.with_context(|| format!("{} can't be written", path.display()))?;
    Ok(file.write_all(bytes)?)
}
